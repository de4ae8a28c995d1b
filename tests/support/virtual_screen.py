"""The screen of a terminal: what is on it after what was written, with wrapping and scrolling."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios

from rkllm_mcp.surfaces.terminal import width

_PIECE = re.compile(r"(?P<style>\x1b\[[0-9;]*m)|\x1b\[(?P<count>\d*)(?P<move>[A-Z])|(?P<char>.)", re.DOTALL)
_RESET = "\x1b[0m"


class VirtualScreen(io.StringIO):
    """A terminal that is written to as a file.

    It knows the sequences that a live region uses, and refuses every other. Lines that scroll off are kept in front.
    """

    def __init__(self, columns: int, rows: int = 24) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        # Its size is asked of a real terminal.
        self._ends = pty.openpty()
        fcntl.ioctl(self._ends[1], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._lines: list[list[tuple[str, str]]] = [[]]  # characters with their style
        self._style = ""
        self._row = self._column = 0
        self.writes = 0

    def fileno(self) -> int:
        return self._ends[1]

    def isatty(self) -> bool:
        return True

    def close(self) -> None:
        for descriptor in self._ends:
            os.close(descriptor)
        super().close()

    def write(self, text: str) -> int:
        self.writes += 1
        for match in _PIECE.finditer(text):
            move = match["move"]
            if match["char"]:
                self._put(match["char"])
            elif match["style"]:
                self._style = "" if match["style"] == _RESET else self._style + match["style"]
            elif move == "A":
                self._row = max(self._row - int(match["count"] or 1), self._top)
            elif move == "K":
                del self._lines[self._row][self._column :]
            elif move == "J":
                del self._lines[self._row][self._column :], self._lines[self._row + 1 :]
            else:
                raise AssertionError(f"unknown sequence {match[0]!r}")
        return len(text)

    @property
    def _top(self) -> int:
        return max(len(self._lines) - self.rows, 0)

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._column = 0
            self._row += 1
            if self._row == len(self._lines):
                self._lines.append([])
        else:
            assert char >= " ", f"{char!r} reached the screen"
            if self._column + width(char) > self.columns:
                self._put("\n")
            line = self._lines[self._row]
            line += [(" ", "")] * (self._column - len(line))
            line[self._column : self._column + width(char)] = [(char, self._style), *[("", "")] * (width(char) - 1)]
            self._column += width(char)

    @property
    def lines(self) -> list[str]:
        """The lines without colours and without blanks at their ends."""
        return ["".join(char for char, _ in line).rstrip() for line in self._lines]

    @property
    def styled(self) -> str:
        """All lines with their colours."""
        return "\n".join(
            "".join(f"{style}{char}{_RESET}" if style else char for char, style in line) for line in self._lines
        )
