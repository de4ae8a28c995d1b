"""HTML -> title and passages below headings; tables and ``pre`` stay whole.

Scripts, navigation, controls, hidden elements and ruby are removed first. Then ``main`` or the only ``article`` is read
if it contains enough of the text, else the body. The tree is walked with an explicit stack, because pages nested ten
thousand levels deep exist.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

from selectolax.lexbor import LexborHTMLParser, LexborNode

from mcp_servers.knowledge.importing.documents import Cell, DocumentBuilder, DocumentFullError, expand_spans, some_names
from mcp_servers.knowledge.importing.equations import formula_text, raised_mark
from mcp_servers.knowledge.importing.plain_text import CJK
from mcp_servers.knowledge.importing.word_numbers import number_text
from mcp_servers.knowledge.types import Passage

_ELEMENTS: dict[str, list[str]] = json.loads(Path(__file__).with_name("html_elements.json").read_text("utf-8"))
# Hidden elements, and navigation by its role or as DocBook, Texinfo, Javadoc, MediaWiki and LibreOffice mark it.
_LEFT_OUT = ", ".join(_ELEMENTS["left_out"])
_HIDDEN_IN_DRAWING = '[display="none"], [style*="display:none"], [style*="display: none"]'
# Lines that only lead to other pages of the document: this many links and nothing else are a table of contents.
_MIN_LINKS = 3
_SITE_LINK = re.compile(r"(?!//|[a-zA-Z][a-zA-Z0-9+.-]*:)")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(_ELEMENTS["blocks"])
# Minimum share of the body's text for ``main`` or ``article``.
_MIN_MAIN_SHARE = 0.25
_MAX_DEPTH, _MAX_FORMULA_DEPTH = 500, 100
# Shorter pages with few tags are read as they are.
_EXAMINED = 10_000
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)|<!--")
_ATTRIBUTE = re.compile(
    r"""[\s/]*([^\s/>=][^\s/>=]*|=[^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|(?!["'])[^\s>]+|(?=["']))?)?"""
)
# Longer ones are examined, and the attributes that this module reads remain.
_MAX_ATTRIBUTES = 300
_ATTRIBUTES = frozenset(
    {
        "hidden",
        "aria-hidden",
        "role",
        "style",
        "property",
        "content",
        "rowspan",
        "colspan",
        "start",
        "value",
        "type",
        "checked",
    }
)
# Their content is text up to their end.
_RAW = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
# Elements without an end, or whose end may be left out.
_WITHOUT_END = frozenset(_ELEMENTS["without_end"])
_RAISED = frozenset({"sup", "sub"})
_GROUPS = frozenset({"span", "div", "p", "section", "td", "li", "dd"})
_LIST_KINDS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_MAX_SPAN, _MAX_NUMBER_DIGITS = 1_000, 6
_TICKED = frozenset({"li", "p", "td", "th", "label", "dd"})
_DISPLAY_STYLE = re.compile(r"\{\\displaystyle\s*(.*)\}", re.DOTALL)
# XHTML, as in EPUB: the parser of HTML takes its empty elements for the beginning of others, <title/> for one that
# holds the whole page. Elements that have no end in HTML either stay.
_XHTML = re.compile(
    r"\s*<\?xml\b|\s*(?:<!doctype[^>]{0,200}>\s*)?<html\b[^>]{0,500}http://www\.w3\.org/1999/xhtml", re.IGNORECASE
)
_EMPTY_ELEMENT = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)"
    r"""([a-z][\w:.-]{0,50})((?:\s[^<>]{0,500}["'\s])?)/>""",
    re.IGNORECASE,
)
_DECLARATIONS = re.compile(r"(<!doctype[^>\[]{0,500})\[[^\]]{0,20000}\]\s*>", re.IGNORECASE)
_FRAME = re.compile(r"""<i?frame\b[^<>]{0,2000}?\bsrc\s*=\s*["']?([^"'\s<>]{1,200})""", re.IGNORECASE)
# Placeholder of <br> until white space is normalized; does not occur in text.
_BREAK = "\v"
_CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE)
_CHARSET_BYTES = 4096
_BREAK_IN_JAPANESE = re.compile(rf"(?<=[{CJK}])[ \t]*\n\s*(?=[{CJK}])")


def declared_charset(content: bytes) -> str:
    """Return the charset declared in the page, or an empty string."""
    match = _CHARSET.search(content[:_CHARSET_BYTES])
    return match.group(1).decode("ascii", "ignore") if match else ""


def reason_without_text(text: str) -> str:
    """Return why a page shows nothing that could be read; empty if it simply has nothing."""
    frames = list(dict.fromkeys(_FRAME.findall(text)))
    if frames:
        return f"it is a page of frames that shows other files: {some_names(frames)}"
    return "its text is made by a script" if "<script" in text.lower() else ""


def read_html(text: str) -> tuple[str, list[Passage]]:
    """Return title (may be empty) and passages."""
    if _XHTML.match(text):
        text = _EMPTY_ELEMENT.sub(r"<\1\2></\1>", _DECLARATIONS.sub(r"\1>", text, count=1))
    tree = LexborHTMLParser(_flatten(text))
    title_node = tree.css_first("head > title")
    shared = tree.css_first('meta[property="og:title"]')
    title = title_node.text() if title_node else (shared.attributes.get("content") or "") if shared else ""
    title = " ".join(title.split())
    _write_states_and_formulas(tree)
    _show_alternatives(tree)
    for drawing in tree.css("svg"):
        for part in drawing.css(_HIDDEN_IN_DRAWING):
            part.decompose()
        for line in drawing.css("tspan[x], tspan[dy]"):
            line.insert_before(" ")
        lines = [" ".join(_inline(line).split()) for line in drawing.css("text, foreignObject")]
        drawing.replace_with("\v".join(["", *filter(None, lines), ""]) if any(lines) else "")
    tree.strip_tags(_ELEMENTS["dropped"], recursive=True)
    for node in tree.css(_LEFT_OUT):
        if node.tag not in {"html", "body"}:
            node.decompose()
    body = tree.body
    if body is None:
        return title, []
    root = body
    for selector in ("main, [role=main]", "article"):
        nodes = tree.css(selector)
        if len(nodes) == 1 and len(nodes[0].text()) >= len(body.text()) * _MIN_MAIN_SHARE:
            root = nodes[0]
            break
    passages: list[Passage] = []
    # A page of links alone is read as it is.
    for leaves_out_links in (True, False):
        reader = HtmlReader(leaves_out_links=leaves_out_links)
        with suppress(DocumentFullError):
            reader.read(root)
        title, passages = title or reader.builder.title, reader.builder.finish()
        if passages:
            break
    return title, passages


def _write_states_and_formulas(tree: LexborHTMLParser) -> None:
    """Replace boxes to tick by ☑ or ☐, and formulas by the TeX next to them; show the panels of tabs and notes."""
    for box in tree.css('input[type="checkbox" i], input[type="radio" i]'):
        # Elsewhere they open menus.
        if box.parent is not None and box.parent.tag in _TICKED:
            box.replace_with("☑ " if "checked" in box.attributes else "☐ ")
    formulas = tree.css(r"math, m\:math, mml\:math")
    # A text of different formulas describes none of them.
    formulas_of: dict[str, set[str]] = {}
    for formula in formulas:
        if described := _attribute(formula, "alttext").strip():
            formulas_of.setdefault(described, set()).add("".join(formula.text().split()))
    for formula in formulas:
        annotations = [
            node.text().strip() for node in formula.css("annotation") if "tex" in _attribute(node, "encoding")
        ]
        described = _attribute(formula, "alttext").strip()
        is_description = len(formulas_of.get(described, ())) == 1
        tex = next(filter(None, reversed(annotations)), "") or (described if is_description else "")
        if tex:
            # Wikipedia hides it after a picture.
            around = formula.parent
            is_hidden = around is not None and "display" in _attribute(around, "style")
            (around if around is not None and is_hidden else formula).replace_with(_DISPLAY_STYLE.sub(r"\1", tex))
        else:
            formula.replace_with(formula_text(_xml(formula)))
    for panel in tree.css('[role="tabpanel"], [hidden]'):
        # A note that opens at its mark is hidden until then.
        if _attribute(panel, "role") != "tabpanel" and not _is_note(panel, "note"):
            continue
        for name in ("hidden", "aria-hidden", "style"):
            if name in panel.attributes:
                del panel.attrs[name]


def _xml(node: LexborNode, depth: int = 0) -> ET.Element:
    """Return an element and those inside it, without their prefixes."""
    element = ET.Element(
        (node.tag or "").rpartition(":")[2], {name: text or "" for name, text in node.attributes.items()}
    )
    element.extend(_xml(child, depth + 1) for child in (node.iter() if depth < _MAX_FORMULA_DEPTH else ()))
    element.text = "" if len(element) else node.text()
    return element


def _show_alternatives(tree: LexborHTMLParser) -> None:
    """Show what a script chooses from: two hidden elements or more, next to which their parent has nothing to show."""
    for first in tree.css("[hidden]:first-child"):
        parent = first.parent
        if parent is None or parent.tag not in _GROUPS:
            continue
        children = list(parent.iter(include_text=True))
        hidden = [child for child in children if not child.is_text_node and "hidden" in child.attributes]
        alternatives = [child for child in children if child.text().strip() and child not in hidden]
        if len(hidden) < 2 or alternatives:
            continue
        for at, child in enumerate(hidden):
            del child.attrs["hidden"]
            if at and child.tag == "span":
                child.insert_before(" / ")


def _flatten(text: str) -> str:
    """Return a page without the tags below a depth of ``_MAX_DEPTH``, whose text stays, and without long attributes.

    The library needs time that grows with the square of the depth and of the number of an element's attributes. A tag
    or comment without an end is the end of the page, as for a browser.
    """
    if len(text) <= _EXAMINED and text.count("<") <= _MAX_DEPTH:
        return text
    parts: list[str] = []
    depth = position = 0
    while match := _TAG.search(text, position):
        parts.append(text[position : match.start()])
        is_end, name = match[1], (match[2] or "").lower()
        if not name:
            position = text.find("-->", match.end()) + 3
            if position < 3:
                return "".join(parts)
            continue
        start = match.end()
        end = text.find(">", start)
        attributes = text[start:end]
        is_odd = attributes.count('"') % 2 or attributes.count("'") % 2
        if end >= 0 and (end - start > _MAX_ATTRIBUTES or is_odd):
            # Few of many attributes.
            unique: dict[str, str] = {}
            while attribute := _ATTRIBUTE.match(text, start):
                if attribute[2] == "":
                    # A quotation mark that is never closed.
                    return "".join(parts)
                attribute_name, start = attribute[1].lower(), attribute.end()
                if attribute_name in _ATTRIBUTES and start - attribute.start() <= 10 * _MAX_ATTRIBUTES:
                    unique.setdefault(attribute_name, attribute[0])
            attributes, end = "".join(f" {each.strip()}" for each in unique.values()), text.find(">", start)
        if end < 0:
            return "".join(parts)
        position = end + 1
        if name in _WITHOUT_END or text[end - 1] == "/":
            is_shown = depth <= _MAX_DEPTH
        else:
            depth = max(0, depth - 1) if is_end else depth + 1
            is_shown = depth + bool(is_end) <= _MAX_DEPTH
        parts.append(f"{match[0][:_MAX_ATTRIBUTES]}{attributes}>" if is_shown else " ")
        if name in _RAW and not is_end:
            close = re.compile(f"</{name}", re.IGNORECASE).search(text, position)
            if close is None:
                return "".join(parts)
            parts.append(text[position : close.start()])
            position = close.start()
    return "".join(parts) + text[position:]


class HtmlReader:
    """Walks one page."""

    def __init__(self, *, leaves_out_links: bool = False) -> None:
        self.builder = DocumentBuilder()
        self._leaves_out_links = leaves_out_links
        self._text: list[str] = []
        self._prefix = ""
        # Links within the document: of the open text, with their letters; lines of nothing else, and their links.
        self._links = self._letters_in_links = 0
        self._lines_of_links: list[str] = []
        self._links_of_lines = 0
        # Next numbers of the open lists; 0 for one with bullets.
        self._lists: list[tuple[int, str]] = []

    def read(self, root: LexborNode) -> None:
        """Read everything below an element."""
        waiting: list[tuple[LexborNode, bool]] = [(root, False)]
        while waiting:
            node, is_read = waiting.pop()
            if is_read:
                tag = node.tag or ""
                if tag in _HEADINGS:
                    self._links = self._letters_in_links = 0
                    text, self._text = _normalize_space("".join(self._text)), []
                    self.builder.heading(_HEADINGS[tag], text)
                elif tag in _BLOCKS:
                    self._flush()
                    self._prefix = "" if tag == "li" else self._prefix
                    if tag in {"ol", "ul", "menu"} and self._lists:
                        self._lists.pop()
            elif self._enter(node):
                waiting.append((node, True))
                child = node.last_child
                while child is not None:
                    waiting.append((child, False))
                    child = child.prev
        self._end_lines()

    def _enter(self, node: LexborNode) -> bool:
        """Begin an element or text node; return True to visit its children."""
        tag = node.tag or ""
        if node.is_text_node:
            self._text.append(node.text_content or "")
        elif tag == "br":
            self._text.append(_BREAK)
        elif tag in _RAISED or _is_note(node, "noteref"):
            self._text.append(_raised_text(node, self._text))
        elif tag == "a" and (target := _attribute(node, "href")) and _SITE_LINK.match(target):
            self._links += 1
            self._letters_in_links += sum(map(str.isalpha, node.text()))
        elif tag == "pre" or tag in _HEADINGS:
            self._end_lines()
            if tag == "pre":
                for line_break in node.css("br"):
                    line_break.replace_with("\n")
                self.builder.add(node.text(), is_atomic=True)
                return False
        elif tag in _BLOCKS:
            if tag == "table" and (rows := _rows(node)):
                self._end_lines()
                for caption in node.css("caption"):
                    self.builder.add(_normalize_space(_inline(caption)))
                self.builder.add_table(expand_spans(rows), head_rows=_count_head_rows(node))
                return False
            self._flush()
            if tag in {"ol", "ul", "menu"}:
                is_numbered = tag == "ol" and "list-style-type:none" not in _attribute(node, "style").replace(" ", "")
                start = _number(_attribute(node, "start"), 1) if is_numbered else 0
                self._lists.append((start, _attribute(node, "type")))
            elif tag == "li":
                if not self._lists or not self._lists[-1][0]:
                    self._prefix = "- "
                else:
                    next_number, kind = self._lists[-1]
                    number = _number(_attribute(node, "value"), next_number)
                    self._lists[-1] = (number + 1, kind)
                    self._prefix = f"{number_text(number, _LIST_KINDS.get(kind, 'decimal'))}. "
        return True

    def _flush(self) -> None:
        """Add the open text as a paragraph, later if it is links alone, because more of them may follow."""
        text, self._text, links = _normalize_space("".join(self._text)), [], self._links
        # Numbers and marks may be between them.
        is_links = links > 0 and sum(map(str.isalpha, text)) <= self._letters_in_links
        self._links = self._letters_in_links = 0
        if not text:
            return
        text, self._prefix = self._prefix + text, ""
        if is_links and self._leaves_out_links:
            self._lines_of_links.append(text)
            self._links_of_lines += links
        else:
            self._add_links()
            self.builder.add(text)

    def _end_lines(self) -> None:
        self._flush()
        self._add_links()

    def _add_links(self) -> None:
        """Add lines of few links; leave out those of more, which are navigation or a table of contents."""
        lines, self._lines_of_links = self._lines_of_links, []
        if self._links_of_lines < _MIN_LINKS:
            for line in lines:
                self.builder.add(line)
        self._links_of_lines = 0


def _rows(table: LexborNode) -> list[list[Cell]]:
    """Return the cells of a data table; empty for a layout table."""
    if any(inner.mem_id != table.mem_id for inner in table.css("table, h1, h2, h3, h4, h5, h6, section, article")):
        return []
    # Code next to its line numbers is a table without a header.
    if table.css_first("pre") and not _count_head_rows(table):
        return []
    rows: list[list[Cell]] = []
    for row in table.css("tr"):
        cells: list[Cell] = []
        for cell in row.css("th, td"):
            # A span of no rows is one to the end of the table.
            covered_rows = _number(_attribute(cell, "rowspan"), 1) or _MAX_SPAN
            covered_columns = _number(_attribute(cell, "colspan"), 1) or 1
            text = _normalize_space(_inline(cell))
            cells.append(Cell(text, min(covered_rows, _MAX_SPAN), min(covered_columns, _MAX_SPAN)))
        rows.append(cells)
    return rows if any(len(row) > 1 for row in rows) else []


def _count_head_rows(table: LexborNode) -> int:
    """Return the number of rows at the top that have only header cells; 0 if none exist."""
    rows = table.css("tr")
    return next((at for at, row in enumerate(rows) if row.css_first("td") or not row.css_first("th")), 0)


def _attribute(node: LexborNode, name: str) -> str:
    return node.attributes.get(name) or ""


def _is_note(node: LexborNode, kind: str) -> bool:
    """True for what a book calls a note, or the mark of one."""
    return kind in f"{_attribute(node, 'epub:type')} {_attribute(node, 'role')}"


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS else otherwise


def _inline(node: LexborNode) -> str:
    """Return the text of an element with spaces between its blocks."""
    parts: list[str] = []
    for inner in node.traverse(include_text=True):
        if inner.is_text_node:
            parts.append(inner.text_content or "")
        elif inner.tag == "br" or inner.tag in _BLOCKS:
            parts.append(" ")
        elif inner.tag in _RAISED or _is_note(inner, "noteref"):
            parts.append(_raised_text(inner, parts))
    return "".join(parts)


def _raised_text(node: LexborNode, parts: list[str]) -> str:
    before = next((part[-1] for part in reversed(parts) if part), "")
    return raised_mark(node.text() or "", before, is_lowered=node.tag == "sub")


def _normalize_space(text: str) -> str:
    """Normalize white space as a browser does."""
    text = _BREAK_IN_JAPANESE.sub("", text)
    return "\n".join(line for line in (" ".join(part.split()) for part in text.split(_BREAK)) if line)
