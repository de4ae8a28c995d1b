"""Convert a conversation to alternating user and assistant turns, with tool names that services accept.

    messages ─▶ user turns (tool results first, then text) and assistant turns (text, then calls)

A message's ``context`` comes before the user's text, as on the NPU. A result follows the call it answers; results
without a call, calls without a result, and all calls for a model without tools become text. Empty turns are dropped and
thinking is not sent back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec, as_read

MAX_NAME_CHARS = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_FIRST_SUFFIX = 2  # first suffix for a tool whose safe name is taken
# First user turn of a conversation that begins with the assistant, which no service accepts.
BEGINNING = "[The conversation begins.]"


@dataclass(frozen=True)
class WireTurn:
    """One turn of the wire format."""

    role: Literal["user", "assistant"]
    text: str = ""  # of a user turn: after the results
    calls: tuple[ToolCall, ...] = ()  # each answered in the next turn
    results: tuple[ToolResult, ...] = ()  # of the previous turn's calls, in order


def system_of(messages: Sequence[Message]) -> str:
    """Return the system text, with the text about the person."""
    texts = (text for message in messages if message.role == "system" for text in (message.text, message.context))
    return "\n\n".join(filter(None, texts))


def turns_of(messages: Sequence[Message], *, with_calls: bool = True) -> list[WireTurn]:
    """Return the turns without the system text; with ``with_calls`` False calls and results become text."""
    turns: list[WireTurn] = []
    spoken = [message for message in as_read(messages) if message.role != "system"]
    for index, message in enumerate(spoken):
        before = turns[-1] if turns else None
        if message.role == "user":
            turn = WireTurn("user", _join_paragraphs((message.context, f"{message.text}{message.facts or ''}")))
        elif message.role == "assistant":
            following = spoken[index + 1 : index + 2] if with_calls else ()
            answered = {result.call_id for later in following for result in later.results}
            calls = tuple(call for call in message.calls if call.id in answered)
            unanswered = (call for call in message.calls if call.id not in answered)
            texts = [
                f"[Called {call.name} with {json.dumps(call.arguments, ensure_ascii=False)}]" for call in unanswered
            ]
            turn = WireTurn("assistant", _join_paragraphs((message.text, *texts)), calls)
        else:
            by_id = {result.call_id: result for result in message.results}
            results = tuple(by_id[call.id] for call in (before.calls if before else ()))
            others = (result for result in message.results if result not in results)
            texts = [
                f"[{result.name} {'failed' if result.is_error else 'answered'}: {result.text}]" for result in others
            ]
            turn = WireTurn("user", _join_paragraphs((*texts, message.text)), results=results)
        if not (turn.text or turn.calls or turn.results):
            continue
        if before is not None and before.role == turn.role and not before.calls:
            turns[-1] = replace(before, text=_join_paragraphs((before.text, turn.text)), calls=turn.calls)
        else:
            turns.append(turn)
    if turns and turns[0].role == "assistant":
        turns.insert(0, WireTurn("user", BEGINNING))
    return turns


def wire_id(call_id: str) -> str:
    """Return a call id of nine letters and digits, which the strictest service accepts."""
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


class WireNames:
    """Maps tool names to unique names that services accept, and back."""

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._wire: dict[str, str] = {}
        self._by_wire: dict[str, str] = {}
        for tool in tools:
            wire = safe = _safe(tool.name)
            number = _FIRST_SUFFIX
            while wire in self._by_wire:
                ending = f"_{number}"
                wire, number = f"{safe[: MAX_NAME_CHARS - len(ending)]}{ending}", number + 1
            self._wire.setdefault(tool.name, wire)
            self._by_wire.setdefault(wire, tool.name)

    def wire(self, name: str) -> str:
        """Return the name to send."""
        return self._wire.get(name) or _safe(name)

    def shown(self, wire: str) -> str:
        """Return the tool for a name from the service; unknown names unchanged."""
        return self._by_wire.get(wire, wire)


def _join_paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _safe(name: str) -> str:
    safe = _UNSAFE.sub("_", name)[:MAX_NAME_CHARS]
    # Some services require a name to begin with a letter or an underscore.
    return safe if safe[:1].isalpha() or safe[:1] == "_" else f"t_{safe}"[:MAX_NAME_CHARS]


def as_count(value: object) -> int:
    """Return a value of a service's JSON that should be a number of tokens; 0 if it is not one."""
    return value if isinstance(value, int) else 0
