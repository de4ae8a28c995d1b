"""Word and PowerPoint -> title and passages, and the entry for all zipped XML documents.

Word is read through HTML. Headers, footers, comments, charts and diagrams follow its text. Images are omitted, and
there are no page numbers: pagination depends on the printer. A slide is a page.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias, cast
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import DamagedDocumentError, EncryptedDocumentError, TooLargeError
from mcp_servers.knowledge.importing.archives import (
    ENTITIES,
    chart_table,
    checked_archive,
    embedded_warnings,
    local_name,
    main_part,
    named,
    numbered_parts,
    paragraph_text,
    parse_part,
    relation_id,
    relations,
    text_lines,
    title_in,
    whole_number,
)
from mcp_servers.knowledge.importing.book import read_book
from mcp_servers.knowledge.importing.documents import (
    Blob,
    Cell,
    DocumentBuilder,
    DocumentFullError,
    HiddenParts,
    ParseLimits,
    expand_spans,
    table_passage,
)
from mcp_servers.knowledge.importing.open_document import read_flat_document, read_open_document
from mcp_servers.knowledge.importing.spreadsheet import read_workbook
from mcp_servers.knowledge.importing.word_numbers import with_numbers
from mcp_servers.knowledge.importing.word_repairs import (
    heading_styles,
    repaired_text,
    without_faulty_lists,
    without_faulty_styles,
)
from mcp_servers.knowledge.types import Passage

_Parsed: TypeAlias = tuple[str, list[Passage], tuple[str, ...]]
# The document's own title and warnings.
_Reader: TypeAlias = Callable[[zipfile.ZipFile, DocumentBuilder, Blob], tuple[str, list[str]]]

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
# The library reads neither the text of a drawing that has no older form beside it, nor that of an old round shape, nor
# that of a simple field, such as the number of a caption, or of a run whose direction is stated.
_DRAWING = re.compile(rb"<w:drawing(?:\s[^<>]*)?>(?:(?!</?w:drawing[\s>]).)*</w:drawing>", re.DOTALL)
_BOX = re.compile(rb"<w:txbxContent>(?:(?!</w:txbxContent>).)*</w:txbxContent>", re.DOTALL)
_ROUND = re.compile(rb"(</?v:)(?:oval|line|polyline|arc|curve)(?=[\s/>])")
_FIELD = re.compile(rb"</?w:(?:fldSimple|dir|bdo)(?:\s[^<>]*)?>")
_BESIDE = r"[wW]ord/(?:(?:header|footer)\d*|comments|diagrams/data\d*)\.xml"
_CHARTS = r"word/charts/chart\d*\.xml"
_EMBEDDED = re.compile(r"/embeddings/[^/]+$")
_CHART_PART = re.compile(r"(?:word|ppt|xl)/charts/[^/]+\.xml")
_IGNORED = "An unrecognised element was ignored: "
_NOTES = frozenset({"footnotes", "endnotes"})
_STYLES = "\n".join(
    (
        "p[style-name='Title'] => h1:fresh",
        "p[style-name='Subtitle'] => p:fresh",
        "p[style-name='表題'] => h1:fresh",
        *(f"p[style-name='見出し {level}'] => h{level}:fresh" for level in range(1, 7)),
    )
)


def read_office(blob: Blob, kind: str, limits: ParseLimits) -> _Parsed:
    """Return title (may be empty), passages and warnings of an ``xlsx``, ``pptx``, ``odt``, ``fodt`` or ``epub`` file.

    Raises TooLargeError, EncryptedDocumentError or DamagedDocumentError.
    """
    builder = DocumentBuilder(include_hidden=limits.include_hidden)
    title, warnings = "", list[str]()
    try:
        if kind == "fodt":
            with suppress(DocumentFullError):
                title = read_flat_document(blob, builder)
        else:
            reader, properties = _READERS[kind]
            with checked_archive(blob, limits) as archive:
                stated = title_in(archive, properties)
                with suppress(DocumentFullError):
                    title, warnings = reader(archive, builder, blob)
                warnings += _embedded_warnings(archive)
                title = title or stated
    except (KeyError, ValueError, IndexError, ET.ParseError, zipfile.BadZipFile) as error:
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    return title or builder.title, builder.finish(), (*warnings, *builder.hidden.warnings())


def _embedded_warnings(archive: zipfile.ZipFile) -> list[str]:
    """Return a warning that names embedded files, except the data of charts, which is read as a table."""
    names = [name for name in archive.namelist() if _EMBEDDED.search(name)]
    charts = [part for part in archive.namelist() if _CHART_PART.fullmatch(part)] if names else []
    of_charts = {target for part in charts for _, target in relations(archive, part).values()}
    return embedded_warnings([name.rpartition("/")[2] for name in names if name not in of_charts])


def _read_sheets(archive: zipfile.ZipFile, builder: DocumentBuilder, _: Blob) -> tuple[str, list[str]]:
    read_workbook(archive, builder)
    return "", []


def _read_slides(archive: zipfile.ZipFile, builder: DocumentBuilder, _blob: Blob) -> tuple[str, list[str]]:
    main = main_part(archive, "ppt/presentation.xml")
    related = relations(archive, main)
    slide_ids = [relation_id(entry) for entry in named(parse_part(archive, main), "sldId")]
    slides = [related[slide_id][1] for slide_id in slide_ids if slide_id in related]
    missing = len(slide_ids) - len(slides) if slides else 0
    for page, name in enumerate(dict.fromkeys(slides) or numbered_parts(archive, r"ppt/slides/slide\d+\.xml"), 1):
        slide = parse_part(archive, name)
        if slide.get("show") in _FALSE and builder.hidden.leaves_out(f"slide {page}"):
            continue
        _remove_hidden_shapes(slide, builder.hidden, page)
        tables = {id(inner) for table in named(slide, "tbl") for inner in table.iter()}
        for shape in named(slide, "sp"):
            is_title = any(placeholder.get("type") in {"title", "ctrTitle"} for placeholder in named(shape, "ph"))
            for paragraph in named(shape, "p"):
                if is_title:
                    builder.heading(2, paragraph_text(paragraph), page)
                elif id(paragraph) not in tables:
                    builder.add(paragraph_text(paragraph), page)
        for table in named(slide, "tbl"):
            builder.add_table(expand_spans(_slide_cells(row) for row in table if local_name(row) == "tr"), page)
        for _, (kind, target) in sorted(relations(archive, name).items()):
            if kind == "chart":
                title, rows = chart_table(archive, target)
                builder.add(title, page)
                builder.add_table(rows, page, head_rows=1)
            elif kind in {"notesSlide", "diagramData", "comments"}:
                builder.add(text_lines(archive, target), page)
    return "", [f"Slides that the presentation names are missing: {missing}."] if missing else []


def _remove_hidden_shapes(slide: ET.Element, hidden: HiddenParts, page: int) -> None:
    for group in list(slide.iter()):
        for shape in list(group):
            properties = next((part for part in shape if local_name(part).endswith("Pr")), shape)
            is_hidden = any(part.get("hidden") in _TRUE for part in properties if local_name(part) == "cNvPr")
            if is_hidden and any(True for _ in named(shape, "t")) and hidden.leaves_out(f"a shape of slide {page}"):
                group.remove(shape)


def _slide_cells(row: ET.Element) -> Iterator[Cell]:
    for cell in row:
        is_covered = cell.get("hMerge") in _TRUE or cell.get("vMerge") in _TRUE
        if local_name(cell) == "tc" and not is_covered:
            text = "\n".join(map(paragraph_text, list(named(cell, "p")) or [cell]))
            yield Cell(text, whole_number(cell.get("rowSpan", ""), 1), whole_number(cell.get("gridSpan", ""), 1))


_TRUE, _FALSE = frozenset({"1", "true", "on"}), frozenset({"0", "false", "off"})
_READERS: dict[str, tuple[_Reader, str]] = {
    "xlsx": (_read_sheets, "docProps/core.xml"),
    "pptx": (_read_slides, "docProps/core.xml"),
    "odt": (read_open_document, "meta.xml"),
    "epub": (read_book, ""),
}


def read_docx(blob: Blob, limits: ParseLimits) -> tuple[str, list[Passage], tuple[str, ...]]:
    """Return title (may be empty), passages and warnings of a Word document.

    Raises TooLargeError, EncryptedDocumentError or DamagedDocumentError.
    """
    import mammoth

    from mcp_servers.knowledge.importing.html import read_html

    try:
        library = cast("Any", mammoth)
        with checked_archive(blob, limits) as archive:
            title = title_in(archive, "docProps/core.xml")
            content = _readable(archive)
            side_texts = dict.fromkeys(text_lines(archive, part) for part in numbered_parts(archive, _BESIDE))
            embedded = _embedded_warnings(archive)
            charts = [chart_table(archive, part) for part in numbered_parts(archive, _CHARTS)]
            main = main_part(archive, "word/document.xml")
            levels = (f"{style} => h{level}:fresh" for style, level in heading_styles(archive, main))
            styles = "\n".join((_STYLES, *levels))
        without_pictures = library.images.img_element(_without_picture)
        try:
            page = library.convert_to_html(content, style_map=styles, convert_image=without_pictures)
        except Exception as error:  # mammoth raises exceptions of all kinds
            with zipfile.ZipFile(content) as repaired:
                lines = text_lines(repaired, main)
            if not lines:
                raise
            fault = f"It is damaged ({type(error).__name__}: {error}"[:200]
            plain = [Passage(text) for text in (lines, *side_texts) if text]
            return title, plain, (f"{fault}): its text was read without headings and tables.", *embedded)
        heading, passages = read_html(str(page.value))
    except (DamagedDocumentError, EncryptedDocumentError, TooLargeError):
        raise
    except Exception as error:  # mammoth raises exceptions of all kinds
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    messages: set[str] = {message.message for message in page.messages}
    ignored = sorted(message.removeprefix(_IGNORED) for message in messages if message.startswith(_IGNORED))
    warnings = (*([f"Parts of it were not read: {', '.join(ignored)}."] if ignored else []), *embedded)
    passages += [Passage(text) for text in side_texts if text]
    passages += [table_passage([[name], *rows] if name else rows) for name, rows in charts if rows]
    return title or heading, passages, warnings


def _boxes(drawing: re.Match[bytes]) -> bytes:
    """Return the text boxes of a drawing in their older form; a drawing without any as it is."""
    boxes = _BOX.findall(drawing[0])
    return b"<w:pict>" + b"".join(boxes) + b"</w:pict>" if boxes else drawing[0]


def _equation(match: re.Match[bytes]) -> bytes:
    text = b" ".join(_EQUATION_TEXT.findall(match[1]))
    return b'<w:r><w:t xml:space="preserve">' + text + b"</w:t></w:r>"


def _without_picture(_: object) -> dict[str, str]:
    return {}


def _readable(archive: zipfile.ZipFile) -> io.BytesIO:
    """Return a copy of the archive with equations, numbers, boxes and fields as text, and without ruby."""
    copy = io.BytesIO()
    main = main_part(archive, "word/document.xml")
    texts = {main} | {name for kind, name in relations(archive, main).values() if kind in _NOTES}
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as written:
        for part in archive.infolist():
            content = archive.read(part)
            if part.filename.endswith((".xml", ".rels")) and ENTITIES.search(content):
                raise ValueError(f"{part.filename} declares entities")
            if part.filename in texts:
                content = repaired_text(archive, part.filename, content)
                content = _FIELD.sub(b"", _ROUND.sub(rb"\1rect", _DRAWING.sub(_boxes, content)))
                content = _EQUATION.sub(_equation, _EQUATION_PARAGRAPH.sub(b"", _RUBY.sub(rb"\1", content)))
            if part.filename == main:
                content = with_numbers(archive, main, content)
            elif part.filename.endswith("/styles.xml"):
                content = without_faulty_styles(content)
            elif part.filename.endswith("/numbering.xml"):
                content = without_faulty_lists(content)
            written.writestr(part.filename, content)
    copy.seek(0)
    return copy
