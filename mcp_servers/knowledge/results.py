"""Results of the tools: pydantic models, their JSON Schema, and their text form.

The keys of ``search_documents``, ``get_knowledge_base_summary`` and ``normalize_ocr_text`` are specified; additional
keys carry sources, warnings and explanations.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, Field

from mcp_servers.knowledge.errors import KnowledgeError
from mcp_servers.knowledge.importing.folders import Outcome
from mcp_servers.knowledge.types import SearchResult

# Enough to distinguish scores; every digit costs a small model tokens.
_DIGITS = 4
_SECONDS = 4


class ToolOutput(BaseModel):
    """Result of a tool call; keys with a default are omitted while they have it."""

    def structured_content(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def problem(self) -> KnowledgeError | None:
        """Return the error to report along with the result, if any."""
        return None


class HitMetadata(BaseModel):
    """Source of a passage and the score of each stage; null for a stage that did not score it."""

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


NO_ANSWER_WARNING = "No passage is likely to answer this; these are the nearest."


class FoundPassage(BaseModel):
    """One passage."""

    content: str
    score: float
    metadata: HitMetadata
    weak: Annotated[bool, Field(description="Less likely than not to answer the question")] = False


class ExplainedStep(BaseModel):
    """One stage of an explained search."""

    stage: str
    given: str
    made: str
    left_out: str
    seconds: float


class SearchOutput(ToolOutput):
    """Result of ``search_documents``."""

    query: str
    knowledge_base_id: str
    threshold: float
    results: list[FoundPassage]
    count: int
    warnings: list[str] = []
    stages: list[ExplainedStep] = []

    def problem(self) -> KnowledgeError | None:
        """Return an error for a search without results."""
        if self.results:
            return None
        other = f", or a threshold below {self.threshold:g}" if self.threshold > 0 else ""
        return KnowledgeError("NothingFound", other=other)

    def passages(self) -> str:
        """Return the result as prose: numbered passages, each after its citation."""
        numbered = [
            f"[{number}] {result.metadata.citation}{' (weak)' if result.weak else ''}\n{result.content}"
            for number, result in enumerate(self.results, 1)
        ]
        return "\n\n".join([warning for warning in self.warnings if warning == NO_ANSWER_WARNING] + numbered)


class Statistics(BaseModel):
    """Counts of a knowledge base."""

    total_documents: int
    total_collections: int
    total_chunks: int


class SummaryOutput(ToolOutput):
    """Result of ``get_knowledge_base_summary``."""

    knowledge_base_id: str
    summary: str
    statistics: Statistics
    generated_at: str
    warning: str = ""

    def problem(self) -> KnowledgeError | None:
        """Return an error for an empty knowledge base; missing documents are only a warning."""
        return None if self.statistics.total_collections else KnowledgeError("NoCollections")


class NormalizedOutput(ToolOutput):
    """Result of ``normalize_ocr_text``."""

    original_text: str
    normalized_text: str
    status: str
    unsure: Annotated[tuple[int, ...], Field(description="Positions from 0 at which no model decided")] = ()


class BaseEntry(BaseModel):
    """A knowledge base in a list."""

    knowledge_base_id: str
    name: str
    description: str
    total_documents: int
    total_chunks: int
    embedder: str
    tenant: str  # empty for all tenants
    created: str


class DocumentEntry(BaseModel):
    """A document in a list."""

    document_id: str
    title: str
    uri: str
    collection: str
    version: int
    chunks: int
    tenant: str  # who added it; empty for the owner
    created: str
    places: Annotated[tuple[str, ...], Field(description="Where the same content was added from as well")] = ()


class BasesOutput(ToolOutput):
    """Result of ``list_knowledge_bases``."""

    knowledge_bases: list[BaseEntry]
    documents: list[DocumentEntry] = []
    next_cursor: str = ""  # of the next page


class CreatedOutput(ToolOutput):
    """Result of ``create_knowledge_base``."""

    knowledge_base_id: str
    name: str
    description: str


class AddedDocument(BaseModel):
    """A document that was added."""

    document_id: str
    title: str
    uri: str
    version: int
    chunks: int
    is_new: bool


class FileOutcome(BaseModel):
    """A file of a folder that failed, was skipped or has a warning."""

    path: str
    outcome: Outcome
    reason: str


class AddedOutput(ToolOutput):
    """Result of ``add_document``."""

    knowledge_base_id: str
    documents: list[AddedDocument]
    count: int
    unchanged: int = 0
    files: list[FileOutcome] = []
    warnings: list[str] = []
    upload_id: str = ""  # of a file whose other parts are still to come
    received: int = 0  # its bytes so far


class ReadOutput(ToolOutput):
    """Text of a file that was read and not stored."""

    title: str
    text: str
    received: int  # bytes so far
    warnings: list[str]
    pages: list[int] = []  # index of the first character of each page; empty without pages
    upload_id: str = ""  # of a file whose other parts are still to come


class DocumentPassage(BaseModel):
    """A passage where it is in its document."""

    content: str
    chunk_index: int
    headings: list[str]
    page: int | None


class PassagesOutput(ToolOutput):
    """Some passages of a document in order; ``chunks`` is the number of all of them."""

    document_id: str
    knowledge_base_id: str
    title: str
    uri: str
    chunks: int
    results: list[DocumentPassage]


class CopiedOutput(ToolOutput):
    """Result of an export, an import or a backup: the file and its contents."""

    path: str
    bytes: int
    knowledge_base_id: str = ""
    documents: int = 0
    chunks: int = 0


class RemovedOutput(ToolOutput):
    """Result of ``remove_document``."""

    removed: str
    title: str
    knowledge_base_id: str


class ReindexOutput(ToolOutput):
    """Result of ``reindex``: progress of the index."""

    knowledge_base_id: str
    chunks: int
    embedder: str
    becoming: str
    done: int
    problem_found: str = ""


_Model = TypeVar("_Model", bound=BaseModel)


def build_model(model: type[_Model], *sources: object, **fields: Any) -> _Model:
    """Return a model with the ``given`` values; its other fields are the attributes of ``sources`` with their names."""
    values = {name: getattr(source, name) for source in sources for name in model.model_fields if hasattr(source, name)}
    return model(**{**values, **fields})


def search_output(result: SearchResult, base_id: str) -> SearchOutput:
    """Convert a search result."""
    passages: list[FoundPassage] = []
    for hit in result.hits:
        # Significant digits: BM25 values of a small knowledge base are tiny but still differ.
        scores = {
            f"{name}_score": None if score is None else float(f"{score:.{_DIGITS}g}")
            for name, score in vars(hit.scores).items()
        }
        # The page, or the nearest heading without pages: (title, p. 3).
        location = f"p. {hit.page}" if hit.page is not None else next(iter(reversed(hit.headings)), "")
        cited = f"({hit.title}, {location})" if location and location != hit.title else f"({hit.title})"
        metadata = build_model(HitMetadata, hit, headings=list(hit.headings), citation=cited, **scores)
        score = round(hit.score, _DIGITS)
        passages.append(FoundPassage(content=hit.content, score=score, weak=hit.is_weak, metadata=metadata))
    # Not even the best passage is likely to answer the question.
    is_unlikely = result.request.threshold is None and bool(result.hits) and result.hits[0].is_unanswered
    return SearchOutput(
        query=result.request.query,
        knowledge_base_id=base_id,
        threshold=result.request.minimum,
        results=passages,
        count=len(result.hits),
        warnings=[*result.left_out, *([NO_ANSWER_WARNING] if is_unlikely else [])],
        stages=[build_model(ExplainedStep, step, seconds=round(step.seconds, _SECONDS)) for step in result.explained],
    )


def plain_schema(schema: Any) -> Any:
    """Return the JSON Schema of a result without titles and descriptions, which repeat the names."""
    if isinstance(schema, list):
        return [plain_schema(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    # Only the schema's own title, not a property named "title".
    bare = {key: plain_schema(value) for key, value in table.items() if key != "title" or not isinstance(value, str)}
    if "properties" in table:
        bare.pop("description", None)
    return bare
