"""The values that cross the knowledge base's inner boundaries: frozen, without behaviour beyond small derived facts.

A ``KnowledgeBase`` holds collections, a collection holds documents, a document is cut into chunks; a search returns
``Hit``s. Ids that leave the program are UUIDs as text. An empty tenant or department means "not limited to one", a
clearance of 0 is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# The collection of a document that names none.
DEFAULT_COLLECTION = "default"

DEFAULT_THRESHOLD = 0.6
DEFAULT_RESULTS = 10
MAX_RESULTS = 50
# A clearance is kept in 63 bits; nobody needs more levels than this.
MAX_CLEARANCE = 1_000_000_000

StageName = Literal["base filter", "metadata filter", "sparse", "dense", "fusion", "bm25", "cross-encoder", "score"]


@dataclass(frozen=True)
class Access:
    """Who asks; what a token says, or nothing for a person at their own machine.

    Args:
        tenant: sees what belongs to this tenant, and what belongs to nobody.
        department: likewise.
        clearance: sees documents up to this level.
        is_everyone: no limits at all; the other fields then only say what new documents belong to.
    """

    tenant: str = ""
    department: str = ""
    clearance: int = 0
    is_unrestricted: bool = False


# The owner at their own machine: local stdio use and the command line.
UNRESTRICTED = Access(is_unrestricted=True)


@dataclass(frozen=True)
class KnowledgeBase:
    """One knowledge base.

    Args:
        id: a UUID.
        name: for people; not unique.
        description: one or two sentences; the summary tool says them.
        tenant: whose it is; empty when it is not one tenant's.
        embedder: the embedder whose vectors a search uses now; empty when there are none.
        created: ISO 8601, UTC.
    """

    id: str
    name: str
    description: str
    tenant: str
    embedder: str
    created: str


@dataclass(frozen=True)
class Passage:
    """A stretch of a document as the importer read it, before it is cut.

    Args:
        text: without markup.
        headings: the headings above it, outermost first.
        page: counted from 1; None where a format has no pages.
        is_whole: a table or a piece of code, which is not cut if that can be avoided.
    """

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    is_atomic: bool = False


@dataclass(frozen=True)
class NewChunk:
    """A piece of a document that is searched and returned as one.

    Args:
        text: what a search returns.
        headings: the headings above it, outermost first; searched along with the text.
        page: where it begins, counted from 1.
    """

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None


@dataclass(frozen=True)
class NewDocument:
    """A document to be added, or the new version of one.

    Args:
        title: searched along with every chunk.
        chunks: in order.
        content_hash: of the bytes it was read from, any hexadecimal digest; the same again costs nothing.
        uri: where it came from. A later document of the same uri replaces this one; without a uri a document is its
            content, and another content is another document.
        collection: the name of its collection, made when there is none of that name.
        tenant: whose it is; empty leaves it to the adding access.
        department: empty for every department.
        clearance: what a reader needs.
        fields: free metadata that a search can be limited to.
    """

    title: str
    chunks: tuple[NewChunk, ...]
    content_hash: str
    uri: str = ""
    collection: str = DEFAULT_COLLECTION
    tenant: str = ""
    department: str = ""
    clearance: int = 0
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Document:
    """A document of a knowledge base.

    Args:
        id: a UUID; stays the same from version to version.
        base_id: its knowledge base.
        collection_id: its collection.
        collection: that collection's name.
        title: as added.
        uri: as added.
        content_hash: of the version that is searched.
        version: counts from 1.
        chunks: how many it has.
        tenant: as kept.
        department: as kept.
        clearance: as kept.
        fields: as added.
        created: of this version, ISO 8601, UTC.
    """

    id: str
    base_id: str
    collection_id: str
    collection: str
    title: str
    uri: str
    content_hash: str
    version: int
    chunks: int
    tenant: str
    department: str
    clearance: int
    fields: Mapping[str, str]
    created: str


@dataclass(frozen=True)
class AddResult:
    """What became of an added document.

    Args:
        document_id: a UUID.
        version: counts from 1.
        chunks: how many it has.
        is_new: something was written; False when the very same was there already.
    """

    document_id: str
    version: int
    chunks: int
    is_new: bool


@dataclass(frozen=True)
class Scores:
    """What each stage made of a chunk; None where the stage did not see it or was left out.

    Args:
        sparse: BM25 of the full-text index, larger is better, unbounded.
        dense: cosine to the query.
        rrf: sum of 1 / (60 + rank) over both.
        bm25: share of the best BM25 a chunk could have, 0..1.
        cross_encoder: probability that the chunk answers the query, 0..1.
    """

    sparse: float | None = None
    dense: float | None = None
    rrf: float | None = None
    bm25: float | None = None
    cross_encoder: float | None = None


@dataclass(frozen=True)
class Hit:
    """A chunk that was found.

    Args:
        content: its text.
        score: calibrated, 0..1; what the threshold is compared with.
        chunk_id: a UUID, another one in every version of the document.
        chunk_index: counted from 0 within the document.
        document_id: a UUID.
        collection_id: a UUID.
        base_id: a UUID.
        title: the document's.
        uri: the document's.
        headings: above the chunk, outermost first.
        page: where the chunk begins, counted from 1.
        scores: stage by stage.
    """

    content: str
    score: float
    chunk_id: str
    chunk_index: int
    document_id: str
    collection_id: str
    base_id: str
    title: str
    uri: str
    headings: tuple[str, ...]
    page: int | None
    scores: Scores


@dataclass(frozen=True)
class SearchRequest:
    """One question to the knowledge base.

    Args:
        query: in any language.
        base_id: the knowledge base; None searches every one the asking person may see.
        threshold: hits with a lower score are left out, 0..1.
        max_results: 1..50.
        collection: only documents of collections of this name.
        fields: only documents that have these fields with these values.
    """

    query: str
    base_id: str | None = None
    threshold: float = DEFAULT_THRESHOLD
    max_results: int = DEFAULT_RESULTS
    collection: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ExplainedStage:
    """What one stage was given and what it made of it; for ``--explain``.

    Args:
        stage: its name.
        given: what went in, in words and numbers.
        made: what came out; empty when the stage was left out.
        left_out: why the stage did not run; empty when it did.
        seconds: how long it took.
    """

    stage: StageName
    given: str
    made: str = ""
    left_out: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class SearchResult:
    """The answer to a search.

    Args:
        request: what was asked.
        hits: best first, none below the threshold.
        left_out: one sentence for every stage that did not run though it is configured, e.g. because an engine does
            not answer; empty when everything ran.
        explained: stage by stage; empty unless asked for.
    """

    request: SearchRequest
    hits: tuple[Hit, ...]
    left_out: tuple[str, ...] = ()
    explained: tuple[ExplainedStage, ...] = ()


@dataclass(frozen=True)
class Summary:
    """A knowledge base in numbers: what the asking person may see of it.

    Args:
        base_id: a UUID.
        summary: name and description.
        total_documents: counted.
        total_collections: counted; those that hold a document the person may see, and empty ones.
        total_chunks: counted.
        generated_at: ISO 8601, UTC.
    """

    base_id: str
    summary: str
    total_documents: int
    total_collections: int
    total_chunks: int
    generated_at: str


@dataclass(frozen=True)
class IndexState:
    """How far the vectors of a knowledge base are.

    Args:
        base_id: a UUID.
        chunks: how many there are.
        searched_with: the embedder whose vectors a search uses; empty for none.
        becoming: the embedder whose vectors are being made; empty when none are.
        done: chunks that have a vector of ``becoming``, or when none is becoming, of ``searched_with``.
        problem: why no more are made for now; empty when nothing is wrong.
    """

    base_id: str
    chunks: int
    active_embedder: str
    next_embedding: str
    done: int
    problem: str = ""
