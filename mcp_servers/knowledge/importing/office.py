"""Zipped XML documents -> title and passages: Word, Excel, PowerPoint, OpenDocument text and EPUB.

Declared sizes are checked before unpacking, because a small archive may expand to gigabytes; a part with a document
type is refused, because entities expand as well. A sheet or table is one passage, a slide a page.

Word is read through HTML. Headers, footers, comments, charts and diagrams follow its text. Images are omitted, and
there are no page numbers: pagination depends on the printer.
"""

from __future__ import annotations

import html
import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import DamagedDocumentError, EncryptedDocumentError, MissingExtraError, TooLargeError
from mcp_servers.knowledge.importing.documents import (
    Blob,
    DocumentBuilder,
    DocumentFullError,
    ParseLimits,
    table_text,
)
from mcp_servers.knowledge.types import Passage

_TITLE = re.compile(r"<dc:title\b[^<>]*>([^<]{1,1000})<")
_MAX_PARTS = 10_000
# XML of real documents compresses to a twentieth at most; only crafted archives are far beyond.
_MAX_RATIO = 200
_RATIO_FROM = 10_000_000
_ENCRYPTED = 0x1
# An older document type without declarations of its own cannot expand.
_ENTITIES = re.compile(rb"<!ENTITY|<!DOCTYPE[^<>\[]*\[", re.IGNORECASE)
_MAX_COLUMNS = 1_000
# A wider gap between the cells of a row becomes one of so many empty cells.
_MAX_GAP = 50
# Elements inside each other; the readers need time that grows with the square of the depth.
_MAX_DEPTH = 200
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
# Number formats of spreadsheets that show dates and times; others are named by their letters.
_DATE_FORMATS = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
_DATE_LETTERS = re.compile(r"[ymdhs]|年|月|日", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')
_EPOCH = datetime(1899, 12, 30)  # a spreadsheet's dates have no zone
_MAX_DAYS = 2_958_466
# The run below the reading takes the place of both.
_RUBY = re.compile(
    rb"<w:ruby>(?:(?!<w:rubyBase>|</?w:ruby>).)*<w:rubyBase>((?:(?!</w:rubyBase>|<w:ruby>).)*)</w:rubyBase>\s*</w:ruby>",
    re.DOTALL,
)
# The library knows no equations: their characters become text.
_EQUATION = re.compile(rb"<m:oMath(?:\s[^<>]*)?>((?:(?!<m:oMath[\s>]).)*?)</m:oMath>", re.DOTALL)
_EQUATION_PARAGRAPH = re.compile(
    rb"</?m:oMathPara(?:\s[^<>]*)?>|<m:oMathParaPr>(?:(?!<m:oMathParaPr>).)*?</m:oMathParaPr>", re.DOTALL
)
_EQUATION_TEXT = re.compile(rb"<m:t(?:\s[^<>]*)?>([^<]*)</m:t>")
_BESIDE = r"word/(?:(?:header|footer)\d*|comments|diagrams/data\d*)\.xml"
_CHARTS = r"word/charts/chart\d*\.xml"
_IGNORED = "An unrecognised element was ignored: "
_TEXT_PARTS = frozenset({"word/document.xml", "word/footnotes.xml", "word/endnotes.xml"})
_STYLES = "\n".join(
    (
        "p[style-name='Title'] => h1:fresh",
        "p[style-name='Subtitle'] => p:fresh",
        "p[style-name='表題'] => h1:fresh",
        *(f"p[style-name='見出し {level}'] => h{level}:fresh" for level in range(1, 7)),
    )
)


def _checked_archive(blob: Blob, limits: ParseLimits) -> zipfile.ZipFile:
    """Open an archive; raise EncryptedDocumentError, or TooLargeError if it unpacks to more than is allowed."""
    archive = zipfile.ZipFile(io.BytesIO(blob.content))
    parts = archive.infolist()
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise EncryptedDocumentError(blob.name)
    # At most the declared size is read, so it can be trusted.
    unpacked = sum(part.file_size for part in parts)
    if unpacked > limits.unpacked_bytes or len(parts) > _MAX_PARTS:
        raise TooLargeError(blob.name, f"it unpacks to {unpacked // 1_000_000:,} MB in {len(parts):,} parts")
    if any(part.file_size > _RATIO_FROM and part.file_size > _MAX_RATIO * part.compress_size for part in parts):
        raise TooLargeError(blob.name, f"a part of it unpacks to more than {_MAX_RATIO} times its size")
    return archive


def _title_in(archive: zipfile.ZipFile, name: str) -> str:
    """Return the title that a part with the document's properties has, or an empty string."""
    if name not in archive.namelist():
        return ""
    found = _TITLE.search(archive.read(name).decode("utf-8", errors="replace"))
    return " ".join(html.unescape(found.group(1)).split()) if found else ""


def read_office(blob: Blob, kind: str, limits: ParseLimits) -> tuple[str, list[Passage]]:
    """Return title (may be empty) and passages of an ``xlsx``, ``pptx``, ``odt`` or ``epub`` file.

    Raises TooLargeError, EncryptedDocumentError or DamagedDocumentError.
    """
    reader, properties = _READERS[kind]
    builder = DocumentBuilder()
    try:
        with _checked_archive(blob, limits) as archive:
            title = _title_in(archive, properties)
            with suppress(DocumentFullError):
                reader(archive, builder)
    except (KeyError, ValueError, IndexError, ET.ParseError, zipfile.BadZipFile) as error:
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    return title or builder.title, builder.finish()


def _tree(archive: zipfile.ZipFile, name: str) -> ET.Element:
    content = archive.read(name)
    if _ENTITIES.search(content):
        raise ValueError(f"{name} declares entities")
    root = ET.fromstring(content)  # noqa: S314  # entities are refused above
    level, depth = [root], 0
    while level:
        level, depth = [child for element in level for child in element], depth + 1
        if depth > _MAX_DEPTH:
            raise ValueError(f"{name} has more than {_MAX_DEPTH} elements inside each other")
    return root


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _named(element: ET.Element, *tags: str) -> Iterator[ET.Element]:
    return (each for each in element.iter() if _tag(each) in tags)


def _numbered(archive: zipfile.ZipFile, pattern: str) -> list[str]:
    """Return the parts whose whole name matches, by the numbers in their names."""
    names = [name for name in archive.namelist() if re.fullmatch(pattern, name)]
    return sorted(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def _relations(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Return the related parts of a part: id -> kind and name."""
    folder, name = posixpath.split(part)
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in archive.namelist():
        return {}
    return {
        each.get("Id", ""): (
            each.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, each.get("Target", ""))).lstrip("/"),
        )
        for each in _named(_tree(archive, relations), "Relationship")
        if each.get("TargetMode") != "External"
    }


def _paragraphs_of(archive: zipfile.ZipFile, part: str) -> str:
    """Return the paragraphs of a part, a line each: of a header, a comment, a text box or a diagram."""
    tree = _tree(archive, part)
    paragraphs = list(_named(tree, "p")) or list(_named(tree, "text"))
    lines = ("".join(each.text or "" for each in _named(paragraph, "t")).strip() for paragraph in paragraphs)
    return "\n".join(line for line in lines if line and not line.isdecimal())


def _chart_of(archive: zipfile.ZipFile, part: str) -> tuple[str, str]:
    """Return the title of a chart and its data as a table: a row per series, a column per category."""
    tree = _tree(archive, part)
    rows: list[list[str]] = []
    for series in _named(tree, "ser"):
        found = {_tag(each): each for each in series}
        labels, values = (
            [text for name in names if name in found for text in _points(found[name])]
            for names in (("cat", "xVal"), ("val", "yVal"))
        )
        if labels and ["", *labels] not in rows:
            rows.append(["", *labels])
        rows.append([" ".join(_points(found["tx"])) if "tx" in found else "", *values])
    title = next((each for each in tree.iter() if _tag(each) == "title"), None)
    return ("" if title is None else "".join(each.text or "" for each in _named(title, "t"))), table_text(rows)


def _points(element: ET.Element) -> list[str]:
    """Return the stored values of a chart's data, with empty ones for those that are missing."""
    # Categories of several levels: the innermost first; an outer one holds until the next.
    levels = [
        {int(point.get("idx", 0)): (next(_named(point, "v")).text or "") for point in _named(level, "pt")}
        for level in (list(_named(element, "lvl")) or [element])
    ]
    if not any(levels):
        return [each.text or "" for each in _named(element, "v")]
    inner, *outer = levels
    points: list[str] = []
    for index in range(min(max(map(max, filter(None, levels))) + 1, _MAX_COLUMNS)):
        above = [
            level[max(at for at in level if at <= index)] for level in outer if min(level, default=index + 1) <= index
        ]
        points.append(" ".join(filter(None, (*reversed(above), inner.get(index, "")))))
    return points


def _read_workbook(archive: zipfile.ZipFile, builder: DocumentBuilder) -> None:
    names = archive.namelist()
    shared = "xl/sharedStrings.xml"
    strings = [_plain(item) for item in _named(_tree(archive, shared), "si")] if shared in names else []
    dates = _date_styles(_tree(archive, "xl/styles.xml")) if "xl/styles.xml" in names else frozenset[int]()
    parts = _relations(archive, "xl/workbook.xml")
    sheets = {parts[sheet.get(_RELATION, "")][1]: sheet for sheet in _named(_tree(archive, "xl/workbook.xml"), "sheet")}
    for part, sheet in sheets.items():
        builder.heading(2, sheet.get("name", ""))
        rows = (_row(row, strings, dates) for row in _named(_tree(archive, part), "row"))
        builder.add(table_text(rows), is_atomic=True)
        for _, (kind, target) in sorted(_relations(archive, part).items()):
            if kind in {"comments", "threadedComment", "drawing"} and target in names:
                builder.add(_paragraphs_of(archive, target))


def _date_styles(styles: ET.Element) -> frozenset[int]:
    """Return the cell styles that show a date."""
    formats = {int(each.get("numFmtId", 0)): each.get("formatCode", "") for each in _named(styles, "numFmt")}
    dates = {key for key, code in formats.items() if _DATE_LETTERS.search(_QUOTED.sub("", code))} | _DATE_FORMATS
    cells = next(_named(styles, "cellXfs"), None)
    used = [int(each.get("numFmtId", 0)) for each in cells] if cells is not None else []
    return frozenset(at for at, number in enumerate(used) if number in dates)


def _row(row: ET.Element, strings: list[str], dates: frozenset[int]) -> list[str]:
    cells: list[str] = []
    before = 0
    for cell in row:
        letters = re.match("[A-Z]*", cell.get("r", ""))
        column = 0
        for letter in letters.group() if letters else "":
            column = column * 26 + ord(letter) - 64
        # Cells without content are left out of the file.
        cells += [""] * min(column - 1 - max(len(cells), before), _MAX_GAP)
        before = column or before + 1
        cells.append(_cell(cell, strings, dates))
    return cells


def _cell(cell: ET.Element, strings: list[str], dates: frozenset[int]) -> str:
    kind, value = cell.get("t", "n"), next((each for each in cell if _tag(each) == "v"), None)
    if kind == "inlineStr":
        return _plain(cell)
    text = (value.text or "") if value is not None else ""
    if kind == "s" and text:
        return strings[int(text)]
    if kind == "b":
        return "TRUE" if text == "1" else "FALSE"
    if kind != "n" or not text:
        return text
    if int(cell.get("s", 0)) in dates and 0 <= float(text) < _MAX_DAYS:
        moment = _EPOCH + timedelta(seconds=round(float(text) * 86_400))
        day, time = f"{moment:%Y-%m-%d}", f"{moment:%H:%M}"
        return time if float(text) < 1 else day if time == "00:00" else f"{day} {time}"
    return f"{float(text):.15g}"


def _plain(element: ET.Element) -> str:
    """Return the text of a string, without the reading above it."""
    readings = {id(inner) for ruby in _named(element, "rPh") for inner in ruby.iter()}
    return "".join(each.text or "" for each in _named(element, "t") if id(each) not in readings)


def _read_slides(archive: zipfile.ZipFile, builder: DocumentBuilder) -> None:
    related = _relations(archive, "ppt/presentation.xml")
    shown = [each.get(_RELATION, "") for each in _named(_tree(archive, "ppt/presentation.xml"), "sldId")]
    slides = [related[each][1] for each in shown if each in related]
    for page, name in enumerate(dict.fromkeys(slides) or _numbered(archive, r"ppt/slides/slide\d+\.xml"), 1):
        slide = _tree(archive, name)
        tables = {id(inner) for table in _named(slide, "tbl") for inner in table.iter()}
        for shape in _named(slide, "sp"):
            is_title = any(each.get("type") in {"title", "ctrTitle"} for each in _named(shape, "ph"))
            for paragraph in _named(shape, "p"):
                text = "".join(each.text or "" for each in _named(paragraph, "t"))
                if is_title:
                    builder.heading(2, text, page)
                elif id(paragraph) not in tables:
                    builder.add(text, page)
        for table in _named(slide, "tbl"):
            rows = [["".join(t.text or "" for t in _named(cell, "t")) for cell in _named(row, "tc")] for row in table]
            builder.add(table_text(rows), page, is_atomic=True)
        for _, (kind, target) in sorted(_relations(archive, name).items()):
            if kind == "chart":
                title, table = _chart_of(archive, target)
                builder.add(title, page)
                builder.add(table, page, is_atomic=True)
            elif kind in {"notesSlide", "diagramData", "comments"}:
                builder.add(_paragraphs_of(archive, target), page)


def _read_open_document(archive: zipfile.ZipFile, builder: DocumentBuilder) -> None:
    waiting = [_tree(archive, "content.xml")]
    while waiting:
        element = waiting.pop()
        tag = _tag(element)
        if tag == "h":
            level = next((value for name, value in element.attrib.items() if name.endswith("outline-level")), "1")
            builder.heading(int(level), _flowing(element))
        elif tag == "p":
            builder.add(_flowing(element))
        elif tag == "table":
            rows = (_open_row(row) for row in _named(element, "table-row"))
            builder.add(table_text(rows), is_atomic=True)
        elif tag not in {"tracked-changes", "annotation", "note"}:
            waiting += reversed(element)


def _open_row(row: ET.Element) -> list[str]:
    cells: list[str] = []
    for cell in row:
        if _tag(cell) not in {"table-cell", "covered-table-cell"}:
            continue
        repeated = next((int(value) for name, value in cell.attrib.items() if name.endswith("columns-repeated")), 1)
        cells += [_flowing(cell)] * min(repeated, _MAX_GAP)
        if len(cells) > _MAX_COLUMNS:
            break
    return cells


def _flowing(element: ET.Element) -> str:
    """Return the text of an element without notes and readings, with its spaces, tabs and line breaks."""
    parts, waiting = [element.text or ""], [(child, False) for child in reversed(element)]
    while waiting:
        child, is_read = waiting.pop()
        tag = _tag(child)
        if is_read:
            # The paragraph of a text box, in the middle of another.
            parts.append((" " if tag == "p" else "") + (child.tail or ""))
            continue
        parts.append({"s": " ", "tab": "\t", "line-break": "\n", "p": " "}.get(tag, ""))
        waiting.append((child, True))
        if tag not in {"ruby-text", "note", "annotation"}:
            parts.append(child.text or "")
            waiting += [(inner, False) for inner in reversed(child)]
    return "".join(parts).strip()


def _read_book(archive: zipfile.ZipFile, builder: DocumentBuilder) -> None:
    from mcp_servers.knowledge.importing.html import read_html

    name = next(each for each in archive.namelist() if each.endswith("META-INF/container.xml"))
    # Some books are packed with the folder around them.
    root = name.removesuffix("META-INF/container.xml")
    package = root + next(_named(_tree(archive, name), "rootfile")).get("full-path", "")
    book = _tree(archive, package)
    items = {each.get("id"): each.get("href", "") for each in _named(book, "item")}
    read: set[str] = set()
    for number, reference in enumerate(_named(book, "itemref"), 1):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), items[reference.get("idref")]))
        if name in read:
            continue
        read.add(name)
        _, passages = read_html(archive.read(name).decode("utf-8", errors="replace"))
        builder.extend(Passage(each.text, each.headings, number, each.is_atomic) for each in passages)


_READERS: dict[str, tuple[Callable[[zipfile.ZipFile, DocumentBuilder], None], str]] = {
    "xlsx": (_read_workbook, "docProps/core.xml"),
    "pptx": (_read_slides, "docProps/core.xml"),
    "odt": (_read_open_document, "meta.xml"),
    "epub": (_read_book, ""),
}


def read_docx(blob: Blob, limits: ParseLimits) -> tuple[str, list[Passage], tuple[str, ...]]:
    """Return title (may be empty), passages and warnings of a Word document.

    Raises MissingExtraError for a missing library, TooLargeError, EncryptedDocumentError or DamagedDocumentError.
    """
    try:
        import mammoth

        from mcp_servers.knowledge.importing.html import read_html
    except ImportError as error:
        packages = "mammoth" if error.name == "mammoth" else "mammoth selectolax"
        raise MissingExtraError("Reading Word documents", packages) from error
    try:
        library = cast("Any", mammoth)
        with _checked_archive(blob, limits) as archive:
            title = _title_in(archive, "docProps/core.xml")
            content = _readable(archive)
            beside = dict.fromkeys(_paragraphs_of(archive, part) for part in _numbered(archive, _BESIDE))
            charts = [_chart_of(archive, part) for part in _numbered(archive, _CHARTS)]
        without_pictures = library.images.img_element(_without_picture)
        page = library.convert_to_html(content, style_map=_STYLES, convert_image=without_pictures)
        heading, passages = read_html(str(page.value))
    except (DamagedDocumentError, EncryptedDocumentError, TooLargeError):
        raise
    except Exception as error:  # mammoth raises exceptions of all kinds
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    messages: set[str] = {each.message for each in page.messages}
    ignored = sorted(each.removeprefix(_IGNORED) for each in messages if each.startswith(_IGNORED))
    warnings = (f"Parts of it were not read: {', '.join(ignored)}.",) if ignored else ()
    passages += [Passage(text) for text in beside if text]
    passages += [Passage(f"{name}\n{table}".strip(), is_atomic=True) for name, table in charts if table]
    return title or heading, passages, warnings


def _equation(found: re.Match[bytes]) -> bytes:
    text = b" ".join(_EQUATION_TEXT.findall(found[1]))
    return b'<w:r><w:t xml:space="preserve">' + text + b"</w:t></w:r>"


def _without_picture(_: object) -> dict[str, str]:
    return {}


def _readable(archive: zipfile.ZipFile) -> io.BytesIO:
    """Return a copy of the archive with equations as text and without ruby, whose words the library drops as well."""
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as written:
        for part in archive.infolist():
            content = archive.read(part)
            if part.filename.endswith((".xml", ".rels")) and _ENTITIES.search(content):
                raise ValueError(f"{part.filename} declares entities")
            if part.filename in _TEXT_PARTS:
                content = _EQUATION.sub(_equation, _EQUATION_PARAGRAPH.sub(b"", _RUBY.sub(rb"\1", content)))
            written.writestr(part.filename, content)
    copy.seek(0)
    return copy
