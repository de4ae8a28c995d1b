"""Assemble streamed call parts into calls of declared tools, or into a failure that the model can correct.

A part belongs to the call of its index; if a service uses one index for all calls, a new id starts a new call. Names
may arrive in parts or be repeated with each part. Arguments are repaired and coerced as on the NPU; a call that the
token limit cut off is not completed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rkllm_mcp.events import ToolCallDetected, ToolCallFailed
from rkllm_mcp.providers.wire_messages import WireNames
from rkllm_mcp.toolcalls.lenient_json import ParsedCall, ParsedValue, UnreadableError, read_value
from rkllm_mcp.toolcalls.resolve import RefusedError, ToolCatalogue, signature


@dataclass(frozen=True)
class TextPart:
    """Part of the answer's text."""

    text: str


@dataclass(frozen=True)
class ThinkingPart:
    """Part of the model's thinking."""

    text: str


@dataclass(frozen=True)
class CallPart:
    """Part of a tool call."""

    index: int  # position of the call in the answer
    id: str = ""
    name: str = ""  # the tool's name or a part of it
    arguments: str = ""  # a part of the arguments' JSON


@dataclass(frozen=True)
class UsagePart:
    """Usage reported by the service so far, in tokens; ``cached`` is the reused part of ``prompt``."""

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True)
class FinishPart:
    """The end of the answer: regular, at the token limit, or withheld by the service."""

    why: Literal["end", "length", "withheld"]


StreamPart: TypeAlias = TextPart | ThinkingPart | CallPart | UsagePart | FinishPart


@dataclass(eq=False)
class CallParts:
    """The calls of one answer."""

    _catalogue: ToolCatalogue
    _names: WireNames  # maps the service's tool names back
    _open: list[CallPart] = field(default_factory=list[CallPart])  # each joined from its parts so far

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, part: CallPart) -> None:
        """Add a part to its call."""
        at = next((at for at in reversed(range(len(self._open))) if self._open[at].index == part.index), None)
        if at is None or (part.id and self._open[at].id and part.id != self._open[at].id and part.name):
            self._open.append(part)
            return
        call = self._open[at]
        # Some services repeat the name with every part of the arguments.
        name = call.name if part.name == call.name and call.arguments else call.name + part.name
        self._open[at] = CallPart(call.index, call.id or part.id, name, call.arguments + part.arguments)

    def finish(self, *, is_cut: bool) -> Iterator[ToolCallDetected | ToolCallFailed]:
        """Yield every call, parsed; with ``is_cut`` the token limit may have cut off the last one."""
        for number, call in enumerate(self._open, 1):
            name = self._names.shown(call.name.strip())
            raw = f"{name}({call.arguments})"
            may_be_cut = is_cut and number == len(self._open)
            reading = ParsedValue({}, repaired=False)  # an empty text means no arguments
            try:
                if may_be_cut:
                    reading = ParsedValue(json.loads(call.arguments), repaired=False)
                elif call.arguments.strip():
                    reading = read_value(call.arguments)
            except (ValueError, UnreadableError) as error:
                rule = "the token limit cut this call off" if may_be_cut else str(error)
                tool = self._catalogue.tool(name)
                again = f"Call again: {signature(tool)}" if tool else "Call again with one JSON object of arguments"
                yield ToolCallFailed(raw, f"{rule}. {again}")
                continue
            spelled = ParsedCall(name, reading.value, repaired=reading.repaired, guessed=reading.guessed)
            try:
                yield self._catalogue.accept(spelled, raw)
            except RefusedError as refused:
                yield ToolCallFailed(raw, str(refused))
