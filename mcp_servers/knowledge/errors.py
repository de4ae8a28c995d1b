"""Errors that tools and HTTP endpoints return; ``errors.json`` has their HTTP status, message and advice."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_servers.errors import CatalogError
from mcp_servers.program import read_texts
from rkllm_base.installation import install_command


class KnowledgeError(CatalogError):
    """An error that is returned to the client as a tool error or HTTP status."""

    catalog = read_texts(__file__, "errors.json")

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.catalog[self.kind]["status"]

    @property
    def words(self) -> str:
        """The specified message with the details of this case."""
        return self.text("words")

    def __str__(self) -> str:
        """Return the message, and a sentence about possible remedies."""
        return f"{self.words}. {self.text('advice')}."


@dataclass(eq=False)
class InvalidTokenError(KnowledgeError):
    """The token is missing, invalid or expired."""

    reason: str = ""  # never contains the token


@dataclass(eq=False)
class AccessDeniedError(KnowledgeError):
    """The caller has no access to the knowledge base or to the attributes given for a document."""

    base_id: str
    reason: str = ""  # the operation that is not allowed; empty for all access


@dataclass(eq=False)
class BaseNotFoundError(KnowledgeError):
    """No knowledge base has this id or name."""

    base_id: str


@dataclass(eq=False)
class DocumentNotFoundError(KnowledgeError):
    """No document visible to the caller has this id."""

    document_id: str


@dataclass(eq=False)
class TextTooLongError(KnowledgeError):
    """The text exceeds the limit of one call."""

    length: int  # characters
    maximum: int


@dataclass(eq=False)
class BadArgumentError(KnowledgeError):
    """An argument is missing or invalid."""

    name: str
    reason: str  # predicate of the sentence, e.g. "is empty"
    remedy: str  # instruction, e.g. "Give a name"


@dataclass(eq=False)
class ThresholdError(KnowledgeError):
    """The threshold is outside 0 to 1."""

    threshold: float


@dataclass(eq=False)
class MaxResultsError(KnowledgeError):
    """``max_results`` is outside its range."""

    max_results: int
    maximum: int
    problem: str = field(init=False)

    def __post_init__(self) -> None:
        # The specified message exists only for values above the limit.
        is_above = self.max_results > self.maximum
        self.problem = f"max_results exceeds limit ({self.maximum})" if is_above else "max_results is below 1"


@dataclass(eq=False)
class EngineUnreachableError(KnowledgeError):
    """A model service does not answer, or its answer is invalid."""

    engine: str  # model name or address, without credentials
    reason: str


class ModelUnusableError(EngineUnreachableError):
    """A local model cannot be loaded or run."""


@dataclass(eq=False)
class ModelServiceUnavailableError(KnowledgeError):
    """The language model for uncertain OCR positions does not answer."""

    reason: str = ""


@dataclass(eq=False)
class MissingExtraError(KnowledgeError):
    """A required library is not installed."""

    purpose: str  # subject of the sentence
    package: str  # name of the library
    extra: str  # the optional part of this program that has it

    @property
    def command(self) -> str:
        """The shell command that installs it."""
        return install_command(self.extra)


@dataclass(eq=False)
class StorageError(KnowledgeError):
    """The database cannot be used."""

    path: str  # or the address, without a password
    reason: str  # message of the system or of the database


class StorageDamagedError(StorageError):
    """The database file is corrupt."""


class StorageNewerError(StorageError):
    """The database has a newer schema version."""


class StorageBusyError(StorageError):
    """Another process holds the write lock for too long."""


class StorageAwayError(StorageError):
    """The database cannot be reached; the transaction did not happen, or its end is unknown."""


class StorageFullError(StorageError):
    """The disk is full; the transaction was rolled back."""


@dataclass(eq=False)
class DocumentImportError(KnowledgeError):
    """Base class: a document cannot be imported."""

    name: str  # file name or URL
    reason: str = ""  # predicate about it, e.g. "it is an archive"; may be empty


class UnsupportedFormatError(DocumentImportError):
    """The format is not supported."""


class DamagedDocumentError(DocumentImportError):
    """The bytes are invalid for the format."""


class EncryptedDocumentError(DocumentImportError):
    """The document is protected with a password or DRM."""


class NoTextError(DocumentImportError):
    """The document has no text."""


class PicturesOnlyError(NoTextError):
    """The document consists of pictures whose text was not recognised."""


class TooLargeError(DocumentImportError):
    """The document exceeds a size limit."""


class TooSlowError(DocumentImportError):
    """Parsing exceeded the limit of time or memory, or crashed."""


class UnreadableFileError(DocumentImportError):
    """The file cannot be opened."""


class AddressRefusedError(DocumentImportError):
    """The URL may not be fetched."""


class AddressUnreachableError(DocumentImportError):
    """The host does not answer, or does not send a document."""
