"""Pieces of calls from a stream become calls of declared tools, or the line by which the model can mend them.

Rules: a piece belongs to the call of its index; where a service gives every call the same index, another id begins
another call. Names may come in pieces or be repeated with each. Arguments are read as everywhere in the project:
repaired where one repair can be meant, and of the types that the tool's schema asks for. What the token limit has cut
off is not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from rkllm_mcp.events import ToolCallDetected, ToolCallFailed
from rkllm_mcp.providers.pieces import CallPart
from rkllm_mcp.providers.turns import WireNames
from rkllm_mcp.toolcalls.payload import Catalogue, RefusedError, signature
from rkllm_mcp.toolcalls.repair import Reading, UnreadableError, read_value
from rkllm_mcp.toolcalls.spelling import SpelledCall


@dataclass
class _Open:
    """A call that may still grow."""

    index: int
    id: str
    name: str = ""
    arguments: str = ""

    def add(self, part: CallPart) -> None:
        # Some services repeat the name with every piece of the arguments.
        if part.name != self.name or not self.arguments:
            self.name += part.name
        self.arguments += part.arguments
        self.id = self.id or part.id


class CallParts:
    """The calls of one answer, while they come.

    Args:
        catalogue: what may be called.
        names: how the tools were named to the service.
    """

    def __init__(self, catalogue: Catalogue, names: WireNames) -> None:
        self._catalogue = catalogue
        self._names = names
        self._open: list[_Open] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, part: CallPart) -> None:
        """A piece came."""
        call = next((call for call in reversed(self._open) if call.index == part.index), None)
        if call is None or (part.id and call.id and part.id != call.id and part.name):
            call = _Open(part.index, part.id)
            self._open.append(call)
        call.add(part)

    def finish(self, *, is_cut: bool) -> Iterator[ToolCallDetected | ToolCallFailed]:
        """The answer is over; every call as what it came to.

        Args:
            is_cut: the token limit ended the answer, so the last call may lack its end.
        """
        for number, call in enumerate(self._open, 1):
            yield self._read(call, is_cut=is_cut and number == len(self._open))

    def _read(self, call: _Open, *, is_cut: bool) -> ToolCallDetected | ToolCallFailed:
        name = self._names.shown(call.name.strip())
        raw = f"{name}({call.arguments})"
        try:
            reading = Reading(json.loads(call.arguments), repaired=False) if is_cut else _arguments(call.arguments)
        except (ValueError, UnreadableError) as error:
            rule = "the limit of the answer's length cut this call off" if is_cut else str(error)
            tool = self._catalogue.tool(name)
            again = f"Call again: {signature(tool)}" if tool else "Call again with one JSON object of arguments"
            return ToolCallFailed(raw, f"{rule}. {again}")
        spelled = SpelledCall(name, reading.value, repaired=reading.repaired, guessed=reading.guessed)
        try:
            return self._catalogue.accept(spelled, raw)
        except RefusedError as refused:
            return ToolCallFailed(raw, str(refused))


def _arguments(text: str) -> Reading:
    """The arguments as written; nothing at all stands for none."""
    return read_value(text) if text.strip() else Reading({}, repaired=False)
