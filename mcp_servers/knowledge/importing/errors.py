"""What can be wrong with a document, in sentences that end with what its owner can do.

    ImportProblem                     status
    ├── UnsupportedFormatError        415
    ├── DamagedDocumentError          422
    ├── EncryptedDocumentError        422
    ├── NoTextError                   422
    ├── TooLargeError                 413
    ├── TooSlowError                  422
    ├── UnreadableFileError           404
    ├── AddressRefusedError           403
    └── AddressUnreachableError       502

Each class is a row of a table, as in ``knowledge.problems``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mcp_servers.knowledge.errors import KnowledgeError

ACCEPTED = "PDF, HTML, Markdown, Word (docx), text, CSV, JSON, YAML and source code"


@dataclass(eq=False)
class DocumentImportError(KnowledgeError):
    """A document that cannot be imported.

    Args:
        name: its file name or address.
        reason: what is wrong with it, as the rest of a sentence; empty where the kind of problem says it all.
    """

    name: str
    reason: str = ""


@dataclass(eq=False)
class UnsupportedFormatError(DocumentImportError):
    """Not a format that can be read; ``reason`` names the format or is empty when it is unknown."""

    status: ClassVar[int] = 415
    _WORDS: ClassVar[str] = "{e.name} cannot be imported{e.because}"
    _ADVICE: ClassVar[str] = f"Accepted are {ACCEPTED}: convert it to one of them"


@dataclass(eq=False)
class DamagedDocumentError(DocumentImportError):
    """Its bytes are not what its format wants."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} is damaged{e.because}"
    _ADVICE: ClassVar[str] = "Open it in the program it comes from, save it anew and import that file"


@dataclass(eq=False)
class EncryptedDocumentError(DocumentImportError):
    """It opens with a password only."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} is protected with a password"
    _ADVICE: ClassVar[str] = "Save a copy without the password and import that"


@dataclass(eq=False)
class NoTextError(DocumentImportError):
    """There is nothing in it that a search could find."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} has no text{e.because}"
    _ADVICE: ClassVar[str] = "If it was scanned, let an OCR program add the text and import the result"


@dataclass(eq=False)
class TooLargeError(DocumentImportError):
    """More than is read."""

    status: ClassVar[int] = 413
    _WORDS: ClassVar[str] = "{e.name} is too large{e.because}"
    _ADVICE: ClassVar[str] = "Import it in parts, or raise the limit in the settings"


@dataclass(eq=False)
class TooSlowError(DocumentImportError):
    """It took more time or memory than a document may."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} could not be read{e.because}"
    _ADVICE: ClassVar[str] = "Split it into smaller files, or save it anew in the program it comes from"


@dataclass(eq=False)
class UnreadableFileError(DocumentImportError):
    """The system does not give the file."""

    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "{e.name} cannot be opened{e.because}"
    _ADVICE: ClassVar[str] = "Check the path and its permissions"


@dataclass(eq=False)
class AddressRefusedError(DocumentImportError):
    """An address that is never asked."""

    status: ClassVar[int] = 403
    _WORDS: ClassVar[str] = "{e.name} is not fetched{e.because}"
    _ADVICE: ClassVar[str] = (
        "Only http and https addresses of public hosts are; if it is yours, name its network in allow_networks"
    )


@dataclass(eq=False)
class AddressUnreachableError(DocumentImportError):
    """The host does not answer, or not with a document."""

    status: ClassVar[int] = 502
    _WORDS: ClassVar[str] = "{e.name} could not be fetched{e.because}"
    _ADVICE: ClassVar[str] = "Check the address in a browser and try again"
