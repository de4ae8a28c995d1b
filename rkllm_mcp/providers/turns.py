"""A conversation becomes what services take: turns of two speakers in alternation, and tools under names they accept.

    messages ─▶ turns: the user's (results of tools first, then words) and the model's (words, then calls)

Rules: what the host tells with a question stands before the user's words, as on the NPU; a result stands behind the
call it answers or is told in words; a call that nothing answers is told in words; empty turns are left out. For a
model that cannot call tools all of it is words. Thinking is not sent back. It knows no service's spelling.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec

MAX_NAME_CHARS = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
# Behind the name of a tool whose safe name another tool has.
_NEXT = 2
# Stands where a conversation begins with the model's words, which no service accepts.
BEGINNING = "[The conversation begins.]"


@dataclass(frozen=True)
class Turn:
    """What one side said before the other spoke.

    Args:
        role: who.
        text: the words; of the user, what follows the results.
        calls: what the model called, each answered in the next turn.
        results: what the calls of the turn before came to, in their order.
    """

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


def system_of(messages: Sequence[Message]) -> str:
    """What the model is told first."""
    return "\n\n".join(message.text for message in messages if message.role == "system" and message.text)


def turns_of(messages: Sequence[Message], *, with_calls: bool = True) -> list[Turn]:
    """The turns of a conversation, without its system text.

    Args:
        messages: what was said.
        with_calls: calls and results are sent as such; in words when False.
    """
    turns: list[Turn] = []
    said = [message for message in messages if message.role != "system"]
    for index, message in enumerate(said):
        before = turns[-1] if turns else None
        turn = _turn(message, said[index + 1 : index + 2], before.calls if before else (), with_calls=with_calls)
        if not (turn.text or turn.calls or turn.results):
            continue
        if before is not None and before.role == turn.role and not before.calls:
            turns[-1] = replace(before, text=_joined((before.text, turn.text)), calls=turn.calls)
        else:
            turns.append(turn)
    if turns and turns[0].role == "assistant":
        turns.insert(0, Turn("user", BEGINNING))
    return turns


def wire_id(call_id: str) -> str:
    """A call's id as it is sent: nine letters and digits, which is all that the strictest service accepts."""
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


class WireNames:
    """The names of tools as services accept them, without clashes, there and back.

    Args:
        tools: the tools that may be called.
    """

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._wire: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        for tool in tools:
            wire = self._free(_safe(tool.name))
            self._wire.setdefault(tool.name, wire)
            self._shown.setdefault(wire, tool.name)

    def wire(self, name: str) -> str:
        """The name to send."""
        return self._wire.get(name) or _safe(name)

    def shown(self, wire: str) -> str:
        """The tool that a service names so; the same name where it is none that was sent."""
        return self._shown.get(wire, wire)

    def _free(self, wire: str) -> str:
        number, name = _NEXT, wire
        while name in self._shown:
            ending = f"_{number}"
            name, number = f"{wire[: MAX_NAME_CHARS - len(ending)]}{ending}", number + 1
        return name


def in_words(call: ToolCall) -> str:
    """A call as a model reads it that cannot make one."""
    return f"[Called {call.name} with {json.dumps(call.arguments, ensure_ascii=False)}]"


def _turn(message: Message, following: Sequence[Message], open_calls: Sequence[ToolCall], *, with_calls: bool) -> Turn:
    if message.role == "user":
        return Turn("user", _joined((message.context, message.text)))
    if message.role == "assistant":
        answered = {result.call_id for later in following for result in later.results if with_calls}
        calls = tuple(call for call in message.calls if call.id in answered)
        told = (in_words(call) for call in message.calls if call.id not in answered)
        return Turn("assistant", _joined((message.text, *told)), calls)
    by_id = {result.call_id: result for result in message.results}
    results = tuple(by_id[call.id] for call in open_calls)
    rest = [result for result in message.results if result not in results]
    return Turn("user", _joined((*map(_told, rest), message.text)), results=results)


def _told(result: ToolResult) -> str:
    return f"[{result.name} {'failed' if result.is_error else 'answered'}: {result.text}]"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _safe(name: str) -> str:
    safe = _UNSAFE.sub("_", name)[:MAX_NAME_CHARS]
    # Some services take a name only if it begins like one in a program.
    return safe if safe[:1].isalpha() or safe[:1] == "_" else f"t_{safe}"[:MAX_NAME_CHARS]
