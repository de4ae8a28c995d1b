"""What can go wrong, in the words and with the statuses the tools promise.

    KnowledgeProblem                     status
    ├── InvalidTokenError                401
    ├── AccessDeniedError                403
    ├── BaseNotFoundError                404
    ├── DocumentNotFoundError            404
    ├── NothingFoundError                404
    ├── NoCollectionsError               404
    ├── NoDocumentsError                 404     a warning rather than an error
    ├── TextTooLongError                 413
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

Each class is a row of a table: its status, the promised words, and the advice that ends its sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class KnowledgeError(Exception):  # noqa: N818 - it becomes a tool error, or an HTTP status
    """Anything a tool of this program answers instead of a result."""

    status: ClassVar[int] = 500
    # Templates over the error itself; what the fields hold is inserted, never read as a template.
    _WORDS: ClassVar[str] = ""
    _ADVICE: ClassVar[str] = ""

    @property
    def words(self) -> str:
        """The words the tools promise, and the case at hand."""
        return self._WORDS.format(e=self)

    @property
    def advice(self) -> str:
        """What the reader can do."""
        return self._ADVICE.format(e=self)

    def __str__(self) -> str:
        """The words, then the advice."""
        return f"{self.words}. {self.advice}."

    @property
    def because(self) -> str:
        """The reason behind a colon, where there is one."""
        reason = getattr(self, "reason", "")
        return f": {reason}" if reason else ""


@dataclass(eq=False)
class InvalidTokenError(KnowledgeError):
    """The token is not one of ours, or has expired.

    Args:
        reason: what is wrong with it; never the token.
    """

    reason: str = ""
    status: ClassVar[int] = 401
    _WORDS: ClassVar[str] = "Invalid authentication credentials{e.because}"
    _ADVICE: ClassVar[str] = "Sign in again and send the new token"


@dataclass(eq=False)
class AccessDeniedError(KnowledgeError):
    """The knowledge base, or the place in it, is somebody else's.

    Args:
        base_id: which one.
        reason: what is not allowed; empty for everything.
    """

    base_id: str
    reason: str = ""
    status: ClassVar[int] = 403
    _WORDS: ClassVar[str] = "Access denied to this knowledge base{e.because}"
    _ADVICE: ClassVar[str] = "Ask the owner of {e.base_id} for access, or choose one of list_knowledge_bases"


@dataclass(eq=False)
class BaseNotFoundError(KnowledgeError):
    """There is no knowledge base of this id.

    Args:
        base_id: as asked.
    """

    base_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "Knowledge base not found"
    _ADVICE: ClassVar[str] = "No id is {e.base_id!r:.60}: choose one of list_knowledge_bases"


@dataclass(eq=False)
class DocumentNotFoundError(KnowledgeError):
    """There is no document of this id that the asking person may see.

    Args:
        document_id: as asked.
    """

    document_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "Document not found"
    _ADVICE: ClassVar[str] = "No id is {e.document_id!r:.60}: take the document_id of a search result"


@dataclass(eq=False)
class NothingFoundError(KnowledgeError):
    """No chunk reaches the threshold.

    Args:
        threshold: as asked.
    """

    threshold: float
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "No results found"
    _ADVICE: ClassVar[str] = "Use other words{e.lower_threshold}"

    @property
    def lower_threshold(self) -> str:
        """The other thing to try, where there is a lower threshold."""
        return f", or a threshold below {self.threshold:g}" if self.threshold > 0 else ""


@dataclass(eq=False)
class NoCollectionsError(KnowledgeError):
    """The knowledge base has no collections yet.

    Args:
        base_id: which one.
    """

    base_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "No collections found"
    _ADVICE: ClassVar[str] = "Add a document with add_document"


@dataclass(eq=False)
class NoDocumentsError(KnowledgeError):
    """The knowledge base has no documents yet.

    Args:
        base_id: which one.
    """

    base_id: str
    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "No documents found"
    _ADVICE: ClassVar[str] = "Add a document with add_document"


@dataclass(eq=False)
class TextTooLongError(KnowledgeError):
    """More text than one call takes.

    Args:
        length: characters given.
        most: characters allowed.
    """

    length: int
    maximum: int = 10_000
    status: ClassVar[int] = 413
    _WORDS: ClassVar[str] = "Text too long (max {e.maximum} chars)"
    _ADVICE: ClassVar[str] = "It has {e.length}: send it in parts"


@dataclass(eq=False)
class BadArgumentError(KnowledgeError):
    """An argument that cannot be used.

    Args:
        name: the argument's.
        reason: what is wrong, as the rest of a sentence: "is empty".
        remedy: what to give instead.
    """

    name: str
    reason: str
    remedy: str
    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} {e.reason}"
    _ADVICE: ClassVar[str] = "{e.remedy}"


@dataclass(eq=False)
class ThresholdError(KnowledgeError):
    """The threshold is no share.

    Args:
        threshold: as asked.
    """

    threshold: float
    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "threshold out of range (0.0-1.0)"
    _ADVICE: ClassVar[str] = (
        "Give 0.5 for a broad search, 0.6 for a balanced one, 0.7 for a strict one, not {e.threshold:g}"
    )


@dataclass(eq=False)
class MaxResultsError(KnowledgeError):
    """More results than there ever are, or none.

    Args:
        max_results: as asked.
        most: the largest number allowed.
    """

    max_results: int
    maximum: int = 50
    status: ClassVar[int] = 422
    _ADVICE: ClassVar[str] = "Give a number from 1 to {e.maximum}, not {e.max_results}"

    @property
    def words(self) -> str:
        """The promised words; they exist for too many only."""
        return (
            f"max_results exceeds limit ({self.maximum})"
            if self.max_results > self.maximum
            else "max_results is below 1"
        )


@dataclass(eq=False)
class EngineUnreachableError(KnowledgeError):
    """A model service does not answer, or answers something else than asked.

    Args:
        engine: what was asked, an address without secrets.
        reason: what happened.
    """

    engine: str
    reason: str
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "Failed to connect to {e.engine}{e.because}"
    _ADVICE: ClassVar[str] = "Start it, or correct its address, and try again"


@dataclass(eq=False)
class ModelUnusableError(EngineUnreachableError):
    """A model of this machine cannot be loaded or run."""

    _WORDS: ClassVar[str] = "The model {e.engine} cannot be used{e.because}"
    _ADVICE: ClassVar[str] = "Fetch its files again, or choose another model"


@dataclass(eq=False)
class ModelServiceUnavailableError(KnowledgeError):
    """The language model that unsure cases are asked of does not answer.

    Args:
        reason: what happened.
    """

    reason: str = ""
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "LLM service unavailable{e.because}"
    _ADVICE: ClassVar[str] = "Start the model service and try again, or go on with the rules alone"


@dataclass(eq=False)
class StageUnavailableError(KnowledgeError):
    """A stage could not run for lack of its model, and the owner wants no answer without it.

    Args:
        why: a sentence about the stage, which ends with the words of the model's own problem.
    """

    why: str
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "{e.cause}"
    _ADVICE: ClassVar[str] = "Start it, or run without strict to have answers without it"

    @property
    def cause(self) -> str:
        """The promised words, where the sentence has them; they come first."""
        start = self.why.find("Failed to connect")
        return self.why[max(start, 0) :].removesuffix(".")


@dataclass(eq=False)
class MissingExtraError(KnowledgeError):
    """A library that a setting or a file format needs is not installed.

    Args:
        purpose: what needs it, as the beginning of a sentence.
        package: what to install.
    """

    purpose: str
    package: str
    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "{e.purpose} needs {e.package}, which is not installed"
    _ADVICE: ClassVar[str] = "Install it: pip install {e.package}"


@dataclass(eq=False)
class StorageError(KnowledgeError):
    """The knowledge file cannot be used.

    Args:
        path: the file.
        reason: what the system or SQLite said.
    """

    path: str
    reason: str
    _WORDS: ClassVar[str] = "The knowledge file cannot be used ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Check the folder's permissions and its disk, and try again; what was committed is kept"


@dataclass(eq=False)
class StorageDamagedError(StorageError):
    """The file is not what was written."""

    _WORDS: ClassVar[str] = "The knowledge file is damaged ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = (
        "Nothing was changed in it: put back a backup, or move the file away together with its -wal and -shm files"
        " and import the documents again"
    )


@dataclass(eq=False)
class StorageNewerError(StorageError):
    """The file's layout is unknown to this version."""

    _WORDS: ClassVar[str] = "The knowledge file was written by a newer version ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Update this program, or choose another folder"


@dataclass(eq=False)
class StorageBusyError(StorageError):
    """Another process has been writing for too long."""

    status: ClassVar[int] = 503
    _WORDS: ClassVar[str] = "The knowledge file is busy ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Wait until the other import has ended and try again"


@dataclass(eq=False)
class StorageFullError(StorageError):
    """There is no space left for what was to be written; nothing of it was."""

    status: ClassVar[int] = 507
    _WORDS: ClassVar[str] = "The disk is full ({e.path}: {e.reason})"
    _ADVICE: ClassVar[str] = "Make room and repeat the last step; everything before it is kept"
