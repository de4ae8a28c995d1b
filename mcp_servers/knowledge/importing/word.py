"""Word (docx, docm, dotx) -> passages: the text as a reader sees it, with deletions accepted.

    document.xml ─▶ blocks ─▶ paragraph ─▶ pieces of text ─▶ heading, paragraph, or cell of a table

Text boxes, notes and comments follow the paragraph that they belong to; headers, footers, charts and diagrams follow
the text. There are no page numbers: pagination depends on the printer.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.importing.archives import (
    MAX_GAP,
    attribute,
    chart_table,
    elements_named,
    embedded_warnings,
    local_name,
    main_part,
    numbered_parts,
    parse_part,
    parse_xml,
    relation_id,
    relations,
    text_lines,
    whole_number,
)
from mcp_servers.knowledge.importing.documents import Blob, Cell, DocumentBuilder, expand_spans
from mcp_servers.knowledge.importing.equations import equation_text, field_signs, raised_mark
from mcp_servers.knowledge.importing.word_numbers import BULLET, Numbering

_SYMBOLS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("word_symbols.json").read_text("utf-8"))
_HEADERS, _CHARTS, _DIAGRAMS = (
    r"[wW]ord/(?:header|footer)\d*\.xml",
    r"word/charts/chart\d*\.xml",
    r"word/diagrams/data\d*\.xml",
)
_NOTES = {"footnotes": "footnote", "endnotes": "endnote", "comments": "comment"}
# Deleted or moved away, descriptions of how the text looks, and instructions of fields that are read on their own.
_UNREAD = frozenset(
    {"del", "moveFrom", "pPr", "rPr", "sectPr", "tblPr", "trPr", "tcPr", "delText", "delInstrText", "rt"}
)
_BREAKS = {"br": "\n", "cr": "\n", "tab": "\t", "ptab": "\t", "noBreakHyphen": "-"}
_FALSE = frozenset({"0", "false", "off", "none"})
_BODY_LEVEL, _MAX_BASES = 9, 10
_NAMED_HEADING = re.compile(r"(?:heading|見出し)\s?([1-9])", re.IGNORECASE)
_TITLES, _CONTENTS = frozenset({"title", "表題"}), re.compile(r"(?:toc|目次)\s?\d", re.IGNORECASE)
# Lines that only lead to other places of the document: this many are a table of contents.
_MIN_LINKS = 3
_SITE_LINK = re.compile(r"\s*(?:HYPERLINK\b.*\\l\b|TOC\b)", re.IGNORECASE | re.DOTALL)
# What programs write where the author has not said what a picture shows: names of files, addresses, identifiers.
_NO_DESCRIPTION = re.compile(r".*\.(?:png|jpe?g|gif|bmp|tiff?|emf|wmf|svg)|[!-~]*[\d_/][!-~]*", re.IGNORECASE)
_MAX_FIELDS = 50
_PRIVATE = range(0xF000, 0xF100)


def read_word(archive: zipfile.ZipFile, builder: DocumentBuilder, _: Blob) -> tuple[str, list[str]]:
    """Read a document; return no title, and warnings about parts that are damaged or not read."""
    main = main_part(archive, "word/document.xml")
    content = parse_part(archive, main)
    related = relations(archive, main)
    parts = _Parts(archive, dict(related.values()))
    reader = _reader(builder, parts.tree)
    reader.read(content)
    sides = dict.fromkeys(
        [
            *(reader.side_text(parse_part(archive, part)) for part in numbered_parts(archive, _HEADERS)),
            *(text_lines(archive, part) for part in numbered_parts(archive, _DIAGRAMS)),
        ]
    )
    # Not below the last heading of the text.
    builder.heading(1, "")
    for text in sides:
        builder.add(text)
    for part in numbered_parts(archive, _CHARTS):
        name, rows = chart_table(archive, part)
        builder.add_table([[name], *rows] if name and rows else rows)
    chunks = [related[reference][1] for reference in reader.chunks if reference in related]
    return "", [*parts.warnings, *embedded_warnings(chunks)]


def read_flat_word(blob: Blob, builder: DocumentBuilder) -> str:
    """Read a document in one XML file, as Word 2003 writes it, or a later one with all its parts; return no title."""
    root = parse_xml(blob.content, blob.name)
    reader = _reader(builder, lambda kind: next(elements_named(root, kind), None))
    for body in elements_named(root, "body"):
        reader.read(body)
    return ""


def _reader(builder: DocumentBuilder, tree_of: Callable[[str], ET.Element | None]) -> _Reader:
    styles = tree_of("styles")
    reader = _Reader(builder, _Styles(styles), Numbering(tree_of("numbering"), styles))
    for kind, tag in _NOTES.items():
        tree = tree_of(kind)
        if tree is not None:
            reader.notes |= {
                (tag, attribute(note, "id")): note for note in elements_named(tree, tag) if not attribute(note, "type")
            }
    return reader


class _Parts:
    """The parts that describe the text, each of which may be missing or damaged."""

    def __init__(self, archive: zipfile.ZipFile, names: dict[str, str]) -> None:
        self._archive = archive
        self._names = names
        self.warnings: list[str] = []

    def tree(self, kind: str) -> ET.Element | None:
        name = self._names.get(kind, f"word/{kind}.xml")
        try:
            return parse_part(self._archive, name)
        except KeyError:
            return None
        except (ET.ParseError, ValueError) as error:
            self.warnings.append(f"It is damaged ({name}: {error}"[:200] + f"): its text was read without its {kind}.")
            return None


def _is_on(properties: ET.Element | None, name: str) -> bool | None:
    """Return whether a property is on; None if it is not stated."""
    stated = None if properties is None else next((toggle for toggle in properties if local_name(toggle) == name), None)
    return None if stated is None else attribute(stated, "val", "1") not in _FALSE


def _child(element: ET.Element, *names: str) -> ET.Element | None:
    """Return the element below, through this many names; None without one."""
    child: ET.Element | None = element
    for name in names:
        child = None if child is None else next((part for part in child if local_name(part) == name), None)
    return child


def _value(element: ET.Element, *names: str) -> str:
    child = _child(element, *names)
    return "" if child is None else attribute(child, "val")


def _heading_level(stated: str) -> int | None:
    """Return the level of a heading, from 1, for a stated outline level, from 0; None for text."""
    level = whole_number(stated, _BODY_LEVEL)
    return level + 1 if 0 <= level < _BODY_LEVEL else None


class _Styles:
    """What the styles say: level of headings, hidden text, lines of a table of contents."""

    def __init__(self, styles: ET.Element | None) -> None:
        self._styles = (
            {} if styles is None else {attribute(style, "styleId"): style for style in elements_named(styles, "style")}
        )

    def _chain(self, style_id: str) -> Iterator[ET.Element]:
        """Yield a style and those that it is based on."""
        for _ in range(_MAX_BASES):
            style = self._styles.get(style_id)
            if style is None:
                return
            yield style
            style_id = _value(style, "basedOn")

    def name(self, style_id: str) -> str:
        """Return the name of a style; its id if it is not defined."""
        style = self._styles.get(style_id)
        return style_id if style is None else _value(style, "name")

    def level(self, style_id: str) -> int | None:
        """Return the level of the headings that have a style, from 1: it states one, has a name of one, or its base."""
        if self.name(style_id).lower() in _TITLES:
            return 1
        names = [(_value(style, "name"), _value(style, "pPr", "outlineLvl")) for style in self._chain(style_id)]
        for name, stated in names or [(style_id, "")]:
            if stated:
                return _heading_level(stated)
            if match := _NAMED_HEADING.fullmatch(name):
                return int(match[1])
        return None

    def is_hidden(self, style_id: str) -> bool:
        """Return True if the text of a style is hidden."""
        stated = (_is_on(_child(style, "rPr"), "vanish") for style in self._chain(style_id))
        return next((is_set for is_set in stated if is_set is not None), False)


@dataclass
class _Field:
    """A field that has begun: what it is, and whether its result has begun too."""

    instruction: str = ""
    shown: str = ""  # text among the instruction
    has_result: bool = False
    is_link: bool = False


class _Form(NamedTuple):
    """How the text of a run looks."""

    raised: str = ""  # "superscript" or "subscript"
    font: str = ""
    is_link: bool = False
    is_hidden: bool = False  # and left out


class _Piece(NamedTuple):
    text: str
    raised: str = ""  # "superscript" or "subscript"
    is_link: bool = False


@dataclass
class _Paragraph:
    """A paragraph while it is read."""

    pieces: list[_Piece] = field(default_factory=list[_Piece])
    boxes: list[ET.Element] = field(default_factory=list[ET.Element])
    notes: list[tuple[str, ET.Element]] = field(default_factory=list[tuple[str, ET.Element]])
    level: int | None = None  # of a heading, from 1
    is_item: bool = False  # it has a bullet
    is_contents: bool = False  # a line of a table of contents

    def text(self) -> str:
        """Return the text with single spaces; raised digits are marked."""
        written, before = list[str](), ""
        for raised, pieces in groupby(self.pieces, key=lambda piece: piece.raised):
            text = "".join(piece.text for piece in pieces)
            if raised in {"superscript", "subscript"}:
                written.append(raised_mark(text, before, is_lowered=raised == "subscript"))
            written.append(text)
            before = text[-1:] or before
        return "\n".join(line for line in (" ".join(part.split()) for part in "".join(written).split("\n")) if line)

    def is_link(self) -> bool:
        """Return True if its letters only lead to other places of the document; numbers may be between them."""
        letters = [piece.is_link for piece in self.pieces if any(map(str.isalpha, piece.text))]
        return bool(letters) and all(letters)


class _Reader:
    """Walks one document."""

    def __init__(self, builder: DocumentBuilder, styles: _Styles, numbering: Numbering) -> None:
        self.notes: dict[tuple[str, str], ET.Element] = {}
        self.chunks: list[str] = []
        self._builder = builder
        self._styles = styles
        self._numbering = numbering
        self._marks: dict[tuple[str, str], int] = {}
        self._fields: list[_Field] = []
        # Of a paragraph whose mark is deleted: the next one continues it.
        self._begun: list[_Piece] = []
        self._links: list[str] = []

    def read(self, root: ET.Element) -> None:
        """Read a document, and the comments to which no place of it leads."""
        self._blocks(root)
        if self._begun:
            self._add(_Paragraph(self._begun))
        links, self._links = self._links, []
        # A document of nothing else is read as it is.
        if len(links) < _MIN_LINKS or not self._builder.passages:
            for line in links:
                self._builder.add(line)
        for key in [key for key in self.notes if key[0] == "comment"]:
            self._builder.add("\n".join(self._lines(self.notes.pop(key))))

    def side_text(self, tree: ET.Element) -> str:
        """Return the lines of a header or footer, without page numbers."""
        self._fields.clear()
        return "\n".join(line for line in self._lines(tree) if not line.isdecimal())

    def _blocks(self, element: ET.Element) -> None:
        for child in element:
            tag = local_name(child)
            if tag == "p":
                self._add(self._paragraph(child))
            elif tag == "tbl":
                self._add_table(child)
            elif tag == "altChunk":
                self.chunks.append(relation_id(child))
            elif tag not in _UNREAD:
                self._blocks(child)

    def _lines(self, element: ET.Element) -> list[str]:
        """Return the paragraphs below an element as lines, each with its text boxes and notes."""
        pieces, self._begun = self._begun, []
        lines = [line for line in self._lines_below(element) if line]
        if self._begun:
            lines.append(_Paragraph(self._begun).text())
        self._begun = pieces
        return lines

    def _lines_below(self, element: ET.Element) -> Iterator[str]:
        for child in element:
            tag = local_name(child)
            if tag == "p":
                read = self._paragraph(child)
                yield read.text()
                for box in read.boxes:
                    yield from self._lines(box)
                for mark, note in read.notes:
                    if lines := self._lines(note):
                        yield f"{mark} {' '.join(lines)}".strip()
            elif tag not in _UNREAD:
                yield from self._lines_below(child)

    def _add(self, read: _Paragraph) -> None:
        text, level = read.text(), read.level
        if text and level is None and (read.is_link() or read.is_contents):
            self._links.append(text)
        elif text:
            self._end_links()
            if level is None:
                self._builder.add(f"{BULLET} {text}" if read.is_item else text)
            else:
                self._builder.heading(level, text)
        for box in read.boxes:
            self._blocks(box)
        for mark, note in read.notes:
            if lines := self._lines(note):
                self._builder.add("\n".join([f"{mark} {lines[0]}".strip(), *lines[1:]]))

    def _end_links(self) -> None:
        """Add lines of few links; leave out those of more, which are a table of contents."""
        links, self._links = self._links, []
        if len(links) < _MIN_LINKS:
            for line in links:
                self._builder.add(line)

    def _paragraph(self, element: ET.Element) -> _Paragraph:
        style = _value(element, "pPr", "pStyle")
        mark = self._numbering.mark(element, style)
        stated = _value(element, "pPr", "outlineLvl")
        level = _heading_level(stated) if stated else self._styles.level(style)
        is_contents = _CONTENTS.fullmatch(self._styles.name(style)) is not None
        read = _Paragraph(
            self._begun,
            level=level,
            is_item=mark == BULLET,
            is_contents=is_contents,
        )
        self._begun = []
        self._inline(element, read, _Form(is_hidden=self._styles.is_hidden(style)))
        for opened in self._fields:
            # Without an end it would take the rest of the document.
            if not opened.has_result:
                opened.has_result = True
                self._write(read, opened.shown, _Form())
        if mark and mark != BULLET and read.text():
            read.pieces.insert(0, _Piece(f"{mark} "))
        is_deleted = any(_child(element, "pPr", "rPr", name) is not None for name in ("del", "moveFrom"))
        frame = _child(element, "pPr", "framePr")
        if is_deleted or (frame is not None and attribute(frame, "dropCap") not in {"", "none"}):
            self._begun, read.pieces = read.pieces, []
        return read

    def _inline(self, element: ET.Element, read: _Paragraph, form: _Form) -> None:
        for child in element:
            tag = local_name(child)
            if tag in {"t", *_BREAKS}:
                self._write(read, _BREAKS.get(tag) or child.text or "", form)
            elif tag in _INLINE:
                _INLINE[tag](self, child, read, form)
            elif tag not in _UNREAD:
                self._inline(child, read, form)

    def read_run(self, run: ET.Element, read: _Paragraph, form: _Form) -> None:
        properties = _child(run, "rPr")
        if properties is not None:
            is_hidden = _is_on(properties, "vanish")
            if is_hidden is None:
                is_hidden = form.is_hidden or self._styles.is_hidden(_value(properties, "rStyle"))
            fonts = _child(properties, "rFonts")
            font = "" if fonts is None else attribute(fonts, "ascii") or attribute(fonts, "hAnsi")
            form = form._replace(raised=_value(properties, "vertAlign"), font=font, is_hidden=is_hidden)
        self._inline(run, read, form)

    def read_link(self, link: ET.Element, read: _Paragraph, form: _Form) -> None:
        is_link = attribute(link, "anchor") != "" and not relation_id(link)
        self._inline(link, read, form._replace(is_link=form.is_link or is_link))

    def read_symbol(self, symbol: ET.Element, read: _Paragraph, form: _Form) -> None:
        self._write(read, _symbol(attribute(symbol, "char"), attribute(symbol, "font")), form)

    def read_equation(self, equation: ET.Element, read: _Paragraph, form: _Form) -> None:
        self._write(read, equation_text(equation), form)

    def read_instruction(self, instruction: ET.Element, read: _Paragraph, form: _Form) -> None:
        del read, form
        if self._fields and not self._fields[-1].has_result:
            self._fields[-1].instruction += instruction.text or ""

    def read_control(self, control: ET.Element, read: _Paragraph, form: _Form) -> None:
        box = _child(control, "sdtPr", "checkbox")
        if box is None:
            self._inline(control, read, form)
        else:
            self._write(read, _tick(_is_on(box, "checked")), form)

    def read_box(self, box: ET.Element, read: _Paragraph, form: _Form) -> None:
        del form
        read.boxes.append(box)

    def read_alternatives(self, alternatives: ET.Element, read: _Paragraph, form: _Form) -> None:
        """Read the first form for which there is something to show."""
        before = len(read.pieces) + len(read.boxes)
        for alternative in alternatives:
            if len(read.pieces) + len(read.boxes) == before:
                self._inline(alternative, read, form)

    def _write(self, read: _Paragraph, text: str, form: _Form) -> None:
        """Add text as it is shown; that among the instruction of a field is kept there."""
        if not text or (form.is_hidden and text.strip() and self._builder.hidden.leaves_out("hidden text")):
            return
        if form.font in _SYMBOLS:
            text = "".join(_symbol(f"{ord(sign):X}", form.font) if ord(sign) in _PRIVATE else sign for sign in text)
        opened = next((field for field in reversed(self._fields) if not field.has_result), None)
        if opened is not None:
            opened.shown += text
            return
        is_link = form.is_link or any(field.is_link for field in self._fields)
        read.pieces.append(_Piece(text, form.raised, is_link))

    def read_field_mark(self, mark: ET.Element, read: _Paragraph, form: _Form) -> None:
        kind = attribute(mark, "fldCharType")
        if kind == "begin":
            self._write(read, _choice_in_field(mark), form)
            # Some files begin fields that they never end.
            self._fields = [*self._fields[-_MAX_FIELDS:], _Field()]
        elif kind == "separate" and self._fields:
            opened = self._fields[-1]
            opened.has_result, opened.is_link = True, _SITE_LINK.match(opened.instruction) is not None
        elif kind == "end" and self._fields:
            ended = self._fields.pop()
            if not ended.has_result:
                instruction = ended.instruction + ended.shown
                self._write(read, field_signs(instruction) or ended.shown, form)

    def read_reference(self, reference: ET.Element, read: _Paragraph, form: _Form) -> None:
        """Write the mark of a note, and have the note follow the paragraph; a comment has no mark."""
        kind, note_id = local_name(reference).removesuffix("Reference"), attribute(reference, "id")
        key = kind, note_id
        note = self.notes.pop(key, None)
        if kind == "comment":
            read.notes += [("", note)] if note is not None else []
        elif note is not None or key in self._marks:
            mark = f"[{self._marks.setdefault(key, len(self._marks) + 1)}]"
            self._write(read, mark, form._replace(raised=""))
            read.notes += [(mark, note)] if note is not None else []

    def read_drawing(self, drawing: ET.Element, read: _Paragraph, form: _Form) -> None:
        """Read the text boxes and the WordArt of a drawing; of one without text what its author says that it shows."""
        before = len(read.pieces) + len(read.boxes)
        self._inline(drawing, read, form)
        for art in elements_named(drawing, "textpath"):
            self._write(read, f" {attribute(art, 'string')} ", form)
        if len(read.pieces) + len(read.boxes) > before:
            return
        described = [
            (attribute(shape, "descr") or attribute(shape, "alt")).strip()
            for shape in elements_named(drawing, "docPr", "shape")
        ]
        text = next(filter(None, described), "")
        if text and not _NO_DESCRIPTION.fullmatch(text):
            self._write(read, f" {text} ", form)

    def _add_table(self, table: ET.Element) -> None:
        rows = list(_below(table, "tr"))
        cells = [list(_below(row, "tc")) for row in rows]
        # One that only arranges text on the page: its cells are read one by one.
        is_layout = max(map(len, cells), default=0) < 2 or any(
            local_name(each) == "tbl" or (local_name(each) == "pStyle" and self._styles.level(attribute(each, "val")))
            for row in rows
            for each in row.iter()
        )
        self._end_links()
        if is_layout:
            for cell in (cell for row in cells for cell in row):
                self._blocks(cell)
            return
        heads = [_is_on(_child(row, "trPr"), "tblHeader") for row in rows]
        count = next((at for at, is_head in enumerate(heads) if not is_head), len(heads))
        self._builder.add_table(expand_spans(self._cells(rows, cells)), head_rows=count if count < len(rows) else 0)

    def _cells(self, rows: Sequence[ET.Element], cells: Sequence[Sequence[ET.Element]]) -> list[list[Cell]]:
        """Return the cells of a table; one that is merged downwards states the rows that it covers."""
        table: list[list[Cell]] = []
        # Column -> row and place of the cell that the next one below may continue.
        above: dict[int, tuple[int, int]] = {}
        for row, of_row in zip(rows, cells, strict=True):
            column = min(max(whole_number(_value(row, "trPr", "gridBefore"), 0), 0), MAX_GAP)
            read = [Cell("")] * column
            going_on: dict[int, tuple[int, int]] = {}
            for cell in of_row:
                width = max(whole_number(_value(cell, "tcPr", "gridSpan"), 1), 1)
                merge = _child(cell, "tcPr", "vMerge")
                is_continued = merge is not None and attribute(merge, "val", "continue") == "continue"
                if is_continued and column in above:
                    at, place = going_on[column] = above[column]
                    table[at][place] = table[at][place]._replace(rows=len(table) - at + 1)
                else:
                    if merge is not None:
                        going_on[column] = len(table), len(read)
                    read.append(Cell(" ".join(self._lines(cell)), 1, width))
                column += width
            table.append(read)
            above = going_on
        return table


# The elements of a paragraph that are read in their own way.
_INLINE: dict[str, Callable[[_Reader, ET.Element, _Paragraph, _Form], None]] = {
    "r": _Reader.read_run,
    "hyperlink": _Reader.read_link,
    "sym": _Reader.read_symbol,
    "fldChar": _Reader.read_field_mark,
    "instrText": _Reader.read_instruction,
    **dict.fromkeys(("footnoteReference", "endnoteReference", "commentReference"), _Reader.read_reference),
    **dict.fromkeys(("oMath", "oMathPara"), _Reader.read_equation),
    "sdt": _Reader.read_control,
    **dict.fromkeys(("drawing", "pict", "object"), _Reader.read_drawing),
    "txbxContent": _Reader.read_box,
    "AlternateContent": _Reader.read_alternatives,
}


def _below(element: ET.Element, tag: str) -> Iterator[ET.Element]:
    """Yield the rows of a table or the cells of a row, also those in content controls; not those that are deleted."""
    for child in element:
        if local_name(child) == tag:
            if tag != "tr" or _child(child, "trPr", "del") is None:
                yield child
        elif local_name(child) not in {"tc", "p", *_UNREAD}:
            yield from _below(child, tag)


def _symbol(code: str, font: str) -> str:
    """Return the character for a code in a font of symbols; empty for one that has none."""
    try:
        number = int(code, 16)
    except ValueError:
        return ""
    table = _SYMBOLS.get(font)
    if table is not None and (number in _PRIVATE or number < len(_PRIVATE)):
        return table.get(f"{number & 0xFF:02X}", "")
    is_private = 0xE000 <= number < 0xF900 or number > 0x10FFFF or 0xD800 <= number < 0xE000
    return "" if is_private else chr(number)


def _tick(is_ticked: object) -> str:
    return "☑ " if is_ticked else "☐ "


def _choice_in_field(mark: ET.Element) -> str:
    """Return what is chosen in a form field: a box that is ticked or not, an entry of a list."""
    box, entries = (
        next(elements_named(mark, "checkBox"), None),
        [attribute(entry, "val") for entry in elements_named(mark, "listEntry")],
    )
    if box is not None:
        checked = _is_on(box, "checked")
        return _tick(_is_on(box, "default") if checked is None else checked)
    choices = next(elements_named(mark, "ddList"), None)
    if choices is None:
        return ""
    at = whole_number(_value(choices, "result") or _value(choices, "default"), 0)
    return entries[at] if 0 <= at < len(entries) else ""
