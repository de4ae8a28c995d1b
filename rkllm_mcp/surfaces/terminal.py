"""Where words go on a terminal: answers to standard output, everything else to standard error, one line at a time.

``Terminal`` knows on which of the two the cursor stands in the middle of a line, so that a status line never lands in
an answer. It knows whether colours are wanted (``NO_COLOR``, not a terminal, ``TERM=dumb``) and lets no control
character of a model or a tool reach the screen. The streams are looked up at every write, because a prompt on screen
replaces them while it is there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

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


def wants_color(stream: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal that shows colours, and its owner wants them."""
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
    """The two streams of a command.

    Args:
        quiet: standard error stays empty but for errors.
        out: gives standard output.
        err: gives standard error.
        env: says whether colours are wanted.
    """

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
        """Whether a person watches standard error."""
        return not self.quiet and self._err().isatty()

    def answer(self, text: str) -> None:
        """A piece of the answer, at once.

        Raises:
            BrokenPipeError: nobody reads standard output any more.
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
