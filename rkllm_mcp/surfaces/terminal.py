"""The terminal's width, colours, tables, and lines that are updated in place."""

from __future__ import annotations

import json
import os
import re
import sys
import termios
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, TextIO

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.text import DIRECTIONS, ESCAPE_SEQUENCE, Language

# An escape sequence in a tool's result could rewrite the screen: whole ones, so that no "[31m" stays behind, then what
# is left of C0 and C1 but tab and newline. Overrides of the writing direction show a name as another one.
_CONTROL = re.compile(rf"{ESCAPE_SEQUENCE}|\x9b[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f{DIRECTIONS}]")
# The beginning of an escape sequence at the end of a piece. What goes on for longer than any real one is text.
_UNFINISHED = re.compile(
    r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[PX^_][^\x1b\n]*\x1b?|[!-/]*)|\x9b[0-?]*[ -/]*)\Z"
)
_LONGEST_SEQUENCE = 1024

DIM = "2"
RED = "31"
GREEN = "32"
YELLOW = "33"
BOLD = "1"


def printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return _CONTROL.sub("", text)


@dataclass(eq=False)
class PrintableStream:
    """A text that arrives in pieces, without what a terminal would obey: a sequence may be cut anywhere."""

    _unfinished: str = ""

    def feed(self, piece: str, *, is_last: bool = False) -> str:
        """Return what can be shown; the beginning of a sequence waits for its end, unless that cannot come any more."""
        text = self._unfinished + piece
        sequence = None if is_last else _UNFINISHED.search(text)
        end = sequence.start() if sequence and len(text) - sequence.start() <= _LONGEST_SEQUENCE else len(text)
        self._unfinished = text[end:]
        return printable(text[:end])


def is_interactive() -> bool:
    """Return True when a person can be asked: questions and answers are both at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def discard_typed() -> None:
    """Forget what was typed at the terminal before the next question is shown."""
    with suppress(termios.error, OSError):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def wants_color(stream: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Return True if the stream is a terminal with colours and the environment does not disable them."""
    if env.get("NO_COLOR") or env.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def size_of(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the screen that a stream is shown on; 80 and 24 where it does not say."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    return columns or 80, rows or 24


def apply_style(text: str, style: str) -> str:
    """The text in a style of the terminal; empty for none."""
    return f"\x1b[{style}m{text}\x1b[0m" if style else text


@dataclass(eq=False)
class LiveRegion:
    """The last lines of a screen, painted again as they change.

    Only lines that changed are written, in one piece and without clearing first, so nothing flickers. Lines that have
    left the screen at the top stay as they were. A line must be narrower than the screen.
    """

    write: Callable[[str], None]
    size: Callable[[], tuple[int, int]]  # columns and rows
    before_settle: Callable[[], None] = lambda: None
    _painted: list[str] = field(default_factory=list[str])
    _is_behind_line: bool = False  # the cursor is after a line that was painted
    _columns: int = 0  # of the screen that the lines were painted on

    @property
    def columns(self) -> int:
        """Columns that a line may have."""
        return max(self.size()[0] - 1, 1)

    def paint(self, lines: Sequence[str], final: int = 0) -> None:
        """Replace the lines, of which the first ``final`` are then left for good; the cursor stays after the last."""
        if self._painted and self._columns != self.size()[0]:
            # The terminal has broken the lines anew: where they are is not known any more.
            self.write("\n")
            self._painted = []
        self._columns, rows = self.size()
        last = len(self._painted) - 1
        pairs = zip(self._painted, lines, strict=False)
        same = next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(self._painted), len(lines)))
        if same == len(self._painted) == len(lines):
            self._painted = self._painted[final:]
            return
        # Where nothing is left to write, the cursor still has to come after the last line.
        first = max(min(same, len(lines) - 1), len(self._painted) - rows, 0)
        if first > last:
            self.write(("\n" if self._is_behind_line else "") + "\n".join(lines[first:]))
        elif first == last and first < len(lines) and lines[first].startswith(self._painted[first]):
            self.write("\n".join([lines[first][len(self._painted[first]) :], *lines[first + 1 :]]))
        else:
            up = f"\x1b[{last - first}A" if last > first else ""
            self.write(f"{up}\r" + "\x1b[K\n".join(lines[first:]) + "\x1b[J")
        self._painted = list(lines[final:])
        self._is_behind_line = bool(lines)

    def append(self, text: str) -> bool:
        """Continue the last line with text that fits; return False if it has to be painted instead."""
        if not self._painted or self._columns != self.size()[0]:
            return False
        self.write(text)
        self._painted[-1] += text
        return True

    def above(self, text: str) -> None:
        """Write whole lines above the painted ones."""
        painted = self._painted
        self.paint(())
        self.write(text)
        self._painted, self._is_behind_line = [], False
        self.paint(painted)

    def settle(self) -> None:
        """Leave all lines as they are and begin a new one."""
        self.before_settle()
        if self._is_behind_line:
            self.write("\n")
        self._painted, self._is_behind_line = [], False


@dataclass(eq=False, repr=False, kw_only=True)
class Terminal:
    """Standard output and standard error of a command."""

    quiet: bool = False
    plain: bool = False
    verbose: bool = False
    out: Callable[[], TextIO] = lambda: sys.stdout
    err: Callable[[], TextIO] = lambda: sys.stderr
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    language: Language = "en"
    region: LiveRegion | None = field(default=None, init=False)  # at the end of the screen, while it can be painted
    _open: Callable[[], TextIO] | None = field(default=None, init=False)  # the stream in the middle of a line

    @property
    def columns(self) -> int | None:
        """Columns of the screen that standard output is shown on; None where it is not one, or does not say."""
        stream = self.out()
        try:
            return (os.get_terminal_size(stream.fileno()).columns or None) if stream.isatty() else None
        except (OSError, ValueError):
            return None

    @property
    def shows_progress(self) -> bool:
        """Return True if standard error is a terminal that shows status lines."""
        return not self.quiet and self.err().isatty()

    @property
    def draws_answers(self) -> bool:
        """Return True if answers are shown as Markdown and painted in place."""
        return not self.plain and wants_color(self.out(), self.env)

    @property
    def draws_notes(self) -> bool:
        """Return True if lines about calls are updated in place."""
        return not (self.plain or self.quiet) and wants_color(self.err(), self.env)

    def word(self, word: str) -> str:
        """Return a heading, a state or our own reason in the person's language."""
        texts = read_catalogue(self.language)
        return texts.table("words").get(word) or texts.phrase(word)

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """Return a table for this screen, its heading in the person's language; see the function ``table``."""
        return table(list(map(self.word, heading)), rows, self.columns)

    def open_region(self, *, is_answer: bool) -> LiveRegion:
        """Return a region at the end of the screen, until something else is written or another is opened."""
        self.end_line()
        stream = self.out if is_answer else self.err
        self.region = LiveRegion(lambda text: self._write_to(stream, text), lambda: size_of(stream()))
        return self.region

    def answer(self, text: str, *, is_thought: bool = False) -> None:
        """Write a part of the answer and flush; a BrokenPipeError if standard output is closed.

        A part of what the model thought is dimmed, on standard error.
        """
        if not is_thought:
            self._write(self.out, printable(text), "")
        elif not self.quiet:
            self._write(self.err, printable(text), DIM)

    def note(self, text: str, style: str = DIM) -> None:
        """A line for a person who waits."""
        if self.quiet:
            return
        line = f"{self.break_lines(text)}\n"
        if self.region is None:
            self.end_line()
            self._write(self.err, line, style)
        elif wants_color(self.err(), self.env):
            self.region.above(apply_style(line, style))
        else:
            self._write_to(self.err, line)

    def error(self, text: str, style: str = RED) -> None:
        """A line that is shown also with ``quiet``."""
        self.end_line()
        self._write(self.err, f"{self.break_lines(text)}\n", style)

    def prompt(self, text: str) -> None:
        """The beginning of a line that a person ends by typing, also with ``quiet``; see ``on_enter``."""
        self.end_line()
        self._write(self.err, printable(text), "")

    def on_enter(self) -> None:
        """The person has ended the line of ``prompt``."""
        self._open = None

    def break_lines(self, text: str) -> str:
        """Return a text as it is written to standard error: on a screen broken between words, with its indentation.

        A line with an address that is longer than the screen stays whole, so that it can be copied.
        """
        text = printable(text)
        if self.plain or not wants_color(self.err(), self.env):
            return text
        columns = size_of(self.err())[0] - 1
        lines: list[str] = []
        for line in text.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            room = columns - len(indent)
            fits = width(line) <= columns or any(word.isascii() and len(word) > room for word in line.split())
            lines += [line] if fits else [f"{indent}{part}" for part in wrap(line, room)]
        return "\n".join(lines)

    def end_line(self) -> None:
        """Go to the beginning of a line, on the stream that is in the middle of one."""
        if self.region is not None:
            region, self.region = self.region, None
            region.settle()
        if self._open is not None:
            self._write(self._open, "\n", "")

    def _write(self, stream: Callable[[], TextIO], text: str, style: str) -> None:
        if not text:
            return
        if self.region is not None:
            self.end_line()
        if self._open is not None and self._open is not stream:
            other, self._open = self._open, None
            self._write(other, "\n", "")
        # A line ends after its style: what shows progress meanwhile writes line by line.
        line = text.removesuffix("\n")
        styled = f"{apply_style(line, style)}{text[len(line) :]}" if line and wants_color(stream(), self.env) else text
        self._write_to(stream, styled)
        self._open = None if text.endswith("\n") else stream

    def _write_to(self, stream: Callable[[], TextIO], text: str) -> None:
        target = stream()
        try:
            target.write(text)
            target.flush()
        except OSError:
            # A line for a person that cannot be shown (a full disk, a reader that left) does not cost the answer.
            if stream is self.out:
                raise


TAB_COLUMNS = 4
_GAP = "  "
# A narrower column of sentences, or a longer one, is read worse than a paragraph.
_LEAST_COLUMNS = 18
_MOST_LINES = 3

_WIDE = "\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\ufe30-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
_OPENING = "「『（【〔〈《"
_CLOSING = "、。，．・：；？！」』）】〕〉》ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
# The sign before it is drawn as an emoji.
_EMOJI_STYLE = "\ufe0f"
# What is not broken: blanks, a word, a wide character, each with the brackets and stops around it.
_PIECES = re.compile(rf"\s+|[{_OPENING}]*(?:[^\s{_WIDE}]+|[{_WIDE}])[{_CLOSING}]*")


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """Format rows under a heading, two spaces apart, wrapped to ``columns`` if given; empty without rows."""
    if not rows:
        return ""
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in (heading, *rows) if row]
    widths = [max(width(row[column]) for row in cells) for column in range(len(cells[0]))]
    room = None if columns is None else columns - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    lines: list[str] = []
    if room is None or room >= min(widths[-1], max(_LEAST_COLUMNS, widths[-1] / _MOST_LINES)):
        for row in cells:
            padded = [cell + " " * (size - width(cell)) + _GAP for cell, size in zip(row, widths[:-1], strict=False)]
            front = "".join(padded)
            # The last cell takes as many lines as it needs.
            first, *more_lines = [row[-1]] if room is None else wrap(row[-1], room)
            lines += [f"{front}{first}".rstrip(), *(f"{' ' * width(front)}{line}" for line in more_lines)]
        return "\n".join([*lines, ""])
    # Each row as its first cell and, indented, the others with their headings.
    names, columns = [f"{name} " for name in heading] or [""] * len(rows[0]), columns or 0
    for row in cells[len(cells) - len(rows) :]:
        lines += wrap(row[0], columns)
        line = ""
        for item in (f"{name}{cell}" for name, cell in zip(names[1:], row[1:], strict=True) if cell):
            together = f"{line}{_GAP}{item}"
            if line and width(together) <= columns:
                line = together
                continue
            lines += [line] if line else []
            *full_lines, line = [f"{_GAP}{part}" for part in wrap(item, columns - len(_GAP))]
            lines += full_lines
        lines += [line] if line else []
    return "\n".join([*lines, ""])


def wrap(text: str, columns: int) -> list[str]:
    """The text in lines of at most this many columns, at least one line; only a word that is longer is cut."""
    text = text.strip()
    cuts = [0, *breaks(text, columns), len(text)]
    return [text[start:end].rstrip() for start, end in pairwise(cuts)]


def breaks(text: str, columns: int) -> list[int]:
    """Return the offsets at which a line is broken: before words and wide characters, not before a full stop."""
    columns = max(columns, 1)
    offsets: list[int] = []
    used = 0
    for match in _PIECES.finditer(text):
        size = width(match[0])
        if match[0].isspace():
            used += size
            continue
        if used and used + size > columns:
            offsets.append(match.start())
            used = 0
        if size <= columns:
            used += size
            continue
        for at, char in enumerate(match[0], match.start()):
            step = width(char)
            if used and used + step > columns:
                offsets.append(at)
                used = 0
            used += step
    return offsets


def clip(text: str, columns: int) -> str:
    """The text cut with ``…`` to this many columns."""
    if width(text) <= columns:
        return text
    used = list(accumulate(map(width, text)))
    return f"{text[: bisect_right(used, columns - 1)]}…"


def width(text: str) -> int:
    """Return the number of terminal columns that a text occupies; where terminals differ, the greater one."""
    if text.isascii():
        return len(text)
    columns, last = 0, 0
    for char in text:
        if char == _EMOJI_STYLE:
            columns += last == 1  # drawn as an emoji, it takes two
        # Characters that are drawn over their neighbour, or not at all.
        if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
            last = 0
        else:
            last = 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
        columns += last
    return columns


def write_json(value: Any) -> None:
    """Print a value for a program."""
    sys.stdout.write(f"{json.dumps(value, ensure_ascii=False, indent=2)}\n")
