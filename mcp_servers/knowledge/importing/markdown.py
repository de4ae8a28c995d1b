"""Markdown -> title and passages below headings; code and tables stay whole.

Front matter gives the title. Emphasis, links and images are reduced to their text; code is unchanged. Processed line by
line in bounded time.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter

from mcp_servers.knowledge.importing.documents import DocumentBuilder, DocumentFullError
from mcp_servers.knowledge.importing.plain_text import is_list_item, join_lines
from mcp_servers.knowledge.types import Passage

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_RULER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_COMMENT_START, _COMMENT_END, _TABLE_END = "<!--", "-->", "</table>"
_TABLE_START = re.compile(r" {0,3}<table\b", re.IGNORECASE)
_TITLE = re.compile(r"^title[ \t]*[:=][ \t]*(?:[>|][-+]?[ \t]*\n[ \t]+)?(.+?)[ \t]*$", re.MULTILINE)
_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n((?:.{0,5000}\n){0,1000}?)(?:\1|\.\.\.)[ \t]*(?:\n|$)")
_KEY = re.compile(r"[\w-]+[ \t]*[:=]")
_MAX_MATTER = 20_000
_THEMATIC_BREAK = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$")
_QUOTE = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
# What a line begins with that is not a paragraph.
_BLOCK_MARKS = frozenset("`~#=-<*_")
_INDENTED = re.compile(r" {4}|\t")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
# Escaped characters and code, until the markup around them is removed.
_KEPT, _KEPT_FIRST, _MAX_KEPT = re.compile("[\ue000-\uefff]"), 0xE000, 0x1000
_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)([^\n]{1,1000}?)(?<!`)\1(?!`)")
_MAX_PARAGRAPH = 50_000
# A longer line is not a heading: the patterns need time that grows with the square of its spaces.
_MAX_LINE = 2_000
_MAX_COLUMNS = 1_000
_FIRST, _SECOND = itemgetter(1), itemgetter(2)
# Before each pattern the texts of which every match has one (most paragraphs have none), after it the replacement.
_INLINE_MARKUP: tuple[tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (("![",), re.compile(r"!\[([^\]\n]{0,500})\]\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}\)"), _FIRST),
    (("](",), re.compile(r"\[([^\]\n]{1,500})\]\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}\)"), _FIRST),
    (("][",), re.compile(r"\[([^\]\n]{1,500})\]\[[^\]\n]{0,200}\]"), _FIRST),
    (("<http",), re.compile(r"<(https?://[^>\s]{1,2000})>"), _FIRST),
    (("**", "__"), re.compile(r"(\*\*|__)(?=\S)([^*_\n]{1,1000})(?<=\S)\1"), _SECOND),
    (("*",), re.compile(r"(?<![\w*])\*(?=\S)([^*\n]{1,1000})(?<=\S)\*(?![\w*])"), _FIRST),
    (("<br",), re.compile(r"[ \t]*<br\b[^>\n]{0,100}>[ \t]*"), " "),
    (("<sup>",), re.compile(r"(?<=\w)<sup>(?=[\d+−-])"), "^"),
    (
        ("<",),
        re.compile(r"</?(?:b|i|em|strong|u|sub|sup|kbd|span|a|p|div|center|details|summary|img)\b[^>\n]{0,1000}>"),
        "",
    ),
)


def read_markdown(text: str) -> tuple[str, list[Passage]]:
    """Return title (may be empty) and passages."""
    # Front matter states the title; its other lines are text.
    title, matter, body = "", "", text
    front = _MATTER.match(text[: 2 * _MAX_MATTER])
    if front and _KEY.match(front[2].lstrip("# \n")):
        stated = _TITLE.search(front[2])
        title = stated[1].strip("\"'") if stated else ""
        matter, body = _TITLE.sub("", front[2]).strip("\n"), text[front.end() :]
    reader = MarkdownReader()
    with suppress(DocumentFullError):
        reader.builder.add(matter)
        for line in body.split("\n"):
            reader.feed(line)
        reader.end()
        if title and not reader.builder.passages:
            reader.builder.add(title)
    return title or reader.builder.title, reader.builder.finish()


def strip_markup(text: str) -> str:
    """Remove inline markup; very long texts are returned unchanged."""
    if len(text) > _MAX_PARAGRAPH:
        return text
    lines: list[str] = []

    def keep(written: str) -> str:
        if len(lines) >= _MAX_KEPT:
            return written
        lines.append(written)
        return chr(_KEPT_FIRST + len(lines) - 1)

    if ("`" in text or "\\" in text) and not _KEPT.search(text):
        text = _CODE.sub(lambda code: keep(code[2]), text)
        text = _ESCAPE.sub(lambda escape: keep(escape[1]), text)
    for signs, pattern, replacement in _INLINE_MARKUP:
        if any(map(text.__contains__, signs)):
            text = pattern.sub(replacement, text)
    text = html.unescape(text)
    return _KEPT.sub(lambda mark: lines[ord(mark[0]) - _KEPT_FIRST], text) if lines else text


class MarkdownReader:
    """Reads one document line by line."""

    def __init__(self) -> None:
        self.builder = DocumentBuilder()
        self._lines: list[str] = []
        self._fence = ""
        # End of a comment or HTML table that is open: "-->" or "</table>".
        self._until = ""

    def feed(self, line: str) -> None:
        """Process the next line."""
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self.end()
            return
        # A comment may end in a later line.
        if self._until == _COMMENT_END:
            _, comment_end, line = line.partition(_COMMENT_END)
            self._until = "" if comment_end else _COMMENT_END
        if _COMMENT_START in line:
            line = _COMMENT.sub("", line)
            if _COMMENT_START in line and "`" not in line and not self._until:
                self._until = _COMMENT_END
                line = line.partition(_COMMENT_START)[0]
        if self._until == _TABLE_END:
            self._feed_table(line)
        elif line.lstrip(" \t")[:1] in _BLOCK_MARKS and self._begin_block(line):
            pass
        elif line.strip():
            self._lines.append(line)
        else:
            self.end()

    def _begin_block(self, line: str) -> bool:
        """Read a line that is or begins something else than a paragraph; return True if so."""
        is_short = len(line) <= _MAX_LINE
        if is_short and _TABLE_START.match(line):
            self._feed_table(line)
        elif fence := _FENCE.match(line):
            self.end()
            self._fence = fence.group(1)
            self._lines.append(line)
        elif is_short and (heading := _HEADING.match(line)):
            self.end()
            self.builder.heading(len(heading.group(1)), strip_markup(_COMMENT.sub("", heading.group(2) or "")))
        elif (
            is_short and (mark := _UNDERLINE.match(line)) and len(self._lines) == 1 and not is_list_item(self._lines[0])
        ):
            # It underlines the line before.
            level = 1 if mark.group(1)[0] == "=" else 2
            self.builder.heading(level, strip_markup(_COMMENT.sub("", self._lines.pop())))
        elif is_short and _THEMATIC_BREAK.match(line):
            self.end()
        else:
            return False
        return True

    def _feed_table(self, line: str) -> None:
        """Collect the lines of a table in HTML, and read it at its end."""
        if not self._until:
            self.end()
            self._until = _TABLE_END
        self._lines.append(line)
        if _TABLE_END in line.lower():
            self.end()

    def end(self) -> None:
        """End the current block."""
        if self._until == _TABLE_END:
            self._until = ""
            # Imported only here: most Markdown has no HTML tables.
            from mcp_servers.knowledge.importing.html import read_html

            page, self._lines = "\n".join(self._lines), []
            self.builder.extend(read_html(page)[1])
            return
        lines, self._lines = self._lines, []
        if self._fence:
            self._fence = ""
            is_closed = len(lines) > 1 and _FENCE.match(lines[-1])
            self.builder.add("\n".join(lines[1:-1] if is_closed else lines[1:]), is_atomic=True)
            return
        if not lines:
            return
        if (
            len(lines) > 1
            and "|" in lines[0]
            and len(lines[1]) <= 100 * _MAX_LINE
            and _RULER.match(lines[1])
            and "-" in lines[1]
        ):
            rows = (line.strip().removeprefix("|").removesuffix("|") for line in [lines[0], *lines[2:]])
            cells = (re.split(r"(?<!\\)\|", row, maxsplit=_MAX_COLUMNS) for row in rows)
            table = ([strip_markup(cell.replace("\\|", "|").strip()) for cell in row] for row in cells)
            self.builder.add_table(table, head_rows=1)
        elif len(lines) > 1 and all(map(_INDENTED.match, lines)):
            self.builder.add(textwrap.dedent("\n".join(lines)), is_atomic=True)
        else:
            parts = [[lines[0]]]
            for before, line in pairwise(lines):
                # Two spaces or a backslash at the end are a hard line break.
                if is_list_item(line) or line.startswith(("|", ">")) or before.endswith(("  ", "\\")):
                    parts.append([line])
                else:
                    parts[-1].append(line)
            joined: list[str] = []
            for part in parts:
                indent = part[0][: len(part[0]) - len(part[0].lstrip())]
                joined.append(part[0] if len(part) == 1 else indent + join_lines(part))
            text = "\n".join(part.rstrip("\\ ") for part in joined)
            text = strip_markup(_COMMENT.sub("", text) if _COMMENT_START in text else text)
            self.builder.add((_QUOTE.sub("", text) if ">" in text else text).strip())
