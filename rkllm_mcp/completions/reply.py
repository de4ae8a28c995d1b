"""The events of an answer -> its parts -> the records of a stream, or one object, in the shape of any API.

    events ─▶ Reply (parts, usage, end) ─▶ ReplyShape ─▶ text of the stream, or the whole object

A call is a part that comes at once, with all of its arguments: they are sent when they are checked, since what was sent
cannot be withdrawn, and no client uses an earlier piece.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from rkllm_mcp.events import End, Event, Text, Thinking, ToolCallDetected, ToolFinished, Usage, event_to_dict, to_json
from rkllm_mcp.messages import Conversation

Json: TypeAlias = dict[str, Any]
PartKind: TypeAlias = Literal["text", "thinking", "call", "server_call"]
_KINDS: dict[type[Any], PartKind] = {Text: "text", Thinking: "thinking"}


def new_id(prefix: str) -> str:
    """Return a unique id."""
    return f"{prefix}{uuid.uuid4().hex}"


@dataclass
class Part:
    """A part of an answer: text of one kind, or a call."""

    kind: PartKind
    index: int
    pieces: list[str] = field(default_factory=list[str])  # of a call: the arguments, as one piece of JSON
    call: ToolCallDetected | None = None
    result: ToolFinished | None = None  # of a call that the host has run

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(self.pieces)


@dataclass
class Reply:
    """An answer so far."""

    id: str  # id of the response
    model: str  # name of the model
    host_tools: bool = False  # calls are run by the host and are not part of the answer
    with_server_calls: bool = False  # the calls that the host has run are parts all the same
    with_events: bool = False  # collect other events
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # the client's names of tools, by those shown
    created: int = field(default_factory=lambda: int(time.time()))
    parts: list[Part] = field(default_factory=list[Part])
    events: list[Json] = field(default_factory=list[Json])
    end: End = field(default_factory=lambda: End("failed"))
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    thinking_tokens: int = 0  # of the generated ones
    corrections: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    conversation: Conversation | None = None  # the one that is answered, while it is
    _running: dict[str, ToolCallDetected] = field(default_factory=dict[str, ToolCallDetected])

    def add(self, event: Event) -> Part | None:
        """Add an event; return the part that it begins or continues."""
        if isinstance(event, (Text, Thinking)):
            kind = _KINDS[type(event)]
            part = self.parts[-1] if self.parts else None
            if part is None or part.kind != kind:
                part = self._begin_part(kind)
            part.pieces.append(event.text)
            return part
        is_figures = isinstance(event, (Usage, End))
        is_clients = isinstance(event, ToolCallDetected) and not self.host_tools
        if self.with_events and not (is_figures or is_clients):
            self.events.append(event_to_dict(event))
        if isinstance(event, Usage):
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens
            self.generated_tokens += event.generated_tokens
            self.thinking_tokens += event.thinking_tokens
            self.corrections += event.corrections
            self.prefill_ms += event.prefill_ms
            self.decode_ms += event.decode_ms
        elif isinstance(event, End):
            self.end = event
        elif isinstance(event, ToolCallDetected):
            if not self.host_tools:
                return self._begin_part("call", replace(event, name=self.names.get(event.name, event.name)))
            self._running[event.id] = event
        elif isinstance(event, ToolFinished) and self.with_server_calls:
            call = self._running.get(event.id) or ToolCallDetected(event.name, {}, id=event.id)
            return self._begin_part("server_call", call, event)
        return None

    def _begin_part(
        self, kind: PartKind, call: ToolCallDetected | None = None, result: ToolFinished | None = None
    ) -> Part:
        pieces = [] if call is None else [json.dumps(dict(call.arguments), ensure_ascii=False)]
        self.parts.append(Part(kind, len(self.parts), pieces, call, result))
        return self.parts[-1]

    def begin(self, conversation: Conversation) -> None:
        """Note the conversation that is answered."""
        self.conversation = conversation

    def text(self, kind: PartKind) -> str:
        """Return the text of all parts of a kind."""
        return "".join(part.text for part in self.parts if part.kind == kind)

    @property
    def calls(self) -> list[tuple[ToolCallDetected, str]]:
        """The calls for the client, with their arguments as JSON."""
        return [(part.call, part.text) for part in self.parts if part.kind == "call" and part.call is not None]

    @property
    def generated_details(self) -> Json:
        """How many of the generated tokens are thinking, and how many were corrected, if any were."""
        corrected = {"corrections": self.corrections} if self.corrections else {}
        return {"reasoning_tokens": self.thinking_tokens, **corrected}

    @property
    def is_cut(self) -> bool:
        """True if the token limit ended the answer."""
        return self.end.reason == "token_limit"


def record(value: Json) -> str:
    """Return a record of an event stream."""
    return f"data: {to_json(value)}\n\n"


def typed_record(value: Json) -> str:
    """Return a record of an event stream whose event is named by its type."""
    return f"event: {value['type']}\n{record(value)}"


class ReplyShape:
    """The records and the object of one API; a method returns the text of no, one or several records."""

    # Methods of every shape: the records of the last piece of a part, of which the first ones say what begins; the last
    # records of a complete answer; and the answer as one object.
    piece: Callable[[Part], str]
    finish: Callable[[], str]
    whole: Callable[[], Json]
    to_record = staticmethod(record)

    def begin(self) -> str:
        """Return the first records."""
        return ""

    def closing(self, part: Part) -> str:
        """Return the records after the last piece of a part."""
        del part
        return ""

    def other(self, event: Json) -> str:
        """Return the records of a collected event, which belongs to no part."""
        del event
        return ""

    def failure(self, body: Json) -> str:
        """Return the last records of an answer that failed; ``body`` is the error in the API's shape."""
        return self.to_record(body)
