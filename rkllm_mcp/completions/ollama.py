"""Ollama's bodies -> ``ChatRequest``; the events of an answer -> Ollama's response objects."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from rkllm_mcp.completions import api
from rkllm_mcp.completions.content import content_text
from rkllm_mcp.completions.reply import Json, Part, Reply, ReplyShape
from rkllm_mcp.completions.request import (
    ChatRequest,
    HistoryCall,
    MessageHistory,
    RequestContext,
    RequestRefusedError,
    answer_form,
    client_tools,
    model_options,
)
from rkllm_mcp.completions.structured_output import ResponseFormat
from rkllm_mcp.events import ToolCallDetected, to_json
from rkllm_mcp.sampling import overrides_of

_NS_PER_MS = 1_000_000


class OllamaCalled(api.ApiBody):
    """The function of a call; the arguments are an object, not a text."""

    name: str
    arguments: str | dict[str, Any] | list[Any] | None = None


class OllamaCall(api.ApiBody):
    """A call in an assistant's message."""

    id: str | None = None
    function: OllamaCalled


class OllamaMessage(api.ApiBody):
    """One message."""

    role: api.Role
    # A content in parts, as OpenAI's API has it, is the text of them.
    content: Annotated[
        str | None,
        BeforeValidator(
            lambda value: value if value is None else content_text(api.content_parts(value)),
            json_schema_input_type=api.LooseContent,
        ),
    ] = ""
    images: list[str] | None = None
    tool_calls: Annotated[list[OllamaCall], Field(max_length=api.MOST_TOOLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaOptions(api.add_sampling(api.ApiBody, "ollama")):
    """Options of the answer."""

    IGNORED = (
        *("draft_num_predict", "low_vram", "main_gpu", "min_p", "mirostat", "mirostat_eta", "mirostat_tau"),
        *("num_batch", "num_ctx", "num_gpu", "num_keep", "num_thread", "numa", "penalize_newline", "repeat_last_n"),
        *("seed", "tfs_z", "typical_p", "use_mlock", "use_mmap"),
    )

    # -1 and -2 mean "no limit" and "to the end of the context".
    num_predict: api.Integer | None = None
    stop: str | list[str] | None = None


class OllamaRequest(api.WholeBody):
    """Fields that both requests share."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "logprobs": api.LOGPROBS,
        "top_logprobs": api.LOGPROBS,
        "template": api.TEMPLATE,
        **dict.fromkeys([*OllamaOptions.model_fields], ("it is one of the options; send it in options",)),
        **api.belongs_to("/v1/chat/completions", "max_tokens", instead="send num_predict in options"),
        **api.belongs_to("/v1/chat/completions", "response_format", instead="send format"),
        **api.belongs_to("/v1/chat/completions", "reasoning_effort", "chat_template_kwargs", instead="send think"),
        **api.GRAMMARS,
        **api.OF_OTHER_SERVERS,
    }

    model: Annotated[str, Field(min_length=1)]
    stream: bool | None = None
    # "json", or a JSON Schema.
    format: str | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: api.ThinkLevel | None = None
    keep_alive: Annotated[str | float | None, BeforeValidator(lambda value: None if value == "" else value)] = None
    logprobs: bool | None = None
    top_logprobs: api.Integer | None = None


class OllamaChat(OllamaRequest):
    """POST /api/chat."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **OllamaRequest.REFUSED,
        **api.belongs_to("/api/generate", "system", instead="send a message of the role system"),
        **api.belongs_to("/api/generate", "prompt", instead="send messages"),
        "tool_choice": ("it belongs to POST /v1/chat/completions; ask that", "auto"),
    }
    messages: list[OllamaMessage] = Field(default_factory=list[OllamaMessage], max_length=api.MOST_MESSAGES)
    tools: api.Tools | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: api.Tokens | None = None


class OllamaGenerate(OllamaRequest):
    """POST /api/generate."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **OllamaRequest.REFUSED,
        "suffix": api.NO_GAPS,
        "raw": api.TEMPLATE,
        **api.belongs_to("/api/chat", "messages", "tools", instead="ask that"),
    }
    IGNORED = ("context", "height", "steps", "width")

    prompt: str = ""
    system: str | None = None
    suffix: str | None = None
    template: str | None = None
    raw: bool | None = None
    images: list[str] | None = None


def ollama_request(body: OllamaChat | OllamaGenerate, context: RequestContext) -> ChatRequest:
    """Return the request of a body; a RequestRefusedError names a field that cannot be honoured."""
    api.refuse_impossible(body)
    chat = body if isinstance(body, OllamaChat) else None
    tools = client_tools(api.declarations((chat and chat.tools) or ()))
    history = MessageHistory(tools, context, numbers_calls=True)
    if isinstance(body, OllamaChat):
        messages = body.messages
    else:
        system = [OllamaMessage(role="system", content=body.system)] if body.system else []
        messages = [*system, OllamaMessage(role="user", content=body.prompt, images=body.images)]
    for index, message in enumerate(messages):
        calls = (HistoryCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
        content: str | list[Json] = message.content or ""
        if message.images:
            # They are bare base64, and come before the text.
            images: list[Json] = [{"type": "image", "data": image} for image in message.images]
            content = [*images, {"type": "text", "text": content}]
        history.add(
            message.role,
            content,
            f"messages[{index}]",
            name=message.tool_name if message.role == "tool" else None,
            calls=calls,
            call_id=message.tool_call_id,
            is_question=index == len(messages) - 1,
        )
    if body.format == "json":
        form = ResponseFormat()
    elif isinstance(body.format, str) and body.format:
        raise RequestRefusedError(f"{body.format!r} is no format; send json, or a JSON Schema", "format")
    else:
        schema = body.format if isinstance(body.format, dict) else None
        form = None if schema is None else answer_form("json_schema", schema, context.check_schema, "format")
    host_tools = context.runs_host_tools(tools, chat and chat.mcp)
    sent = body.options or OllamaOptions()
    options = model_options(
        limit=sent.num_predict, sampling=overrides_of(sent, ("ollama",)), thinking=body.think, stop=sent.stop
    )
    options = replace(options, continues=history.ends_with_answer)
    return ChatRequest(history.messages(), tools, options, form, host_tools, tokens=(chat and chat.tokens) or {})


def _line(value: Json) -> str:
    return f"{to_json(value)}\n"


@dataclass(eq=False)
class OllamaShape(ReplyShape):
    """The objects of ``reply``, one a line; the text is part of a message (``is_chat``) or a response (generate)."""

    reply: Reply
    is_chat: bool
    to_record = staticmethod(_line)
    _calls: int = field(default=0, init=False)
    _started: float = field(default_factory=time.monotonic, init=False)

    def piece(self, part: Part) -> str:
        """Return the object of a piece."""
        if part.kind == "thinking":
            return _line(self._piece(thinking=part.pieces[-1]))
        if part.call is None:
            return _line(self._piece(part.pieces[-1]))
        self._calls += 1
        return _line(self._piece(calls=[_call_body(part.call, self._calls - 1)])) if self.is_chat else ""

    def finish(self) -> str:
        """Return the last object: end and usage."""
        return _line({**self._piece(), **self._figures()})

    def whole(self) -> Json:
        """Return everything as one object."""
        reply = self.reply
        calls = [_call_body(call, index) for index, (call, _) in enumerate(reply.calls)] if self.is_chat else []
        return {**self._piece(reply.text("text"), reply.text("thinking"), calls), **self._figures()}

    def nothing(self, reason: str) -> Json:
        """Return the response to a request without a question, which loads or unloads the model (a no-op here)."""
        return {**self._piece(), "done": True, "done_reason": reason}

    def _figures(self) -> Json:
        reply = self.reply
        return {
            "done": True,
            "done_reason": "length" if reply.is_cut else "stop",
            "total_duration": round((time.monotonic() - self._started) * 1000 * _NS_PER_MS),
            "load_duration": 0,
            "prompt_eval_count": reply.prompt_tokens,
            "prompt_eval_cached_count": reply.cached_tokens,
            "prompt_eval_duration": round(reply.prefill_ms * _NS_PER_MS),
            "eval_count": reply.generated_tokens,
            "eval_duration": round(reply.decode_ms * _NS_PER_MS),
        }

    def _piece(self, text: str = "", thinking: str = "", calls: Sequence[Json] = ()) -> Json:
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        head: Json = {"model": self.reply.model, "created_at": now}
        extra: Json = {"thinking": thinking} if thinking else {}
        if not self.is_chat:
            return {**head, "response": text, **extra, "done": False}
        if calls:
            extra["tool_calls"] = list(calls)
        return {**head, "message": {"role": "assistant", "content": text, **extra}, "done": False}


def _call_body(call: ToolCallDetected, index: int) -> Json:
    function = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    # Ollama writes the index into the function; LiteLLM, whose calls would run together, looks for it here.
    return {"index": index, "id": call.id, "function": function}
