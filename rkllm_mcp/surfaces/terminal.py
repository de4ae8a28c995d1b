"""The terminal's width, colours and tables."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

# An escape sequence in a tool's result could rewrite the screen: whole ones (CSI, OSC), so that no "[31m" stays behind,
# then what is left of C0 and C1 but tab and newline.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)

DIM = "2"
RED = "31"
YELLOW = "33"
BOLD = "1"


def printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return _CONTROL.sub("", text)


def is_interactive() -> bool:
    """Return True when a person can be asked: questions and answers are both at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def wants_color(stream: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Return True if the stream is a terminal with colours and the environment does not disable them."""
    if env.get("NO_COLOR") or env.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def columns_of(stream: TextIO) -> int | None:
    """Columns of the screen that a stream is shown on; None where it is none, or does not say."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns or None) if stream.isatty() else None
    except (OSError, ValueError):
        return None


class Terminal:
    """Standard output and standard error of a command."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        out: Callable[[], TextIO] = lambda: sys.stdout,
        err: Callable[[], TextIO] = lambda: sys.stderr,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.quiet = quiet
        self._out = out
        self._err = err
        self._env = env
        self._open: Callable[[], TextIO] | None = None

    @property
    def columns(self) -> int | None:
        """Columns of the screen that standard output is shown on; None where it is none."""
        return columns_of(self._out())

    @property
    def shows_progress(self) -> bool:
        """Return True if standard error is a terminal that shows status lines."""
        return not self.quiet and self._err().isatty()

    def answer(self, text: str) -> None:
        """Write a part of the answer and flush.

        Raises:
            BrokenPipeError: standard output is closed.
        """
        self._write(self._out, printable(text), "")

    def note(self, text: str, style: str = DIM) -> None:
        """A line for a person who waits."""
        if not self.quiet:
            self.end_line()
            self._write(self._err, f"{printable(text)}\n", style)

    def murmur(self, text: str) -> None:
        """A piece of text for a person who waits, dimmed, at once."""
        if not self.quiet:
            self._write(self._err, printable(text), DIM)

    def error(self, text: str, style: str = RED) -> None:
        """A line that is shown also with ``quiet``."""
        self.end_line()
        self._write(self._err, f"{printable(text)}\n", style)

    def prompt(self, text: str) -> None:
        """The beginning of a line that a person ends by typing, also with ``quiet``; see ``entered``."""
        self.end_line()
        self._write(self._err, printable(text), "")

    def entered(self) -> None:
        """The person has ended the line of ``prompt``."""
        self._open = None

    def end_line(self) -> None:
        """Go to the beginning of a line, on the stream that stands in the middle of one."""
        if self._open is not None:
            self._write(self._open, "\n", "")

    def _write(self, stream: Callable[[], TextIO], text: str, style: str) -> None:
        if not text:
            return
        if self._open is not None and self._open is not stream:
            other, self._open = self._open, None
            self._write(other, "\n", "")
        target = stream()
        styled = f"\x1b[{style}m{text}\x1b[0m" if style and wants_color(target, self._env) else text
        try:
            target.write(styled)
            target.flush()
        except OSError:
            # A line for a person that cannot be shown (a full disk, a reader that left) does not cost the answer.
            if stream is self._out:
                raise
        self._open = None if text.endswith("\n") else stream


_GAP = "  "
# A narrower column of sentences, or a longer one, is read worse than a paragraph.
_LEAST_COLUMNS = 18
_MOST_LINES = 3

_WIDE = "\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\ufe30-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
_OPENING = "「『（【〔〈《"
_CLOSING = "、。，．・：；？！」』）】〕〉》ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
# What is not broken: blanks, a word, a wide character, each with the brackets and stops around it.
_PIECES = rf"\s+|[{_OPENING}]*(?:[^\s{_WIDE}]+|[{_WIDE}])[{_CLOSING}]*"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """Format rows under a heading, two spaces apart, wrapped to ``columns`` if given; empty without rows."""
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
    for piece in re.findall(_PIECES, text):
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
    """Return the number of characters that fit, at least one."""
    used = 0
    for count, char in enumerate(text):
        used += width(char)
        if used > columns:
            return max(count, 1)
    return len(text)


def width(text: str) -> int:
    """Return the number of terminal columns that a text occupies."""
    return sum(
        0
        # What is drawn over its neighbour, or not at all.
        if unicodedata.category(char) in {"Mn", "Me", "Cf"}
        else 2
        if unicodedata.east_asian_width(char) in {"W", "F"}
        else 1
        for char in text
    )


def write_json(value: Any) -> None:
    """Print a value for a program."""
    sys.stdout.write(f"{json.dumps(value, ensure_ascii=False, indent=2)}\n")
