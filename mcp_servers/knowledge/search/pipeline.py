"""Stage 1: which knowledge bases a question is put to, when it names none.

A base's summary vector is the mean of its vectors: where its documents lie. Bases that the words could not tell apart
are told apart by it, before any of them is opened. Up to ``OPENED`` bases are all searched; leaving one out could only
lose something there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread

from mcp_servers.knowledge.embedding import Embedder, Reranker, Vectors
from mcp_servers.knowledge.errors import EngineUnreachableError, KnowledgeProblem
from mcp_servers.knowledge.search.ranking import (
    FOUND_BY_EACH,
    Candidate,
    calibration_for,
    covered_shares,
    fuse,
    nearness,
    rarest,
    weights_of,
)
from mcp_servers.knowledge.search.trace import Trace
from mcp_servers.knowledge.search.vector_index import NOTHING_NEAR, Nearest, VectorMemory
from mcp_servers.knowledge.storage.bases import Filter, StoredBase, base_by_key, document_filter
from mcp_servers.knowledge.storage.database import Database
from mcp_servers.knowledge.storage.documents import Located, document_rows, locate
from mcp_servers.knowledge.storage.text_index import document_frequencies, profiles, ranked_chunks
from mcp_servers.knowledge.storage.vectors import embedding_by_key, total_of
from mcp_servers.knowledge.text_analysis import Analysis, analyse_query
from mcp_servers.knowledge.types import Access, Hit, Scores, SearchRequest

OPENED = 8


def nearest_bases(
    bases: Sequence[StoredBase], summaries: Mapping[int, Vectors], queries: Mapping[str, Vectors], most: int = OPENED
) -> list[StoredBase]:
    """The bases to search: those nearest to the question, and every one that has no summary vector to judge by.

    Args:
        bases: all that may be seen.
        summaries: by the base's row; absent where there are no vectors.
        queries: the question as each embedder sees it.
        most: how many of those with a summary are searched.
    """
    nearness: dict[int, float] = {}
    for base in bases:
        summary, query = summaries.get(base.key), queries.get(base.base.embedder)
        if summary is not None and query is not None and summary.shape == query.shape:
            nearness[base.key] = float(summary @ query)
    opened = set(sorted(nearness, key=lambda key: -nearness[key])[:most])
    return [base for base in bases if base.key in opened or base.key not in nearness]


@dataclass(frozen=True)
class Engines:
    """The models at hand.

    Args:
        embedders: by name; a base is searched with the one its vectors are of.
        reranker: None for no cross-encoder.
    """

    embedders: Mapping[str, Embedder]
    reranker: Reranker | None = None


class QueryVectors:
    """A question as a vector, made once for each embedder, when it is needed.

    Args:
        query: the question.
        embedders: by name.
    """

    def __init__(self, query: str, embedders: Mapping[str, Embedder]) -> None:
        self._query = query
        self._embedders = embedders
        self._made: dict[str, Vectors | str] = {}

    async def of(self, name: str) -> Vectors | str:
        """The question as this embedder sees it, or a sentence that says why there is no such vector."""
        if name not in self._made:
            self._made[name] = await self._make(name)
        return self._made[name]

    async def _make(self, name: str) -> Vectors | str:
        embedder = self._embedders.get(name)
        if embedder is None:
            return f"the search by vectors was left out: its vectors are of {name}, which is not configured"
        try:
            return await embedder.embed_query(self._query)
        except EngineUnreachableError as error:
            return f"the search by vectors was left out: {error.words}"


RERANKED = 100
CROSS_ENCODED = 10


@dataclass(frozen=True)
class _Question:
    """A question on its way through the stages."""

    request: SearchRequest
    access: Access
    analysis: Analysis
    visible: Filter
    vectors: QueryVectors
    trace: Trace


@dataclass(frozen=True)
class _ByWords:
    """What the words found, and in how many chunks each of them is."""

    found: list[tuple[int, float]]
    frequencies: Mapping[str, int]


@dataclass(frozen=True)
class _Ranked:
    """A chunk with the score it has so far."""

    base: StoredBase
    chunk: int
    score: float
    scores: Scores


class Pipeline:
    """The stages over one library.

    Args:
        database: what is searched.
        engines: the models.
    """

    def __init__(self, database: Database, engines: Engines) -> None:
        self._database = database
        self._engines = engines
        self._memory = VectorMemory()
        # Queries beside imports and beside each other; more threads would only wait for the processor.
        self._threads = anyio.CapacityLimiter(4)

    async def search(
        self, bases: Sequence[StoredBase], request: SearchRequest, access: Access, trace: Trace
    ) -> tuple[Hit, ...]:
        """The passages of some bases that answer a question best.

        Args:
            bases: those that the person may see and that were asked for.
            request: checked.
            access: who asks.
            trace: is told what every stage did.

        Raises:
            StorageError: the file cannot be read.
        """
        visible = document_filter(access, request.collection, request.fields)
        vectors = QueryVectors(request.query, self._engines.embedders)
        question = _Question(request, access, analyse_query(request.query), visible, vectors, trace)
        opened = await self._route(question, bases)
        await self._explain_filter(question, opened)
        ranked: list[_Ranked] = []
        for base in opened:
            ranked += await self._search_base(question, base)
        ranked.sort(key=lambda found: -found.score)
        return await self._finish(question, ranked[: max(request.max_results, CROSS_ENCODED)])

    async def _route(self, question: _Question, bases: Sequence[StoredBase]) -> Sequence[StoredBase]:
        """Stage 1."""
        given = f"{len(bases)} knowledge bases"
        if question.request.base_id is not None:
            question.trace.leave_out("base filter", given, "the question names its knowledge base")
            return bases
        if len(bases) <= OPENED:
            question.trace.leave_out("base filter", given, f"up to {OPENED} knowledge bases are all searched")
            return bases
        with question.trace.stage("base filter", given) as stage:
            queries: dict[str, Vectors] = {}
            for name in {base.base.embedder for base in bases} - {""}:
                vector = await question.vectors.of(name)
                if not isinstance(vector, str):
                    queries[name] = vector
            summaries = await anyio.to_thread.run_sync(self._summaries, bases, limiter=self._threads)
            opened = nearest_bases(bases, summaries, queries)
            if len(opened) < len(bases):
                stage.made = f"{len(opened)} knowledge bases nearest by their summary vectors"
            else:
                stage.left_out = "there are no summary vectors, so all knowledge bases are searched"
        return opened

    async def _explain_filter(self, question: _Question, bases: Sequence[StoredBase]) -> None:
        """Stage 2, which runs inside the queries of stage 3; here it is only counted, where somebody wants to know."""
        given = _who(question.access) + _limits(question.request)
        if question.visible.passes_everything:
            question.trace.leave_out("metadata filter", given, "nothing limits the documents")
        elif question.trace.is_wanted:
            with question.trace.stage("metadata filter", given) as stage:
                rows = [
                    len(await anyio.to_thread.run_sync(self._visible_documents, base, question, limiter=self._threads))
                    for base in bases
                ]
                stage.made = f"{sum(rows)} documents"

    async def _search_base(self, question: _Question, base: StoredBase) -> list[_Ranked]:
        """Stages 3 to 5 in one base."""
        words = _ByWords([], {})
        nearest = NOTHING_NEAR
        problem: KnowledgeProblem | None = None

        async def by_words() -> None:
            nonlocal words, problem
            try:
                words = await anyio.to_thread.run_sync(self._sparse, question, base, limiter=self._threads)
            except KnowledgeProblem as error:
                # Raised here it would end the other search, and arrive in a group.
                problem = error

        async with anyio.create_task_group() as both:
            both.start_soon(by_words)
            try:
                nearest = await self._dense(question, base)
            except KnowledgeProblem as error:
                problem = error
        if problem:
            raise problem
        with question.trace.stage("fusion", f"{len(words.found)} by words, {len(nearest.chunks)} by vectors") as stage:
            candidates = fuse(words.found, nearest.chunks)
            stage.made = f"{len(candidates)} candidates"
        with question.trace.stage("bm25", f"{len(candidates)} candidates") as stage:
            ranked = await anyio.to_thread.run_sync(
                self._rerank, question, base, candidates, words.frequencies, nearest, limiter=self._threads
            )
            stage.made = f"{len(ranked)} chunks{_best([(r.chunk, r.scores.bm25 or 0) for r in ranked])}"
        return ranked

    async def _dense(self, question: _Question, base: StoredBase) -> Nearest:
        """Stage 3, by vectors."""
        given = f"the question as a vector, {_size(base)}"
        if not base.base.embedder:
            question.trace.leave_out("dense", given, "this knowledge base has no vectors")
            return NOTHING_NEAR
        vector = await question.vectors.of(base.base.embedder)
        if isinstance(vector, str):
            question.trace.leave_out("dense", given, vector, is_problem=True)
            return NOTHING_NEAR
        with question.trace.stage("dense", given) as stage:
            nearest = await anyio.to_thread.run_sync(self._nearest, question, base, vector, limiter=self._threads)
            stage.made = f"{len(nearest.chunks)} chunks{_best(nearest.chunks)}"
        return nearest

    async def _finish(self, question: _Question, ranked: list[_Ranked]) -> tuple[Hit, ...]:
        """Stage 6, and what reaches the threshold."""
        places = await anyio.to_thread.run_sync(self._locate, question, ranked, limiter=self._threads)
        ranked = [found for found in ranked if found.chunk in places]
        ranked = await self._cross_encode(question, ranked, places)
        request = question.request
        with question.trace.stage("score", f"{len(ranked)} chunks, threshold {request.threshold:g}") as stage:
            kept = [found for found in ranked if found.score >= request.threshold][: request.max_results]
            stage.made = f"{len(kept)} results{_best([(k.chunk, k.score) for k in kept])}"
        return tuple(_hit(found, places[found.chunk]) for found in kept)

    async def _cross_encode(
        self, question: _Question, ranked: list[_Ranked], places: dict[int, Located]
    ) -> list[_Ranked]:
        head, tail = ranked[:CROSS_ENCODED], ranked[CROSS_ENCODED:]
        given, reranker = f"{len(head)} chunks", self._engines.reranker
        if reranker is None or not head:
            why = "there is nothing to rank" if reranker else "no cross-encoder is configured"
            question.trace.leave_out("cross-encoder", given, why)
            return ranked
        passages = ["\n".join([places[found.chunk].title, places[found.chunk].text]) for found in head]
        with question.trace.stage("cross-encoder", given) as stage:
            try:
                scores = await reranker.relevance(question.request.query, passages)
            except EngineUnreachableError as error:
                stage.left_out = f"the cross-encoder was left out: {error.words}"
                question.trace.problems.append(stage.left_out)
                return ranked
            head = [
                replace(found, score=score, scores=replace(found.scores, cross_encoder=score))
                for found, score in zip(head, scores, strict=True)
            ]
            head.sort(key=lambda found: -found.score)
            stage.made = f"{len(head)} chunks{_best([(h.chunk, h.score) for h in head])}"
        # What the cross-encoder did not read is not put above what it did.
        return [*head, *(replace(found, score=min(found.score, head[-1].score)) for found in tail)]

    # --- in threads, each in a transaction of its own -----------------------------------------------------------------

    def _summaries(self, bases: Sequence[StoredBase]) -> dict[int, Vectors]:
        with self._database.reading() as connection:
            totals = {
                base.key: total_of(embedding_by_key(connection, base.embedding))
                for base in bases
                if base.embedding is not None
            }
        return {key: total for key, total in totals.items() if total is not None}

    def _visible_documents(self, base: StoredBase, question: _Question) -> list[int]:
        with self._database.reading() as connection:
            return document_rows(connection, base.key, question.visible)

    def _sparse(self, question: _Question, base: StoredBase) -> _ByWords:
        terms = list(dict.fromkeys(question.analysis.terms))
        with (
            question.trace.stage("sparse", f"{len(terms)} terms, {_size(base)}") as stage,
            self._database.reading() as connection,
        ):
            frequencies = document_frequencies(connection, base.key, terms)
            chosen = rarest(frequencies)
            found = ranked_chunks(connection, base.key, chosen, question.visible, FOUND_BY_EACH)
            fewer = f" by the {len(chosen)} rarest" if len(chosen) < len(terms) else ""
            stage.made = f"{len(found)} chunks{fewer}{_best(found)}"
        return _ByWords(found, frequencies)

    def _nearest(self, question: _Question, base: StoredBase, vector: Vectors) -> Nearest:
        with self._database.reading() as connection:
            now = base_by_key(connection, base.key)
            if now.embedding is None or now.embedding != base.embedding:
                # The embedder was changed while the question was on its way.
                return NOTHING_NEAR
            embedding = embedding_by_key(connection, now.embedding)
            if embedding.dimensions != vector.size:
                return NOTHING_NEAR
            visible = question.visible
            documents = None if visible.passes_everything else document_rows(connection, base.key, visible)
            return self._memory.nearest(connection, base.key, embedding, vector, documents, FOUND_BY_EACH)

    def _rerank(
        self,
        question: _Question,
        base: StoredBase,
        candidates: list[Candidate],
        frequencies: Mapping[str, int],
        nearest: Nearest,
    ) -> list[_Ranked]:
        by_chunk = {candidate.chunk: candidate for candidate in candidates}
        with self._database.reading() as connection:
            numbers = base_by_key(connection, base.key)
            known = profiles(connection, list(by_chunk))
        weights = weights_of(question.analysis, frequencies, numbers.chunks)
        shares = covered_shares(weights, known, numbers.terms / max(numbers.chunks, 1))
        cosines = nearest.cosines_of(list(by_chunk))
        # While vectors are still being made, their lack must not push a chunk down.
        is_complete = bool(cosines) and len(cosines) == len(by_chunk)
        calibration = calibration_for(base.base.embedder if is_complete else "")
        ranked: list[_Ranked] = []
        for profile, share in zip(known, shares.tolist(), strict=True):
            candidate = by_chunk[profile.chunk]
            near = nearness(cosines[profile.chunk], nearest.background) if is_complete else 0.0
            scores = Scores(candidate.sparse, cosines.get(profile.chunk), candidate.rrf, share)
            score = calibration.score(calibration.figure(share, near))
            ranked.append(_Ranked(numbers, profile.chunk, score, scores))
        ranked.sort(key=lambda found: (-found.score, found.chunk))
        return ranked[:RERANKED]

    def _locate(self, question: _Question, ranked: list[_Ranked]) -> dict[int, Located]:
        with self._database.reading() as connection:
            return locate(connection, [found.chunk for found in ranked], question.access)


def _hit(found: _Ranked, place: Located) -> Hit:
    return Hit(
        content=place.text,
        score=found.score,
        # A chunk's id need not be kept: document, version and position make it.
        chunk_id=str(uuid.uuid5(uuid.UUID(place.document_id), f"{place.version}/{place.position}")),
        chunk_index=place.position,
        document_id=place.document_id,
        collection_id=place.collection_id,
        base_id=found.base.base.id,
        title=place.title,
        uri=place.uri,
        headings=place.headings,
        page=place.page,
        scores=found.scores,
    )


def _size(base: StoredBase) -> str:
    return f"{base.chunks} chunks of {base.base.name}"


def _best(scored: Sequence[tuple[int, float]]) -> str:
    return f", best {scored[0][1]:.3g}" if scored else ""


def _who(access: Access) -> str:
    if access.is_everyone:
        return "no limits"
    return f"tenant {access.tenant!r}, department {access.department!r}, clearance {access.clearance}"


def _limits(request: SearchRequest) -> str:
    collection = f", collection {request.collection!r}" if request.collection is not None else ""
    return collection + "".join(f", {name} = {value!r}" for name, value in request.fields.items())
