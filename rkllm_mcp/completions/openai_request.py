"""OpenAI's request body -> ``ChatRequest``, or an error that names the field and what to send instead.

Follows OpenAI's API reference, chat completions. System texts at the front are joined into one; a later one precedes
the next user text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rkllm_mcp.completions import openai_types as openai
from rkllm_mcp.completions.request import ChatRequest, RequestRefusedError
from rkllm_mcp.completions.structured_output import MOST_SCHEMA_CHARS, ResponseFormat, SchemaCheck
from rkllm_mcp.generation import ForcedTool, ModelOptions, SamplingOverrides
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.toolcalls.schemas import SchemaCostError, SchemaError

# OpenAI accepts four; clients of other servers send one for every role name.
MOST_STOPS = 16
_SYSTEM_ROLES = frozenset({"system", "developer"})
_NO_THINKING = frozenset({"none", "minimal"})
_TEXT_PARTS = frozenset({"text", "refusal"})


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
        if self.places and (found := _MESSAGE.match(param)):
            return self.places[int(found.group(1))]
        for name, own in self.names.items():
            param = param.replace(name, own)
        return param


_MESSAGE = re.compile(r"messages\[(\d+)\]")


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


def chat_request(asked: Translated, check: SchemaCheck, *, host_tools: bool = False) -> ChatRequest:
    """Return the request of a body, or refuse it by its field; ``host_tools`` counts if the body does not say."""
    try:
        return _chat_request(asked.body, check, host_tools=host_tools)
    except RequestRefusedError as error:
        error.param = asked.param(error.param)
        raise


def _chat_request(body: openai.ChatBody, check: SchemaCheck, *, host_tools: bool) -> ChatRequest:
    refuse_impossible(body)
    tools = _tools(body.tools or (), check)
    runs_host_tools = not tools and (host_tools if body.mcp is None else body.mcp)
    reading = _Reading()
    for index, message in enumerate(body.messages):
        reading.take(message, index)
    return ChatRequest(
        messages=reading.finish(f"messages[{len(body.messages) - 1}]"),
        tools=tools,
        options=_options(body, tools, is_forcible=runs_host_tools),
        form=_form(body.response_format, check),
        host_tools=runs_host_tools,
        tokens=body.tokens or {},
    )


def checked_tools(
    declared: Sequence[tuple[str, str | None, Mapping[str, Any] | None]], servers: Collection[str]
) -> list[openai.DeclaredTool]:
    """Return a client's tools, each of a name, a description and a schema; servers beside them are refused."""
    if declared and servers:
        message = "a request has either tools of its own or a server's; send them in two requests"
        raise RequestRefusedError(message, "tools", "unsupported_parameter")
    functions = (
        openai.DeclaredFunction(name=name, description=description, parameters=None if schema is None else dict(schema))
        for name, description, schema in declared
    )
    return [openai.DeclaredTool(type="function", function=function) for function in functions]


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
    names = [tool.name for tool in tools]
    if not names and (choice == "required" or (forced is not None and not is_forcible)):
        raise RequestRefusedError("there is no tool to choose; send tools with tool_choice", "tool_choice")
    if names and forced is not None and forced not in names:
        raise RequestRefusedError(f"there is no tool {forced!r} among the tools; send it with them", "tool_choice")
    if choice == "required" and len(names) == 1:
        # The model need not write the name of the only tool.
        forced = names[0]
    limit = body.max_completion_tokens or body.max_tokens
    return ModelOptions(
        max_new_tokens=None if limit is None or limit < 0 else limit,
        sampling=_sampling(body),
        stop=_stops(body.stop),
        thinking=_thinking(body),
        tool_choice=choice or "auto" if forced is None else ForcedTool(forced),
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
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MOST_STOPS:
        raise RequestRefusedError(f"stop has {len(stops)} texts; send {MOST_STOPS} at most", "stop")
    if not all(stops):
        raise RequestRefusedError("an empty text would end every answer at once; leave it out of stop", "stop")
    return stops


def _thinking(body: openai.ChatBody) -> bool | None:
    if isinstance(body.thinking, openai.ThinkingSwitch):
        return body.thinking.type != "disabled"
    if body.thinking is not None:
        return body.thinking
    if body.think is not None:
        return body.think is not False
    if body.chat_template_kwargs is not None and body.chat_template_kwargs.enable_thinking is not None:
        return body.chat_template_kwargs.enable_thinking
    return None if body.reasoning_effort is None else body.reasoning_effort not in _NO_THINKING


def _form(wanted: openai.ResponseFormatBody | None, check: SchemaCheck) -> ResponseFormat | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return ResponseFormat()
    if wanted.json_schema is None:
        message = "a json_schema belongs to this type; send its name and schema"
        raise RequestRefusedError(message, "response_format.json_schema")
    schema = wanted.json_schema.schema_ or {}
    try:
        check(schema)
    except SchemaError as error:
        raise _unusable("schema of the answer", error, "response_format.json_schema.schema") from None
    return ResponseFormat(schema, wanted.json_schema.description or "")


def _unusable(what: str, error: SchemaError, where: str, code: str = "") -> RequestRefusedError:
    message = f"the {what} cannot be used: {error}"
    return RequestRefusedError(message, where, code, is_too_costly=isinstance(error, SchemaCostError))


def _tools(declared: Sequence[openai.DeclaredTool], check: SchemaCheck) -> tuple[ToolSpec, ...]:
    tools: dict[str, ToolSpec] = {}
    functions = [tool.function for tool in declared]
    written = sum(len(each.description or "") + len(json.dumps(each.parameters)) for each in functions)
    if written > MOST_SCHEMA_CHARS:
        message = f"the tools have {written} characters, and no prompt has room for so many; send fewer"
        raise RequestRefusedError(message, "tools", "context_length_exceeded")
    for index, tool in enumerate(declared):
        where = f"tools[{index}].function"
        if (name := tool.function.name) in tools:
            raise RequestRefusedError(f"there are two tools {name!r}; give each its own name", f"{where}.name")
        tools[name] = _tool(tool, where, check)
    return tuple(tools.values())


def _tool(tool: openai.DeclaredTool, where: str, check: SchemaCheck) -> ToolSpec:
    function = tool.function
    schema: dict[str, Any] = {"type": "object", "properties": {}, **(function.parameters or {})}
    try:
        check(schema, of_object=True)
    except SchemaError as error:
        what, place = f"parameters of the tool {function.name!r}", f"{where}.parameters"
        raise _unusable(what, error, place, "invalid_function_parameters") from None
    return ToolSpec(function.name, function.description or "", schema)


@dataclass
class _Reading:
    messages: list[Message] = field(default_factory=list[Message])
    # System texts at the front.
    front: list[str] = field(default_factory=list[str])
    # Later system texts, which precede the next user text.
    rules: list[str] = field(default_factory=list[str])
    # Calls of the last message without a result, by id.
    open_calls: dict[str, str] = field(default_factory=dict[str, str])
    results: list[ToolResult] = field(default_factory=list[ToolResult])

    def take(self, message: openai.BodyMessage, index: int) -> None:
        where = f"messages[{index}]"
        if message.role == "tool":
            self._take_result(message, where)
            return
        self._close_results(where)
        text = "\n".join(_texts(message, where))
        if message.role in _SYSTEM_ROLES:
            (self.rules if self.messages else self.front).append(text)
        elif message.role == "user":
            words = f"{message.name}: {text}" if message.name else text
            self.messages.append(Message("user", words, context=self._told_rules()))
        else:
            self._take_answer(message, text or message.refusal or "", where)

    def finish(self, where: str) -> tuple[Message, ...]:
        self._close_results(where)
        if self.rules:
            self.messages.append(Message("user", self._told_rules()))
        system = [Message("system", "\n\n".join(self.front))] if self.front else []
        return (*system, *self.messages)

    def _told_rules(self) -> str:
        rules, self.rules = self.rules, []
        return "\n\n".join(rules)

    def _take_answer(self, message: openai.BodyMessage, text: str, where: str) -> None:
        if self.rules:
            self.messages.append(Message("user", self._told_rules()))
        calls = tuple(_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls or ()))
        self.open_calls = {call.id: call.name for call in calls}
        if len(self.open_calls) < len(calls):
            raise RequestRefusedError("two calls have the same id; give each its own", f"{where}.tool_calls")
        self.messages.append(Message("assistant", text, calls=calls))

    def _take_result(self, message: openai.BodyMessage, where: str) -> None:
        name = self.open_calls.pop(message.tool_call_id or "", None)
        if name is None:
            refusal = f"there is no open call {message.tool_call_id!r} that this would be the result of"
            remedy = "send results behind the assistant's message with the calls, with the ids of those"
            raise RequestRefusedError(f"{refusal}; {remedy}", f"{where}.tool_call_id")
        text = "\n".join(_texts(message, where))
        self.results.append(ToolResult(message.tool_call_id or "", name, text))

    def _close_results(self, where: str) -> None:
        """End the results of a round: check that every call has one, and sort them by call."""
        if self.open_calls:
            missing = ", ".join(self.open_calls)
            remedy = "send a tool message for each behind the assistant's message"
            raise RequestRefusedError(f"calls have no result: {missing}; {remedy}", where)
        if self.results:
            order = {call.id: place for place, call in enumerate(self.messages[-1].calls)}
            results = sorted(self.results, key=lambda result: order[result.call_id])
            self.messages.append(Message("tool", results=tuple(results)))
            self.results = []


def _texts(message: openai.BodyMessage, where: str) -> Iterator[str]:
    if message.content is None and message.role != "assistant":
        raise RequestRefusedError("a message of this role has a content; send a text", f"{where}.content")
    if isinstance(message.content, str):
        yield message.content
        return
    for index, part in enumerate(message.content or ()):
        if part.type not in _TEXT_PARTS:
            refusal = f"this model reads text; send parts of the type text, not {part.type!r}"
            raise RequestRefusedError(refusal, f"{where}.content[{index}].type", "unsupported_content")
        yield part.text or part.refusal or ""


def _call(call: openai.MessageCall, where: str) -> ToolCall:
    arguments: Any = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise RequestRefusedError("the arguments of a call are a JSON object as text", f"{where}.function.arguments")
    return ToolCall(call.id, call.function.name, cast("dict[str, Any]", arguments))
