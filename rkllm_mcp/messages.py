"""The values of a conversation: what was said, which tools there are, what was called, what came back.

Rules: all but ``Conversation`` are frozen; a conversation only grows (``replace`` starts a new history on purpose, as
compaction and editing do). Nothing here knows how a model spells any of it.
"""

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
    """A tool as a model may see it.

    Args:
        name: the name shown to the model: the server's own while it is unique, ``mcp__server__tool`` otherwise.
        description: what it does, in the server's words.
        input_schema: JSON Schema of the arguments, ``type`` is ``object``.
        server: the configuration's name of the server; empty for tools that are not on a server.
        wire_name: the name the server knows it by; the same as ``name`` when empty.
        read_only: the server says that it changes nothing; None when it does not say.
        destructive: the server says that it may destroy something; None when it does not say.
        as_task: the server runs it as a task only, which is asked after until it has a result.
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
        """``mcp__{server}__{tool}``: the name inside the host, which never collides."""
        return f"mcp__{self.server}__{self.wire_name or self.name}" if self.server else self.name


@dataclass(frozen=True)
class ToolCall:
    """A call a model made.

    Args:
        id: unique in its conversation (``call_1``, ``call_2``, …).
        name: the tool's name as shown to the model.
        arguments: parsed, repaired and coerced by the tool's schema.
        raw: the text it was read from, markers included.
        repaired: the text was not valid as written and was repaired.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    raw: str = ""
    repaired: bool = False


@dataclass(frozen=True)
class ToolResult:
    """What a call came to. A failure is a value too: the model reads it and explains it.

    Args:
        call_id: the call it answers.
        name: the tool's name as shown to the model.
        text: what the model reads.
        is_error: the tool, or the call of it, failed.
        seconds: how long the call took.
        truncated: ``text`` was cut to the configured size.
        ruling: how the call came to be allowed or refused (``records.Ruling``); empty where nobody decided.
    """

    call_id: str
    name: str
    text: str
    is_error: bool = False
    seconds: float = 0.0
    truncated: bool = False
    ruling: Ruling | Literal[""] = ""


@dataclass(frozen=True)
class Message:
    """One turn.

    Args:
        role: who speaks. A ``tool`` message carries the results of one round.
        text: the words; for an assistant turn without its tool calls and thinking.
        calls: the calls an assistant turn made.
        results: the results a tool turn brings.
        thinking: what an assistant turn thought; kept for display, rendered again only where the model's template does.
        cut: an assistant turn ended at a token limit, not by itself.
        context: what the host puts before a user's words for the model to read with them: resources they name, results
            of tools that run with every question, instructions, news about tools. Not to be shown as the user's words.
    """

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thinking: str = ""
    cut: bool = False
    context: str = ""


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


@dataclass
class Conversation:
    """A growing list of messages with an id.

    ``id`` names the conversation in stores and caches. The system prompt is its first message when there is one.

    Args:
        id: its name.
        messages: what was said.
        calls_made: how many calls have an id.
        listed_tools: the tools that stand at its front, before everything that was said; None before its first
            question. They stay while it lasts, because all that stands behind them would have to be read again.
        told_tools: the tools whose parameters the model was told later, in a turn, by name.
        own_system: a system text of its own; None where the configuration's holds.
        kept_turns: how many of its turns the store has.
        unkept: turns that are over and that the store does not have yet.
        unpaid_tokens: tokens that the run under way was given to evaluate, until its figures come; those of one that
            was left stay.
        tenant: whose it is; empty for the owner.
    """

    id: str = field(default_factory=_new_id)
    messages: list[Message] = field(default_factory=list[Message])
    calls_made: int = 0
    listed_tools: tuple[ToolSpec, ...] | None = None
    told_tools: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    own_system: str | None = None
    kept_turns: int = 0
    unkept: list[KeptTurn] = field(default_factory=list[KeptTurn])
    unpaid_tokens: int = 0
    tenant: str = ""

    def add(self, message: Message) -> None:
        """Append a turn."""
        self.messages.append(message)

    def replace(self, messages: Sequence[Message]) -> None:
        """Start over with another history, as after compaction; what was prefilled for the old one may be lost."""
        self.messages[:] = messages

    def next_call_id(self) -> str:
        """The id of the next call: ``call_1``, ``call_2``, …."""
        self.calls_made += 1
        return f"call_{self.calls_made}"
