"""PowerPoint -> title and passages, a slide being a page, and the entry for all zipped XML documents."""

from __future__ import annotations

import html
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import DamagedDocumentError, NoTextError
from mcp_servers.knowledge.importing.archives import (
    chart_table,
    checked_archive,
    elements_named,
    embedded_warnings,
    local_name,
    main_part,
    numbered_parts,
    paragraph_text,
    parse_part,
    relation_id,
    relations,
    text_lines,
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
)
from mcp_servers.knowledge.importing.equations import equation_text, raised_mark
from mcp_servers.knowledge.importing.open_document import read_flat_document, read_open_document
from mcp_servers.knowledge.importing.spreadsheet import read_flat_workbook, read_workbook
from mcp_servers.knowledge.importing.word import read_flat_word, read_word
from mcp_servers.knowledge.types import Passage

_Parsed: TypeAlias = tuple[str, list[Passage], tuple[str, ...]]
# The document's own title and warnings.
_Reader: TypeAlias = Callable[[zipfile.ZipFile, DocumentBuilder, Blob], tuple[str, list[str]]]

_TITLE = re.compile(r"<dc:title\b[^<>]*>([^<]{1,1000})<")
_EMBEDDED = re.compile(r"/embeddings/[^/]+$")
_CHART_PART = re.compile(r"(?:word|ppt|xl)/charts/[^/]+\.xml")


def read_office(blob: Blob, kind: str, limits: ParseLimits) -> _Parsed:
    """Return title (may be empty), passages and warnings of a zipped document, or a flat one; ``kind`` is its reader.

    Raises TooLargeError, EncryptedDocumentError or DamagedDocumentError.
    """
    builder = DocumentBuilder(include_hidden=limits.include_hidden)
    title, warnings = "", list[str]()
    try:
        if kind in _FLAT_READERS:
            with suppress(DocumentFullError):
                title = _FLAT_READERS[kind](blob, builder)
        else:
            reader, properties = _READERS[kind]
            with checked_archive(blob, limits) as archive:
                names = archive.namelist()
                described = archive.read(properties).decode("utf-8", errors="replace") if properties in names else ""
                stated = _TITLE.search(described)
                with suppress(DocumentFullError):
                    title, warnings = reader(archive, builder, blob)
                # The data of charts is read as a table.
                embedded = [name for name in names if _EMBEDDED.search(name)]
                charts = [part for part in names if _CHART_PART.fullmatch(part)] if embedded else []
                of_charts = {target for part in charts for _, target in relations(archive, part).values()}
                warnings += embedded_warnings([name.rpartition("/")[2] for name in embedded if name not in of_charts])
                title = title or (" ".join(html.unescape(stated[1]).split()) if stated else "")
    except (KeyError, ValueError, IndexError, ET.ParseError, zipfile.BadZipFile) as error:
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    passages = builder.finish()
    if not passages and builder.hidden.reason:
        raise NoTextError(blob.name, builder.hidden.reason)
    return title or builder.title, passages, (*warnings, *builder.hidden.warnings())


def _read_slides(archive: zipfile.ZipFile, builder: DocumentBuilder, _blob: Blob) -> tuple[str, list[str]]:
    main = main_part(archive, "ppt/presentation.xml")
    related = relations(archive, main)
    slide_ids = [relation_id(entry) for entry in elements_named(parse_part(archive, main), "sldId")]
    slides = [related[slide_id][1] for slide_id in slide_ids if slide_id in related]
    missing = len(slide_ids) - len(slides) if slides else 0
    for page, name in enumerate(dict.fromkeys(slides) or numbered_parts(archive, r"ppt/slides/slide\d+\.xml"), 1):
        slide = parse_part(archive, name)
        if slide.get("show") in _FALSE and builder.hidden.leaves_out(f"slide {page}"):
            continue
        removed = _remove_hidden_shapes(slide, builder.hidden, page)
        for equation in list(elements_named(slide, "oMath")):
            text = equation_text(equation)
            equation.clear()
            ET.SubElement(equation, "t").text = text
        for paragraph in elements_named(slide, "p"):
            _mark_raised(paragraph)
        tables = {id(inner) for table in elements_named(slide, "tbl") for inner in table.iter()}
        for shape in elements_named(slide, "sp"):
            is_title = any(
                placeholder.get("type") in {"title", "ctrTitle"} for placeholder in elements_named(shape, "ph")
            )
            for paragraph in elements_named(shape, "p"):
                if is_title:
                    builder.heading(2, paragraph_text(paragraph), page)
                elif id(paragraph) not in tables:
                    builder.add(paragraph_text(paragraph), page)
        for table in elements_named(slide, "tbl"):
            builder.add_table(expand_spans(_slide_cells(row) for row in table if local_name(row) == "tr"), page)
        for relation, (kind, target) in sorted(relations(archive, name).items()):
            if relation in removed:
                continue
            if kind == "chart":
                title, rows = chart_table(archive, target)
                builder.add(title, page)
                builder.add_table(rows, page, head_rows=1)
            elif kind in {"notesSlide", "diagramData", "comments"}:
                builder.add(text_lines(parse_part(archive, target)), page)
    return "", [f"Slides that the presentation names are missing: {missing}."] if missing else []


def _remove_hidden_shapes(slide: ET.Element, hidden: HiddenParts, page: int) -> set[str]:
    """Remove the shapes that are hidden; return the ids of the charts and diagrams in them."""
    removed: set[str] = set()
    for group in list(slide.iter()):
        for shape in list(group):
            properties = next((part for part in shape if local_name(part).endswith("Pr")), shape)
            is_hidden = any(part.get("hidden") in _TRUE for part in properties if local_name(part) == "cNvPr")
            frames = (part for part in elements_named(shape, "graphicData") for part in part.iter())
            shown = {value for part in frames for key, value in part.attrib.items() if "/relationships}" in key}
            has_text = bool(shown) or any(True for _ in elements_named(shape, "t"))
            if is_hidden and has_text and hidden.leaves_out(f"a shape of slide {page}"):
                group.remove(shape)
                removed |= shown
    return removed


def _mark_raised(paragraph: ET.Element) -> None:
    """Put a mark before raised and lowered digits that would become part of the number before them."""
    before = ""
    for run in paragraph:
        step = next((whole_number(part.get("baseline", ""), 0) for part in run if local_name(part) == "rPr"), 0)
        for text in elements_named(run, "t"):
            if step:
                text.text = raised_mark(text.text or "", before, is_lowered=step < 0) + (text.text or "")
            before = (text.text or before)[-1:]


def _slide_cells(row: ET.Element) -> Iterator[Cell]:
    for cell in row:
        is_covered = cell.get("hMerge") in _TRUE or cell.get("vMerge") in _TRUE
        if local_name(cell) == "tc" and not is_covered:
            text = "\n".join(map(paragraph_text, list(elements_named(cell, "p")) or [cell]))
            yield Cell(text, whole_number(cell.get("rowSpan", ""), 1), whole_number(cell.get("gridSpan", ""), 1))


_TRUE, _FALSE = frozenset({"1", "true", "on"}), frozenset({"0", "false", "off"})
_READERS: dict[str, tuple[_Reader, str]] = {
    "docx": (read_word, "docProps/core.xml"),
    "xlsx": (read_workbook, "docProps/core.xml"),
    "pptx": (_read_slides, "docProps/core.xml"),
    "odt": (read_open_document, "meta.xml"),
    "epub": (read_book, ""),
}
_FLAT_READERS = {"fodt": read_flat_document, "xls": read_flat_workbook, "doc": read_flat_word}
