"""OpenDocument (odt, ods, odp and their flat forms) -> passages.

Notes follow the paragraph that they belong to. A sheet is a table below its name, a slide a page.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import EncryptedDocumentError
from mcp_servers.knowledge.importing.archives import (
    MAX_COLUMNS,
    MAX_GAP,
    attribute,
    local_name,
    named,
    parse_part,
    parse_xml,
)
from mcp_servers.knowledge.importing.documents import Blob, Cell, DocumentBuilder, expand_spans

_MANIFEST = "META-INF/manifest.xml"
_UNREAD = frozenset({"tracked-changes", "annotation", "note", "styles", "automatic-styles", "master-styles", "scripts"})
_MAX_REPEATED_ROWS = 100


def read_open_document(archive: zipfile.ZipFile, builder: DocumentBuilder, blob: Blob) -> tuple[str, list[str]]:
    """Read a packed document; return no title and no warnings, or raise EncryptedDocumentError."""
    if _MANIFEST in archive.namelist() and b"encryption-data" in archive.read(_MANIFEST):
        raise EncryptedDocumentError(blob.name)
    _read_content(parse_part(archive, "content.xml"), builder)
    return "", []


def read_flat_document(blob: Blob, builder: DocumentBuilder) -> str:
    """Read a document in one XML file; return its title."""
    root = parse_xml(blob.content, blob.name)
    _read_content(root, builder)
    meta = next(named(root, "meta"), None)
    title = next(named(meta, "title"), None) if meta is not None else None
    return "".join(title.itertext()).strip() if title is not None else ""


def _read_content(root: ET.Element, builder: DocumentBuilder) -> None:
    waiting, page = [root], None
    while waiting:
        element = waiting.pop()
        tag = local_name(element)
        if tag == "h":
            builder.heading(int(attribute(element, "outline-level", "1")), _flowing(element), page)
            _add_notes(element, builder, page)
        elif tag == "p":
            builder.add(_flowing(element), page)
            _add_notes(element, builder, page)
        elif tag == "table":
            _read_table(element, builder, page)
        elif tag not in _UNREAD:
            if tag == "page":
                page = (page or 0) + 1
            waiting += reversed(element)


def _read_table(table: ET.Element, builder: DocumentBuilder, page: int | None) -> None:
    name = attribute(table, "name")
    rows = list(named(table, "table-row"))
    is_sheet = any(attribute(cell, "value-type") for row in rows for cell in row)
    if is_sheet and name:
        builder.heading(2, name, page)
    builder.add_table(expand_spans(_repeated(row) for row in _repeated_rows(rows)), page)
    _add_notes(table, builder, page)


def _repeated_rows(rows: list[ET.Element]) -> Iterator[ET.Element]:
    for row in rows:
        # A sheet ends with an empty row repeated a million times.
        has_text = any(True for _ in named(row, "p"))
        repeated = int(attribute(row, "number-rows-repeated", "1"))
        yield from [row] * (min(repeated, _MAX_REPEATED_ROWS) if has_text else 1)


def _repeated(row: ET.Element) -> list[Cell]:
    cells: list[Cell] = []
    for cell in row:
        # Covered cells are filled by the one that covers them.
        if local_name(cell) != "table-cell":
            continue
        rows, columns = (int(attribute(cell, f"number-{name}-spanned", "1")) for name in ("rows", "columns"))
        repeated = int(attribute(cell, "number-columns-repeated", "1"))
        cells += [Cell(_flowing(cell), max(rows, 1), max(columns, 1))] * min(max(repeated, 1), MAX_GAP)
        if len(cells) > MAX_COLUMNS:
            break
    return cells


def _add_notes(element: ET.Element, builder: DocumentBuilder, page: int | None) -> None:
    """Add the notes inside an element: footnotes behind their mark, and comments."""
    for note in named(element, "note", "annotation"):
        body = next(named(note, "note-body"), note)
        mark = next(("".join(each.itertext()).strip() for each in named(note, "note-citation")), "")
        text = "\n".join(_flowing(paragraph) for paragraph in named(body, "p")).strip()
        builder.add(f"{mark} {text}".strip(), page)


def _flowing(element: ET.Element) -> str:
    """Return the text of an element without notes and readings, with its spaces, tabs and line breaks."""
    parts, waiting = [element.text or ""], [(child, False) for child in reversed(element)]
    while waiting:
        child, is_read = waiting.pop()
        tag = local_name(child)
        if is_read:
            # The paragraph of a text box, in the middle of another.
            parts.append((" " if tag == "p" else "") + (child.tail or ""))
            continue
        parts.append({"s": " " * min(int(attribute(child, "c", "1")), MAX_GAP), "tab": "\t"}.get(tag, ""))
        parts.append({"line-break": "\n", "p": " "}.get(tag, ""))
        waiting.append((child, True))
        if tag not in {"ruby-text", "note", "annotation"}:
            parts.append(child.text or "")
            waiting += [(inner, False) for inner in reversed(child)]
    return "".join(parts).strip()
