"""Events become what a person reads or what a program reads.

Two renderers of the same union: ``TerminalRenderer`` writes the answer, begun with ``◆``, to standard output and the
rest to standard error; ``JsonRenderer`` writes one object per line. Both only write; what an event means was decided
where it was made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO, TypeAlias

from typing_extensions import assert_never

from rkllm_mcp.encode import event_to_json
from rkllm_mcp.events import (
    Approval,
    Elicitation,
    End,
    Event,
    Queued,
    ResourceRead,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolCallFailed,
    ToolFinished,
    ToolProgress,
    Usage,
)
from rkllm_mcp.surfaces.phrases import ENGLISH, Phrases
from rkllm_mcp.surfaces.terminal import YELLOW, Terminal

ANSWER_MARK = "◆ "
# What of a result a person needs to see that it is the right one; the model reads all of it.
RESULT_CHARS = 160


# What is shown as a line of its own.
_Line: TypeAlias = (
    ToolCallDetected
    | ToolCallFailed
    | Approval
    | Elicitation
    | ToolProgress
    | ToolFinished
    | ResourceRead
    | Status
    | Queued
    | End
)


class Renderer(Protocol):
    """What a surface gives events to."""

    def show(self, event: Event) -> None:
        """Show one event, at once."""
        ...


class TerminalRenderer:
    """Events for a person.

    Args:
        terminal: where to.
        phrases: the words around an answer.
    """

    def __init__(self, terminal: Terminal, phrases: Phrases = ENGLISH) -> None:
        self._terminal = terminal
        self._phrases = phrases
        self._in_answer = False
        self._in_thought = False

    def show(self, event: Event) -> None:
        """Show one event, at once.

        Raises:
            BrokenPipeError: nobody reads standard output any more.
        """
        match event:
            case Text():
                self._text(event.text)
            case Thinking():
                self._thinking(event.text)
            case Usage():
                pass
            case _:
                self._close()
                self._line(event)

    def _line(self, event: _Line) -> None:
        note = self._terminal.note
        match event:
            case Status():
                note(event.text)
            case Queued():
                note(self._phrases.queued.format(position=event.position))
            case ToolCallDetected():
                repaired = self._phrases.repaired if event.repaired else ""
                note(f"  → {event.name}({_arguments(event.arguments)}){repaired}")
            case ToolCallFailed():
                note(self._phrases.unreadable.format(reason=event.reason), YELLOW)
            case ToolFinished() if not event.is_error:
                note(f"  ← {event.seconds:.1f} s  {one_line(event.text, RESULT_CHARS)}")
            case ToolProgress():
                self._progress(event)
            case Approval() | Elicitation():
                self._question(event)
            case ToolFinished() | ResourceRead():
                pass  # a status line said that it failed, or that it was read
            case End():
                self._end(event)
            case _:
                assert_never(event)

    def _question(self, event: Approval | Elicitation) -> None:
        if isinstance(event, Approval):
            text = self._phrases.waiting.format(name=event.name, reason=event.reason)
        else:
            text = self._phrases.asks.format(server=event.server, message=event.message)
        self._terminal.note(text, YELLOW)

    def _progress(self, event: ToolProgress) -> None:
        if self._terminal.shows_progress:
            share = f"{100 * event.progress / event.total:.0f} %" if event.total else f"{event.progress:g}"
            self._terminal.note(f"  … {share} {event.message or ''}".rstrip())

    def _text(self, text: str) -> None:
        if not self._in_answer:
            # Models leave blank lines between their thinking, their calls and their words.
            text = text.lstrip()
            if not text:
                return
            self._close()
            self._in_answer = True
            text = f"{ANSWER_MARK}{text}"
        self._terminal.answer(text)

    def _thinking(self, text: str) -> None:
        if not self._in_thought:
            text = text.lstrip()
            if not text:
                return
            self._close()
            self._in_thought = True
        self._terminal.murmur(text)

    def _end(self, event: End) -> None:
        if event.reason == "failed":
            self._terminal.error(self._phrases.failed.format(error=event.error or self._phrases.nameless))
        elif event.reason in self._phrases.endings:
            self._terminal.note(self._phrases.endings[event.reason], YELLOW)

    def _close(self) -> None:
        self._in_answer = self._in_thought = False
        self._terminal.end_line()


class JsonRenderer:
    """Events for a program: one JSON object per line, flushed.

    Args:
        out: gives the stream.
    """

    def __init__(self, out: Callable[[], TextIO] = lambda: sys.stdout) -> None:
        self._out = out

    def show(self, event: Event) -> None:
        """Write one event.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        stream = self._out()
        stream.write(f"{event_to_json(event)}\n")
        stream.flush()


def one_line(text: str, limit_chars: int) -> str:
    """The text on one line, cut with ``…``."""
    line = " ".join(text.split())
    return line if len(line) <= limit_chars else f"{line[: limit_chars - 1]}…"


def _arguments(arguments: Mapping[str, Any]) -> str:
    pairs = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return one_line(", ".join(pairs), RESULT_CHARS)
