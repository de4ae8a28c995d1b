"""OpenDocument (odt, ods, odp and their flat forms) -> passages.

Notes follow the paragraph that they belong to; the numbers of headings and list items are part of the text. A sheet is
a table below its name, a slide a page.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import EncryptedDocumentError
from mcp_servers.knowledge.importing.archives import (
    MAX_COLUMNS,
    MAX_GAP,
    attribute,
    elements_named,
    embedded_warnings,
    local_name,
    parse_part,
    parse_xml,
    whole_number,
)
from mcp_servers.knowledge.importing.documents import Blob, Cell, DocumentBuilder, HiddenParts, expand_spans
from mcp_servers.knowledge.importing.equations import formula_text, raised_mark
from mcp_servers.knowledge.importing.word_numbers import number_text

_MANIFEST, _STYLES = "META-INF/manifest.xml", "styles.xml"
_UNREAD = frozenset({"tracked-changes", "annotation", "note", "styles", "automatic-styles", "master-styles", "scripts"})
_LINES = frozenset({"p", "h", "span", "a"})
# Elements in a line whose text is no part of it: that of notes follows, and that of pictures is their bytes.
_NOT_IN_LINE = frozenset({"ruby-text", "note", "annotation", "binary-data"})
_SPACES = re.compile(r"[ \t\r\n]+")
_MAX_REPEATED_ROWS = 100
_NOT_SHOWN, _COLLAPSED = frozenset({"none", "false"}), frozenset({"collapse", "filter"})
_HIDDEN = {
    "table": "table {}",
    "page": "slide {}",
    "section": "section {}",
    **dict.fromkeys(("span", "p", "h", "hidden-text", "hidden-paragraph", "list"), "hidden text"),
    **dict.fromkeys(("custom-shape", "rect", "frame", "text-box", "g", "ellipse"), "a shape"),
}
# First character of a number format -> Word's name of it.
_SHAPES = {
    "a": "lowerLetter",
    "A": "upperLetter",
    "i": "lowerRoman",
    "I": "upperRoman",
    "一": "japaneseCounting",
    "壱": "japaneseLegal",
    "イ": "iroha",
    "ア": "aiueo",
    "①": "decimalEnclosedCircle",
    "１": "decimalFullWidth",
}


class _Level(NamedTuple):
    """The numbers of one level of a list or of headings."""

    shape: str  # key of ``_SHAPES``, or the beginning of a series: "一, 二, 三, ..."
    prefix: str
    suffix: str
    shown: int  # number of levels: 2 for "1.2"
    start: int


_Levels: TypeAlias = dict[int, _Level]


class _Item(NamedTuple):
    """A place in the tree: inside the items of lists, and the number that the next paragraph begins with."""

    style: str = ""
    numbers: tuple[int, ...] = ()
    mark: str = ""


def read_open_document(archive: zipfile.ZipFile, builder: DocumentBuilder, blob: Blob) -> tuple[str, list[str]]:
    """Read a packed document; return no title, and warnings, or raise EncryptedDocumentError."""
    names = archive.namelist()
    if _MANIFEST in names and b"encryption-data" in archive.read(_MANIFEST):
        raise EncryptedDocumentError(blob.name)
    content = parse_part(archive, "content.xml")
    trees = [*([parse_part(archive, _STYLES)] if _STYLES in names else []), content]
    _remove_hidden(content, trees, builder.hidden)
    _mark_raised(content, trees)
    lost = _add_objects(archive, content)
    _ContentReader(builder, trees).read(content)
    return "", embedded_warnings(lost)


def _remove_hidden(content: ET.Element, trees: Sequence[ET.Element], hidden: HiddenParts) -> None:
    """Remove the sheets, rows, columns, slides, sections, layers and words that are hidden."""
    styles = {
        attribute(style, "name")
        for tree in trees
        for style in elements_named(tree, "style")
        if any(attribute(part, "display") in _NOT_SHOWN or attribute(part, "visibility") == "hidden" for part in style)
    }
    layers = {
        attribute(layer, "name")
        for tree in trees
        for layer in elements_named(tree, "layer")
        if attribute(layer, "display") in _NOT_SHOWN
    }
    for parent in list(content.iter()):
        before: ET.Element | None = None
        for child in list(parent):
            tag = local_name(child)
            is_hidden = attribute(child, "display") in _NOT_SHOWN or attribute(child, "is-hidden") == "true"
            marks = elements_named(child, "hidden-paragraph") if tag in {"p", "h"} else ()
            # What a hidden element is called in the warning; empty for one that is shown.
            name = ""
            if any(attribute(mark, "is-hidden") == "true" for mark in marks):
                name = "hidden text"
            elif tag == "table-row":
                name = "rows of a table" if attribute(child, "visibility") in _COLLAPSED else ""
            elif attribute(child, "layer") in layers:
                name = f"layer {attribute(child, 'layer')}"
            elif is_hidden or attribute(child, "style-name") in styles:
                name = _HIDDEN.get(tag, "").format(attribute(child, "name"))
            is_read = any(True for text in child.itertext() if text.strip()) if name else False
            if not (name and is_read and hidden.leaves_out(name)):
                before = child
                continue
            if before is None:
                parent.text = (parent.text or "") + (child.tail or "")
            else:
                before.tail = (before.tail or "") + (child.tail or "")
            parent.remove(child)
        if local_name(parent) == "table":
            _empty_hidden_columns(parent, hidden)


def _mark_raised(content: ET.Element, trees: Sequence[ET.Element]) -> None:
    """Put a mark before raised and lowered digits that would become part of the number before them."""
    positions = {
        attribute(style, "name"): attribute(properties, "text-position")
        for tree in trees
        for style in elements_named(tree, "style")
        for properties in elements_named(style, "text-properties")
    }
    for parent in content.iter():
        if local_name(parent) not in _LINES:
            continue
        before = (parent.text or "")[-1:]
        for child in parent:
            text = "".join(child.itertext())
            position = positions.get(attribute(child, "style-name"), "") if local_name(child) == "span" else ""
            if position and not position.startswith("0%"):
                mark = raised_mark(text, before, is_lowered=position.startswith(("sub", "-")))
                child.text = mark + (child.text or "")
            before = (child.tail or text or before)[-1:]


def _empty_hidden_columns(table: ET.Element, hidden: HiddenParts) -> None:
    columns: list[bool] = []
    for column in elements_named(table, "table-column"):
        repeated = whole_number(attribute(column, "number-columns-repeated"), 1)
        columns += [attribute(column, "visibility") in _COLLAPSED] * min(max(repeated, 1), MAX_COLUMNS)
    if not any(columns[:MAX_COLUMNS]):
        return
    for row in elements_named(table, "table-row"):
        at = 0
        for cell in row:
            has_text = at < len(columns) and columns[at] and any(text.strip() for text in cell.itertext())
            if has_text and hidden.leaves_out(f"columns of {attribute(table, 'name')}".strip()):
                for inner in list(cell):
                    cell.remove(inner)
            at += max(whole_number(attribute(cell, "number-columns-repeated"), 1), 1)


def _add_objects(archive: zipfile.ZipFile, content: ET.Element) -> list[str]:
    """Put formulas, charts and sheets that are parts of their own where they stand; return the names of other objects.

    A chart in a table shows the cells of that table.
    """
    parts = set(archive.namelist())
    in_tables = {
        id(element) for table in elements_named(content, "table") for element in elements_named(table, "object")
    }
    lost: list[str] = []
    for element in list(elements_named(content, "object", "object-ole")):
        name = attribute(element, "href").removeprefix("./").rstrip("/")
        part = f"{name}/content.xml"
        if part in parts:
            # Each part once: a file may refer to it any number of times.
            parts.discard(part)
            root = parse_part(archive, part)
            if local_name(root) == "math":
                ET.SubElement(element, "p").text = formula_text(root)
            elif id(element) not in in_tables:
                element.extend(elements_named(root, "body"))
        elif name in parts:
            lost.append(name)
    return lost


def read_flat_document(blob: Blob, builder: DocumentBuilder) -> str:
    """Read a document in one XML file; return its title."""
    root = parse_xml(blob.content, blob.name)
    for formula in list(elements_named(root, "math")):
        text, after = formula_text(formula), formula.tail
        formula.clear()
        formula.text, formula.tail = text, after
    _remove_hidden(root, [root], builder.hidden)
    _mark_raised(root, [root])
    _ContentReader(builder, [root]).read(root)
    meta = next(elements_named(root, "meta"), None)
    title = next(elements_named(meta, "title"), None) if meta is not None else None
    return "".join(title.itertext()).strip() if title is not None else ""


class _ContentReader:
    """Reads the content of one document, with the numbers that its styles give to headings and items."""

    def __init__(self, builder: DocumentBuilder, trees: Iterable[ET.Element]) -> None:
        self._builder = builder
        self._lists: dict[str, _Levels] = {}
        self._outline: _Levels = {}
        for tree in trees:
            self._lists |= {attribute(style, "name"): _levels(style) for style in elements_named(tree, "list-style")}
            for style in elements_named(tree, "outline-style"):
                self._outline = _levels(style)
        self._headings: dict[int, int] = {}
        # The last number of each list style, for a list that continues another.
        self._last: dict[str, int] = {}
        self._page: int | None = None
        self._sheets: frozenset[int] = frozenset()

    def read(self, root: ET.Element) -> None:
        """Read everything below an element."""
        # Tables of text, and sheets inside a text or a slide, have names as well, but are no part of it by themselves.
        body = next(elements_named(root, "body"), root)
        books = (book for book in body if local_name(book) == "spreadsheet")
        self._sheets = frozenset(id(table) for book in books for table in book if local_name(table) == "table")
        waiting = [(root, _Item())]
        while waiting:
            element, item = waiting.pop()
            tag = local_name(element)
            if tag == "h":
                level = whole_number(attribute(element, "outline-level"), 1)
                if attribute(element, "is-list-header") != "true":
                    start = self._outline[level].start if level in self._outline else 1
                    self._headings[level] = self._headings.get(level, start - 1) + 1
                self._headings = {at: number for at, number in self._headings.items() if at <= level}
                numbers = [self._headings.get(at, 1) for at in range(1, level + 1)]
                text = _flowing(element)
                mark = item.mark or _mark(self._outline, numbers)
                self._builder.heading(level, mark + text if text else "", self._page)
                _add_notes(element, self._builder, self._page)
            elif tag == "p":
                self._builder.add(item.mark + _flowing(element), self._page)
                _add_notes(element, self._builder, self._page)
            elif tag == "table":
                rows = list(elements_named(element, "table-row"))
                is_sheet = id(element) in self._sheets
                # An empty sheet is no passage.
                has_values = is_sheet and any(attribute(cell, "value-type") for row in rows for cell in row)
                if has_values and (name := attribute(element, "name")):
                    self._builder.heading(2, name, self._page)
                self._builder.add_table(expand_spans(_rows_of_cells(rows)), self._page)
                _add_notes(element, self._builder, self._page)
            elif tag == "list":
                style = attribute(element, "style-name") or item.style
                levels, depth = self._lists.get(style, {}), len(item.numbers) + 1
                number = levels[depth].start - 1 if depth in levels else 0
                if attribute(element, "continue-numbering") == "true" or attribute(element, "continue-list"):
                    number = self._last.get(style, number)
                items: list[tuple[ET.Element, _Item]] = []
                for child in element:
                    mark = ""
                    if local_name(child) == "list-item":
                        number = whole_number(attribute(child, "start-value"), number + 1)
                        mark = _mark(levels, (*item.numbers, number))
                    items.append((child, _Item(style, (*item.numbers, number), mark)))
                self._last[style] = number
                waiting += reversed(items)
            elif tag not in _UNREAD:
                if tag == "page":
                    self._page = (self._page or 0) + 1
                # Only the first paragraph of an item has its number.
                below = [(child, item._replace(mark="")) for child in element]
                first = next((at for at, (child, _) in enumerate(below) if local_name(child) in {"p", "h"}), None)
                if first is not None:
                    below[first] = (below[first][0], item)
                waiting += reversed(below)


def _levels(style: ET.Element) -> _Levels:
    """Return the numbered levels of a list or outline style; bullets are left out."""
    return {
        whole_number(attribute(level, "level"), 1): _Level(
            attribute(level, "num-format"),
            attribute(level, "num-prefix"),
            attribute(level, "num-suffix"),
            whole_number(attribute(level, "display-levels"), 1),
            whole_number(attribute(level, "start-value"), 1),
        )
        for level in style
        if local_name(level) in {"list-level-style-number", "outline-level-style"} and attribute(level, "num-format")
    }


def _mark(levels: _Levels, numbers: Sequence[int]) -> str:
    """Return the number before a heading or item, with a space after it; empty for none."""
    levels_of_list = levels.get(len(numbers))
    if levels_of_list is None:
        return ""
    first = max(len(numbers) - levels_of_list.shown, 0)
    shapes = (levels.get(at + 1, levels_of_list).shape for at in range(first, len(numbers)))
    formats = (_SHAPES.get(shape[:1], "decimal") for shape in shapes)
    written = ".".join(map(number_text, numbers[first:], formats))
    return f"{levels_of_list.prefix}{written}{levels_of_list.suffix}".strip() + " "


def _rows_of_cells(rows: Iterable[ET.Element]) -> Iterator[list[Cell]]:
    """Yield the cells of each row, as often as it is repeated."""
    for row in rows:
        cells: list[Cell] = []
        for cell in row:
            # Covered cells are filled by the one that covers them.
            if local_name(cell) != "table-cell":
                continue
            spans = (whole_number(attribute(cell, f"number-{name}-spanned"), 1) for name in ("rows", "columns"))
            repeated = whole_number(attribute(cell, "number-columns-repeated"), 1)
            cells += [Cell(_flowing(cell), *(max(span, 1) for span in spans))] * min(max(repeated, 1), MAX_GAP)
            if len(cells) > MAX_COLUMNS:
                break
        # A sheet ends with an empty row repeated a million times.
        has_text = any(True for _ in elements_named(row, "p"))
        repeated = whole_number(attribute(row, "number-rows-repeated"), 1)
        yield from [cells] * (min(repeated, _MAX_REPEATED_ROWS) if has_text else 1)


def _add_notes(element: ET.Element, builder: DocumentBuilder, page: int | None) -> None:
    """Add the notes inside an element: footnotes after their mark, and comments."""
    for note in elements_named(element, "note", "annotation"):
        body = next(elements_named(note, "note-body"), note)
        mark = next(("".join(child.itertext()).strip() for child in elements_named(note, "note-citation")), "")
        text = "\n".join(_flowing(paragraph) for paragraph in elements_named(body, "p")).strip()
        builder.add(f"{mark} {text}".strip(), page)


def _flowing(element: ET.Element) -> str:
    """Return the text of an element without notes and readings, with its spaces, tabs and line breaks."""
    parts, waiting = [_spaced(element.text, element)], [(child, element, False) for child in reversed(element)]
    while waiting:
        child, parent, is_read = waiting.pop()
        tag = local_name(child)
        if is_read:
            # The paragraph of a text box, in the middle of another.
            parts.append((" " if tag == "p" else "") + _spaced(child.tail, parent))
            continue
        parts.append({"s": " " * min(whole_number(attribute(child, "c"), 1), MAX_GAP), "tab": "\t"}.get(tag, ""))
        parts.append({"line-break": "\n", "p": " "}.get(tag, ""))
        waiting.append((child, parent, True))
        if tag not in _NOT_IN_LINE:
            parts.append(_spaced(child.text, child))
            waiting += [(inner, child, False) for inner in reversed(child)]
    return "".join(parts).strip()


def _spaced(text: str | None, parent: ET.Element) -> str:
    """Return a text of the file with single spaces; those between elements that are no part of a line are none."""
    if not text or (text.isspace() and local_name(parent) not in _LINES):
        return ""
    return _SPACES.sub(" ", text)
