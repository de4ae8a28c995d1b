"""An answer as OpenAI's chat completion object, or the chunks of its stream; and as the older text completion.

The joined deltas of a stream equal the message of the response object. ``usage`` includes every round. Thinking is sent
as ``reasoning_content``, as by DeepSeek, vLLM and llama.cpp.

Follows OpenAI's API reference, the objects chat completion, chat completion chunk and completion.
"""

from __future__ import annotations

from typing import Any

from rkllm_mcp.completions.openai_types import FinishReason
from rkllm_mcp.completions.reply import Json, Part, Reply, ReplyShape, record
from rkllm_mcp.events import Event, event_to_dict, text_to_json, to_json

# Placeholder for the text of a chunk; in no model's name.
_PLACE = "\0text\0"
_DONE = "data: [DONE]\n\n"
_FIELDS = {"text": "content", "thinking": "reasoning_content"}


def _finish_reason(reply: Reply) -> FinishReason:
    return "length" if reply.is_cut else "tool_calls" if reply.calls else "stop"


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.generated_tokens,
        "total_tokens": reply.prompt_tokens + reply.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


def _fields(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": reply.created, "model": reply.model}


def _end(reply: Reply, kind: str, *, with_usage: bool) -> str:
    usage: Json = {**_fields(reply, kind), "choices": [], "usage": _usage(reply)}
    return (record(usage) if with_usage else "") + _DONE


class ChatShape(ReplyShape):
    """The chat completion of ``reply``; with ``with_usage`` the last chunk contains the usage."""

    def __init__(self, reply: Reply, *, with_usage: bool = False) -> None:
        self._reply = reply
        self._with_usage = with_usage
        self._calls = 0
        # A chunk of text is this with the text between: nearly every chunk is one.
        self._before, self._after = self._chunk({"content": _PLACE}).split(to_json(_PLACE))

    def begin(self) -> str:
        """Return the first chunk, which contains the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def opened(self, part: Part) -> str:
        """Return the first chunk of a call."""
        if part.call is None:
            return ""
        function = {"name": part.call.name, "arguments": ""}
        return self._call_chunk({"id": part.call.id, "type": "function", "function": function})

    def piece(self, part: Part) -> str:
        """Return the chunk of a piece."""
        if part.kind == "text":
            return f"{self._before}{text_to_json(part.pieces[-1])}{self._after}"
        if part.call is not None:
            return self._call_chunk({"function": {"arguments": part.text}})
        return self._chunk({_FIELDS[part.kind]: part.pieces[-1]})

    def closed(self, part: Part) -> str:
        """Count the calls; a part has no last chunk."""
        self._calls += part.call is not None
        return ""

    def other(self, event: Event) -> str:
        """Return the chunk of an event of ``x_events``."""
        if not self._reply.tells(event):
            return ""
        return self._chunk({}, x_events=[event_to_dict(event)])

    def finish(self) -> str:
        """Return the last chunks: finish reason and usage."""
        chunks = self._chunk({}, _finish_reason(self._reply))
        return chunks + _end(self._reply, "chat.completion.chunk", with_usage=self._with_usage)

    def whole(self) -> Json:
        """Return the response object."""
        reply = self._reply
        text, thinking = reply.text("text"), reply.text("thinking")
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
            for call, arguments in reply.calls
        ]
        message: Json = {
            "role": "assistant",
            "content": text or (None if calls else ""),
            "refusal": None,
            **({"reasoning_content": thinking} if thinking else {}),
            **({"tool_calls": calls} if calls else {}),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
        return {
            **_fields(reply, "chat.completion"),
            "choices": [choice],
            "usage": _usage(reply),
            **({"x_events": reply.events} if reply.with_events else {}),
        }

    def _call_chunk(self, delta: Json) -> str:
        return self._chunk({"tool_calls": [{"index": self._calls, **delta}]})

    def _chunk(self, delta: Json, finish: FinishReason | None = None, **members: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._with_usage else {}
        fields = _fields(self._reply, "chat.completion.chunk")
        return record({**fields, "choices": [choice], **usage, **members})


class TextShape(ReplyShape):
    """The text completion of ``reply``; ``echo`` is the prompt, if the answer begins with it."""

    def __init__(self, reply: Reply, *, echo: str = "", with_usage: bool = False) -> None:
        self._reply = reply
        self._echo = echo
        self._with_usage = with_usage

    def begin(self) -> str:
        """Return the prompt, if the answer begins with it."""
        return self._chunk(self._echo) if self._echo else ""

    def piece(self, part: Part) -> str:
        """Return the chunk of a piece of text."""
        return self._chunk(part.pieces[-1]) if part.kind == "text" else ""

    def finish(self) -> str:
        """Return the last chunks: finish reason and usage."""
        chunks = self._chunk("", _finish_reason(self._reply))
        return chunks + _end(self._reply, "text_completion", with_usage=self._with_usage)

    def whole(self) -> Json:
        """Return the response object."""
        text = self._echo + self._reply.text("text")
        return {**self._object(text, _finish_reason(self._reply)), "usage": _usage(self._reply)}

    def _chunk(self, text: str, finish: FinishReason | None = None) -> str:
        usage = {"usage": None} if self._with_usage else {}
        return record({**self._object(text, finish), **usage})

    def _object(self, text: str, finish: FinishReason | None) -> Json:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return {**_fields(self._reply, "text_completion"), "choices": [choice]}
