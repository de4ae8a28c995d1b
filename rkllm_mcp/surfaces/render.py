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
from rkllm_mcp.surfaces.terminal import YELLOW, Terminal

ANSWER_MARK = "◆ "
# What of a result a person needs to see that it is the right one; the model reads all of it.
RESULT_CHARS = 160

_ENDINGS: Mapping[str, str] = {
    "round_limit": "[The limit of tool rounds was reached]",
    "token_limit": "[The answer was cut at the token limit]",
    "cancelled": "[Stopped]",
}


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
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
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
                note(f"[Queue: {event.position} before this question]")
            case ToolCallDetected():
                note(f"  → {event.name}({_arguments(event.arguments)}){' (repaired)' if event.repaired else ''}")
            case ToolCallFailed():
                note(f"[MCP: Unreadable tool call: {event.reason}]", YELLOW)
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
            text = f"[MCP: Waiting for approval of '{event.name}': {event.reason}]"
        else:
            text = f"[MCP: Server '{event.server}' asks: {event.message}]"
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
            self._terminal.error(f"Error: {event.error or 'the answer failed'}")
        elif event.reason in _ENDINGS:
            self._terminal.note(_ENDINGS[event.reason], YELLOW)

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
