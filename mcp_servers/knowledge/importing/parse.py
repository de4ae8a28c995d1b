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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, cast

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    EncryptedDocumentError,
    KnowledgeError,
    NoTextError,
    TooLargeError,
    UnsupportedFormatError,
)
from mcp_servers.knowledge.importing.calendars import read_calendar, read_contacts, unfold
from mcp_servers.knowledge.importing.documents import Blob, HiddenParts, ParsedDocument, ParseLimits, table_passage
from mcp_servers.knowledge.importing.help_pages import HELP_START, help_html
from mcp_servers.knowledge.importing.markdown import read_markdown
from mcp_servers.knowledge.importing.plain_text import read_plain
from mcp_servers.knowledge.importing.source_code import read_source
from mcp_servers.knowledge.types import Passage
from rkllm_base.encodings import decode, is_binary

_TITLE_CHARACTERS = 300
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r'"?sep=([^\n"])"?[^\S\n]*\n', re.IGNORECASE)
_SAMPLE_ROWS = 20
# A cell may be an article; the default limit of csv is 131,072.
_MAX_CELL = 10_000_000
# Rows of a table that are examined on their own; the time for them grows with the square of their number.
_MAX_FAULTS = 200
_MAX_INDENTED = 50
# Control characters, soft hyphens, non-characters and surrogates.
_NON_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ufeff\ufffe\uffff\ud800-\udfff]")
# Colours and movements of a terminal, in logs and printed results.
_TERMINAL = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*)")
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
FLAT_WORKBOOK, FLAT_WORD = Format("application/vnd.ms-excel", "xls"), Format("application/msword", "doc")

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
_ZIPPED = {entry: Format(**table) for entry, table in _TABLES["zipped"].items()}
_OFFICE_TYPES = [
    (re.compile(pattern), _ZIPPED[part])
    for pattern, part in (
        (r"(?:wordprocessingml|ms-word)\.(?:document|template)\.(?:main|macroEnabled)", "word/document.xml"),
        (r"(?:spreadsheetml|ms-excel)\.(?:sheet|template)\.(?:main|macroEnabled)", "xl/workbook.xml"),
        (
            r"(?:presentationml|ms-powerpoint)\.(?:presentation|slideshow|template)\.(?:main|macroEnabled)",
            "ppt/presentation.xml",
        ),
    )
]
_BINARY_WORKBOOK, _OPEN_DOCUMENT = "ms-excel.sheet.binary", "application/vnd.oasis.opendocument."
_MAX_TYPES_BYTES = 1_000_000
HTML, TSV, MAIL = _BY_ENDING["html"], _BY_ENDING["tsv"], _BY_ENDING["eml"]
HELP, FICTION_BOOK = _BY_ENDING["docbook"], _BY_ENDING["fb2"]
MAILBOX, FLAT_OPEN_DOCUMENT = _BY_ENDING["mbox"], _BY_ENDING["fodt"]
# First bytes of common binary formats, so that the error can name them.
_BINARY = {magic.encode("latin-1"): reason for reason, magics in _TABLES["binary"].items() for magic in magics}
_ENCRYPTED_PART = "EncryptedPackage".encode("utf-16-le")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Pictures whose text can be recognised.
_PICTURES = {b"\x89PNG": Format("image/png", "picture"), b"\xff\xd8\xff": Format("image/jpeg", "picture")}
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_BOOK_START = re.compile(rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<FictionBook\b", re.DOTALL)
# Documents in one XML file: of OpenDocument, Excel 2003 and Word.
_FLAT_STARTS = {
    re.compile(rb"<office:document\s"): FLAT_OPEN_DOCUMENT,
    re.compile(rb"<(?:\w+:)?Workbook\s[^>]*urn:schemas-microsoft-com:office:spreadsheet"): FLAT_WORKBOOK,
    re.compile(
        rb"<w:wordDocument\s|<pkg:package\s.*?/word/|mso-application progid=.Word.Document", re.DOTALL
    ): FLAT_WORD,
}
_UUENCODED_START = re.compile(rb"begin [0-7]{3,4} [^\r\n]+\r?\n[!-M][ -`]{4,60}\r?\n")
# The head of a mail, which may have its length before it; also of a page that is saved in one file.
_MAIL_START = re.compile(
    rb"(?:\d{1,9}[ \t]*\r?\n)?"
    rb"(?:[a-z][a-z0-9-]{1,40}:[^\r\n]*\r?\n(?:[ \t][^\r\n]*\r?\n)*){1,60}?(?:mime-version|content-type|received):",
    re.IGNORECASE,
)
_HEADER_LINE = re.compile(rb"\s*[A-Za-z][\w-]*:")
_LINES_START = {b"BEGIN:VCALENDAR": _BY_ENDING["ics"], b"BEGIN:VCARD": _BY_ENDING["vcf"]}
# Texts of these formats may begin like another one: an example, a template.
_OPEN_READERS = frozenset({"source", "markdown", "mail", "notebook", "jsonl"})
# A separator line and a header.
_MAILBOX_START = re.compile(
    rb"\AFrom (?:-|\S+ [^\r\n]{0,100}\d{4}[^\r\n]{0,20}) ?\r?\n(?:>?[A-Za-z][\w-]*:[^\r\n]*\r?\n|[ \t][^\r\n]*\r?\n)"
)
_HEAD_BYTES = 1024


def format_of(blob: Blob) -> Format:
    """Detect the format; raise UnsupportedFormatError, EncryptedDocumentError or DamagedDocumentError."""
    head = blob.content[:_HEAD_BYTES]
    ending = PurePosixPath(blob.name.lower()).suffix.removeprefix(".")
    file_format = _BY_ENDING.get(ending) or _BY_TYPE.get(blob.media_type.lower())
    # Attachments of a mail begin like separate documents.
    is_mail = file_format is MAIL and _HEADER_LINE.match(head) is not None
    marked = None if is_mail else _marked_format(blob, head)
    if marked:
        return marked
    declared = _told_format(head)
    if declared is None and ending in {"pdf", "docx", "xlsx", "pptx"}:
        # Encrypted Office files are OLE containers, as are those of older versions.
        if ending != "pdf" and blob.content.startswith(_OLE) and _ENCRYPTED_PART in blob.content:
            raise EncryptedDocumentError(blob.name)
        if not blob.content.startswith(_OLE):
            raise DamagedDocumentError(blob.name, f"its name ends in {ending}, but it is another format")
    for magic, reason in _BINARY.items():
        # Text may begin with two of these letters by chance.
        if head.startswith(magic) and (len(magic) > 3 or is_binary(blob.content)):
            raise UnsupportedFormatError(blob.name, reason)
    # A mail may have files as bytes.
    if declared is not MAIL and is_binary(blob.content):
        raise UnsupportedFormatError(blob.name, "it is binary")
    # What the text is comes before what its name says.
    if declared and (file_format is None or file_format.reader not in _OPEN_READERS):
        return declared
    return file_format or PLAIN


def _told_format(head: bytes) -> Format | None:
    """Return the format of text that tells it in its first line, or None."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, file_format in _FLAT_STARTS.items():
        if start[:1] == b"<" and pattern.search(head):
            return file_format
    for mark, file_format in _LINES_START.items():
        if start[: len(mark)].upper() == mark:
            return file_format
    # An encoded file is read as the text of a mail that has one.
    if _MAIL_START.match(start) or _UUENCODED_START.match(start):
        return MAIL
    if _HTML_START.match(start):
        return HTML
    if _BOOK_START.match(start):
        return FICTION_BOOK
    return HELP if start[:1] == b"<" and HELP_START.match(start.decode("utf-8", "replace")) else None


def _marked_format(blob: Blob, head: bytes) -> Format | None:
    """Return the format that the first bytes tell, or None."""
    if _MAILBOX_START.match(head):
        return MAILBOX
    if b"%PDF-" in head:
        return PDF
    if head.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(io.BytesIO(blob.content)) as archive:
                names = frozenset(archive.namelist())
                types = _part_text(archive, "[Content_Types].xml")
                media_type = _part_text(archive, "mimetype").strip()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeError) as error:
            raise DamagedDocumentError(blob.name, "the archive inside is cut off or broken") from error
        # The main part may have another name than usual.
        for pattern, kind in _OFFICE_TYPES:
            if pattern.search(types):
                return kind
        if _BINARY_WORKBOOK in types:
            raise UnsupportedFormatError(blob.name, "it is a binary Excel file (xlsb)")
        for name, file_format in _ZIPPED.items():
            if name in names or (file_format.reader == "epub" and any(entry.endswith(f"/{name}") for entry in names)):
                is_open = file_format.reader == "odt" and media_type.startswith(_OPEN_DOCUMENT)
                return replace(file_format, media_type=media_type) if is_open else file_format
        raise UnsupportedFormatError(blob.name, "it is an archive")
    if head.startswith(b"{\\rtf"):
        return RTF
    for magic, picture in _PICTURES.items():
        if head.startswith(magic) and (len(magic) > 3 or is_binary(blob.content)):
            return picture
    return None


def _part_text(archive: zipfile.ZipFile, name: str) -> str:
    """Return the beginning of a part as text; empty if it is encrypted or there is none."""
    with suppress(KeyError, RuntimeError), archive.open(name) as part:
        return part.read(_MAX_TYPES_BYTES).decode("utf-8", "replace")
    return ""


# Title, or empty for the document's name; passages; warnings.
_Parsed: TypeAlias = tuple[str, list[Passage], tuple[str, ...]]
_Reader: TypeAlias = Callable[[Blob, Format, ParseLimits], _Parsed]


def parse_blob(blob: Blob, limits: ParseLimits) -> ParsedDocument:
    """Parse a document; raise DocumentImportError."""
    if len(blob.content) > limits.document_bytes:
        raise TooLargeError(blob.name, f"it has more than {limits.document_bytes // 1_000_000:,} MB")
    if not blob.content.strip():
        raise NoTextError(blob.name, "it is empty")
    file_format = format_of(blob)
    title, read, warnings = _READERS[file_format.reader](blob, file_format, limits)
    # Those that have text, without control characters. The one that would make the document too large is cut.
    passages: list[Passage] = []
    room = limits.characters
    for passage in read:
        text = _TERMINAL.sub("", passage.text) if "\x1b" in passage.text else passage.text
        text = _NON_TEXT.sub("", text)
        if not text.strip():
            continue
        headings = tuple(_NON_TEXT.sub("", heading)[:_TITLE_CHARACTERS] for heading in passage.headings)
        size = len(text) + sum(map(len, headings))
        passages.append(replace(passage, text=text if size <= room else text[:room], headings=headings))
        room -= size
        if room <= 0 or len(passages) >= limits.passages:
            break
    if not passages:
        raise NoTextError(blob.name)
    is_full = room <= 0 or len(passages) >= limits.passages
    if is_full and len(passages) < len(read):
        warnings = (
            *warnings,
            f"Only its first {len(passages):,} passages were read: it is too large for one document.",
        )
    # A document without a title has its name without extension.
    path = PurePosixPath(blob.name)
    title = _NON_TEXT.sub("", title).strip()[:_TITLE_CHARACTERS]
    title = title or (path.stem or path.name or blob.name)[:_TITLE_CHARACTERS]
    content_hash = hashlib.sha256(blob.content).hexdigest()
    return ParsedDocument(title, tuple(passages), content_hash, file_format.media_type, warnings, blob.uri)


def _text(blob: Blob, limits: ParseLimits, declared: str = "") -> tuple[str, tuple[str, ...]]:
    decoded = decode(blob.content, declared or blob.charset)
    text, warnings = decoded.text, [*decoded.warnings]
    if len(text) > limits.characters:
        warnings.append(f"Only the first {limits.characters:,} of {len(text):,} characters were read.")
        text = text[: limits.characters]
    return text, tuple(warnings)


def _read_text(
    read: Callable[[str, Blob, Format], tuple[str, list[Passage]]],
    blob: Blob,
    file_format: Format,
    limits: ParseLimits,
    *,
    unfolds: bool = False,
) -> _Parsed:
    """Read a format that is text, whose long lines may be divided, by a function of its text."""
    text, warnings = _text(replace(blob, content=unfold(blob.content)) if unfolds else blob, limits)
    return (*read(text, blob, file_format), warnings)


def _json(text: str, *_: object) -> tuple[str, list[Passage]]:
    """Reformat JSON with one value per line, so that escaped Japanese is found and long lines can be cut."""
    try:
        value = json.loads(text)
        level = [value]
        for _depth in range(_MAX_INDENTED):
            inner: list[Any] = []
            for each in level:
                if isinstance(each, dict):
                    inner += cast("dict[str, Any]", each).values()
                elif isinstance(each, list):
                    inner += cast("list[Any]", each)
            level = inner
        # Most of the text of JSON that has values so deep would be indentation.
        written = text if level else json.dumps(value, ensure_ascii=False, indent=1)
        return "", [Passage(written, is_atomic=True)]
    except _JSON_PROBLEMS:
        return "", read_plain(text)


def _json_lines(text: str, *_: object) -> tuple[str, list[Passage]]:
    """Return one passage per line of JSON."""
    passages: list[Passage] = []
    for line in text.split("\n"):
        if line.strip():
            passages += _json(line.strip())[1]
    return "", passages


def _notebook(text: str, *remainder: object) -> tuple[str, list[Passage]]:
    """Return the text, the code and the printed results of a Jupyter notebook."""
    try:
        cells: Any = json.loads(text)["cells"]
        passages: list[Passage] = []
        path: tuple[str, ...] = ()
        for cell in cells:
            source = "".join(cell.get("source", ()))
            if cell.get("cell_type") == "code":
                # Of pictures and tables the text that is printed where they cannot be shown.
                outputs = (
                    output.get("text", ()) or output.get("data", {}).get("text/plain", ()) or output.get("evalue", "")
                    for output in cell.get("outputs", ())
                )
                printed = "\n".join(filter(None, map("".join, outputs)))
                passages += (Passage(part, path, is_atomic=True) for part in (source, printed) if part.strip())
            else:
                read = read_markdown(source)[1] if cell.get("cell_type") == "markdown" else read_plain(source)
                # A heading of a cell holds for the following ones; one without text is a passage itself.
                passages += [passage if passage.headings else replace(passage, headings=path) for passage in read]
                path = read[-1].headings if read and read[-1].headings else path
        return "", passages
    except (*_JSON_PROBLEMS, KeyError, TypeError, AttributeError):
        return _json(text, *remainder)


def _html(blob: Blob, file_format: Format, limits: ParseLimits) -> _Parsed:
    from mcp_servers.knowledge.importing.html import declared_charset, read_html, reason_without_text

    # The charset of the sender takes precedence over the page's own.
    text, warnings = _text(blob, limits, blob.charset or declared_charset(blob.content))
    if file_format.reader == HELP.reader:
        page = help_html(text)
        if not page:
            return "", read_plain(text), warnings
        text = page
    title, passages = read_html(text)
    if not passages and (reason := reason_without_text(text)):
        raise NoTextError(blob.name, reason)
    return title, passages, warnings


def _document(blob: Blob, file_format: Format, limits: ParseLimits) -> _Parsed:
    """Read a format with a module of its own, which the first document of it loads."""
    match file_format.reader:
        case "pdf":
            from mcp_servers.knowledge.importing.pdf import read_pdf

            return read_pdf(blob, limits, read_attachment)
        case "mail":
            from mcp_servers.knowledge.importing.mail import read_mail

            return read_mail(blob, limits, read_attachment)
        case "mailbox":
            from mcp_servers.knowledge.importing.mail import read_mailbox

            return read_mailbox(blob, limits, read_attachment)
        case "rtf":
            from mcp_servers.knowledge.importing.rich_text import rich_text

            hidden = HiddenParts(is_included=limits.include_hidden)
            passages = read_plain(rich_text(blob.content, hidden))
            if not passages and hidden.reason:
                raise NoTextError(blob.name, hidden.reason)
            return "", passages, tuple(hidden.warnings())
        case "picture":
            from mcp_servers.knowledge.importing.recognition import HINT, languages, recognize

            if not languages():
                raise UnsupportedFormatError(blob.name, f"it is an image, and {HINT}")
            return "", read_plain(recognize(blob.content, limits.seconds)), ("Its text was recognised by OCR.",)
        case office:
            from mcp_servers.knowledge.importing.office import read_office

            return read_office(blob, office, limits)


def read_attachment(blob: Blob, limits: ParseLimits) -> tuple[list[Passage], tuple[str, ...]]:
    """Return the passages of a file inside another below its name, or its name and the reason why it was not read."""
    try:
        document = parse_blob(blob, limits)
    except KnowledgeError as problem:
        return [Passage(f"Attachment: {blob.name}")], (f"The attachment {blob.name} was not read: {problem.words}.",)
    passages = [replace(passage, headings=(blob.name, *passage.headings)) for passage in document.passages]
    return passages, document.warnings


def read_csv(text: str, *, tabs: bool = False) -> list[Passage]:
    """Return a CSV or TSV file as one table; malformed files are split at the delimiter."""
    # Excel's own first line, which names the delimiter.
    match = _SEPARATOR.match(text)
    text = text[match.end() :] if match else text
    delimiter = match[1] if match else "\t"
    if not match and not tabs:
        # The one that splits the first lines into the most columns, equally many in each.
        lines = [line for line in text[:100_000].splitlines() if line.strip()][:_SAMPLE_ROWS]
        rated: dict[str, tuple[bool, int]] = {}
        for sign in _DELIMITERS:
            counts = [len(row) for row in csv.reader(lines, delimiter=sign, strict=False)]
            rated[sign] = len(set(counts)) == 1 and counts[0] > 1, max(counts, default=0)
        delimiter = max(_DELIMITERS, key=rated.__getitem__)
    csv.field_size_limit(_MAX_CELL)
    table = table_passage(_csv_rows(text.splitlines(keepends=True), delimiter))
    return [table] if table.text else []


def _csv_rows(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """Yield the rows; a quotation mark that is not closed as it should be takes no line but its own."""
    at = faults = 0
    while at < len(lines):
        start, is_strict = at, faults < _MAX_FAULTS
        reader = csv.reader(islice(lines, start, None), delimiter=delimiter, strict=is_strict)
        try:
            for row in reader:
                at = start + reader.line_num
                yield row
        except csv.Error:
            faults += 1
            try:
                yield from csv.reader([lines[at]], delimiter=delimiter, strict=False)
            except csv.Error:
                yield lines[at].split(delimiter)
            at += 1


_READERS: dict[str, _Reader] = {
    "plain": partial(_read_text, lambda text, _, __: ("", read_plain(text))),
    "markdown": partial(_read_text, lambda text, _, __: read_markdown(text)),
    # The name with its extension, to distinguish a.c and a.h.
    "source": partial(
        _read_text,
        lambda text, blob, file_format: (PurePosixPath(blob.name).name, read_source(text, file_format.language)),
    ),
    "csv": partial(_read_text, lambda text, _, file_format: ("", read_csv(text, tabs=file_format is TSV))),
    "json": partial(_read_text, _json),
    "jsonl": partial(_read_text, _json_lines),
    "notebook": partial(_read_text, _notebook),
    **dict.fromkeys(("html", "help"), _html),
    **dict.fromkeys(("docx", "xlsx", "pptx", "odt", "fodt", "xls", "doc", "epub"), _document),
    **dict.fromkeys(("pdf", "mail", "mailbox", "picture", "rtf"), _document),
    "calendar": partial(_read_text, lambda text, _, __: ("", read_calendar(text)), unfolds=True),
    "contacts": partial(_read_text, lambda text, _, __: ("", read_contacts(text)), unfolds=True),
}
