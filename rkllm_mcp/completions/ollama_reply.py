"""The events of an answer become Ollama's objects: one for each piece, and a last one that says what it cost.

Followed: Ollama's API reference; times are nanoseconds. A chat's answer and a generation's differ in where the words
stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from rkllm_mcp.completions.exchange import Occurrence, Refusal
from rkllm_mcp.events import End, Text, Thinking, ToolCallDetected, Usage

Json = dict[str, Any]


@dataclass
class OllamaReply:
    """The objects of one answer.

    Args:
        model: the name that the program asked for.
        is_chat: the words are a message's; else they are a response's.
        host_tools: calls are made inside, and are no part of the answer.
    """

    model: str
    is_chat: bool
    host_tools: bool = False
    _prompt_tokens: int = 0
    _generated_tokens: int = 0
    _calls: int = 0
    _prefill_ms: float = 0.0
    _decode_ms: float = 0.0
    _end: End = field(default_factory=lambda: End("answered"))

    def of(self, event: Occurrence) -> Iterator[Json]:
        """The object of an event; none for most that are not words or calls."""
        if isinstance(event, (Text, Refusal)):
            yield self._piece(text=event.text)
        elif isinstance(event, Thinking):
            yield self._piece(thinking=event.text)
        elif isinstance(event, ToolCallDetected) and self.is_chat and not self.host_tools:
            yield self._piece(call=event)
            self._calls += 1
        elif isinstance(event, Usage):
            self._prompt_tokens += event.prompt_tokens
            self._generated_tokens += event.generated_tokens
            self._prefill_ms += event.prefill_ms
            self._decode_ms += event.decode_ms
        elif isinstance(event, End):
            self._end = event

    def last(self, seconds: float) -> Json:
        """How it ended, and what it cost.

        Args:
            seconds: from the request to the end.
        """
        return {
            **self._piece(),
            "done": True,
            "done_reason": "length" if self._end.reason == "token_limit" else "stop",
            "total_duration": _nanoseconds(seconds * 1000),
            "load_duration": 0,
            "prompt_eval_count": self._prompt_tokens,
            "prompt_eval_duration": _nanoseconds(self._prefill_ms),
            "eval_count": self._generated_tokens,
            "eval_duration": _nanoseconds(self._decode_ms),
        }

    def nothing(self, reason: str) -> Json:
        """The answer to a request that asks nothing: the model is loaded, or is to be dropped, which it never is."""
        return {**self._piece(), "done": True, "done_reason": reason}

    def whole(self, events: Iterable[Occurrence], seconds: float) -> Json:
        """All pieces as one object."""
        pieces = [piece for event in events for piece in self.of(event)]
        last = self.last(seconds)
        if not self.is_chat:
            thinking = "".join(piece.get("thinking", "") for piece in pieces)
            text = "".join(piece["response"] for piece in pieces)
            return {**last, "response": text, **({"thinking": thinking} if thinking else {})}
        messages = [piece["message"] for piece in pieces]
        message: Json = {"role": "assistant", "content": "".join(each["content"] for each in messages)}
        if thinking := "".join(each.get("thinking", "") for each in messages):
            message["thinking"] = thinking
        if calls := [call for each in messages for call in each.get("tool_calls", ())]:
            message["tool_calls"] = calls
        return {**last, "message": message}

    def _piece(self, text: str = "", thinking: str = "", call: ToolCallDetected | None = None) -> Json:
        head: Json = {"model": self.model, "created_at": _now()}
        extra: Json = {"thinking": thinking} if thinking else {}
        if not self.is_chat:
            return {**head, "response": text, **extra, "done": False}
        if call is not None:
            function = {"index": self._calls, "name": call.name, "arguments": dict(call.arguments)}
            # Ollama writes the index into the function; LiteLLM, whose calls would run together, looks for it here.
            extra["tool_calls"] = [{"index": self._calls, "id": call.id, "function": function}]
        return {**head, "message": {"role": "assistant", "content": text, **extra}, "done": False}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)
