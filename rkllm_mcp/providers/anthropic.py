"""Models with Anthropic's Messages interface, through Anthropic's SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rkllm_mcp.events import Usage
from rkllm_mcp.messages import Conversation, as_mapping
from rkllm_mcp.protocols import EventSink
from rkllm_mcp.providers.remote import NO_KEY, ReadChunk, RemoteModel, Round, Sdk, client_of
from rkllm_mcp.providers.remote_settings import RemoteSettings
from rkllm_mcp.providers.stream_parts import CallPart, FinishPart, StreamPart, TextPart, ThinkingPart, UsagePart
from rkllm_mcp.providers.tool_schemas import wire_schema
from rkllm_mcp.providers.turn_builder import TurnBuilder
from rkllm_mcp.providers.wire_messages import WireNames, WireTurn, as_count, wire_id
from rkllm_mcp.sampling import names_in

# Default for max_tokens, which the interface requires.
DEFAULT_MAX_TOKENS = 4096
Thoughts: TypeAlias = tuple[Mapping[str, Any], ...]
"""Thinking blocks as received, with signatures."""

_STOPS: Mapping[str, FinishPart] = {
    "max_tokens": FinishPart("length"),
    "model_context_window_exceeded": FinishPart("length"),
    "refusal": FinishPart("withheld"),
}
# The system text is the same in every round and is billed at the cached price.
_CACHED = {"type": "ephemeral"}


@dataclass(eq=False)
class EventReader:
    """Parses the stream of one answer and stores its thinking blocks."""

    blocks: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])  # of thinking, by index
    _prompt: int = 0
    _cached: int = 0

    def pieces_of(self, event: Mapping[str, Any]) -> Iterator[StreamPart]:
        """Yield the parts of one event; invalid and unknown events are skipped."""
        kind, position = event.get("type"), event.get("index")
        index = position if isinstance(position, int) else 0
        if kind in {"message_start", "message_delta"}:
            usage = as_mapping(event.get("usage") or as_mapping(event.get("message")).get("usage"))
            if usage:
                # Prompt tokens come first, output tokens increase.
                read = as_count(usage.get("cache_read_input_tokens"))
                prompt = as_count(usage.get("input_tokens")) + read
                prompt += as_count(usage.get("cache_creation_input_tokens"))
                self._prompt, self._cached = max(self._prompt, prompt), max(self._cached, read)
                yield UsagePart(self._prompt, self._cached, as_count(usage.get("output_tokens")))
            reason = as_mapping(event.get("delta")).get("stop_reason")
            if isinstance(reason, str):
                yield _STOPS.get(reason, FinishPart("end"))
        elif kind == "content_block_start":
            started = as_mapping(event.get("content_block"))
            block_kind = started.get("type")
            if block_kind == "text" and started.get("text"):
                yield TextPart(str(started["text"]))
            elif block_kind in {"thinking", "redacted_thinking"}:
                self.blocks[index] = dict(started)
            elif block_kind == "tool_use":
                written = started.get("input")
                # Compatible services may send the arguments with the start of the block.
                arguments = json.dumps(written, ensure_ascii=False) if written else ""
                yield CallPart(index, str(started.get("id") or ""), str(started.get("name") or ""), arguments)
        elif kind == "content_block_delta":
            delta = as_mapping(event.get("delta"))
            delta_kind = delta.get("type")
            if delta_kind == "text_delta" and delta.get("text"):
                yield TextPart(str(delta["text"]))
            elif delta_kind == "thinking_delta" and delta.get("thinking"):
                block = self.blocks.setdefault(index, {"type": "thinking", "thinking": ""})
                block["thinking"] = f"{block.get('thinking', '')}{delta['thinking']}"
                yield ThinkingPart(str(delta["thinking"]))
            elif delta_kind == "signature_delta":
                block = self.blocks.setdefault(index, {"type": "thinking", "thinking": ""})
                block["signature"] = delta.get("signature")
            elif delta_kind == "input_json_delta":
                yield CallPart(index, arguments=str(delta.get("partial_json") or ""))


def _message(turn: WireTurn, names: WireNames, thoughts: Mapping[str, Thoughts]) -> dict[str, Any]:
    words = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
    if turn.role == "assistant":
        before = thoughts.get(wire_id(turn.calls[0].id), ()) if turn.calls else ()
        calls = (
            {"type": "tool_use", "id": wire_id(call.id), "name": names.wire(call.name), "input": dict(call.arguments)}
            for call in turn.calls
        )
        return {"role": "assistant", "content": [*before, *words, *calls]}
    results: list[dict[str, Any]] = []
    for result in turn.results:
        results.append({"type": "tool_result", "tool_use_id": wire_id(result.call_id)})
        # The service rejects an empty text block, but accepts a result without content.
        if result.text.strip():
            results[-1]["content"] = result.text
        if result.is_error:
            results[-1]["is_error"] = True
    return {"role": "user", "content": [*results, *words]}


class AnthropicModel(RemoteModel):
    """A ``StatefulModel`` on a service with Anthropic's interface."""

    def __init__(self, service: RemoteSettings) -> None:
        super().__init__(service)
        self._readers: dict[str, EventReader] = {}
        # Thinking blocks before the calls of the running answer: they must be sent back with the results.
        self._thoughts: dict[str, dict[str, Thoughts]] = {}

    def over(self, conversation_id: str) -> None:
        """Drop the thinking blocks: only the answer that produced them needs them."""
        self._readers.pop(conversation_id, None)
        self._thoughts.pop(conversation_id, None)

    def _load(self) -> Sdk:
        import anthropic

        # Compatible services read the key from this header; the SDK now sends it in another one.
        headers = {} if self.service.is_vendors_own else {"X-Api-Key": self.service.api_key or NO_KEY}
        client = client_of(anthropic, anthropic.AsyncAnthropic, self.service, headers)
        return Sdk(anthropic, anthropic.AnthropicError, client.messages.create, client.close)

    def _request(self, model_round: Round, conversation: Conversation) -> tuple[dict[str, Any], ReadChunk]:
        options, names = model_round.options, model_round.names
        # By the wire id of the first call that followed them.
        thoughts = self._thoughts.get(conversation.id, {})
        body: dict[str, Any] = {
            "model": self.service.model,
            "max_tokens": options.max_new_tokens or DEFAULT_MAX_TOKENS,
            "messages": [_message(turn, names, thoughts) for turn in model_round.turns],
        }
        if model_round.system:
            body["system"] = [{"type": "text", "text": model_round.system, "cache_control": _CACHED}]
        if options.stop:
            body["stop_sequences"] = list(options.stop)
        sampling = options.sampling.values_by_option()
        body |= {name: sampling[option] for name, option in names_in("anthropic").items() if option in sampling}
        if "temperature" in body:
            body["temperature"] = min(body["temperature"], 1.0)  # the interface's maximum
        if model_round.tools:
            body["tools"] = [
                {
                    "name": names.wire(tool.name),
                    "description": tool.description,
                    "input_schema": wire_schema(tool.input_schema),
                }
                for tool in model_round.tools
            ]
            choice: dict[str, Any] = {"type": "any" if options.tool_choice == "required" else "auto"}
            if options.tool_choice == "none":
                choice = {"type": "none"}
            elif options.forced_tool is not None:
                choice = {"type": "tool", "name": names.wire(options.forced_tool)}
            if options.single_call and options.tool_choice != "none":
                choice["disable_parallel_tool_use"] = True
            if choice != {"type": "auto"}:
                body["tool_choice"] = choice
        reader = self._readers[conversation.id] = EventReader()
        # The interface requires max_tokens, even of a service that rejected it.
        refused = self._refused - {"max_tokens"}
        return {key: part for key, part in body.items() if key not in refused}, reader.pieces_of

    async def _request_turn(
        self, conversation: Conversation, model_round: Round, turn: TurnBuilder, sink: EventSink
    ) -> Usage:
        usage = await super()._request_turn(conversation, model_round, turn, sink)
        # Only those of a complete round are sent back.
        reader = self._readers.pop(conversation.id, None)
        blocks = () if reader is None else reader.blocks.values()
        thoughts = tuple(block for block in blocks if block.get("signature") or block.get("data"))
        if thoughts and turn.calls:
            self._thoughts.setdefault(conversation.id, {})[wire_id(turn.calls[0].id)] = thoughts
        return usage
