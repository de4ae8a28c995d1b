"""Markdown -> lines of a terminal, block by block, with rich; only imported for a text with markup.

a heading, a list of two ─▶ units: the heading, an item, an item     top-level blocks; of lists, their items
unit                     ─▶ lines of at most this many columns, with colours
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import cast

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis, strikethrough
from markdown_it.token import Token
from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from rkllm_mcp.surfaces.terminal import TAB_COLUMNS, breaks, width

_BLANK_END = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")
_LINE_BREAK = re.compile(r"<br\s{0,4}/?>", re.IGNORECASE)
_WIDE_COLUMNS = 2


def _delimiters(tokenize: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    """Return the rule with what CommonMark lacks for text without blanks (commonmark-spec issue 650).

    A delimiter next to a wide character opens and closes as if a blank stood there, so これは**「重要」**です is bold.
    One asterisk between two digits is a product.
    """

    def rule(state: StateInline, silent: bool) -> bool:
        begin, count = state.pos, len(state.delimiters)
        if not tokenize(state, silent):
            return False
        before, after = state.src[begin - 1 : begin] if begin else "", state.src[state.pos : state.pos + 1]
        is_product = state.pos - begin == 1 and before.isdigit() and after.isdigit()
        for delimiter in state.delimiters[count:]:
            if is_product:
                delimiter.open = delimiter.close = False
            elif state.src[begin] != "_":
                delimiter.open |= width(before) == _WIDE_COLUMNS and bool(after.strip())
                delimiter.close |= width(after) == _WIDE_COLUMNS and bool(before.strip())
        return True

    return rule


def _line_break(state: StateInline, silent: bool) -> bool:
    """Take ``<br>`` for a line break: nothing else breaks a line in the cell of a table."""
    tag = _LINE_BREAK.match(state.src, state.pos)
    if tag is None:
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos = tag.end()
    return True


# HTML is text, and so is a link's definition: it would change the text above it.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")
_PARSER.inline.ruler.at("emphasis", _delimiters(emphasis.tokenize))
_PARSER.inline.ruler.at("strikethrough", _delimiters(strikethrough.tokenize))
_PARSER.inline.ruler.before("autolink", "line_break", _line_break)
_CONSOLE = Console(
    file=io.StringIO(),
    force_terminal=True,
    color_system="standard",
    theme=Theme(
        {
            "markdown.h1": "bold underline",
            "markdown.h2": "bold",
            "markdown.h3": "bold",
            "markdown.h4": "italic",
            "markdown.code": "cyan",
            "markdown.block_quote": "dim",
            "markdown.link": "blue",
            "markdown.link_url": "underline blue",
            "markdown.table.border": "dim",
            "markdown.table.header": "bold",
        }
    ),
    highlight=False,
    legacy_windows=False,
    _environ={},
)


def markdown_units(source: str, columns: int) -> list[tuple[int, Sequence[str], str]]:
    """Return offset, lines and list sign of each unit; items of one list have the same sign, other units none."""
    units: list[tuple[int, Sequence[str], str]] = []
    for offset, tokens in token_groups(source):
        with _CONSOLE.capture() as capture:
            _CONSOLE.print(MarkdownDocument(tokens), width=columns)
        # A style that ends in the blanks has to end without them.
        lines = [
            _BLANK_END.sub(lambda blank: "\x1b[0m" if "\x1b" in blank[0] and blank.start() else "", line)
            for line in capture.get().split("\n")
        ]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            del lines[0]
        units.append((offset, lines, tokens[0].markup if tokens[0].type == "list_item_open" else ""))
    return units


def token_groups(source: str) -> Iterator[tuple[int, list[Token]]]:
    """Yield the offset and the tokens of each unit."""
    starts = [0, *accumulate(len(line) + 1 for line in source.split("\n"))]
    group: list[Token] = []
    depth = 0  # of a unit: 1 in a top-level list
    for token in _PARSER.parse(source):
        if token.level == 0 and token.type.endswith("_list_open"):
            depth = 1
        elif token.level == 0 and token.type.endswith("_list_close"):
            depth = 0
        else:
            group.append(token)
            if token.level == depth and token.nesting <= 0:
                yield starts[(group[0].map or [0])[0]], group
                group = []


class _Paragraph(markdown.Paragraph):
    def __rich_console__(self: markdown.TextElement, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        for line in self.text.split("\n", allow_blank=True):
            for part in line.divide(breaks(line.plain, options.max_width)):
                part.rstrip()
                yield part


class _Heading(markdown.Heading):
    __rich_console__ = _Paragraph.__rich_console__


class _CodeBlock(markdown.CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        code = str(self.text).rstrip().expandtabs(TAB_COLUMNS)
        yield Syntax(code, self.lexer_name, theme="ansi_dark", word_wrap=True, padding=(0, 2))


class _Table(markdown.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            for column in cast("Table", table).columns:
                column.overflow = "fold"  # nothing is left out of a narrow table
            yield table


class _ListItem(markdown.ListItem):
    sign = "• "

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> _ListItem:
        del markdown
        item = cls()
        # The number as the model wrote it; an item may be rendered without those before it.
        item.sign = f"{token.info}{token.markup} " if token.info else cls.sign
        return item

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        indent = width(self.sign)
        sign, blank = Segment(self.sign, console.get_style("markdown.item.number")), Segment(" " * indent)
        inner = options.update(width=max(options.max_width - indent, 1))
        for number, line in enumerate(console.render_lines(self.elements, inner, style=self.style)):
            yield sign if number == 0 else blank
            yield from line
            yield Segment("\n")

    render_bullet = __rich_console__

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        del number, last_number
        yield from self.__rich_console__(console, options)


class MarkdownDocument(markdown.Markdown):
    """A whole text, or a unit of one, for a console of any width."""

    elements = {  # noqa: RUF012  # as in the base class
        **markdown.Markdown.elements,
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "list_item_open": _ListItem,
        "table_open": _Table,
    }

    def __init__(self, text: str | Sequence[Token]) -> None:
        super().__init__("", hyperlinks=False)
        tokens = _PARSER.parse(text) if isinstance(text, str) else text
        for token in tokens:
            for child in token.children or ():
                # A model's line break is meant as one.
                child.type = "hardbreak" if child.type == "softbreak" else child.type
        self.parsed = list(tokens)
