"""Errors that tools and HTTP endpoints return, with their HTTP status.

    KnowledgeError                       status
    ├── InvalidTokenError                401
    ├── AccessDeniedError                403
    ├── RoleError                        403
    ├── BaseNotFoundError                404
    ├── DocumentNotFoundError            404
    ├── NothingFoundError                404
    ├── NoCollectionsError               404
    ├── NoDocumentsError                 404     returned as a warning
    ├── TextTooLongError                 413
    ├── TenantFullError                  413
    ├── TooManyUploadsError              429
    ├── BadArgumentError                 422
    ├── ThresholdError                   422
    ├── MaxResultsError                  422
    ├── EngineUnreachableError           503
    │   └── ModelUnusableError           503
    ├── ModelServiceUnavailableError     503
    ├── StageUnavailableError            503
    ├── MissingExtraError                503
    └── StorageError                     500
        ├── StorageDamagedError          500
        ├── StorageNewerError            500
        ├── StorageBusyError             503
        └── StorageFullError             507

A class declares its status, its message (the specified words first) and advice for the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class KnowledgeError(Exception):
    """Base class: an error that is returned to the client as a tool error or HTTP status."""

    status: ClassVar[int] = 500
    # Templates formatted with the error as ``e``; field values are inserted and never parsed as templates.
    _WORDS: ClassVar[str] = ""
    _ADVICE: ClassVar[str] = ""

    @property
    def words(self) -> str:
        """The specified message with the details of this case."""
        return self._WORDS.format(e=self)

    @property
    def advice(self) -> str:
        """A sentence about possible remedies."""
        return self._ADVICE.format(e=self)

    def __str__(self) -> str:
        """Return message and advice."""
        return f"{self.words}. {self.advice}."

    @property
    def because(self) -> str:
        """The reason after a colon, or an empty string."""
        reason = getattr(self, "reason", "")
        return f": {reason}" if reason else ""


@dataclass(eq=False)
class InvalidTokenError(KnowledgeError):
    """The token is missing, invalid or expired."""

    reason: str = ""  # never contains the token
    status: ClassVar[int] = 401
    _WORDS: ClassVar[str] = "Invalid authentication credentials{e.because}"
    _ADVICE: ClassVar[str] = "Sign in again and send the new token"


@dataclass(eq=False)
class AccessDeniedError(KnowledgeError):
    """The caller has no access to the knowledge base or to the attributes given for a document."""

    base_id: str
    reason: str = ""  # the operation that is not allowed; empty for all access
    status: ClassVar[int] = 403
    _WORDS: ClassVar[str] = "Access denied to this knowledge base{e.because}"
    _ADVICE: ClassVar[str] = "Ask the owner of {e.base_id} for access, or choose one of list_knowledge_bases"


@dataclass(eq=False)
class RoleError(KnowledgeError):
    """The role of the token does not permit the operation."""

    operation: str  # "change documents" or "upload files"
    status: ClassVar[int] = 403
    _WORDS: ClassVar[str] = "This token may not {e.operation}"
    _ADVICE: ClassVar[str] = "Ask the owner for a token whose role is write"


@dataclass(eq=False)
class TenantFullError(KnowledgeError):
    """The documents of a tenant exceed its limit."""

    chunks: int  # with the new document
    maximum: int
    status: ClassVar[int] = 413
    _WORDS: ClassVar[str] = "The tenant has no room for this document"
    _ADVICE: ClassVar[str] = (
        "All would be {e.chunks} of {e.maximum} chunks: remove some, or ask the owner to raise tenant_chunks"
    )


@dataclass(eq=False)
class TooManyUploadsError(KnowledgeError):
    """The tenant has unfinished uploads already."""

    maximum: int
    status: ClassVar[int] = 429
    _WORDS: ClassVar[str] = "Too many uploads at once (max {e.maximum})"
    _ADVICE: ClassVar[str] = "Finish one first; an upload without a new part for ten minutes is given up"


@dataclass(eq=False)
class BaseNotFoundError(KnowledgeError):
    """No knowledge base has this id or name."""

    base_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "Knowledge base not found"
    _ADVICE: ClassVar[str] = "No id is {e.base_id!r:.60}: choose one of list_knowledge_bases"


@dataclass(eq=False)
class DocumentNotFoundError(KnowledgeError):
    """No document visible to the caller has this id."""

    document_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "Document not found"
    _ADVICE: ClassVar[str] = "No id is {e.document_id!r:.60}: take the document_id of a search result"


@dataclass(eq=False)
class NothingFoundError(KnowledgeError):
    """No chunk reaches the threshold."""

    threshold: float
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "No results found"
    _ADVICE: ClassVar[str] = "Use other words{e.lower_threshold}"

    @property
    def lower_threshold(self) -> str:
        """Advice to lower the threshold, unless it is 0."""
        return f", or a threshold below {self.threshold:g}" if self.threshold > 0 else ""


@dataclass(eq=False)
class NoCollectionsError(KnowledgeError):
    """The knowledge base has no collections."""

    base_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "No collections found"
    _ADVICE: ClassVar[str] = "Add a document with add_document"


@dataclass(eq=False)
class NoDocumentsError(KnowledgeError):
    """The knowledge base has no documents."""

    base_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "No documents found"
    _ADVICE: ClassVar[str] = "Add a document with add_document"


@dataclass(eq=False)
class TextTooLongError(KnowledgeError):
    """The text exceeds the limit of one call."""

    length: int  # characters
    maximum: int = 10_000
    status: ClassVar[int] = 413
    _WORDS: ClassVar[str] = "Text too long (max {e.maximum} chars)"
    _ADVICE: ClassVar[str] = "It has {e.length}: send it in parts"


@dataclass(eq=False)
class BadArgumentError(KnowledgeError):
    """An argument is missing or invalid."""

    name: str
    reason: str  # predicate of the sentence, e.g. "is empty"
    remedy: str  # instruction, e.g. "Give a name"
    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} {e.reason}"
    _ADVICE: ClassVar[str] = "{e.remedy}"


@dataclass(eq=False)
class ThresholdError(KnowledgeError):
    """The threshold is outside 0 to 1."""

    threshold: float
    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "threshold out of range (0.0-1.0)"
    _ADVICE: ClassVar[str] = (
        "Give 0.5 for a broad search, 0.6 for a balanced one, 0.7 for a strict one, not {e.threshold:g}"
    )


@dataclass(eq=False)
class MaxResultsError(KnowledgeError):
    """``max_results`` is outside its range."""

    max_results: int
    maximum: int = 50
    status: ClassVar[int] = 422
    _ADVICE: ClassVar[str] = "Give a number from 1 to {e.maximum}, not {e.max_results}"

    @property
    def words(self) -> str:
        """The specified message, which exists only for values above the limit."""
        return (
            f"max_results exceeds limit ({self.maximum})"
            if self.max_results > self.maximum
            else "max_results is below 1"
        )


@dataclass(eq=False)
class EngineUnreachableError(KnowledgeError):
    """A model service does not answer, or its answer is invalid."""

    engine: str  # model name or address, without credentials
    reason: str
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "Failed to connect to {e.engine}{e.because}"
    _ADVICE: ClassVar[str] = "Start it, or correct its address, and try again"


@dataclass(eq=False)
class ModelUnusableError(EngineUnreachableError):
    """A local model cannot be loaded or run."""

    _WORDS: ClassVar[str] = "The model {e.engine} cannot be used{e.because}"
    _ADVICE: ClassVar[str] = "Fetch its files again, or choose another model"


@dataclass(eq=False)
class ModelServiceUnavailableError(KnowledgeError):
    """The language model for uncertain OCR positions does not answer."""

    reason: str = ""
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "LLM service unavailable{e.because}"
    _ADVICE: ClassVar[str] = "Start the model service and try again, or go on with the rules alone"


@dataclass(eq=False)
class StageUnavailableError(KnowledgeError):
    """A search stage or OCR decision needs a model that does not answer, and ``strict`` is set."""

    why: str  # warning of the skipped stage, ending with the model's own error
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "{e.cause}"
    _ADVICE: ClassVar[str] = "Start it, or run without strict to have answers without it"

    @property
    def cause(self) -> str:
        """The part of ``why`` that begins with the specified words, if it contains them."""
        start = self.why.find("Failed to connect")
        return self.why[max(start, 0) :].removesuffix(".")


@dataclass(eq=False)
class MissingExtraError(KnowledgeError):
    """A required library is not installed."""

    purpose: str  # subject of the sentence
    package: str  # package names for pip
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "{e.purpose} needs {e.package}, which is not installed"
    _ADVICE: ClassVar[str] = "Install it: pip install {e.package}"


@dataclass(eq=False)
class StorageError(KnowledgeError):
    """The database file cannot be used."""

    path: str
    reason: str  # message of the system or of SQLite
    _WORDS: ClassVar[str] = "The knowledge file cannot be used ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Check the folder's permissions and its disk, and try again; what was committed is kept"


@dataclass(eq=False)
class StorageDamagedError(StorageError):
    """The database file is corrupt."""

    _WORDS: ClassVar[str] = "The knowledge file is damaged ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = (
        "Nothing was changed in it: put back a backup, or move the file away together with its -wal and -shm files"
        " and import the documents again"
    )


@dataclass(eq=False)
class StorageNewerError(StorageError):
    """The database has a newer schema version."""

    _WORDS: ClassVar[str] = "The knowledge file was written by a newer version ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Update this program, or choose another folder"


@dataclass(eq=False)
class StorageBusyError(StorageError):
    """Another process holds the write lock for too long."""

    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "The knowledge file is busy ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Wait until the other import has ended and try again"


@dataclass(eq=False)
class StorageFullError(StorageError):
    """The disk is full; the transaction was rolled back."""

    status: ClassVar[int] = 507
    _WORDS: ClassVar[str] = "The disk is full ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Make room and repeat the last step; everything before it is kept"
