"""OpenAI's request body -> ``ChatRequest``, or an error that names the field and what to send instead.

Follows OpenAI's API reference, chat completions. System texts at the front are joined into one; a later one precedes
the next user text.

One odd thing costs only itself: a tool that cannot be used is left out, with a line in the log, and a history is
repaired, because a client cannot change its past messages. Only the question itself can be refused.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast

from rkllm_mcp.completions import openai_types as openai
from rkllm_mcp.completions.content import (
    content_text,
    image_of,
    images_of,
    is_image,
    is_unreadable,
    without_images,
)
from rkllm_mcp.completions.request import ChatRequest, RequestRefusedError
from rkllm_mcp.completions.structured_output import MOST_SCHEMA_CHARS, ResponseFormat, SchemaCheck
from rkllm_mcp.generation import ForcedTool, ModelOptions, SamplingOverrides
from rkllm_mcp.messages import Message, Picture, ToolCall, ToolResult, ToolSpec, safe_name, shown_names
from rkllm_mcp.toolcalls.lenient_json import UnreadableError, read_value
from rkllm_mcp.toolcalls.schemas import SchemaCostError, SchemaError, arguments_schema, measure_schema

logger = logging.getLogger(__name__)

# OpenAI accepts four; clients of other servers send one for every role name.
MOST_STOPS = 16
_SYSTEM_ROLES = frozenset({"system", "developer"})
_NO_THINKING = frozenset({"none", "minimal", "off", "false", "disabled"})
# A line that Claude Code puts before its system text, with a number that changes: everything behind it would be read
# again in each session.
_CHANGING_LINE = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")
_NO_RESULT = "(no result)"
# Arguments in one request that are repaired; each character takes about a microsecond.
_MOST_REPAIRED_CHARS = 65_536


@dataclass(frozen=True)
class Translated:
    """A request of any API as OpenAI's body."""

    body: openai.ChatBody
    places: Sequence[str] = ()  # where each message stands in the client's own body
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # OpenAI's names of fields, and the client's
    # The configured servers whose tools the answer may use, each with the names of those tools, or all.
    servers: Mapping[str, Sequence[str] | None] = field(default_factory=dict[str, "Sequence[str] | None"])

    def param(self, param: str) -> str:
        """Return the client's name of a field."""
        if self.places and (match := _MESSAGE.match(param)):
            return self.places[int(match.group(1))] + match.group(2)
        for name, client_name in self.names.items():
            param = param.replace(name, client_name)
        return param


_MESSAGE = re.compile(r"messages\[(\d+)\](\.content\[.*)?")


@lru_cache(maxsize=256)
def _log_once(line: str) -> None:
    """Write a line to the log; programs send the same with every request."""
    logger.warning("%s", line)


def refuse_impossible(body: openai.OpenAIBody) -> None:
    """Raise a RequestRefusedError if a body asks for something of its ``REFUSED``."""
    for name, (advice, *harmless) in body.REFUSED.items():
        value = getattr(body, name, None)
        if value and value not in harmless:
            raise RequestRefusedError(f"{name} cannot be done: {advice}", name, "unsupported_parameter")


def completion_body(body: openai.CompletionBody) -> Translated:
    """Return a request for a text completion as OpenAI's chat body; see ``chat_request`` for errors."""
    refuse_impossible(body)
    shared = body.model_dump(include={*openai.SamplingBody.model_fields}, exclude_none=True)
    shared["stream_options"] = body.stream_options
    chat = openai.ChatBody(messages=[openai.BodyMessage(role="user", content=body.text)]).model_copy(update=shared)
    return Translated(chat, ["prompt"], {"messages": "prompt"})


def chat_request(
    translated: Translated, check: SchemaCheck, *, host_tools: bool = False, sees: bool = False
) -> ChatRequest:
    """Return the request of a body, or refuse it by its field.

    ``host_tools`` counts if the body does not say; ``sees`` is True for a model that takes pictures.
    """
    try:
        return _chat_request(translated.body, check, host_tools=host_tools, sees=sees)
    except RequestRefusedError as error:
        error.param = translated.param(error.param)
        raise


def _chat_request(body: openai.ChatBody, check: SchemaCheck, *, host_tools: bool, sees: bool) -> ChatRequest:
    refuse_impossible(body)
    if isinstance(body.tool_choice, openai.AllowedChoice):
        body = _allowed(body, body.tool_choice.allowed_tools)
    tools = _tools(body.tools or ())
    runs_host_tools = not tools and (host_tools if body.mcp is None else body.mcp)
    reading = _Reading({tool.wire_name or tool.name: tool.name for tool in tools}, sees=sees)
    for index, message in enumerate(body.messages):
        reading.take(message, f"messages[{index}]", is_question=index == len(body.messages) - 1)
    messages = reading.finish()
    if not messages:
        raise RequestRefusedError("no message says anything; send a question", "messages")
    return ChatRequest(
        messages=messages,
        tools=tools,
        options=_options(body, tools, is_forcible=runs_host_tools),
        form=_form(body.response_format, check),
        host_tools=runs_host_tools,
        tokens=body.tokens or {},
    )


def _allowed(body: openai.ChatBody, allowed: openai.AllowedTools) -> openai.ChatBody:
    """Return the body with the tools that may be called; without any, none is called."""
    names = {tool.function.name for tool in allowed.tools if tool.function is not None}
    left = [tool for tool in body.tools or () if tool.function is not None and tool.function.name in names]
    return body.model_copy(update={"tools": left} if left else {"tool_choice": "none"})


# Name, description and schema of a client's tool.
Declared: TypeAlias = tuple[str, str | None, object]


def checked_tools(
    declared: Sequence[Declared], servers: Collection[str], hosted: Sequence[tuple[str, str]] = ()
) -> list[openai.DeclaredTool]:
    """Return a client's tools; a request with both tools and servers is refused.

    ``hosted`` are tools that run at the vendor's, by type and place. They are left out, and refused without any other
    tool, because the client then expects what only they can do.
    """
    if declared and servers:
        message = "a request has either tools of its own or a server's; send them in two requests"
        raise RequestRefusedError(message, "tools", "unsupported_parameter")
    for kind, where in hosted:
        if not (declared or servers):
            raise hosted_tool(kind, where)
        _log_once(f"the hosted tool {kind!r} of a request does not run here and is left out")
    functions = (
        openai.DeclaredFunction(name=name, description=description, parameters=schema)
        for name, description, schema in declared
    )
    return [openai.DeclaredTool(type="function", function=function) for function in functions]


def hosted_tool(kind: str, where: str) -> RequestRefusedError:
    """Return the refusal of a tool that runs at the vendor's."""
    message = (
        f"the hosted tool {kind!r} does not run here; leave it out, offer a function of your own, or name a server of "
        'this service: {"type": "mcp", "server_label": NAME}'
    )
    return RequestRefusedError(message, where, "unsupported_tool")


def chosen_tool(name: str | None) -> openai.ChosenTool:
    """Return the choice of a tool by its name, or refuse the request if that is missing."""
    if name is None:
        raise RequestRefusedError("the tool to call has a name; send it", "tool_choice.name")
    return openai.ChosenTool(type="function", function=openai.ChosenFunction(name=name))


def schema_form(
    schema: Mapping[str, Any], name: str = "answer", description: str | None = None
) -> openai.ResponseFormatBody:
    """Return the form of an answer that matches a JSON Schema."""
    described = openai.JsonSchemaFormat.model_validate({"name": name, "schema": schema, "description": description})
    return openai.ResponseFormatBody(type="json_schema", json_schema=described)


def _options(body: openai.ChatBody, tools: Sequence[ToolSpec], *, is_forcible: bool) -> ModelOptions:
    choice, forced = body.tool_choice, None
    if isinstance(choice, openai.ChosenTool):
        choice, forced = None, choice.function.name
    elif isinstance(choice, openai.AllowedChoice):
        choice = choice.allowed_tools.mode
    names = {tool.wire_name or tool.name: tool.name for tool in tools}
    if not names and (choice == "required" or (forced is not None and not is_forcible)):
        raise RequestRefusedError("there is no tool to choose; send tools with tool_choice", "tool_choice")
    if names and forced is not None and forced not in names:
        raise RequestRefusedError(f"there is no tool {forced!r} among the tools; send it with them", "tool_choice")
    if choice == "required" and len(names) == 1:
        # The model need not write the name of the only tool.
        (forced,) = names
    limit = body.max_completion_tokens or body.max_tokens
    return ModelOptions(
        max_new_tokens=None if limit is None or limit < 0 else limit,
        sampling=_sampling(body),
        stop=_stops(body.stop),
        thinking=_thinking(body),
        tool_choice=choice or "auto" if forced is None else ForcedTool(names.get(forced, forced)),
        single_call=body.parallel_tool_calls is False,
    )


def _sampling(body: openai.ChatBody) -> SamplingOverrides:
    # 0 and less mean all tokens to other servers; their effect in the runtime is not documented.
    top_k = body.top_k if body.top_k is None or body.top_k > 0 else None
    return SamplingOverrides(
        temperature=body.temperature,
        top_k=1 if body.top_p == 0 else top_k,
        top_p=body.top_p or None,
        repeat_penalty=body.repetition_penalty or body.repeat_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
    )


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    # Forms send an empty text for none, which would end every answer at once.
    stops = tuple(filter(None, (stop,) if isinstance(stop, str) else stop or ()))
    if len(stops) > MOST_STOPS:
        raise RequestRefusedError(f"stop has {len(stops)} texts; send {MOST_STOPS} at most", "stop")
    return stops


def _thinking(body: openai.ChatBody) -> bool | None:
    if isinstance(body.thinking, openai.ThinkingSwitch):
        return body.thinking.type != "disabled"
    if body.thinking is not None:
        return body.thinking
    if body.think is not None:
        return is_thinking_level(body.think)
    if body.chat_template_kwargs is not None and body.chat_template_kwargs.enable_thinking is not None:
        return body.chat_template_kwargs.enable_thinking
    return None if body.reasoning_effort is None else is_thinking_level(body.reasoning_effort)


def is_thinking_level(level: bool | str) -> bool:
    """Return True for a level at which the model thinks; a level that is not known here is one."""
    return level if isinstance(level, bool) else level.lower() not in _NO_THINKING


def _form(response_format: openai.ResponseFormatBody | None, check: SchemaCheck) -> ResponseFormat | None:
    if response_format is None or response_format.type == "text":
        return None
    described, where = response_format.json_schema, "response_format.json_schema.schema"
    if described is None and response_format.schema_ is not None:
        described, where = (
            openai.JsonSchemaFormat.model_validate({"schema": response_format.schema_}),
            "response_format.schema",
        )
    if response_format.type == "json_object" and described is None:
        return ResponseFormat()
    if described is None:
        message = "a json_schema belongs to this type; send its name and schema"
        raise RequestRefusedError(message, "response_format.json_schema")
    schema = described.schema_ or {}
    try:
        check(schema)
    except SchemaError as error:
        message = f"the schema of the answer cannot be used: {error}"
        raise RequestRefusedError(message, where, is_too_costly=isinstance(error, SchemaCostError)) from None
    return ResponseFormat(schema, described.description or "")


def _tools(declared: Sequence[openai.DeclaredTool]) -> tuple[ToolSpec, ...]:
    """Return the tools that can be used, under names that every model can write.

    ``wire_name`` is the client's own name where that is another one.
    """
    functions = [tool.function for tool in declared if tool.function is not None]
    written = sum(len(each.description or "") + len(json.dumps(each.parameters)) for each in functions)
    if written > MOST_SCHEMA_CHARS:
        message = f"the tools have {written} characters, and no prompt has room for so many; send fewer"
        raise RequestRefusedError(message, "tools", "context_length_exceeded")
    usable: dict[str, ToolSpec] = {}
    for function in functions:
        name = function.name
        problem = "it has no name" if not name else "there are two of this name" if name in usable else ""
        if not problem:
            schema = arguments_schema(function.parameters, partial(_log_once_of, name))
            try:
                measure_schema(schema)
            except SchemaCostError as error:
                problem = f"its parameters take too much work: {error}"
            else:
                usable[name] = ToolSpec(name, function.description or "", schema)
        if problem:
            _log_once(f"tool {name!r} of a request is left out: {problem}")
    names = shown_names([("", name) for name in usable])
    pairs = zip(usable.values(), names, strict=True)
    return tuple(tool if tool.name == name else replace(tool, name=name, wire_name=tool.name) for tool, name in pairs)


def _log_once_of(name: str, note: str) -> None:
    _log_once(f"tool {name!r} of a request: {note}")


_AS_DATA = (
    "addresses, paths and ids of pictures are not opened; send the picture itself, as base64 "
    "(data:image/jpeg;base64,… in image_url, or a source of the type base64)"
)


@dataclass(frozen=True)
class _OpenCall:
    """A call without a result."""

    sent_id: str  # the client's, by which its result names it
    id: str  # unique in its message
    name: str


@dataclass
class _Reading:
    # The names of the tools that the model is shown, by the client's own.
    names: Mapping[str, str]
    messages: list[Message] = field(default_factory=list[Message])
    # System texts at the front.
    front: list[str] = field(default_factory=list[str])
    # Later system texts, which precede the next user text.
    rules: list[str] = field(default_factory=list[str])
    open_calls: list[_OpenCall] = field(default_factory=list[_OpenCall])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    repairable_chars: int = _MOST_REPAIRED_CHARS
    sees: bool = False

    def take(self, message: openai.BodyMessage, where: str, *, is_question: bool) -> None:
        if message.role == "tool":
            self._take_result(message)
            return
        if is_question and message.role == "user":
            self._check_question(message, where)
        self._close_results()
        text, pictures = self._content(message)
        if message.role in _SYSTEM_ROLES:
            if not (self.messages or self.front):
                text = _CHANGING_LINE.sub("", text)
            if text:
                (self.rules if self.messages else self.front).append(text)
        elif message.role == "user":
            words = f"{message.name}: {text}" if message.name else text
            self.messages.append(Message("user", words, context=self._told_rules(), pictures=pictures))
        else:
            self._take_answer(message, text or message.refusal or "")

    def finish(self) -> tuple[Message, ...]:
        self._close_results()
        if self.rules:
            self.messages.append(Message("user", self._told_rules()))
        system = [Message("system", "\n\n".join(self.front))] if self.front else []
        return (*system, *self.messages)

    def _check_question(self, message: openai.BodyMessage, where: str) -> None:
        """Refuse a question that the model cannot read; a picture behind a tool's result is one of the tool's."""
        if message.content is None:
            raise RequestRefusedError("a message of this role has a content; send a text", f"{where}.content")
        if isinstance(message.content, str) or self.results or (self.messages and self.messages[-1].role == "tool"):
            return
        for index, part in enumerate(message.content):
            block = part.model_dump()
            if self.sees and is_image(block):
                if image_of(block) is None:
                    raise RequestRefusedError(_AS_DATA, f"{where}.content[{index}]", "unsupported_content")
            elif is_unreadable(block):
                refusal = f"this model reads text; send parts of the type text, not {part.type!r}"
                raise RequestRefusedError(refusal, f"{where}.content[{index}].type", "unsupported_content")

    def _content(self, message: openai.BodyMessage) -> tuple[str, tuple[Picture, ...]]:
        """Return the text of a message, and its pictures for a model that sees."""
        content = message.content
        if isinstance(content, str) or content is None:
            return content or "", ()
        blocks: list[Any] = [part.model_dump() for part in content]
        if not self.sees:
            return content_text(blocks), ()
        return content_text(without_images(blocks)), tuple(images_of(blocks))

    def _told_rules(self) -> str:
        rules, self.rules = self.rules, []
        return "\n\n".join(rules)

    def _take_answer(self, message: openai.BodyMessage, text: str) -> None:
        if self.rules:
            self.messages.append(Message("user", self._told_rules()))
        calls: list[ToolCall] = []
        for index, call in enumerate(message.tool_calls or ()):
            sent = call.id or f"call_of_{len(self.messages)}_{index}"
            is_taken = any(other.id == sent for other in self.open_calls)
            name = self.names.get(call.function.name) or safe_name(call.function.name)
            open_call = _OpenCall(sent, f"{sent}_{index}" if is_taken else sent, name)
            self.open_calls.append(open_call)
            calls.append(ToolCall(open_call.id, name, self._arguments(call.function.arguments)))
        self.messages.append(Message("assistant", text, calls=tuple(calls)))

    def _arguments(self, written: object) -> dict[str, Any]:
        """Return the arguments of a call; a value that is not an object becomes the only argument."""
        value = written
        if isinstance(written, str):
            written = value = written.strip()
            try:
                value = json.loads(written or "{}")
            except (ValueError, RecursionError):
                value = self._repaired(written)
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        return {"arguments": value} if value else {}

    def _repaired(self, written: str) -> object:
        """Return the value that a text which is not JSON means, or the text; long texts take too long to repair."""
        self.repairable_chars -= len(written)
        if self.repairable_chars < 0:
            return written
        try:
            return read_value(written).value
        except UnreadableError:
            return written

    def _take_result(self, message: openai.BodyMessage) -> None:
        by_id = (call for call in self.open_calls if call.sent_id == message.tool_call_id)
        call = next(by_id, None)
        if call is None and not message.tool_call_id:
            name = message.name and (self.names.get(message.name) or safe_name(message.name))
            call = next((call for call in self.open_calls if name in (None, "", call.name)), None)
        text, pictures = self._content(message)
        if call is None:
            # Programs cut long histories in front of a result.
            _log_once("a result in a request has no call before it; it is read as a text")
            self.rules.append(f"[The result of a tool]\n{text}")
            return
        self.open_calls.remove(call)
        self.results.append(ToolResult(call.id, call.name, text, pictures=pictures))

    def _close_results(self) -> None:
        """End the results of a round: every call has one, in the order of the calls."""
        self.results += [ToolResult(call.id, call.name, _NO_RESULT) for call in self.open_calls]
        self.open_calls = []
        if self.results:
            order = {call.id: index for index, call in enumerate(self.messages[-1].calls)}
            results = sorted(self.results, key=lambda result: order[result.call_id])
            self.messages.append(Message("tool", results=tuple(results)))
            self.results = []
