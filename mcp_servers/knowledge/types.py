"""Values shared by the packages of the server.

    KnowledgeBase -> collections -> Document -> chunks; a search returns Hits

Ids are UUIDs as text, times ISO 8601 in UTC. An empty tenant or department means "all", clearance 0 is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Collection of documents that name none.
DEFAULT_COLLECTION = "default"

DEFAULT_THRESHOLD = 0.6
DEFAULT_RESULTS = 10
MAX_RESULTS = 50
# Read of one document; the rest is omitted with a warning.
MAX_CHARACTERS = 20_000_000
MAX_PASSAGES = 200_000
# Fits in SQLite's 64-bit integers.
MAX_CLEARANCE = 1_000_000_000

StageName = Literal["base filter", "metadata filter", "sparse", "dense", "fusion", "bm25", "cross-encoder", "score"]


# read: searches only; write: also changes documents and uploads files; without one: no files.
Role = Literal["", "read", "write"]


@dataclass(frozen=True)
class Access:
    """Permissions of a caller, from a token."""

    tenant: str = ""  # sees data of this tenant and data without a tenant
    department: str | None = ""  # sees documents of this department and documents without one; None: of all
    clearance: int = 0  # sees documents up to this level
    role: Role = ""
    sees_shared: bool = True  # sees knowledge bases without a tenant
    is_unrestricted: bool = False  # no limits; the other fields only set the attributes of new documents


# The owner of the machine: stdio without a tenant, and command line.
UNRESTRICTED = Access(is_unrestricted=True)


@dataclass(frozen=True)
class Page:
    """A part of a list; a negative limit is not a limit."""

    limit: int
    offset: int = 0


ALL = Page(-1)


@dataclass(frozen=True)
class KnowledgeBase:
    """A knowledge base."""

    id: str
    name: str  # not unique
    description: str
    tenant: str
    embedder: str  # whose vectors are searched; empty for none
    created: str


@dataclass(frozen=True)
class Passage:
    """A part of a parsed document, before chunking."""

    text: str
    headings: tuple[str, ...] = ()  # outermost first
    page: int | None = None  # from 1; None for formats without pages
    is_atomic: bool = False  # table or code: cut only if too large
    head_lines: int = 0  # of a table: its title and header, which are repeated where it is cut


@dataclass(frozen=True)
class NewChunk:
    """A chunk to be stored: the unit that is searched and returned."""

    text: str
    headings: tuple[str, ...] = ()  # outermost first; searched with the text
    page: int | None = None  # first page, from 1


@dataclass(frozen=True)
class NewDocument:
    """A document to be added, or a new version of one."""

    title: str  # searched with every chunk
    chunks: tuple[NewChunk, ...]
    content_hash: str  # hexadecimal digest of the source bytes; identical documents are not stored again
    uri: str = ""  # a later document with the same URI replaces this one; without, the content identifies it
    collection: str = DEFAULT_COLLECTION  # by name; created if missing
    tenant: str = ""  # empty: the tenant of the caller
    department: str = ""
    clearance: int = 0  # required of readers
    fields: Mapping[str, str] = field(default_factory=dict[str, str])  # free metadata; searches can filter by it


@dataclass(frozen=True)
class Document:
    """A stored document."""

    id: str  # the same for all versions
    base_id: str
    collection_id: str
    collection: str
    title: str
    uri: str
    content_hash: str
    version: int  # from 1
    chunks: int  # count; 0 for a further place of another document's content
    tenant: str
    department: str
    clearance: int
    fields: Mapping[str, str]
    created: str  # of this version
    places: tuple[str, ...] = ()  # further URIs of the same content, which is indexed once


@dataclass(frozen=True)
class AddResult:
    """Result of adding a document."""

    document_id: str
    version: int
    chunks: int
    is_new: bool  # False: an identical document was already stored


@dataclass(frozen=True)
class Scores:
    """Scores of a chunk by stage; None if a stage did not score it."""

    sparse: float | None = None  # BM25 of the full-text index, unbounded
    dense: float | None = None  # cosine to the query
    rrf: float | None = None  # sum of 1 / (60 + rank) over both searches
    bm25: float | None = None  # BM25 as a share of the best possible, 0..1
    cross_encoder: float | None = None  # probability that the chunk answers the query


@dataclass(frozen=True)
class Hit:
    """A chunk in a search result."""

    content: str
    score: float  # probability that it answers the question, or the cross-encoder's; compared with the threshold
    chunk_id: str  # differs between versions of a document
    chunk_index: int  # from 0 within the document
    document_id: str
    collection_id: str
    base_id: str
    title: str
    uri: str
    headings: tuple[str, ...]
    page: int | None  # first page, from 1
    scores: Scores
    is_weak: bool = False  # less probable than not; returned because no threshold was given
    is_unanswered: bool = False  # as the first result it says that no passage is likely to answer the question
    figures: tuple[float, ...] = ()  # what the score is made of


@dataclass(frozen=True)
class SearchRequest:
    """A search."""

    query: str
    base_id: str | None = None  # None: all visible knowledge bases
    threshold: float | None = None  # minimum score, 0..1; None: the default, and at least the best three
    max_results: int = DEFAULT_RESULTS
    previous: str = ""  # the question before, which this one may continue
    collection: str | None = None  # collections of this name only
    fields: Mapping[str, str] = field(default_factory=dict[str, str])  # documents with these values only

    @property
    def minimum(self) -> float:
        """The threshold in effect."""
        return DEFAULT_THRESHOLD if self.threshold is None else self.threshold


@dataclass
class ExplainedStage:
    """Input, output and duration of one stage of an explained search; a running stage sets its output."""

    stage: StageName
    given: str
    made: str = ""  # output; empty if skipped
    left_out: str = ""  # reason for skipping; empty if it ran
    seconds: float = 0.0


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    request: SearchRequest
    hits: tuple[Hit, ...]  # best first
    left_out: tuple[str, ...] = ()  # one sentence per configured stage that did not run
    explained: tuple[ExplainedStage, ...] = ()  # filled on request


@dataclass(frozen=True)
class Summary:
    """Counts of a knowledge base, of what the caller may see."""

    base_id: str
    summary: str  # name and description
    total_documents: int
    total_collections: int  # with visible documents, or empty
    total_chunks: int
    generated_at: str


@dataclass(frozen=True)
class IndexState:
    """Progress of the vectors of a knowledge base."""

    base_id: str
    chunks: int
    active_embedder: str  # whose vectors are searched; empty for none
    next_embedding: str  # embedder whose vectors are being made; empty for none
    done: int  # chunks with a vector of the next embedder, or of the active one
    problem: str = ""  # reason why no vectors are being made
