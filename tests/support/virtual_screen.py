"""The screen of a terminal: what stands on it after what was written, with wrapping and scrolling."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios

from rkllm_mcp.surfaces.terminal import width

_PIECE = re.compile(r"\x1b\[[0-9;]*m|\x1b\[(\d*)([A-Z])|(.)", re.DOTALL)


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
        self._lines: list[list[str]] = [[]]
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
            if match[3]:
                self._put(match[3])
            elif match[2] == "A":
                self._row = max(self._row - int(match[1] or 1), self._top)
            elif match[2] == "K":
                del self._lines[self._row][self._column :]
            elif match[2] == "J":
                del self._lines[self._row][self._column :], self._lines[self._row + 1 :]
            elif match[2]:
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
            line += [" "] * (self._column - len(line))
            line[self._column : self._column + width(char)] = [char, *[""] * (width(char) - 1)]
            self._column += width(char)

    @property
    def lines(self) -> list[str]:
        """The lines without colours and without blanks at their ends."""
        return ["".join(line).rstrip() for line in self._lines]
