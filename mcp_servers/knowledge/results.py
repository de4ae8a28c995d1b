"""What the tools answer: the shapes of their results, as values and as text for who reads only text.

``search_documents``, ``get_knowledge_base_summary`` and ``normalize_ocr_text`` have exactly the keys that were
promised, and some beside them: where a passage stands, so that an answer can cite it, and what was left out. An answer
that is also a problem (nothing found) says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, Field

from mcp_servers.knowledge.errors import KnowledgeError, NoCollectionsError, NoDocumentsError, NothingFoundError
from mcp_servers.knowledge.importing.folders import Outcome
from mcp_servers.knowledge.ocr.normalize import NormalizedText
from mcp_servers.knowledge.types import Document, Hit, KnowledgeBase, SearchResult, Summary

# Enough to tell two scores apart; a small model pays for every digit.
_DIGITS = 4
_SECONDS = 4


class ToolOutput(BaseModel):
    """What a tool answers."""

    # Keys that are left out while they hold nothing.
    optional: ClassVar[frozenset[str]] = frozenset()

    def structured(self) -> dict[str, Any]:
        """The answer as JSON has it."""
        whole = self.model_dump(mode="json")
        return {key: value for key, value in whole.items() if key not in self.optional or value}

    def problem(self) -> KnowledgeError | None:
        """What is wrong, where the answer is also a problem."""
        return None

    def sources(self) -> str:
        """A line with the sources, for who is to name them; empty where there are none."""
        return ""

    def passages(self) -> str:
        """The answer as prose; empty where it has none."""
        return ""


class HitMetadata(BaseModel):
    """Where a passage stands and what each stage made of it; null for a stage that did not see it."""

    chunk_id: str
    document_id: str
    chunk_index: int
    collection_id: str
    sparse_score: float | None
    dense_score: float | None
    rrf_score: float | None
    bm25_score: float | None
    cross_encoder_score: float | None
    title: str
    headings: list[str]
    page: int | None
    uri: str
    citation: Annotated[str, Field(description="To put behind what is taken from the passage")]


class FoundPassage(BaseModel):
    """One passage."""

    content: str
    score: float
    metadata: HitMetadata


class ExplainedStep(BaseModel):
    """One stage of a search."""

    stage: str
    given: str
    made: str
    left_out: str
    seconds: float


class SearchOutput(ToolOutput):
    """The passages that answer a question best."""

    optional: ClassVar[frozenset[str]] = frozenset({"warnings", "stages"})

    query: str
    knowledge_base_id: str
    threshold: float
    results: list[FoundPassage]
    count: int
    warnings: list[str] = []
    stages: list[ExplainedStep] = []

    def problem(self) -> KnowledgeError | None:
        """Nothing was found."""
        return None if self.results else NothingFoundError(self.threshold)

    def sources(self) -> str:
        """Each passage's citation."""
        return f"Sources: {' '.join(found.metadata.citation for found in self.results)}" if self.results else ""

    def passages(self) -> str:
        """Each passage behind the citation that belongs to it."""
        return "\n\n".join(
            f"[{number}] {found.metadata.citation}\n{found.content}" for number, found in enumerate(self.results, 1)
        )


class Statistics(BaseModel):
    """How much there is."""

    total_documents: int
    total_collections: int
    total_chunks: int


class SummaryOutput(ToolOutput):
    """A knowledge base in words and numbers."""

    optional: ClassVar[frozenset[str]] = frozenset({"warning"})

    knowledge_base_id: str
    summary: str
    statistics: Statistics
    generated_at: str
    warning: str = ""

    def problem(self) -> KnowledgeError | None:
        """There is no collection. That there is no document is a warning."""
        return None if self.statistics.total_collections else NoCollectionsError(self.knowledge_base_id)


class NormalizedOutput(ToolOutput):
    """A text as a scanner read it, and corrected."""

    original_text: str
    normalized_text: str
    status: str


class BaseEntry(BaseModel):
    """A knowledge base."""

    knowledge_base_id: str
    name: str
    description: str
    total_documents: int
    total_chunks: int
    embedder: str
    created: str


class DocumentEntry(BaseModel):
    """A document."""

    document_id: str
    title: str
    uri: str
    collection: str
    version: int
    chunks: int
    created: str


class BasesOutput(ToolOutput):
    """The knowledge bases there are."""

    optional: ClassVar[frozenset[str]] = frozenset({"documents"})

    knowledge_bases: list[BaseEntry]
    documents: list[DocumentEntry] = []


class CreatedOutput(ToolOutput):
    """A new knowledge base."""

    knowledge_base_id: str
    name: str
    description: str


class AddedDocument(BaseModel):
    """What became of one document."""

    document_id: str
    title: str
    uri: str
    version: int
    chunks: int
    is_new: bool


class FileOutcome(BaseModel):
    """What became of one file of a folder that was not simply imported."""

    path: str
    outcome: Outcome
    reason: str


class AddedOutput(ToolOutput):
    """What was added."""

    optional: ClassVar[frozenset[str]] = frozenset({"files", "unchanged", "warnings"})

    knowledge_base_id: str
    documents: list[AddedDocument]
    count: int
    unchanged: int = 0
    files: list[FileOutcome] = []
    warnings: list[str] = []


class RemovedOutput(ToolOutput):
    """What was removed."""

    removed: str
    title: str
    knowledge_base_id: str


class ReindexOutput(ToolOutput):
    """How far an index is."""

    optional: ClassVar[frozenset[str]] = frozenset({"problem_found"})

    knowledge_base_id: str
    chunks: int
    embedder: str
    becoming: str
    done: int
    problem_found: str = ""


def search_output(result: SearchResult, base_id: str) -> SearchOutput:
    """A search's result."""
    return SearchOutput(
        query=result.request.query,
        knowledge_base_id=base_id,
        threshold=result.request.threshold,
        results=[_passage(hit) for hit in result.hits],
        count=len(result.hits),
        warnings=list(result.left_out),
        stages=[
            ExplainedStep(
                stage=step.stage,
                given=step.given,
                made=step.made,
                left_out=step.left_out,
                seconds=round(step.seconds, _SECONDS),
            )
            for step in result.explained
        ],
    )


def summary_output(summary: Summary) -> SummaryOutput:
    """A knowledge base's summary; having no documents is said beside it."""
    is_empty = summary.total_collections and not summary.total_documents
    warning = str(NoDocumentsError(summary.base_id)) if is_empty else ""
    return SummaryOutput(
        knowledge_base_id=summary.base_id,
        summary=summary.summary,
        statistics=Statistics(
            total_documents=summary.total_documents,
            total_collections=summary.total_collections,
            total_chunks=summary.total_chunks,
        ),
        generated_at=summary.generated_at.replace("+00:00", "Z"),
        warning=warning,
    )


def normalized_output(normalized: NormalizedText) -> NormalizedOutput:
    """A corrected text."""
    return NormalizedOutput(
        original_text=normalized.original_text,
        normalized_text=normalized.normalized_text,
        status=normalized.status,
    )


def bases_output(bases: Iterable[tuple[KnowledgeBase, Summary]], documents: Iterable[Document]) -> BasesOutput:
    """Knowledge bases with their numbers, and the documents of one of them."""
    return BasesOutput(
        knowledge_bases=[
            BaseEntry(
                knowledge_base_id=base.id,
                name=base.name,
                description=base.description,
                total_documents=summary.total_documents,
                total_chunks=summary.total_chunks,
                embedder=base.embedder,
                created=base.created,
            )
            for base, summary in bases
        ],
        documents=[
            DocumentEntry(
                document_id=document.id,
                title=document.title,
                uri=document.uri,
                collection=document.collection,
                version=document.version,
                chunks=document.chunks,
                created=document.created,
            )
            for document in documents
        ],
    )


def citation(title: str, page: int | None, headings: Sequence[str]) -> str:
    """How an answer names a passage's source: ``(title, p. 3)``, the nearest heading where there are no pages."""
    place = f"p. {page}" if page is not None else next(iter(reversed(headings)), "")
    return f"({title}, {place})" if place and place != title else f"({title})"


def schema_of(answer: type[ToolOutput]) -> dict[str, Any]:
    """The JSON schema of an answer, without the titles and the docstrings, which repeat what the names say."""
    return cast("dict[str, Any]", _plain(answer.model_json_schema(mode="serialization"), answer.optional))


def _plain(schema: Any, optional: frozenset[str] = frozenset()) -> Any:
    if isinstance(schema, list):
        return [_plain(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    # A schema's own words, not those of a property that happens to be called so.
    bare = {key: _plain(value) for key, value in table.items() if key != "title" or not isinstance(value, str)}
    if "properties" in table:
        bare.pop("description", None)
        bare["required"] = [name for name in table.get("required", ()) if name not in optional]
    return bare


def _passage(hit: Hit) -> FoundPassage:
    scores = hit.scores
    return FoundPassage(
        content=hit.content,
        score=round(hit.score, _DIGITS),
        metadata=HitMetadata(
            chunk_id=hit.chunk_id,
            document_id=hit.document_id,
            chunk_index=hit.chunk_index,
            collection_id=hit.collection_id,
            sparse_score=_rounded(scores.sparse),
            dense_score=_rounded(scores.dense),
            rrf_score=_rounded(scores.rrf),
            bm25_score=_rounded(scores.bm25),
            cross_encoder_score=_rounded(scores.cross_encoder),
            title=hit.title,
            headings=list(hit.headings),
            page=hit.page,
            uri=hit.uri,
            citation=citation(hit.title, hit.page, hit.headings),
        ),
    )


def _rounded(score: float | None) -> float | None:
    # By its own size: BM25 in a small knowledge base is near nothing, and still tells one chunk from another.
    return None if score is None else float(f"{score:.{_DIGITS}g}")
