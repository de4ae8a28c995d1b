"""Detection of a document's format: first bytes, then file name extension, then the sender's media type.

Servers often send ``text/plain`` or ``application/octet-stream``, so the media type comes last. Any text is accepted.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mcp_servers.knowledge.errors import DamagedDocumentError, EncryptedDocumentError, UnsupportedFormatError
from mcp_servers.knowledge.importing.documents import Blob
from mcp_servers.knowledge.importing.encodings import is_binary


@dataclass(frozen=True)
class Format:
    """Media type and parser of a document."""

    media_type: str
    reader: str  # key of ``parse._READERS``
    language: str = ""  # of source code


PDF = Format("application/pdf", "pdf")
RTF = Format("application/rtf", "rtf")
PLAIN = Format("text/plain", "plain")

_TABLES: Any = json.loads(Path(__file__).with_name("formats.json").read_text("utf-8"))
_BY_ENDING = {
    ending: Format(f"text/x-{name}", "source", name)
    for name, endings in _TABLES["source_code"].items()
    for ending in endings
}
_BY_TYPE: dict[str, Format] = {}
for _text in _TABLES["texts"]:
    _found = Format(_text["media_type"], _text["reader"])
    _BY_ENDING.update(dict.fromkeys(_text["endings"], _found))
    _BY_TYPE.update(dict.fromkeys(_text["types"], _found))
# A file that only this format has in its archive.
_ZIPPED = {entry: Format(**found) for entry, found in _TABLES["zipped"].items()}
HTML, TSV, MAIL = _BY_ENDING["html"], _BY_ENDING["tsv"], _BY_ENDING["eml"]
# First bytes of common binary formats, so that the error can name them.
_BINARY = {magic.encode("latin-1"): reason for reason, magics in _TABLES["binary"].items() for magic in magics}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Pictures whose text can be recognised.
_PICTURES = {b"\x89PNG": Format("image/png", "picture"), b"\xff\xd8\xff": Format("image/jpeg", "picture")}
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_HEAD_BYTES = 1024


def format_of(blob: Blob) -> Format:
    """Detect the format; raise UnsupportedFormatError, EncryptedDocumentError or DamagedDocumentError."""
    head = blob.content[:_HEAD_BYTES]
    ending = PurePosixPath(blob.name.lower()).suffix.removeprefix(".")
    if _BY_ENDING.get(ending) is MAIL:
        # Attachments begin like documents of their own.
        _check_not_binary(blob, head)
        return MAIL
    if b"%PDF-" in head:
        return PDF
    if head.startswith(b"PK\x03\x04"):
        return _zipped(blob)
    if head.startswith(b"{\\rtf"):
        return RTF
    for magic, picture in _PICTURES.items():
        if head.startswith(magic) and (len(magic) > 3 or is_binary(blob.content)):
            return picture
    if ending in {"pdf", "docx", "xlsx", "pptx"}:
        raise _mismatch_error(blob, ending)
    _check_not_binary(blob, head)
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    named = _BY_TYPE.get(blob.media_type.lower())
    if named:
        return named
    return HTML if _HTML_START.match(head.removeprefix(b"\xef\xbb\xbf")) else PLAIN


def _zipped(blob: Blob) -> Format:
    try:
        with zipfile.ZipFile(io.BytesIO(blob.content)) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeError) as error:
        raise DamagedDocumentError(blob.name, "the archive inside is cut off or broken") from error
    for name, found in _ZIPPED.items():
        if name in names or (found.reader == "epub" and any(each.endswith(f"/{name}") for each in names)):
            return found
    raise UnsupportedFormatError(blob.name, "it is an archive")


def _mismatch_error(blob: Blob, ending: str) -> Exception:
    # Encrypted Office files are OLE containers.
    if ending != "pdf" and blob.content.startswith(_OLE):
        return EncryptedDocumentError(blob.name)
    return DamagedDocumentError(blob.name, f"its name ends in {ending}, but it is another format")


def _check_not_binary(blob: Blob, head: bytes) -> None:
    for magic, reason in _BINARY.items():
        # Text may begin with two of these letters by chance.
        if head.startswith(magic) and (len(magic) > 3 or is_binary(blob.content)):
            raise UnsupportedFormatError(blob.name, reason)
    if is_binary(blob.content):
        raise UnsupportedFormatError(blob.name, "it is binary")
