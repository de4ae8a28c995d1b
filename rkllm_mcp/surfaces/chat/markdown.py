"""Markdown -> lines of a terminal, block by block, with rich; only imported for a text with markup.

a heading, a list of two ─▶ units: the heading, an item, an item     top-level blocks; of lists, their items
unit                     ─▶ lines of at most so many columns, with colours
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import cast

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from rkllm_mcp.surfaces.terminal import TAB_COLUMNS, breaks, width

_BLANK_END = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")
# HTML is text, and so is a link's definition: it would change the text above it.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")
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
    starts = _line_starts(source)
    return [
        (starts[line], _lines(tokens, columns), tokens[0].markup if tokens[0].type == "list_item_open" else "")
        for line, tokens in _token_groups(source)
    ]


def unit_offsets(source: str) -> list[int]:
    """Return the offset of each unit."""
    starts = _line_starts(source)
    return [starts[line] for line, _ in _token_groups(source)]


def _line_starts(source: str) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in source.split("\n"))]


def _token_groups(source: str) -> Iterator[tuple[int, list[Token]]]:
    """Yield the first line and the tokens of each unit."""
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
                yield (group[0].map or [0])[0], group
                group = []


def _lines(tokens: Sequence[Token], columns: int) -> list[str]:
    for token in tokens:
        for child in token.children or ():
            # A model's line break is meant as one.
            child.type = "hardbreak" if child.type == "softbreak" else child.type
    document = _Document("", hyperlinks=False)
    document.parsed = list(tokens)
    with _CONSOLE.capture() as capture:
        _CONSOLE.print(document, width=columns)
    lines = [_BLANK_END.sub(_reset, line) for line in capture.get().split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return lines


def _reset(blank: re.Match[str]) -> str:
    return "\x1b[0m" if "\x1b" in blank[0] and blank.start() else ""


def _wrapped_text(self: markdown.TextElement, console: Console, options: ConsoleOptions) -> RenderResult:
    del console
    for line in self.text.split("\n", allow_blank=True):
        for part in line.divide(breaks(line.plain, options.max_width)):
            part.rstrip()
            yield part


class _Paragraph(markdown.Paragraph):
    __rich_console__ = _wrapped_text


class _Heading(markdown.Heading):
    __rich_console__ = _wrapped_text


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

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.__rich_console__(console, options)

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        del number, last_number
        yield from self.__rich_console__(console, options)


class _Document(markdown.Markdown):
    elements = {  # noqa: RUF012  # as in the base class
        **markdown.Markdown.elements,
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "list_item_open": _ListItem,
        "table_open": _Table,
    }
