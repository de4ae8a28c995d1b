"""Errors of an import, each with advice for the owner of the document.

DocumentImportError               status
├── UnsupportedFormatError        415
├── DamagedDocumentError          422
├── EncryptedDocumentError        422
├── NoTextError                   422
├── TooLargeError                 413
├── TooSlowError                  422
├── UnreadableFileError           404
├── AddressRefusedError           403
└── AddressUnreachableError       502
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mcp_servers.knowledge.errors import KnowledgeError

ACCEPTED = (
    "PDF, HTML, Markdown, Word (docx), Excel (xlsx), PowerPoint (pptx), ODT, EPUB, mail (eml), RTF, text, CSV, JSON,"
    " YAML and source code"
)


@dataclass(eq=False)
class DocumentImportError(KnowledgeError):
    """Base class: a document cannot be imported."""

    name: str  # file name or URL
    reason: str = ""  # predicate about it, e.g. "it is an archive"; may be empty


@dataclass(eq=False)
class UnsupportedFormatError(DocumentImportError):
    """The format is not supported."""

    status: ClassVar[int] = 415
    _WORDS: ClassVar[str] = "{e.name} cannot be imported{e.because}"
    _ADVICE: ClassVar[str] = f"Accepted are {ACCEPTED}: convert it to one of them"


@dataclass(eq=False)
class DamagedDocumentError(DocumentImportError):
    """The bytes are invalid for the format."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} is damaged{e.because}"
    _ADVICE: ClassVar[str] = "Open it in the program it comes from, save it anew and import that file"


@dataclass(eq=False)
class EncryptedDocumentError(DocumentImportError):
    """The document is protected with a password."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} is protected with a password"
    _ADVICE: ClassVar[str] = "Save a copy without the password and import that"


@dataclass(eq=False)
class NoTextError(DocumentImportError):
    """The document has no text."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} has no text{e.because}"
    _ADVICE: ClassVar[str] = (
        "If it was scanned, install Tesseract (tesseract-ocr-jpn), or import it with the text that an OCR program adds"
    )


@dataclass(eq=False)
class TooLargeError(DocumentImportError):
    """The document exceeds a size limit."""

    status: ClassVar[int] = 413
    _WORDS: ClassVar[str] = "{e.name} is too large{e.because}"
    _ADVICE: ClassVar[str] = "Import it in parts, or raise the limit in the settings"


@dataclass(eq=False)
class TooSlowError(DocumentImportError):
    """Parsing exceeded the limit of time or memory, or crashed."""

    status: ClassVar[int] = 422
    _WORDS: ClassVar[str] = "{e.name} could not be read{e.because}"
    _ADVICE: ClassVar[str] = "Split it into smaller files, or save it anew in the program it comes from"


@dataclass(eq=False)
class UnreadableFileError(DocumentImportError):
    """The file cannot be opened."""

    status: ClassVar[int] = 404
    _WORDS: ClassVar[str] = "{e.name} cannot be opened{e.because}"
    _ADVICE: ClassVar[str] = "Check the path and its permissions"


@dataclass(eq=False)
class AddressRefusedError(DocumentImportError):
    """The URL may not be fetched."""

    status: ClassVar[int] = 403
    _WORDS: ClassVar[str] = "{e.name} is not fetched{e.because}"
    _ADVICE: ClassVar[str] = (
        "Only http and https addresses of public hosts are; if it is yours, name its network in allow_networks"
    )


@dataclass(eq=False)
class AddressUnreachableError(DocumentImportError):
    """The host does not answer, or does not send a document."""

    status: ClassVar[int] = 502
    _WORDS: ClassVar[str] = "{e.name} could not be fetched{e.because}"
    _ADVICE: ClassVar[str] = "Check the address in a browser and try again"
