"""Parsing: bytes -> title and passages, by detected format.

The format is told by the first bytes, then the file name's extension, then the sender's media type, which comes last
because servers often send ``text/plain`` or ``application/octet-stream``. Any text is accepted.

Pure: no files, network or clock. Malicious input may make it slow or crash a library, so it runs in ``parser_worker``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    EncryptedDocumentError,
    KnowledgeError,
    MissingExtraError,
    NoTextError,
    TooLargeError,
    UnsupportedFormatError,
)
from mcp_servers.knowledge.importing.documents import CELL, Blob, ParsedDocument, ParseLimits, table_text
from mcp_servers.knowledge.importing.encodings import decode, is_binary
from mcp_servers.knowledge.importing.markdown import read_markdown
from mcp_servers.knowledge.importing.plain_text import read_plain
from mcp_servers.knowledge.importing.source_code import read_source
from mcp_servers.knowledge.types import Passage

if TYPE_CHECKING:
    from email.message import EmailMessage, MIMEPart

_TITLE_CHARACTERS = 300
_MAX_ATTACHMENTS = 100
_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 20
# A cell may be an article; the default limit of csv is 131,072.
_MAX_CELL = 10_000_000
# Control characters, non-characters and surrogates.
_MAX_INDENTED = 50
_MAX_HEADER = 20_000
_NON_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")
# JSON that is too deep or has huge numbers stays as written.
_JSON_PROBLEMS = (ValueError, RecursionError)


@dataclass(frozen=True)
class Format:
    """Media type and parser of a document."""

    media_type: str
    reader: str  # key of ``_READERS``
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
for _row in _TABLES["texts"]:
    _format = Format(_row["media_type"], _row["reader"])
    _BY_ENDING.update(dict.fromkeys(_row["endings"], _format))
    _BY_TYPE.update(dict.fromkeys(_row["types"], _format))
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


# Title, or empty for the document's name; passages; warnings.
_Parsed: TypeAlias = tuple[str, list[Passage], tuple[str, ...]]
_Reader: TypeAlias = Callable[[Blob, Format, ParseLimits], _Parsed]


def parse_blob(blob: Blob, limits: ParseLimits) -> ParsedDocument:
    """Parse a document; raise DocumentImportError, or MissingExtraError for a missing library."""
    if len(blob.content) > limits.document_bytes:
        raise TooLargeError(blob.name, f"it has more than {limits.document_bytes // 1_000_000:,} MB")
    if not blob.content.strip():
        raise NoTextError(blob.name, "it is empty")
    found = format_of(blob)
    title, read, warnings = _READERS[found.reader](blob, found, limits)
    passages = tuple(_within(limits, (passage for passage in map(_clean, read) if passage.text.strip())))
    if not passages:
        raise NoTextError(blob.name)
    if len(passages) < len(read) and _is_full(passages, limits):
        warnings = (
            *warnings,
            f"Only its first {len(passages):,} passages were read: it is too large for one document.",
        )
    title = _NON_TEXT.sub("", title).strip()[:_TITLE_CHARACTERS] or title_of(blob.name)
    content_hash = hashlib.sha256(blob.content).hexdigest()
    return ParsedDocument(title, passages, content_hash, found.media_type, warnings, blob.uri)


def _within(limits: ParseLimits, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield the passages before one document is too large; the one that makes it so is cut."""
    room = limits.characters
    for passage in islice(passages, limits.passages):
        size = len(passage.text) + sum(map(len, passage.headings))
        yield passage if size <= room else replace(passage, text=passage.text[:room])
        room -= size
        if room <= 0:
            return


def _is_full(passages: Sequence[Passage], limits: ParseLimits) -> bool:
    size = sum(len(passage.text) + sum(map(len, passage.headings)) for passage in passages)
    return len(passages) >= limits.passages or size >= limits.characters


def title_of(name: str) -> str:
    """Return the title for a document without one: its name without extension."""
    path = PurePosixPath(name)
    return (path.stem or path.name or name)[:_TITLE_CHARACTERS]


def _clean(passage: Passage) -> Passage:
    text = _NON_TEXT.sub("", passage.text)
    headings = tuple(_NON_TEXT.sub("", heading)[:_TITLE_CHARACTERS] for heading in passage.headings)
    return replace(passage, text=text, headings=headings)


def _text(blob: Blob, limits: ParseLimits, declared: str = "") -> tuple[str, tuple[str, ...]]:
    decoded = decode(blob.content, declared or blob.charset)
    text, warnings = decoded.text, list[str]()
    if decoded.damaged:
        warnings.append(f"{decoded.damaged} places could not be read as {decoded.encoding} and are shown as �.")
    if len(text) > limits.characters:
        warnings.append(f"Only the first {limits.characters:,} of {len(text):,} characters were read.")
        text = text[: limits.characters]
    return text, tuple(warnings)


def _decoded(read: Callable[[str, Blob, Format], tuple[str, list[Passage]]]) -> _Reader:
    """Return the reader of a format that is text, from a function of its text to title and passages."""

    def reader(blob: Blob, found: Format, limits: ParseLimits) -> _Parsed:
        text, warnings = _text(blob, limits)
        return (*read(text, blob, found), warnings)

    return reader


def _json(text: str, *_: object) -> tuple[str, list[Passage]]:
    """Reformat JSON with one value per line, so that escaped Japanese is found and long lines can be cut."""
    try:
        value = json.loads(text)
        written = text if _is_deep(value) else json.dumps(value, ensure_ascii=False, indent=1)
        return "", [Passage(written, is_atomic=True)]
    except _JSON_PROBLEMS:
        return "", read_plain(text)


def _values(value: Any) -> Iterable[Any]:
    """Return the values directly inside a JSON object or array."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _is_deep(value: Any) -> bool:
    """True if JSON nests so deeply that most of the text would be indentation."""
    level = [value]
    for _ in range(_MAX_INDENTED):
        level = list(chain.from_iterable(map(_values, level)))
    return bool(level)


def _html(blob: Blob, _: Format, limits: ParseLimits) -> _Parsed:
    try:
        from mcp_servers.knowledge.importing.html import declared_charset, read_html
    except ImportError as error:
        raise MissingExtraError("Reading HTML", "selectolax") from error
    # The charset of the sender takes precedence over the page's own.
    text, warnings = _text(blob, limits, blob.charset or declared_charset(blob.content))
    return (*read_html(text), warnings)


def _office(blob: Blob, found: Format, limits: ParseLimits) -> _Parsed:
    from mcp_servers.knowledge.importing.office import read_docx, read_office

    return read_docx(blob, limits) if found.reader == "docx" else (*read_office(blob, found.reader, limits), ())


def _mail(blob: Blob, _: Format, limits: ParseLimits) -> _Parsed:
    """Read subject, addresses and text of a message, then each attachment below its name."""
    from email import message_from_bytes, policy

    from mcp_servers.knowledge.importing.html import read_html

    message = message_from_bytes(blob.content, policy=policy.default)
    headers = {name: _header(message, name) for name in ("From", "To", "Cc", "Date", "Subject")}
    lines = [f"{name}: {value}" for name, value in headers.items() if value]
    passages = [Passage("\n".join(lines))] if lines else []
    warnings: tuple[str, ...] = ()
    body = message.get_body(("plain", "html"))
    if body is not None:
        # Senders often name a charset that lacks some of the characters.
        text, warnings = _text(Blob(_payload(body), blob.name), limits, body.get_content_charset(""))
        passages += read_html(text)[1] if body.get_content_subtype() == "html" else read_plain(text)
    for number, part in enumerate(islice(message.iter_attachments(), _MAX_ATTACHMENTS), 1):
        is_mail = part.get_content_type() == "message/rfc822"
        name = part.get_filename() or (f"message {number}.eml" if is_mail else "")
        if name:
            attached = Blob(_payload(part), name if not is_mail else f"{name.removesuffix('.eml')}.eml")
            found, problem = _attached(attached, limits)
            passages += found or [Passage(f"Attachment: {name}")]
            warnings = (*warnings, *problem)
    return headers["Subject"], passages, warnings


def _header(message: EmailMessage, name: str) -> str:
    """Return a header; a long one as it is written, because the library parses addresses in quadratic time."""
    raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    return str(message[name] or "") if len(raw) <= _MAX_HEADER else " ".join(raw[:_MAX_HEADER].split())


def _attached(blob: Blob, limits: ParseLimits) -> tuple[list[Passage], tuple[str, ...]]:
    try:
        document = parse_blob(blob, limits)
    except KnowledgeError as problem:
        return [], (f"The attachment {blob.name} was not read: {problem.words}.",)
    return [replace(each, headings=(blob.name, *each.headings)) for each in document.passages], document.warnings


def _payload(part: MIMEPart) -> bytes:
    inner = part.get_payload()
    if isinstance(inner, list):
        return b"\n".join(each.as_bytes() for each in cast("list[MIMEPart]", inner))
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _rich_text(blob: Blob, _: Format, __: ParseLimits) -> _Parsed:
    try:
        from striprtf import striprtf
    except ImportError as error:
        raise MissingExtraError("Reading Rich Text", "striprtf") from error
    # Characters outside ASCII are escaped in the file; "|" separates the cells of a table.
    text = cast("Any", striprtf).rtf_to_text(blob.content.decode("latin-1"), errors="replace")
    return "", read_plain(str(text).replace("|", CELL)), ()


def _picture(blob: Blob, _: Format, limits: ParseLimits) -> _Parsed:
    from mcp_servers.knowledge.importing.recognition import HINT, languages, recognize

    if not languages():
        raise UnsupportedFormatError(blob.name, f"it is an image, and {HINT}")
    return "", read_plain(recognize(blob.content, limits.seconds)), ("Its text was recognised by OCR.",)


def _pdf(blob: Blob, _: Format, limits: ParseLimits) -> _Parsed:
    from mcp_servers.knowledge.importing.pdf import read_pdf

    return read_pdf(blob, limits)


def read_csv(text: str, *, tabs: bool = False) -> list[Passage]:
    """Return a CSV or TSV file as one table; malformed files are split at the delimiter."""
    delimiter = "\t" if tabs else _delimiter(text)
    csv.field_size_limit(_MAX_CELL)
    try:
        table = table_text(csv.reader(io.StringIO(text), delimiter=delimiter, strict=False))
    except csv.Error:
        table = table_text(line.split(delimiter) for line in text.splitlines())
    return [Passage(table, is_atomic=True)] if table else []


def _delimiter(text: str) -> str:
    """Return the character that splits the first lines into the most columns, equally many in each."""
    lines = [line for line in text[:100_000].splitlines() if line.strip()][:_SAMPLE_ROWS]

    def columns(delimiter: str) -> tuple[bool, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter, strict=False)]
        return len(set(counts)) == 1 and counts[0] > 1, max(counts, default=0)

    return max(_DELIMITERS, key=columns)


_READERS: dict[str, _Reader] = {
    "plain": _decoded(lambda text, _, __: ("", read_plain(text))),
    "markdown": _decoded(lambda text, _, __: read_markdown(text)),
    # The name with its extension, to distinguish a.c and a.h.
    "source": _decoded(lambda text, blob, found: (PurePosixPath(blob.name).name, read_source(text, found.language))),
    "csv": _decoded(lambda text, _, found: ("", read_csv(text, tabs=found is TSV))),
    "json": _decoded(_json),
    "html": _html,
    "pdf": _pdf,
    **dict.fromkeys(("docx", "xlsx", "pptx", "odt", "epub"), _office),
    "mail": _mail,
    "picture": _picture,
    "rtf": _rich_text,
}
