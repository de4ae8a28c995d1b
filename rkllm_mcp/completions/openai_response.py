"""The events of an answer -> OpenAI's response object, or the chunks of its stream.

The joined deltas of a stream equal the message of the response object. A call is sent once it is complete and its
arguments are checked: sent parts cannot be withdrawn, and joined they must be valid JSON. ``usage`` includes every
round. Thinking is sent as ``reasoning_content``, as by DeepSeek, vLLM and llama.cpp.

Follows OpenAI's API reference, the chat completion object and the chat completion chunk object.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rkllm_mcp.completions.request import Occurrence, Refusal
from rkllm_mcp.events import End, Text, Thinking, ToolCallDetected, Usage, event_to_dict, to_json

Json = dict[str, Any]
FinishReason = Literal["stop", "length", "tool_calls"]
# Stands for the text of a chunk; in no model's name.
_PLACE = "\0text\0"
_NO_USAGE = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


def new_reply_id() -> str:
    """Return a unique response id."""
    return f"chatcmpl-{uuid.uuid4().hex}"


@dataclass(frozen=True)
class ReplyHead:
    """Common fields of all objects of one response.

    Args:
        id: id of the response.
        created: time of the response, seconds since 1970.
        model: name of the model.
        host_tools: calls are run by the host and are not part of the message.
        with_events: report other events in ``x_events``.
    """

    id: str
    created: int
    model: str
    host_tools: bool = False
    with_events: bool = False

    def fields(self, kind: str) -> Json:
        """Return the common fields of an object."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def tells(self, event: Occurrence) -> bool:
        """Return True if an event is reported in ``x_events``."""
        if not self.with_events or isinstance(event, (Text, Thinking, Refusal, Usage, End)):
            return False
        return self.host_tools or not isinstance(event, ToolCallDetected)


@dataclass
class _Account:
    """Usage of all rounds and the end of the answer."""

    usage: Usage = _NO_USAGE
    calls: int = 0
    end: End = field(default_factory=lambda: End("failed"))

    def take(self, event: Occurrence, head: ReplyHead) -> None:
        """Add an event."""
        if isinstance(event, Usage):
            self.usage = _sum(self.usage, event)
        elif isinstance(event, End):
            self.end = event
        elif isinstance(event, ToolCallDetected) and not head.host_tools:
            self.calls += 1

    @property
    def finish_reason(self) -> FinishReason:
        """OpenAI's finish reason."""
        if self.end.reason == "token_limit":
            return "length"
        return "tool_calls" if self.calls else "stop"

    def usage_object(self) -> Json:
        """Return OpenAI's usage object."""
        usage = self.usage
        return {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.generated_tokens,
            "total_tokens": usage.prompt_tokens + usage.generated_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }


class WholeReply:
    """The response object; ``head`` holds its common fields."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._account = _Account()
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[Json] = []
        self._events: list[Json] = []

    @property
    def end(self) -> End:
        """The ``End`` of the answer."""
        return self._account.end

    def take(self, event: Occurrence) -> None:
        """Add an event."""
        self._account.take(event, self._head)
        if isinstance(event, Text):
            self._text.append(event.text)
        elif isinstance(event, Refusal):
            self._refusal.append(event.text)
        elif isinstance(event, Thinking):
            self._thinking.append(event.text)
        elif isinstance(event, ToolCallDetected) and not self._head.host_tools:
            self._calls.append({"id": event.id, "type": "function", "function": _function(event)})
        if self._head.tells(event) and not isinstance(event, Refusal):
            self._events.append(event_to_dict(event))

    def object(self) -> Json:
        """Return the complete response object."""
        text, refusal, thinking = ("".join(parts) for parts in (self._text, self._refusal, self._thinking))
        message: Json = {
            "role": "assistant",
            "content": text or (None if self._calls or refusal else ""),
            "refusal": refusal or None,
            **({"reasoning_content": thinking} if thinking else {}),
            **({"tool_calls": self._calls} if self._calls else {}),
        }
        finish = self._account.finish_reason
        return {
            **self._head.fields("chat.completion"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
            "usage": self._account.usage_object(),
            **({"x_events": self._events} if self._head.with_events else {}),
        }


class ReplyChunks:
    """The chunks of a stream as JSON; with ``with_usage`` the last chunk contains the usage."""

    def __init__(self, head: ReplyHead, *, with_usage: bool = False) -> None:
        self._head = head
        self._with_usage = with_usage
        self._account = _Account()
        # A chunk of text is this with the text between: nearly every chunk is one.
        self._before, self._after = self._chunk({"content": _PLACE}).split(to_json(_PLACE))

    @property
    def end(self) -> End:
        """The ``End`` of the answer."""
        return self._account.end

    def first(self) -> str:
        """Return the first chunk, which contains the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, events: Sequence[Occurrence]) -> list[str]:
        """Return the chunks of events; none for most events other than text and calls."""
        chunks: list[str] = []
        for event in events:
            if type(event) is Text:
                chunks.append(f"{self._before}{to_json(event.text)}{self._after}")
            else:
                chunks += self._of_other(event)
        return chunks

    def _of_other(self, event: Occurrence) -> Iterator[str]:
        index = self._account.calls
        self._account.take(event, self._head)
        if isinstance(event, Thinking):
            yield self._chunk({"reasoning_content": event.text})
        elif isinstance(event, Refusal):
            yield self._chunk({"refusal": event.text})
        elif isinstance(event, ToolCallDetected) and not self._head.host_tools:
            function = _function(event)
            opening = {"index": index, "id": event.id, "type": "function", "function": {**function, "arguments": ""}}
            yield self._chunk({"tool_calls": [opening]})
            yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
        elif self._head.tells(event):
            yield self._chunk({}, x_events=[event_to_dict(event)])

    def last(self) -> Iterator[str]:
        """Yield the last chunks: finish reason and usage."""
        yield self._chunk({}, self._account.finish_reason)
        if self._with_usage:
            usage = self._account.usage_object()
            yield to_json({**self._head.fields("chat.completion.chunk"), "choices": [], "usage": usage})

    def _chunk(self, delta: Json, finish: FinishReason | None = None, **others: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._with_usage else {}
        return to_json({**self._head.fields("chat.completion.chunk"), "choices": [choice], **usage, **others})


def _function(call: ToolCallDetected) -> Json:
    return {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}


def _sum(one: Usage, other: Usage) -> Usage:
    return replace(
        one,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        prefilled_tokens=one.prefilled_tokens + other.prefilled_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        generated_tokens=one.generated_tokens + other.generated_tokens,
    )
