"""The values of a stream: what happens while an answer is made, in order, as one tagged union.

Every event has a ``kind``; a renderer is a chain of ``isinstance`` that ends in ``assert_never``. ``encode`` writes
them as JSON. The detector makes Text, Thinking, ToolCallDetected and ToolCallFailed; the model adds Usage; the loop
adds the rest and closes with exactly one End.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias


@dataclass(frozen=True)
class Text:
    """A piece of the answer."""

    text: str
    kind: ClassVar[Literal["text"]] = "text"


@dataclass(frozen=True)
class Thinking:
    """A piece of what the model thinks before it answers."""

    text: str
    kind: ClassVar[Literal["thinking"]] = "thinking"


@dataclass(frozen=True)
class ToolCallDetected:
    """A complete, readable call.

    Args:
        name: the declared tool's name as shown to the model, or the undeclared name as the model wrote it.
        arguments: parsed, repaired and coerced by the tool's schema.
        raw: the text it was read from, markers included.
        repaired: the text was not valid as written.
        id: given by the loop; empty from the detector.
        server: the tool's server; empty when there is none.
    """

    name: str
    arguments: Mapping[str, Any]
    raw: str = ""
    repaired: bool = False
    id: str = ""
    server: str = ""
    kind: ClassVar[Literal["tool_call"]] = "tool_call"


@dataclass(frozen=True)
class ToolCallFailed:
    """Text that began as a call and is none: ``raw`` is the text, ``reason`` a line the model can mend it by."""

    raw: str
    reason: str
    kind: ClassVar[Literal["tool_call_failed"]] = "tool_call_failed"


@dataclass(frozen=True)
class Approval:
    """A call waits for its owner's decision."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    reason: str
    kind: ClassVar[Literal["approval"]] = "approval"


@dataclass(frozen=True)
class Elicitation:
    """A server asks its owner something, in the middle of a call.

    Args:
        id: what an answer names.
        server: who asks.
        message: the question.
        schema: JSON Schema of the form to fill; empty when ``url`` is to be opened instead.
        url: an address at which the owner goes on; empty when there is a form.
    """

    id: str
    server: str
    message: str
    schema: Mapping[str, Any]
    url: str = ""
    kind: ClassVar[Literal["elicitation"]] = "elicitation"


@dataclass(frozen=True)
class ToolProgress:
    """A running call tells how far it is; ``total`` and ``message`` where the server says."""

    id: str
    progress: float
    total: float | None = None
    message: str | None = None
    kind: ClassVar[Literal["tool_progress"]] = "tool_progress"


@dataclass(frozen=True)
class ToolFinished:
    """A call came to a result, good or bad."""

    id: str
    name: str
    is_error: bool
    text: str
    seconds: float
    truncated: bool = False
    kind: ClassVar[Literal["tool_result"]] = "tool_result"


@dataclass(frozen=True)
class ResourceRead:
    """A resource went into the prompt."""

    uri: str
    kind: ClassVar[Literal["resource"]] = "resource"


@dataclass(frozen=True)
class Status:
    """A line for a person who waits, such as ``[MCP: Calling tool 'get_weather']``."""

    text: str
    kind: ClassVar[Literal["status"]] = "status"


@dataclass(frozen=True)
class Queued:
    """The question waits for its turn; ``position`` is how many come before it, counted anew whenever that changes."""

    position: int
    kind: ClassVar[Literal["queued"]] = "queued"


@dataclass(frozen=True)
class Usage:
    """The cost of one round of the model.

    Args:
        prompt_tokens: tokens of the whole prompt.
        prefilled_tokens: of these, evaluated in this round.
        cached_tokens: of these, reused from the KV cache, where it was not another tenant who put them there.
        generated_tokens: tokens that came out.
        prefill_ms: time to evaluate the prompt, milliseconds.
        decode_ms: time to generate, milliseconds.
        time_to_first_token_ms: from the request to the first token, queueing included, milliseconds.
    """

    prompt_tokens: int
    prefilled_tokens: int
    cached_tokens: int
    generated_tokens: int
    prefill_ms: float
    decode_ms: float
    time_to_first_token_ms: float
    kind: ClassVar[Literal["usage"]] = "usage"


EndReason = Literal["answered", "round_limit", "token_limit", "cancelled", "failed"]


@dataclass(frozen=True)
class End:
    """The last event of every stream.

    Args:
        reason: why it ended.
        error: a sentence when the reason is ``failed``.
        cause: what was raised then, where that is known, for whoever answers with a status; it is never encoded.
    """

    reason: EndReason
    error: str | None = None
    cause: Exception | None = field(default=None, compare=False, repr=False)
    kind: ClassVar[Literal["end"]] = "end"


DetectorEvent: TypeAlias = Text | Thinking | ToolCallDetected | ToolCallFailed
ModelEvent: TypeAlias = Text | Thinking | ToolCallDetected | ToolCallFailed | Status | Usage
Event: TypeAlias = (
    Text
    | Thinking
    | ToolCallDetected
    | ToolCallFailed
    | Approval
    | Elicitation
    | ToolProgress
    | ToolFinished
    | ResourceRead
    | Status
    | Queued
    | Usage
    | End
)

EVENT_TYPES: tuple[type[Event], ...] = (
    Text,
    Thinking,
    ToolCallDetected,
    ToolCallFailed,
    Approval,
    Elicitation,
    ToolProgress,
    ToolFinished,
    ResourceRead,
    Status,
    Queued,
    Usage,
    End,
)
