"""A question for whoever sits at the terminal; where nobody does, the sentence that names the option."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.terminal import Terminal, printable

# Who answers nonsense so often is a program.
_MOST_TRIES = 5
_ANSWERS = {"": True, "y": True, "yes": True, "n": False, "no": False}


def somebody_is_there() -> bool:
    """Whether a person can be asked: both the questions and the answers are at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Nobody:
    """Answers no question."""

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        """Refuse.

        Raises:
            UsageError: always; it names the option and what it may be.
        """
        allowed = f": {', '.join(choices)}" if choices else ""
        raise UsageError(f"{question} Say it with {option}{allowed}")

    def confirm(self, question: str, option: str) -> bool:
        """Refuse.

        Raises:
            UsageError: always; it names the option.
        """
        raise UsageError(f"{question} Say it with {option}")


class Somebody:
    """Asks the person at the terminal, on standard error, so that standard output stays the command's.

    Args:
        terminal: where questions are shown.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        """An answer; a number is taken for the choice in that place.

        Raises:
            UsageError: the person leaves without one.
        """
        listing = "".join(f"\n  {number}  {choice}" for number, choice in enumerate(choices, 1))
        for _ in range(_MOST_TRIES):
            answer = self._ask(f"{question}{listing}\n> ", option)
            if answer.isdecimal() and 0 < int(answer) <= len(choices):
                return choices[int(answer) - 1]
            if answer and (not choices or answer in choices):
                return answer
        raise UsageError(f"no answer to: {question} Say it with {option}")

    def confirm(self, question: str, option: str) -> bool:
        """Yes, which Enter means too, or no.

        Raises:
            UsageError: the person leaves without an answer.
        """
        for _ in range(_MOST_TRIES):
            answer = self._ask(f"{question} [Y/n] ", option).lower()
            if answer in _ANSWERS:
                return _ANSWERS[answer]
        raise UsageError(f"no answer to: {question} Say it with {option}")

    def _ask(self, question: str, option: str) -> str:
        self._terminal.end_line()
        sys.stderr.write("\n".join(printable(line) for line in question.split("\n")))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise UsageError(f"no answer; say it with {option}")
        return line.strip()
