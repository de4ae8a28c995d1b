"""Ollama's bodies become OpenAI's, which ``openai_request`` reads: the two differ in spelling, not in meaning.

The one thing that most of Ollama's programs leave out is the id of a call. Calls are numbered through the conversation
in the order in which they stand, which is how this service numbers those it makes, so that a conversation is known
again; a result belongs to the open call whose id it names, else to the first one of its tool, or to the first one of
all where it names none.
"""

from __future__ import annotations

from collections.abc import Sequence

from rkllm_mcp.completions.ollama_body import OllamaCall, OllamaChat, OllamaGenerate, OllamaMessage, OllamaRequest
from rkllm_mcp.completions.openai_body import (
    BodyMessage,
    CalledFunction,
    ChatBody,
    JsonSchemaFormat,
    MessageCall,
    ResponseFormat,
)
from rkllm_mcp.completions.request import RequestRefusedError

# Higher ones mean to other runtimes what 2 means here: choose among everything.
MOST_TEMPERATURE = 2.0
MOST_PENALTY = 2.0


def chat_body(body: OllamaChat) -> ChatBody:
    """The same request in OpenAI's shape.

    Raises:
        RequestRefusedError: a field that cannot be what it is.
    """
    return _body(body, _Numbered().messages(body.messages)).model_copy(
        update={"tools": body.tools, "mcp": body.mcp, "tokens": body.tokens}
    )


def generate_body(body: OllamaGenerate) -> ChatBody:
    """The same request in OpenAI's shape: a system text, if there is one, and one question.

    Raises:
        RequestRefusedError: a field that cannot be what it is.
    """
    refusals = {
        "suffix": (body.suffix, "this model does not fill gaps; leave it out"),
        "raw": (body.raw, "the model's own template is always used; leave it out"),
        "template": (body.template, "the model's own template is always used; leave it out"),
    }
    for name, (is_asked, advice) in refusals.items():
        if is_asked:
            raise RequestRefusedError(f"{name} cannot be done: {advice}", name, "unsupported_parameter")
    _refuse_images(body.images, "images")
    system = [BodyMessage(role="system", content=body.system)] if body.system else []
    return _body(body, [*system, BodyMessage(role="user", content=body.prompt)])


def _body(body: OllamaRequest, messages: list[BodyMessage]) -> ChatBody:
    options = body.options
    chat = ChatBody(messages=messages, model=body.model, response_format=_form(body.format))
    if body.think is not None:
        chat = chat.model_copy(update={"thinking": body.think is not False})
    if options is None:
        return chat
    predict = options.num_predict
    update = {
        "max_tokens": predict if predict is not None and predict > 0 else None,
        "temperature": None if options.temperature is None else min(options.temperature, MOST_TEMPERATURE),
        "top_p": options.top_p,
        "top_k": options.top_k,
        "repetition_penalty": options.repeat_penalty,
        "presence_penalty": _limited(options.presence_penalty),
        "frequency_penalty": _limited(options.frequency_penalty),
        "stop": options.stop,
    }
    return chat.model_copy(update=update)


def _limited(penalty: float | None) -> float | None:
    return None if penalty is None else max(-MOST_PENALTY, min(penalty, MOST_PENALTY))


def _form(form: str | dict[str, object] | None) -> ResponseFormat | None:
    if form is None or form == "":
        return None
    if isinstance(form, dict):
        return ResponseFormat(
            type="json_schema", json_schema=JsonSchemaFormat.model_validate({"name": "answer", "schema": form})
        )
    if form == "json":
        return ResponseFormat(type="json_object")
    raise RequestRefusedError(f"{form!r} is no format; send json, or a JSON Schema", "format")


def _refuse_images(images: Sequence[str] | None, where: str) -> None:
    if images:
        raise RequestRefusedError("this model reads text; leave the images out", where, "unsupported_content")


class _Numbered:
    """Gives calls their numbers."""

    def __init__(self) -> None:
        self._made = 0
        # Calls without a result, in order: the number, the tool's name, and the id by which the program knows it.
        self._open: list[tuple[str, str, str]] = []

    def messages(self, messages: Sequence[OllamaMessage]) -> list[BodyMessage]:
        """All messages, without results at the front: a program that leaves out the past may cut behind their calls."""
        begun = next((index for index, message in enumerate(messages) if message.role in {"user", "assistant"}), 0)
        kept = ((index, message) for index, message in enumerate(messages) if index >= begun or message.role != "tool")
        return [self._message(message, f"messages[{index}]") for index, message in kept]

    def _message(self, message: OllamaMessage, where: str) -> BodyMessage:
        _refuse_images(message.images, f"{where}.images")
        content = message.content or ""
        if message.role == "tool":
            return BodyMessage(role="tool", content=content, tool_call_id=self._answered(message, where))
        calls = [self._call(call) for call in message.tool_calls or ()] if message.role == "assistant" else []
        return BodyMessage(role=message.role, content=content, tool_calls=calls or None)

    def _call(self, call: OllamaCall) -> MessageCall:
        self._made += 1
        call_id = f"call_{self._made}"
        # A program that leaves the id out of the call may still name it in the result: it is the one that it was told.
        self._open.append((call_id, call.function.name, call.id or call_id))
        return MessageCall(
            id=call_id, function=CalledFunction(name=call.function.name, arguments=call.function.arguments)
        )

    def _answered(self, message: OllamaMessage, where: str) -> str:
        named = (each for each in self._open if message.tool_call_id == each[2])
        matching = (each for each in self._open if message.tool_name in (None, "", each[1]))
        found = next(named, None) or next(matching, None)
        if found is None:
            of = f" of {message.tool_name!r}" if message.tool_name else ""
            raise RequestRefusedError(
                f"there is no open call{of} that this would be the result of; send results behind the assistant's "
                "message with the calls",
                where,
            )
        self._open.remove(found)
        return found[0]
