"""Ollama's requests -> OpenAI's request body; the events of an answer -> Ollama's response objects."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from rkllm_mcp.completions import openai_types as openai
from rkllm_mcp.completions.content import content_text
from rkllm_mcp.completions.openai_request import Translated, is_thinking_level, refuse_impossible, schema_form
from rkllm_mcp.completions.reply import Json, Part, Reply, ReplyShape
from rkllm_mcp.completions.request import RequestRefusedError
from rkllm_mcp.config.section import keep_alive_s
from rkllm_mcp.events import ToolCallDetected, to_json


def _joined_text(value: Any) -> Any:
    """Return the text of a content in parts, as OpenAI's API has it; other values as they are."""
    return value if value is None or isinstance(value, str) else content_text(openai.content_parts(value))


class OllamaCalled(openai.OpenAIBody):
    """The function of a call; the arguments are an object, not a text."""

    name: str
    arguments: str | dict[str, Any] | list[Any] | None = None


class OllamaCall(openai.OpenAIBody):
    """A call in an assistant's message."""

    id: str | None = None
    function: OllamaCalled


class OllamaMessage(openai.OpenAIBody):
    """One message."""

    role: openai.Role
    content: Annotated[
        str | None,
        BeforeValidator(_joined_text, json_schema_input_type=openai.LooseContent),
    ] = ""
    images: list[str] | None = None
    tool_calls: Annotated[list[OllamaCall], Field(max_length=openai.MOST_TOOLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaOptions(openai.OpenAIBody):
    """Options of the answer."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: openai.Integer | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    # -1 and -2 mean "no limit" and "to the end of the context".
    num_predict: openai.Integer | None = None
    stop: str | list[str] | None = None
    repeat_penalty: Annotated[float, Field(gt=0)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


_TEMPLATE = ("the model's own template is always used; leave it out",)


class OllamaRequest(openai.OpenAIBody):
    """Fields that both requests share."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        name: openai.ChatBody.REFUSED[name] for name in ("logprobs", "top_logprobs")
    }

    model: Annotated[str, Field(min_length=1)]
    stream: bool | None = None
    # "json", or a JSON Schema.
    format: str | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: openai.ThinkLevel | None = None
    keep_alive: Annotated[str | float | None, BeforeValidator(lambda value: None if value == "" else value)] = None
    logprobs: bool | None = None
    top_logprobs: openai.Integer | None = None

    @property
    def unloads(self) -> bool:
        """The model is to be dropped, when nothing is asked."""
        return self.keep_alive is not None and keep_alive_s(self.keep_alive) == 0


class OllamaChat(OllamaRequest):
    """POST /api/chat."""

    messages: list[OllamaMessage] = Field(default_factory=list[OllamaMessage], max_length=openai.MOST_MESSAGES)
    tools: openai.Tools | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: openai.Tokens | None = None


class OllamaGenerate(OllamaRequest):
    """POST /api/generate."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **OllamaRequest.REFUSED,
        "suffix": openai.CompletionBody.REFUSED["suffix"],
        "raw": _TEMPLATE,
        "template": _TEMPLATE,
    }
    IGNORED = ("context", "height", "steps", "width")

    prompt: str = ""
    system: str | None = None
    suffix: str | None = None
    template: str | None = None
    raw: bool | None = None
    images: list[str] | None = None


# Higher values have the same meaning in other runtimes as 2 here: no restriction.
MOST_TEMPERATURE = 2.0
MOST_PENALTY = 2.0


def chat_body(body: OllamaChat) -> Translated:
    """Return the request as OpenAI's body; a RequestRefusedError names a field with an invalid value."""
    shared = {"tools": body.tools, "mcp": body.mcp, "tokens": body.tokens}
    return Translated(_body(body, _Numbered().messages(body.messages)).model_copy(update=shared))


def generate_body(body: OllamaGenerate) -> Translated:
    """Return the request as OpenAI's body, an optional system text and one question; see ``chat_body``."""
    system = [openai.BodyMessage(role="system", content=body.system)] if body.system else []
    content = _with_images(body.prompt, body.images) if body.images else body.prompt
    return Translated(_body(body, [*system, openai.BodyMessage(role="user", content=content)]))


def _with_images(text: str, images: Sequence[str]) -> list[openai.ContentPart]:
    """Return parts of a text behind its images, which are bare base64."""
    parts: list[dict[str, Any]] = [{"type": "image", "data": image} for image in images]
    return [openai.ContentPart.model_validate(part) for part in [*parts, {"type": "text", "text": text}]]


def _body(body: OllamaRequest, messages: list[openai.BodyMessage]) -> openai.ChatBody:
    refuse_impossible(body)
    options = body.options
    chat = openai.ChatBody(messages=messages, model=body.model, response_format=_form(body.format))
    if body.think is not None:
        chat = chat.model_copy(update={"thinking": is_thinking_level(body.think)})
    if options is None:
        return chat
    predict = options.num_predict
    update = {
        **options.model_dump(include={"top_p", "top_k", "repeat_penalty", "stop"}),
        "max_tokens": predict if predict is not None and predict > 0 else None,
        "temperature": None if options.temperature is None else min(options.temperature, MOST_TEMPERATURE),
        "presence_penalty": _limited(options.presence_penalty),
        "frequency_penalty": _limited(options.frequency_penalty),
    }
    return chat.model_copy(update=update)


def _limited(penalty: float | None) -> float | None:
    return None if penalty is None else max(-MOST_PENALTY, min(penalty, MOST_PENALTY))


def _form(form: str | dict[str, object] | None) -> openai.ResponseFormatBody | None:
    if form is None or form == "":
        return None
    if isinstance(form, dict):
        return schema_form(form)
    if form == "json":
        return openai.ResponseFormatBody(type="json_object")
    raise RequestRefusedError(f"{form!r} is no format; send json, or a JSON Schema", "format")


class _Numbered:
    def __init__(self) -> None:
        self._made = 0
        # Calls without a result, in order: id, tool name, and the client's id.
        self._open: list[tuple[str, str, str]] = []

    def messages(self, messages: Sequence[OllamaMessage]) -> list[openai.BodyMessage]:
        """Return the messages, each result with the id of its call."""
        return [self._message(message) for message in messages]

    def _message(self, message: OllamaMessage) -> openai.BodyMessage:
        content: str | list[openai.ContentPart] = message.content or ""
        if message.images:
            content = _with_images(message.content or "", message.images)
        if message.role == "tool":
            return openai.BodyMessage(role="tool", content=content, tool_call_id=self._answered(message))
        calls = [self._call(call) for call in message.tool_calls or ()] if message.role == "assistant" else []
        return openai.BodyMessage(role=message.role, content=content, tool_calls=calls or None)

    def _call(self, call: OllamaCall) -> openai.MessageCall:
        self._made += 1
        call_id = f"call_{self._made}"
        # A client may omit the id in the call and still send it in the result, as it received it.
        self._open.append((call_id, call.function.name, call.id or call_id))
        return openai.MessageCall(id=call_id, function=openai.CalledFunction(**call.function.model_dump()))

    def _answered(self, message: OllamaMessage) -> str:
        named = (each for each in self._open if message.tool_call_id == each[2])
        matching = (each for each in self._open if message.tool_name in (None, "", each[1]))
        found = next(named, None) or next(matching, None)
        if found is None:
            return message.tool_call_id or "none"
        self._open.remove(found)
        return found[0]


class OllamaShape(ReplyShape):
    """The objects of ``reply``, one a line; the text is part of a message (``is_chat``) or a response (generate)."""

    def __init__(self, reply: Reply, *, is_chat: bool) -> None:
        self._reply = reply
        self._is_chat = is_chat
        self._calls = 0
        self._started = time.monotonic()

    def piece(self, part: Part) -> str:
        """Return the object of a piece."""
        if part.kind == "thinking":
            return _line(self._piece(thinking=part.pieces[-1]))
        if part.call is None:
            return _line(self._piece(part.pieces[-1]))
        self._calls += 1
        return _line(self._piece(calls=[_call(part.call, self._calls - 1)])) if self._is_chat else ""

    def finish(self) -> str:
        """Return the last object: end and usage."""
        return _line({**self._piece(), **self._figures()})

    def failed(self, body: Json) -> str:
        """Return the error."""
        return _line(body)

    def whole(self) -> Json:
        """Return everything as one object."""
        reply = self._reply
        calls = [_call(call, index) for index, (call, _) in enumerate(reply.calls)] if self._is_chat else []
        return {**self._piece(reply.text("text"), reply.text("thinking"), calls), **self._figures()}

    def nothing(self, reason: str) -> Json:
        """Return the response to a request without a question, which loads or unloads the model (a no-op here)."""
        return {**self._piece(), "done": True, "done_reason": reason}

    def _figures(self) -> Json:
        reply = self._reply
        return {
            "done": True,
            "done_reason": "length" if reply.is_cut else "stop",
            "total_duration": _nanoseconds((time.monotonic() - self._started) * 1000),
            "load_duration": 0,
            "prompt_eval_count": reply.prompt_tokens,
            "prompt_eval_duration": _nanoseconds(reply.prefill_ms),
            "eval_count": reply.generated_tokens,
            "eval_duration": _nanoseconds(reply.decode_ms),
        }

    def _piece(self, text: str = "", thinking: str = "", calls: Sequence[Json] = ()) -> Json:
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        head: Json = {"model": self._reply.model, "created_at": now}
        extra: Json = {"thinking": thinking} if thinking else {}
        if not self._is_chat:
            return {**head, "response": text, **extra, "done": False}
        if calls:
            extra["tool_calls"] = list(calls)
        return {**head, "message": {"role": "assistant", "content": text, **extra}, "done": False}


def _call(call: ToolCallDetected, index: int) -> Json:
    function = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    # Ollama writes the index into the function; LiteLLM, whose calls would run together, looks for it here.
    return {"index": index, "id": call.id, "function": function}


def _line(value: Json) -> str:
    return f"{to_json(value)}\n"


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)
