"""Rows of cells -> lines of text: one line a row, cells between `` | ``; and CSV files -> such tables.

A table stays one passage, its first line the names of the columns; the chunker repeats that line where it must cut.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from mcp_servers.knowledge.values import Passage

CELL = " | "
_DELIMITERS = ",;\t|"
_ROWS_LOOKED_AT = 20
# One cell may be a whole article; the library's own limit is 131,072.
_LONGEST_CELL = 10_000_000


def table_text(rows: Iterable[Sequence[str]]) -> str:
    """The rows as lines; empty rows are left out, line breaks inside cells become spaces."""
    lines: list[str] = []
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            lines.append(CELL.join(cells))
    return "\n".join(lines)


def is_table(text: str) -> bool:
    """Whether a whole passage is a table, not code."""
    return CELL in text.partition("\n")[0]


def read_csv(text: str, *, tabs: bool = False) -> list[Passage]:
    """A CSV or TSV file as one table; lines that break its rules are kept as they are."""
    delimiter = "\t" if tabs else _delimiter(text)
    csv.field_size_limit(_LONGEST_CELL)
    try:
        table = table_text(csv.reader(io.StringIO(text), delimiter=delimiter, strict=False))
    except csv.Error:
        table = table_text(line.split(delimiter) for line in text.splitlines())
    return [Passage(table, is_whole=True)] if table else []


def _delimiter(text: str) -> str:
    """The character that parts the first lines into the most columns, equally many in each."""
    lines = [line for line in text[:100_000].splitlines() if line.strip()][:_ROWS_LOOKED_AT]

    def columns(delimiter: str) -> tuple[bool, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter, strict=False)]
        return len(set(counts)) == 1 and counts[0] > 1, max(counts, default=0)

    return max(_DELIMITERS, key=columns)
