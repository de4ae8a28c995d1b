"""Rows become aligned columns, wide characters counted as two, for people and for ``awk`` alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rkllm_mcp.surfaces.terminal import printable


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their heading, columns two blanks apart; empty when there are no rows."""
    if not rows:
        return ""
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in (heading, *rows) if row]
    widths = [max(width(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, ""])


def width(text: str) -> int:
    """How many columns a terminal needs for the text."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
        for char in text
    )
