"""Search pipeline: query and access -> hits, best first, with the scores of all stages.

Each base is searched separately, with its own term frequencies and embedder; the calibrated scores are merged. A stage
whose model is missing or fails is skipped with a warning, because BM25 alone finds most answers.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread
import numpy as np

from mcp_servers.knowledge.embedding import Embedder, Reranker, Vectors
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.embedding.models import known_model
from mcp_servers.knowledge.errors import EngineUnreachableError, KnowledgeError
from mcp_servers.knowledge.search import ranking
from mcp_servers.knowledge.search.probability import NO_ANSWER, PassageFigures, is_unanswered, probability
from mcp_servers.knowledge.search.question import MAX_PREVIOUS, FollowUp, UnderstoodQuery, is_follow_up, understand
from mcp_servers.knowledge.search.ranking import CANDIDATES_PER_SEARCH
from mcp_servers.knowledge.search.vector_index import NO_NEIGHBOURS, NearestChunks, VectorIndex
from mcp_servers.knowledge.storage.bases import SqlFilter, StoredBase, base_by_key, document_filter
from mcp_servers.knowledge.storage.documents import ChunkLocation, locate, visible_document_keys
from mcp_servers.knowledge.storage.stores import Database, Transaction
from mcp_servers.knowledge.storage.text_index import Profile, TermStatistics, heading_profiles, visible_chunks
from mcp_servers.knowledge.storage.vectors import embedding_by_key, exact_cosines, mean_direction
from mcp_servers.knowledge.types import Access, ExplainedStage, Hit, Scores, SearchRequest, StageName


@dataclass
class Trace:
    """The stages of one search and the warnings about skipped stages."""

    is_enabled: bool = False  # an explanation is requested: stages may do extra work
    stages: list[ExplainedStage] = field(default_factory=list[ExplainedStage])  # in the order they ended
    problems: list[str] = field(default_factory=list[str])  # warnings, without repetitions

    @contextmanager
    def stage(self, name: StageName, given: str) -> Generator[ExplainedStage, None, None]:
        """Record a stage when the block ends."""
        stage, start = ExplainedStage(name, given), time.perf_counter()
        yield stage
        stage.seconds = time.perf_counter() - start
        self.stages.append(stage)

    def skip(self, name: StageName, given: str, why: str, *, is_problem: bool = False) -> None:
        """Record a stage that did not run; with ``is_problem`` also as a warning."""
        self.stages.append(ExplainedStage(name, given, left_out=why))
        if is_problem and why not in self.problems:
            self.problems.append(why)


MAX_ROUTED_BASES = 8


def select_bases(
    bases: Sequence[StoredBase],
    summaries: Mapping[int, Vectors],
    queries: Mapping[str, Vectors],
    maximum: int = MAX_ROUTED_BASES,
) -> list[StoredBase]:
    """Return the bases to search: those nearest by summary vector, and those without one.

    The summary vector of a base is the mean of its vectors. ``summaries`` is by base key, ``queries`` by embedder.
    """
    similarity: dict[int, float] = {}
    for base in bases:
        summary, query = summaries.get(base.key), queries.get(base.base.embedder)
        if summary is not None and query is not None and summary.shape == query.shape:
            similarity[base.key] = float(summary @ query)
    routed = set(sorted(similarity, key=lambda key: -similarity[key])[:maximum])
    return [base for base in bases if base.key in routed or base.key not in similarity]


@dataclass(frozen=True)
class QueryVectors:
    """Vectors of one query, made once per embedder and on demand."""

    query: str
    embedders: Mapping[str, Embedder]
    vectors: dict[str, Vectors | str] = field(default_factory=dict[str, "Vectors | str"])

    async def of(self, name: str) -> Vectors | str:
        """Return the vector of an embedder, or a sentence explaining its absence."""
        if name not in self.vectors:
            embedder, left_out = self.embedders.get(name), "the search by vectors was left out:"
            if embedder is None:
                self.vectors[name] = f"{left_out} its vectors are of {name}, which is not configured"
            else:
                try:
                    self.vectors[name] = (await embedder.embed([self.query], are_queries=True))[0]
                except EngineUnreachableError as error:
                    self.vectors[name] = f"{left_out} {error.words}"
        return self.vectors[name]


CROSS_ENCODED = 10
# Results that are less probable than this are marked weak. Without a threshold the best three are results in any case.
WEAK, LEAST_RESULTS = 0.5, 3
_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True)
class _Query:
    request: SearchRequest
    access: Access
    understood: UnderstoodQuery
    continued: FollowUp | None  # the question and the one before by themselves
    visible: SqlFilter
    vectors: QueryVectors
    trace: Trace


@dataclass(frozen=True)
class _SparseResult:
    """Chunks found by terms, best first, and the weights of the query in this base."""

    found: dict[int, float]
    weights: ranking.QueryWeights


@dataclass(frozen=True)
class _ScoredChunk:
    base: StoredBase
    chunk: int
    score: float
    scores: Scores
    figures: tuple[float, ...]
    is_unanswered: bool


class Pipeline:
    """The stages over one database; a base uses the embedder of its vectors."""

    def __init__(self, database: Database, embedders: Mapping[str, Embedder], reranker: Reranker | None) -> None:
        self._database = database
        self._embedders = embedders
        self._reranker = reranker
        self._index = VectorIndex()
        self._terms = TermStatistics()
        # More threads would only compete for the processor.
        self._threads = anyio.CapacityLimiter(4)

    async def search(
        self, bases: Sequence[StoredBase], request: SearchRequest, access: Access, trace: Trace
    ) -> tuple[Hit, ...]:
        """Return the hits of a checked request in ``bases``, all visible to the caller.

        A question that may continue the one before is searched together with it and alone, and the results whose first
        one is more likely are taken.
        """
        if not (request.previous and is_follow_up(request.query)):
            return await self._search(bases, request, access, trace, None)
        # Of a long question before, only the beginning counts.
        previous = request.previous[:MAX_PREVIOUS]
        joined = f"{previous}\n{request.query}"
        continued = FollowUp(joined, understand(request.query), understand(previous))
        tries: list[tuple[tuple[Hit, ...], Trace]] = []
        for query, context in ((continued.joined, continued), (request.query, None)):
            attempt = Trace(trace.is_enabled)
            tries.append((await self._search(bases, replace(request, query=query), access, attempt, context), attempt))
        hits, taken_trace = max(tries, key=lambda attempted: attempted[0][0].score if attempted[0] else -1.0)
        trace.stages += taken_trace.stages
        trace.problems += taken_trace.problems
        return hits

    async def _search(
        self,
        bases: Sequence[StoredBase],
        request: SearchRequest,
        access: Access,
        trace: Trace,
        continued: FollowUp | None,
    ) -> tuple[Hit, ...]:
        visible = document_filter(access, request.collection, request.fields)
        vectors = QueryVectors(request.query, self._embedders)
        query = _Query(request, access, understand(request.query), continued, visible, vectors, trace)
        routed = await self._route(query, bases)
        # Stage 2 runs inside the queries of stage 3; its documents are counted for explanations.
        if access.is_unrestricted:
            input_text = "no limits"
        else:
            input_text = f"tenant {access.tenant!r}, department {access.department!r}, clearance {access.clearance}"
        input_text += f", collection {request.collection!r}" if request.collection is not None else ""
        input_text += "".join(f", {name} = {value!r}" for name, value in request.fields.items())
        if not visible.sql:
            trace.skip("metadata filter", input_text, "nothing limits the documents")
        elif trace.is_enabled:
            with trace.stage("metadata filter", input_text) as stage:
                count = 0
                for base in routed:
                    arguments = (visible_document_keys, base.key, visible)
                    count += len(await anyio.to_thread.run_sync(self._database.read, *arguments, limiter=self._threads))
                stage.made = f"{count} documents"
        ranked: list[_ScoredChunk] = []
        for base in routed:
            ranked += await self._search_base(query, base)
        ranked.sort(key=lambda scored: -scored.score)
        return await self._finish(query, ranked[: max(request.max_results, CROSS_ENCODED)])

    async def _route(self, query: _Query, bases: Sequence[StoredBase]) -> Sequence[StoredBase]:
        """Stage 1: choose knowledge bases."""
        input_text = f"{len(bases)} knowledge bases"
        if query.request.base_id is not None:
            query.trace.skip("base filter", input_text, "the question names its knowledge base")
            return bases
        if len(bases) <= MAX_ROUTED_BASES:
            query.trace.skip("base filter", input_text, f"up to {MAX_ROUTED_BASES} knowledge bases are all searched")
            return bases
        with query.trace.stage("base filter", input_text) as stage:
            queries: dict[str, Vectors] = {}
            for name in {base.base.embedder for base in bases} - {""}:
                vector = await query.vectors.of(name)
                if not isinstance(vector, str):
                    queries[name] = vector
            summaries = await anyio.to_thread.run_sync(self._summaries, bases, limiter=self._threads)
            routed = select_bases(bases, summaries, queries)
            if len(routed) < len(bases):
                stage.made = f"{len(routed)} knowledge bases nearest by their summary vectors"
            else:
                stage.left_out = "there are no summary vectors, so all knowledge bases are searched"
        return routed

    async def _search_base(self, query: _Query, base: StoredBase) -> list[_ScoredChunk]:
        """Stages 3 to 5 in one base."""
        if not base.base.embedder:
            await self._dense(query, base)
            arguments = (self._rerank, query, base, None, NO_NEIGHBOURS)
            return await anyio.to_thread.run_sync(self._database.read, *arguments, limiter=self._threads)
        words: _SparseResult | None = None
        nearest = NO_NEIGHBOURS
        problem: KnowledgeError | None = None

        async def sparse_search() -> None:
            nonlocal words, problem
            arguments = (self._sparse, query, base)
            try:
                words = await anyio.to_thread.run_sync(self._database.read, *arguments, limiter=self._threads)
            except KnowledgeError as error:
                # Raising here would cancel the other search and arrive in an exception group.
                problem = error

        async with anyio.create_task_group() as searches:
            searches.start_soon(sparse_search)
            try:
                nearest = await self._dense(query, base)
            except KnowledgeError as error:
                problem = error
        if problem or words is None:
            raise problem or AssertionError
        arguments = (self._rerank, query, base, words, nearest)
        return await anyio.to_thread.run_sync(self._database.read, *arguments, limiter=self._threads)

    async def _dense(self, query: _Query, base: StoredBase) -> NearestChunks:
        """Stage 3, vectors."""
        input_text = f"the question as a vector, {base.chunks} chunks of {base.base.name}"
        if not base.base.embedder:
            query.trace.skip("dense", input_text, "this knowledge base has no vectors")
            return NO_NEIGHBOURS
        vector = await query.vectors.of(base.base.embedder)
        if isinstance(vector, str):
            query.trace.skip("dense", input_text, vector, is_problem=True)
            return NO_NEIGHBOURS
        with query.trace.stage("dense", input_text) as stage:
            nearest = await anyio.to_thread.run_sync(self._nearest, query, base, vector, limiter=self._threads)
            stage.made = f"{len(nearest.chunks)} chunks{_best_text(nearest.chunks)}"
        return nearest

    async def _finish(self, query: _Query, ranked: list[_ScoredChunk]) -> tuple[Hit, ...]:
        """Stage 6, then the threshold."""
        arguments = (locate, [scored.chunk for scored in ranked], query.access)
        locations = await anyio.to_thread.run_sync(self._database.read, *arguments, limiter=self._threads)
        ranked = [scored for scored in ranked if scored.chunk in locations]
        ranked = await self._cross_encode(query, ranked, locations)
        request = query.request
        with query.trace.stage("score", f"{len(ranked)} chunks, threshold {request.minimum:g}") as stage:
            best = [scored for scored in ranked if scored.score >= request.minimum]
            if request.threshold is None:
                best = max(best, ranked[:LEAST_RESULTS], key=len)
            best = best[: request.max_results]
            stage.made = f"{len(best)} results{_best_text([(k.chunk, k.score) for k in best])}"
        hits: list[Hit] = []
        for scored in best:
            location = locations[scored.chunk]
            name = f"{location.version}/{location.position}"
            hits.append(
                Hit(
                    content=location.text,
                    score=scored.score,
                    is_weak=scored.score < WEAK,
                    is_unanswered=scored.is_unanswered,
                    # Derived from document, version and position, so it is not stored.
                    chunk_id=str(uuid.uuid5(uuid.UUID(location.document_id), name)),
                    chunk_index=location.position,
                    document_id=location.document_id,
                    collection_id=location.collection_id,
                    base_id=scored.base.base.id,
                    title=location.title,
                    uri=location.uri,
                    headings=location.headings,
                    page=location.page,
                    scores=scored.scores,
                    figures=scored.figures,
                )
            )
        return tuple(hits)

    async def _cross_encode(
        self, query: _Query, ranked: list[_ScoredChunk], locations: dict[int, ChunkLocation]
    ) -> list[_ScoredChunk]:
        head, tail = ranked[:CROSS_ENCODED], ranked[CROSS_ENCODED:]
        input_text, reranker = f"{len(head)} chunks", self._reranker
        if reranker is None or not head:
            why = "there is nothing to rank" if reranker else "no cross-encoder is configured"
            query.trace.skip("cross-encoder", input_text, why)
            return ranked
        passages = ["\n".join([locations[scored.chunk].title, locations[scored.chunk].text]) for scored in head]
        with query.trace.stage("cross-encoder", input_text) as stage:
            try:
                scores = await reranker.relevance(query.request.query, passages)
            except EngineUnreachableError as error:
                stage.left_out = f"the cross-encoder was left out: {error.words}"
                query.trace.problems.append(stage.left_out)
                return ranked
            head = [
                replace(
                    scored,
                    score=score,
                    scores=replace(scored.scores, cross_encoder=score),
                    is_unanswered=score < NO_ANSWER,
                )
                for scored, score in zip(head, scores, strict=True)
            ]
            head.sort(key=lambda scored: -scored.score)
            stage.made = f"{len(head)} chunks{_best_text([(h.chunk, h.score) for h in head])}"
        # Chunks it has not scored rank below those it has.
        return [*head, *(replace(scored, score=min(scored.score, head[-1].score)) for scored in tail)]

    # --- in threads, each in one transaction --------------------------------------------------------------------------

    def _summaries(self, bases: Sequence[StoredBase]) -> dict[int, Vectors]:
        with self._database.reading() as connection:
            totals = {
                base.key: mean_direction(embedding_by_key(connection, base.embedding))
                for base in bases
                if base.embedding is not None
            }
        return {key: total for key, total in totals.items() if total is not None}

    def _sparse(self, connection: Transaction, query: _Query, base: StoredBase) -> _SparseResult:
        understood = query.understood
        terms = list(dict.fromkeys(understood.analysis.terms))
        with query.trace.stage("sparse", f"{len(terms)} terms, {base.chunks} chunks of {base.base.name}") as stage:
            now, keys = base_by_key(connection, base.key), ranking.term_keys(understood)
            frequencies, weights = self._weights(connection, understood, now)
            chosen = ranking.select_terms({term: frequencies[term] for term in terms})
            other_terms = ranking.select_terms(
                {term: frequencies[term] for term in keys if term not in terms}, minimum=0
            )
            postings = self._terms.postings(connection, now, [*chosen, *other_terms])
            lists = {keys[term]: chunk_keys for term, chunk_keys in postings.items()}
            maximum = 0 if query.visible.sql else CANDIDATES_PER_SEARCH
            chunks, sums = ranking.select_chunks(weights, lists, maximum)
            best = visible_chunks(connection, chunks, query.visible, CANDIDATES_PER_SEARCH)
            sums_by_chunk = dict(zip(chunks[best].tolist(), sums[best].tolist(), strict=True))
            is_fewer = len(chosen) < sum(frequencies[term] > 0 for term in terms)
            fewer = f" by the {len(chosen)} rarest" if is_fewer else ""
            stage.made = f"{len(sums_by_chunk)} chunks{fewer}{_best_text(list(sums_by_chunk.items()))}"
        return _SparseResult(sums_by_chunk, weights)

    def _weights(
        self, connection: Transaction, understood: UnderstoodQuery, base: StoredBase
    ) -> tuple[dict[str, int], ranking.QueryWeights]:
        """Return how many chunks of a base have each term of a question and of its alternatives, and the weights."""
        terms = dict.fromkeys([*understood.analysis.terms, *ranking.term_keys(understood)])
        frequencies = self._terms.frequencies(connection, base, list(terms))
        return frequencies, ranking.query_weights(understood, frequencies, base.chunks)

    def _follow_up_gains(
        self,
        connection: Transaction,
        continued: FollowUp,
        base: StoredBase,
        profiles: Sequence[Profile],
        shares: ranking.Figures,
    ) -> ranking.Figures:
        """Return what chunks gain in the ranking of a question that continues the one before."""
        _, question = self._weights(connection, continued.question, base)
        _, previous = self._weights(connection, continued.previous, base)
        counts = ranking.term_counts(previous, profiles)
        of_previous = ranking.bm25_shares(previous, profiles, counts, base.terms / max(base.chunks, 1))
        gains = ranking.place_gains(of_previous, profiles)
        order = np.argsort(-(shares + gains), kind="stable")
        best: list[int] = order[: ranking.FOLLOW_UP_HEADINGS].tolist()
        headings = heading_profiles(connection, [profiles[at].chunk for at in best])
        gains[best] += ranking.heading_gains(question, of_previous[best], list(headings.values()))
        return gains

    def _nearest(self, query: _Query, base: StoredBase, vector: Vectors) -> NearestChunks:
        with self._database.reading() as connection:
            now = base_by_key(connection, base.key)
            if now.embedding is None or now.embedding != base.embedding:
                # The active vectors changed during this search.
                return NO_NEIGHBOURS
            embedding = embedding_by_key(connection, now.embedding)
            if embedding.dimensions != vector.size:
                return NO_NEIGHBOURS
            visible = query.visible
            documents = visible_document_keys(connection, base.key, visible) if visible.sql else None
            return self._index.nearest(connection, base.key, embedding, vector, documents, CANDIDATES_PER_SEARCH)

    def _rerank(
        self,
        connection: Transaction,
        query: _Query,
        base: StoredBase,
        words: _SparseResult | None,
        nearest: NearestChunks,
    ) -> list[_ScoredChunk]:
        """Stages 4 and 5; without ``words`` the search by words comes first, in the same transaction."""
        words = words or self._sparse(connection, query, base)
        with query.trace.stage("fusion", f"{len(words.found)} by words, {len(nearest.chunks)} by vectors") as stage:
            candidates = ranking.fuse(list(words.found), [chunk for chunk, _ in nearest.chunks])
            stage.made = f"{len(candidates)} candidates"
        with query.trace.stage("bm25", f"{len(candidates)} candidates") as stage:
            now, weights = base_by_key(connection, base.key), words.weights
            profiles = self._terms.profiles(connection, now, candidates)
            chunks = [profile.chunk for profile in profiles]
            cosines = exact_cosines(connection, nearest.embedding, nearest.query, chunks) if nearest.chunks else {}
            counts = ranking.term_counts(weights, profiles)
            shares = ranking.bm25_shares(weights, profiles, counts, now.terms / max(now.chunks, 1))
            ranks = shares
            if query.continued:
                ranks = shares + self._follow_up_gains(connection, query.continued, now, profiles, shares)
            # Hashing uses the same terms, so it only adds candidates. Chunks without a vector yet must not lose rank.
            is_counted = bool(cosines) and len(cosines) == len(profiles) and base.base.embedder != HashingEmbedder.name
            deviations = None
            if is_counted:
                near = np.array([cosines[chunk] for chunk in chunks])
                deviations = (near - nearest.background) / max(nearest.deviation, _LEAST_DEVIATION)
            order = ranking.fused_order(ranks, deviations, known_model(base.base.embedder).words)
            needed = max(query.request.max_results, CROSS_ENCODED)
            best: list[int] = np.lexsort((np.array(chunks, np.int64), -order))[:needed].tolist()
            best_counts = counts.take(np.array(best, np.intp), axis=1)
            in_words = ranking.word_shares(weights, best_counts)
            rivals = ranking.rivals(ranks, profiles)
            ranked: list[_ScoredChunk] = []
            least, size = 1.0, math.log(max(now.chunks, 1))
            for row, at in enumerate(best):
                chunk, share = chunks[at], float(shares[at])
                figures = PassageFigures(share, size, rivals, float(in_words[row]), weights.terms)
                if deviations is not None:
                    deviations_behind = float(deviations.max() - deviations[at])
                    figures = replace(figures, deviation=float(deviations[at]), behind=deviations_behind)
                stages = Scores(words.found.get(chunk), cosines.get(chunk), candidates[chunk], share)
                # No score is above that of a better rank.
                least = min(least, probability(figures, base.base.embedder))
                is_beyond = least < WEAK and is_unanswered(figures, least)
                ranked.append(_ScoredChunk(now, chunk, least, stages, figures.values, is_beyond))
            stage.made = f"{len(ranked)} chunks{_best_text([(r.chunk, r.scores.bm25 or 0) for r in ranked])}"
        return ranked


def _best_text(scored: Sequence[tuple[int, float]]) -> str:
    return f", best {scored[0][1]:.3g}" if scored else ""
