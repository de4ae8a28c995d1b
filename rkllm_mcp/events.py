"""The events of an answer, and their JSON encoding."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict, get_args


@dataclass(frozen=True)
class Text:
    """Part of the answer."""

    text: str
    kind: ClassVar[Literal["text"]] = "text"


@dataclass(frozen=True)
class Thinking:
    """Part of the model's thinking."""

    text: str
    kind: ClassVar[Literal["thinking"]] = "thinking"


@dataclass(frozen=True)
class ToolCallDetected:
    """A complete, valid call."""

    name: str  # the declared tool's name as shown to the model; an undeclared name as generated
    arguments: Mapping[str, Any]  # parsed, repaired and coerced to the tool's schema
    raw: str = ""  # generated text of the call, with markers
    repaired: bool = False  # the text was not valid as generated
    id: str = ""  # set by the loop; empty from the detector
    server: str = ""  # the tool's server; empty if it has none
    kind: ClassVar[Literal["tool_call"]] = "tool_call"


@dataclass(frozen=True)
class ToolCallFailed:
    """A call that cannot be parsed: ``raw`` is its text, ``reason`` a sentence that lets the model correct it."""

    raw: str
    reason: str
    kind: ClassVar[Literal["tool_call_failed"]] = "tool_call_failed"


@dataclass(frozen=True)
class Approval:
    """A call waits for the user's approval."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    reason: str
    # Reading of time.monotonic() at which it counts as refused; encoded as the seconds that are left by then.
    refused_at: float | None = field(default=None, compare=False)
    kind: ClassVar[Literal["approval"]] = "approval"


@dataclass(frozen=True)
class Elicitation:
    """A server's elicitation request during a call."""

    id: str
    server: str
    message: str
    schema: Mapping[str, Any]  # JSON Schema of the form; empty if url is to be opened
    url: str = ""
    refused_at: float | None = field(default=None, compare=False)  # as that of an ``Approval``
    kind: ClassVar[Literal["elicitation"]] = "elicitation"


@dataclass(frozen=True)
class QuestionAnswered:
    """An approval or a form does not wait any more."""

    id: str  # that of the question
    call: str  # id of the call that needed approval; empty for a form, and for a server that asks the model
    action: str  # the decision, or the action on the form; ``late`` if no answer came in time
    content: Mapping[str, Any]  # the content of the form, without secret fields
    seconds: float  # how long it waited
    kind: ClassVar[Literal["answered"]] = "answered"


@dataclass(frozen=True)
class ToolProgress:
    """Progress of a running call, as reported by the server."""

    id: str
    progress: float
    total: float | None = None
    message: str | None = None
    kind: ClassVar[Literal["tool_progress"]] = "tool_progress"


@dataclass(frozen=True)
class ToolFinished:
    """Result of a call, successful or not."""

    id: str
    name: str
    is_error: bool
    text: str
    seconds: float
    truncated: bool = False
    ruling: str = ""  # decision of a person or of the configuration about the call; left out where there was none
    omitted: bool = False  # the text is not stored; left out where it is there
    kind: ClassVar[Literal["tool_result"]] = "tool_result"


class _SourceText(TypedDict):
    document: str  # title, or its address
    page: int | None
    passage: str
    score: float | None


class Source(_SourceText, total=False):
    """A passage that a search tool returned; the last two fields are there if the tool names its place."""

    document_id: str
    chunk_index: int  # from 0 within the document


@dataclass(frozen=True)
class Sources:
    """Passages that a search returned, for display below the answer; follows the result of the call."""

    items: Sequence[Source]
    kind: ClassVar[Literal["sources"]] = "sources"


@dataclass(frozen=True)
class ResourceRead:
    """A resource was added to the prompt."""

    uri: str
    kind: ClassVar[Literal["resource"]] = "resource"


class RememberedRow(TypedDict):
    """A row of what a person wants remembered."""

    id: str
    text: str
    source: str  # id of the conversation in which it was said; empty if it was typed elsewhere


@dataclass(frozen=True)
class MemoriesUsed:
    """Rows that the question has asked to remember, or that the model reads with it."""

    rows: Sequence[RememberedRow]
    is_new: bool = False  # the question has asked for it
    kind: ClassVar[Literal["memories"]] = "memories"


@dataclass(frozen=True)
class Status:
    """A status line for the user, such as ``[MCP: Calling tool 'get_weather']``."""

    text: str
    # The sentence's name in the table ``status`` of the catalogue, and what is inserted; left out where there is none.
    about: str = field(default="", compare=False)
    values: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    kind: ClassVar[Literal["status"]] = "status"


@dataclass(frozen=True)
class Queued:
    """The question waits in the queue; ``position`` is the number of questions before it, sent at each change."""

    position: int
    kind: ClassVar[Literal["queued"]] = "queued"


@dataclass(frozen=True)
class Prefill:
    """The model begins to read a prompt, which will take a second or more."""

    tokens: int  # tokens to evaluate, without those in the KV cache
    seconds: float  # estimated duration, from earlier runs
    # When it is expected to end, as ``time.monotonic()``; encoded as the seconds that are left.
    ends_at: float | None = field(default=None, compare=False)
    kind: ClassVar[Literal["prefill"]] = "prefill"


@dataclass(frozen=True)
class Usage:
    """Token counts and times of one model round."""

    prompt_tokens: int  # tokens of the whole prompt
    prefilled_tokens: int  # prompt tokens evaluated in this round
    cached_tokens: int  # prompt tokens reused from the KV cache, unless another tenant's prompt put them there
    generated_tokens: int  # generated tokens
    prefill_ms: float  # time to evaluate the prompt, milliseconds
    decode_ms: float  # time to generate, milliseconds
    time_to_first_token_ms: float  # from the request to the first token, including the queue, milliseconds
    corrections: int = 0  # wrong tokens that were corrected in held answers and calls; left out where there is none
    picture_tokens: int = 0  # prompt tokens of pictures; left out where there is none
    thinking_tokens: int = field(default=0, compare=False)  # generated tokens that are thinking; never encoded
    kind: ClassVar[Literal["usage"]] = "usage"


# cancelled: by the person or program that asked; interrupted: by the end of the service or its process.
EndReason = Literal["answered", "round_limit", "token_limit", "cancelled", "interrupted", "failed"]


@dataclass(frozen=True)
class End:
    """The last event of every stream."""

    reason: EndReason
    error: str | None = None  # a sentence if the reason is "failed"
    cause: Exception | None = field(default=None, compare=False, repr=False)  # for HTTP status codes; never encoded
    stop_string: str = field(default="", compare=False)  # the one that ended the answer; never encoded
    kind: ClassVar[Literal["end"]] = "end"


DetectorEvent: TypeAlias = Text | Thinking | ToolCallDetected | ToolCallFailed
ModelEvent: TypeAlias = Text | Thinking | ToolCallDetected | ToolCallFailed | Status | Prefill | Usage
Event: TypeAlias = (
    Text
    | Thinking
    | ToolCallDetected
    | ToolCallFailed
    | Approval
    | Elicitation
    | QuestionAnswered
    | ToolProgress
    | ToolFinished
    | Sources
    | ResourceRead
    | MemoriesUsed
    | Status
    | Queued
    | Prefill
    | Usage
    | End
)

EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)

# Order of the fields that are encoded; the raw text of a call and the exception of an End are not.
_FIELD_ORDER: dict[type[Event], tuple[str, ...]] = {
    **{event: tuple(event_field.name for event_field in fields(event)) for event in EVENT_TYPES},
    ToolCallDetected: ("id", "name", "server", "arguments", "repaired"),
    Approval: ("id", "name", "arguments", "reason"),
    Elicitation: ("id", "server", "message", "schema", "url"),
    Prefill: ("tokens", "seconds"),
    Usage: tuple(usage_field.name for usage_field in fields(Usage) if usage_field.compare),
    End: ("reason", "error"),
}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return the event as a JSON object."""
    values = {name: getattr(event, name) for name in _FIELD_ORDER[type(event)]}
    if isinstance(event, ToolFinished):
        values = {name: value for name, value in values.items() if value or name not in ("ruling", "omitted")}
    elif isinstance(event, Usage):
        values = {
            name: value for name, value in values.items() if value or name not in ("corrections", "picture_tokens")
        }
    elif isinstance(event, Status) and not event.about:
        del values["about"], values["values"]
    until = None
    if isinstance(event, (Approval, Elicitation)):
        until = event.refused_at
    elif isinstance(event, Prefill):
        until = event.ends_at
    if until is not None:
        values["seconds_left"] = round(max(0.0, until - time.monotonic()), 1)
    return {"kind": event.kind, **values}


_KINDS: dict[str, type[Event]] = {event.kind: event for event in EVENT_TYPES}


def event_from_dict(value: Mapping[str, Any]) -> Event:
    """Return the event of an object that ``event_to_dict`` made; what is never encoded is empty."""
    values = {name: item for name, item in value.items() if name not in ("kind", "seconds_left")}
    return _KINDS[value["kind"]](**values)


# Encodes a JSON value in one line, with non-ASCII characters unescaped. Made once: json.dumps with options makes an
# encoder for each call.
to_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# The same of a text, in C.
text_to_json: Callable[[str], str] = json.encoder.encode_basestring


def event_to_json(event: Event) -> str:
    """Return the event as one line of JSON, with non-ASCII characters unescaped."""
    if type(event) is Text:  # nearly every event, and a text alone is encoded several times as fast as a dictionary
        return f'{{"kind":"text","text":{text_to_json(event.text)}}}'
    return to_json(event_to_dict(event))
