"""Rows become aligned columns, wide characters counted as two, for people and for ``awk`` alike.

    every row in a line                 where nobody looks, and on screens that are wide enough
    the last column in several lines    where the others leave it room
    a paragraph for each row            on narrower screens: a telephone, half a window

Lines are broken at blanks and between wide characters, as Japanese is written; a bracket or a full stop stays with what
it belongs to.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rkllm_mcp.surfaces.terminal import printable

_GAP = "  "
# A narrower column of sentences, or a longer one, is read worse than a paragraph.
_LEAST_COLUMNS = 18
_MOST_LINES = 3

_WIDE = "\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\ufe30-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
_OPENING = "「『（【〔〈《"
_CLOSING = "、。，．・：；？！」』）】〕〉》ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
# What is not broken: blanks, a word, a wide character, each with the brackets and stops around it.
_PIECES = re.compile(rf"\s+|[{_OPENING}]*(?:[^\s{_WIDE}]+|[{_WIDE}])[{_CLOSING}]*")


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """The rows under their heading, columns two blanks apart; empty when there are no rows.

    Args:
        heading: a word above each column; empty for rows that need none.
        rows: as many cells each.
        columns: of the screen; None where nobody looks, and every row is one line.
    """
    if not rows:
        return ""
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in (heading, *rows) if row]
    widths = [max(width(row[column]) for row in cells) for column in range(len(cells[0]))]
    room = None if columns is None else columns - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if room is None or room >= min(widths[-1], max(_LEAST_COLUMNS, widths[-1] / _MOST_LINES)):
        lines = [line for row in cells for line in _aligned(row, widths, room)]
    else:
        lines = _paragraphs(cells[len(cells) - len(rows) :], heading, columns or 0)
    return "\n".join([*lines, ""])


def _aligned(row: Sequence[str], widths: Sequence[int], room: int | None) -> list[str]:
    """One row, its last cell in as many lines as it takes."""
    front = "".join(cell + " " * (size - width(cell)) + _GAP for cell, size in zip(row, widths[:-1], strict=False))
    first, *rest = [row[-1]] if room is None else wrapped(row[-1], room)
    return [f"{front}{first}".rstrip(), *(f"{' ' * width(front)}{line}" for line in rest)]


def _paragraphs(rows: Sequence[Sequence[str]], heading: Sequence[str], columns: int) -> list[str]:
    """Each row as its first cell and, indented, the others with their headings."""
    names = [f"{name} " for name in heading] or [""] * len(rows[0])
    lines: list[str] = []
    for row in rows:
        lines += wrapped(row[0], columns)
        line = ""
        for item in (f"{name}{cell}" for name, cell in zip(names[1:], row[1:], strict=True) if cell):
            together = f"{line}{_GAP}{item}"
            if line and width(together) <= columns:
                line = together
                continue
            lines += [line] if line else []
            *whole, line = [f"{_GAP}{part}" for part in wrapped(item, columns - len(_GAP))]
            lines += whole
        lines += [line] if line else []
    return lines


def wrapped(text: str, columns: int) -> list[str]:
    """The text in lines of at most so many columns, at least one line; only a word that is longer is cut."""
    columns = max(columns, 1)
    lines: list[str] = []
    line = ""
    for piece in _PIECES.findall(text):
        if line and width(line + piece) > columns and not piece.isspace():
            lines.append(line.rstrip())
            line = ""
        line += piece if line or not piece.isspace() else ""
        while width(line) > columns and not piece.isspace():
            cut = _cut(line, columns)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.rstrip() or not lines else lines


def _cut(text: str, columns: int) -> int:
    """How many characters fit, at least one."""
    used = 0
    for count, char in enumerate(text):
        used += width(char)
        if used > columns:
            return max(count, 1)
    return len(text)


def width(text: str) -> int:
    """How many columns a terminal needs for the text."""
    return sum(
        0
        # What is drawn over its neighbour, or not at all.
        if unicodedata.category(char) in {"Mn", "Me", "Cf"}
        else 2
        if unicodedata.east_asian_width(char) in {"W", "F"}
        else 1
        for char in text
    )
