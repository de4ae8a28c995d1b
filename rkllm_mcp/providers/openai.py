"""Models with OpenAI's interface (OpenAI, Ollama, llama.cpp, vLLM, another board), through OpenAI's SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rkllm_mcp.messages import Conversation, as_list, as_mapping
from rkllm_mcp.providers.remote import ReadChunk, RemoteModel, Round, Sdk, client_of
from rkllm_mcp.providers.stream_parts import CallPart, FinishPart, StreamPart, TextPart, ThinkingPart, UsagePart
from rkllm_mcp.providers.tool_schemas import wire_schema
from rkllm_mcp.providers.wire_messages import WireNames, WireTurn, as_count, wire_id
from rkllm_mcp.sampling import names_in

_STOPS: Mapping[str, FinishPart] = {"length": FinishPart("length"), "content_filter": FinishPart("withheld")}
# Fields in which services stream thinking.
_THINKING = ("reasoning_content", "reasoning")


def pieces_of(chunk: Mapping[str, Any]) -> Iterator[StreamPart]:
    """Yield the parts of one chunk; invalid values are skipped."""
    for choice in map(as_mapping, as_list(chunk.get("choices"))):
        delta = as_mapping(choice.get("delta"))
        texts = {key: text for key, text in delta.items() if isinstance(text, str) and text}
        thinking = next((texts[key] for key in _THINKING if key in texts), "")
        if thinking:
            yield ThinkingPart(thinking)
        yield from (TextPart(texts[key]) for key in ("content", "refusal") if key in texts)
        for position, call in enumerate(map(as_mapping, as_list(delta.get("tool_calls")))):
            function = as_mapping(call.get("function"))
            index, arguments = call.get("index"), function.get("arguments")
            if isinstance(arguments, dict):
                # Some services send the arguments as one JSON object.
                arguments = json.dumps(arguments)
            yield CallPart(
                index=index if isinstance(index, int) else position,
                id=str(call.get("id") or ""),
                name=str(function.get("name") or ""),
                arguments=arguments if isinstance(arguments, str) else "",
            )
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            yield _STOPS.get(reason, FinishPart("end"))
    usage = as_mapping(chunk.get("usage"))
    if usage:
        cached = as_count(as_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
        yield UsagePart(as_count(usage.get("prompt_tokens")), cached, as_count(usage.get("completion_tokens")))


def _messages(turn: WireTurn, names: WireNames) -> Iterator[dict[str, Any]]:
    if turn.role == "assistant":
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": wire_id(call.id),
                    "type": "function",
                    "function": {
                        "name": names.wire(call.name),
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in turn.calls
            ]
        yield message
        return
    for result in turn.results:
        # The interface has no error flag; models on the NPU read the same text.
        text = f"Error: {result.text}" if result.is_error else result.text
        yield {"role": "tool", "tool_call_id": wire_id(result.call_id), "content": text}
    if turn.text:
        yield {"role": "user", "content": turn.text}


class OpenAIModel(RemoteModel):
    """A ``StatefulModel`` on a service with OpenAI's interface."""

    def _load(self) -> Sdk:
        import openai

        # The SDK reads an organisation from the environment, which must not be sent to other services.
        hidden = () if self.service.is_vendors_own else ("OpenAI-Organization", "OpenAI-Project")
        headers = {name: openai.Omit() for name in hidden}
        client = client_of(openai, openai.AsyncOpenAI, self.service, headers)
        return Sdk(openai, openai.OpenAIError, client.chat.completions.create, client.close)

    def _request(self, model_round: Round, conversation: Conversation) -> tuple[dict[str, Any], ReadChunk]:
        del conversation
        service, options, names, refused = self.service, model_round.options, model_round.names, self._refused
        messages: list[dict[str, Any]] = []
        if model_round.system:
            messages.append({"role": "system", "content": model_round.system})
        for turn in model_round.turns:
            messages += _messages(turn, names)
        body: dict[str, Any] = {
            "model": service.model,
            "messages": messages,
            "stream_options": {"include_usage": True},
        }
        if options.max_new_tokens is not None:
            # OpenAI's newer models reject the old name, older services do not know the new one.
            keys = ("max_completion_tokens", "max_tokens")
            ordered = keys if service.is_vendors_own else keys[::-1]
            body[next((key for key in ordered if key not in refused), ordered[0])] = options.max_new_tokens
        if service.preset.takes_sampling:
            sampling = options.sampling.values_by_option()
            body |= {name: sampling[option] for name, option in names_in("openai").items() if option in sampling}
        thinking = service.thinking if options.thinking is None else options.thinking
        if thinking is not None and service.preset.switches_thinking:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        if options.stop:
            body["stop"] = list(options.stop)
        if model_round.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names.wire(tool.name),
                        "description": tool.description,
                        "parameters": wire_schema(tool.input_schema),
                    },
                }
                for tool in model_round.tools
            ]
            if options.forced_tool is not None:
                body["tool_choice"] = {"type": "function", "function": {"name": names.wire(options.forced_tool)}}
            elif options.tool_choice != "auto":
                body["tool_choice"] = options.tool_choice
            if options.single_call:
                body["parallel_tool_calls"] = False
        return {key: part for key, part in body.items() if key not in refused}, pieces_of
