"""Values of a conversation: messages, tools, calls, results. All but ``Conversation`` are frozen."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rkllm_mcp.records import KeptTurn, Ruling

Role = Literal["system", "user", "assistant", "tool"]


def _no_parameters() -> Mapping[str, Any]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True)
class ToolSpec:
    """A tool as shown to a model.

    Args:
        name: the name shown to the model: the server's own if it is unique, ``mcp__server__tool`` otherwise.
        description: the server's description.
        input_schema: JSON Schema of the arguments; its ``type`` is ``object``.
        server: the server's name in the configuration; empty for tools without a server.
        wire_name: the server's name of the tool; ``name`` if empty.
        read_only: the server's readOnlyHint; None if not given.
        destructive: the server's destructiveHint; None if not given.
        as_task: the tool requires a task, which is polled for its result.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=_no_parameters)
    server: str = ""
    wire_name: str = ""
    read_only: bool | None = None
    destructive: bool | None = None
    as_task: bool = False

    @property
    def qualified_name(self) -> str:
        """``mcp__{server}__{tool}``, the unique name inside the host."""
        return f"mcp__{self.server}__{self.wire_name or self.name}" if self.server else self.name


@dataclass(frozen=True)
class ToolCall:
    """A tool call made by a model."""

    id: str  # unique in its conversation: call_1, call_2, …
    name: str  # as shown to the model
    arguments: Mapping[str, Any]  # parsed, repaired and coerced to the tool's schema
    raw: str = ""  # generated text of the call, with markers
    repaired: bool = False  # the text was not valid as generated


@dataclass(frozen=True)
class ToolResult:
    """Result of a call. A failure is a result too, for the model to read."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    seconds: float = 0.0
    truncated: bool = False
    ruling: Ruling | Literal[""] = ""  # approval outcome; empty if no decision was needed


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str = ""  # without tool calls and thinking
    calls: tuple[ToolCall, ...] = ()  # of an assistant message
    results: tuple[ToolResult, ...] = ()  # of a tool message: the results of one round
    thinking: str = ""  # of an assistant message; rendered again only if the template does
    cut: bool = False  # the assistant message ended at a token limit
    # Text that the host puts before the user's for the model only: resources, results of automatic tools, instructions.
    context: str = ""


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


@dataclass
class Conversation:
    """A growing list of messages. A system prompt is the first message; ``id`` is the key in stores and caches."""

    id: str = field(default_factory=_new_id)
    messages: list[Message] = field(default_factory=list[Message])
    calls_made: int = 0  # number of call ids in use
    # Tool list of the prompt; None before the first question. Constant, because a change would invalidate the KV cache.
    listed_tools: tuple[ToolSpec, ...] | None = None
    told_tools: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])  # described later, in a turn
    own_system: str | None = None  # overrides the configured system prompt
    kept_turns: int = 0  # turns in the store
    unkept: list[KeptTurn] = field(default_factory=list[KeptTurn])  # finished turns that are not in the store yet
    unpaid_tokens: int = 0  # prompt tokens of a run whose statistics have not arrived (also after a cancellation)
    tenant: str = ""  # empty for the owner of the service

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)

    def replace(self, messages: Sequence[Message]) -> None:
        """Replace the history, as compaction and editing do; the KV cache of the old one may be lost."""
        self.messages[:] = messages

    def next_call_id(self) -> str:
        """Return the id of the next call: ``call_1``, ``call_2``, …."""
        self.calls_made += 1
        return f"call_{self.calls_made}"
