"""Word (docx, docm, dotx) -> passages: the text as a reader sees it, with deletions accepted.

    document.xml ─▶ blocks ─▶ paragraph ─▶ pieces of text ─▶ heading, paragraph, or cell of a table

Text boxes, notes and comments follow the paragraph that they belong to; headers, footers, charts and diagrams follow
the text. There are no page numbers: pagination depends on the printer.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
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
            *(text_lines(parse_part(archive, part)) for part in numbered_parts(archive, _DIAGRAMS)),
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


@dataclass
class _Parts:
    """The parts that describe the text, each of which may be missing or damaged."""

    archive: zipfile.ZipFile
    names: dict[str, str]
    warnings: list[str] = field(default_factory=list[str])

    def tree(self, kind: str) -> ET.Element | None:
        name = self.names.get(kind, f"word/{kind}.xml")
        try:
            return parse_part(self.archive, name)
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


@dataclass
class _Reader:
    """Walks one document."""

    builder: DocumentBuilder
    styles: _Styles
    numbering: Numbering
    notes: dict[tuple[str, str], ET.Element] = field(default_factory=dict[tuple[str, str], ET.Element])
    chunks: list[str] = field(default_factory=list[str])
    marks: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    fields: list[_Field] = field(default_factory=list[_Field])  # that are open
    begun: list[_Piece] = field(default_factory=list[_Piece])  # of a paragraph whose mark is deleted: the next goes on
    links: list[str] = field(default_factory=list[str])

    def read(self, root: ET.Element) -> None:
        """Read a document, and the comments to which no place of it leads."""
        self._blocks(root)
        if self.begun:
            self._add(_Paragraph(self.begun))
        links, self.links = self.links, []
        # A document of nothing else is read as it is.
        if len(links) < _MIN_LINKS or not self.builder.passages:
            for line in links:
                self.builder.add(line)
        for key in [key for key in self.notes if key[0] == "comment"]:
            self.builder.add("\n".join(self._lines(self.notes.pop(key))))

    def side_text(self, tree: ET.Element) -> str:
        """Return the lines of a header or footer, without page numbers."""
        self.fields.clear()
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
        pieces, self.begun = self.begun, []
        lines = [line for line in self._lines_below(element) if line]
        if self.begun:
            lines.append(_Paragraph(self.begun).text())
        self.begun = pieces
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
        # A line whose letters only lead to other places of the document; numbers may be between them.
        letters = [piece.is_link for piece in read.pieces if any(map(str.isalpha, piece.text))]
        is_link = bool(letters) and all(letters)
        if text and level is None and (is_link or read.is_contents):
            self.links.append(text)
        elif text:
            self._end_links()
            if level is None:
                self.builder.add(f"{BULLET} {text}" if read.is_item else text)
            else:
                self.builder.heading(level, text)
        for box in read.boxes:
            self._blocks(box)
        for mark, note in read.notes:
            if lines := self._lines(note):
                self.builder.add("\n".join([f"{mark} {lines[0]}".strip(), *lines[1:]]))

    def _end_links(self) -> None:
        """Add lines of few links; leave out those of more, which are a table of contents."""
        links, self.links = self.links, []
        if len(links) < _MIN_LINKS:
            for line in links:
                self.builder.add(line)

    def _paragraph(self, element: ET.Element) -> _Paragraph:
        style = _value(element, "pPr", "pStyle")
        mark = self.numbering.mark(element, style)
        stated = _value(element, "pPr", "outlineLvl")
        level = _heading_level(stated) if stated else self.styles.level(style)
        is_contents = _CONTENTS.fullmatch(self.styles.name(style)) is not None
        read = _Paragraph(
            self.begun,
            level=level,
            is_item=mark == BULLET,
            is_contents=is_contents,
        )
        self.begun = []
        self._inline(element, read, _Form(is_hidden=self.styles.is_hidden(style)))
        for opened in self.fields:
            # Without an end it would take the rest of the document.
            if not opened.has_result:
                opened.has_result = True
                self._write(read, opened.shown, _Form())
        if mark and mark != BULLET and read.text():
            read.pieces.insert(0, _Piece(f"{mark} "))
        is_deleted = any(_child(element, "pPr", "rPr", name) is not None for name in ("del", "moveFrom"))
        frame = _child(element, "pPr", "framePr")
        if is_deleted or (frame is not None and attribute(frame, "dropCap") not in {"", "none"}):
            self.begun, read.pieces = read.pieces, []
        return read

    def _inline(self, element: ET.Element, read: _Paragraph, form: _Form) -> None:
        for child in element:
            tag = local_name(child)
            if tag in _UNREAD:
                continue
            match tag:
                case "t" | "br" | "cr" | "tab" | "ptab" | "noBreakHyphen":
                    self._write(read, _BREAKS.get(tag) or child.text or "", form)
                case "r":
                    self._read_run(child, read, form)
                case "hyperlink":
                    is_link = attribute(child, "anchor") != "" and not relation_id(child)
                    self._inline(child, read, form._replace(is_link=form.is_link or is_link))
                case "sym":
                    self._write(read, _symbol(attribute(child, "char"), attribute(child, "font")), form)
                case "fldChar" | "instrText":
                    self._read_field(child, read, form)
                case "footnoteReference" | "endnoteReference" | "commentReference":
                    self._read_reference(child, read, form)
                case "oMath" | "oMathPara":
                    self._write(read, equation_text(child), form)
                case "sdt" if (box := _child(child, "sdtPr", "checkbox")) is not None:
                    self._write(read, "☑ " if _is_on(box, "checked") else "☐ ", form)
                case "drawing" | "pict" | "object":
                    self._read_drawing(child, read, form)
                case "txbxContent":
                    read.boxes.append(child)
                case "AlternateContent":
                    self._read_alternatives(child, read, form)
                case _:
                    self._inline(child, read, form)

    def _read_run(self, run: ET.Element, read: _Paragraph, form: _Form) -> None:
        properties = _child(run, "rPr")
        if properties is not None:
            is_hidden = _is_on(properties, "vanish")
            if is_hidden is None:
                is_hidden = form.is_hidden or self.styles.is_hidden(_value(properties, "rStyle"))
            fonts = _child(properties, "rFonts")
            font = "" if fonts is None else attribute(fonts, "ascii") or attribute(fonts, "hAnsi")
            form = form._replace(raised=_value(properties, "vertAlign"), font=font, is_hidden=is_hidden)
        self._inline(run, read, form)

    def _read_alternatives(self, alternatives: ET.Element, read: _Paragraph, form: _Form) -> None:
        """Read the first form for which there is something to show."""
        before = len(read.pieces) + len(read.boxes)
        for alternative in alternatives:
            if len(read.pieces) + len(read.boxes) == before:
                self._inline(alternative, read, form)

    def _write(self, read: _Paragraph, text: str, form: _Form) -> None:
        """Add text as it is shown; that among the instruction of a field is kept there."""
        if not text or (form.is_hidden and text.strip() and self.builder.hidden.leaves_out("hidden text")):
            return
        if form.font in _SYMBOLS:
            text = "".join(_symbol(f"{ord(sign):X}", form.font) if ord(sign) in _PRIVATE else sign for sign in text)
        opened = next((field for field in reversed(self.fields) if not field.has_result), None)
        if opened is not None:
            opened.shown += text
            return
        is_link = form.is_link or any(field.is_link for field in self.fields)
        read.pieces.append(_Piece(text, form.raised, is_link))

    def _read_field(self, mark: ET.Element, read: _Paragraph, form: _Form) -> None:
        """Read the beginning, a part of the instruction, the separator or the end of a field."""
        kind = attribute(mark, "fldCharType")
        if local_name(mark) == "instrText":
            if self.fields and not self.fields[-1].has_result:
                self.fields[-1].instruction += mark.text or ""
        elif kind == "begin":
            # What is chosen in a form field: a box that is ticked or not, an entry of a list.
            box, choices = (next(elements_named(mark, name), None) for name in ("checkBox", "ddList"))
            if box is not None:
                checked = _is_on(box, "checked")
                is_ticked = _is_on(box, "default") if checked is None else checked
                self._write(read, "☑ " if is_ticked else "☐ ", form)
            elif choices is not None:
                entries = [attribute(entry, "val") for entry in elements_named(mark, "listEntry")]
                at = whole_number(_value(choices, "result") or _value(choices, "default"), 0)
                self._write(read, entries[at] if 0 <= at < len(entries) else "", form)
            # Some files begin fields that they never end.
            self.fields = [*self.fields[-_MAX_FIELDS:], _Field()]
        elif kind == "separate" and self.fields:
            opened = self.fields[-1]
            opened.has_result, opened.is_link = True, _SITE_LINK.match(opened.instruction) is not None
        elif kind == "end" and self.fields:
            ended = self.fields.pop()
            if not ended.has_result:
                instruction = ended.instruction + ended.shown
                self._write(read, field_signs(instruction) or ended.shown, form)

    def _read_reference(self, reference: ET.Element, read: _Paragraph, form: _Form) -> None:
        """Write the mark of a note, and have the note follow the paragraph; a comment has no mark."""
        kind, note_id = local_name(reference).removesuffix("Reference"), attribute(reference, "id")
        key = kind, note_id
        note = self.notes.pop(key, None)
        if kind == "comment":
            read.notes += [("", note)] if note is not None else []
        elif note is not None or key in self.marks:
            mark = f"[{self.marks.setdefault(key, len(self.marks) + 1)}]"
            self._write(read, mark, form._replace(raised=""))
            read.notes += [(mark, note)] if note is not None else []

    def _read_drawing(self, drawing: ET.Element, read: _Paragraph, form: _Form) -> None:
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
            local_name(each) == "tbl" or (local_name(each) == "pStyle" and self.styles.level(attribute(each, "val")))
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
        # A cell that is merged downwards states the rows that it covers.
        written: list[list[Cell]] = []
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
                    written[at][place] = written[at][place]._replace(rows=len(written) - at + 1)
                else:
                    if merge is not None:
                        going_on[column] = len(written), len(read)
                    read.append(Cell(" ".join(self._lines(cell)), 1, width))
                column += width
            written.append(read)
            above = going_on
        self.builder.add_table(expand_spans(written), head_rows=count if count < len(rows) else 0)


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
