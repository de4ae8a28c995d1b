"""OpenAI's Responses API: its body -> ``ChatRequest``; an answer -> the response object or its stream of events.

    input items, those of stored responses before them ─▶ MessageHistory ─▶ ChatRequest ─▶ … ─▶ Reply ─▶ output items

Follows OpenAI's API reference, Responses and its streaming events. The ids of items contain the id of their response,
by which an ``item_reference`` finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rkllm_mcp.completions import api
from rkllm_mcp.completions.content import content_text
from rkllm_mcp.completions.reply import Json, Part, PartKind, Reply, ReplyShape, typed_record
from rkllm_mcp.completions.request import (
    ChatRequest,
    HistoryCall,
    MessageHistory,
    RequestContext,
    RequestRefusedError,
    ToolDeclaration,
    ToolMode,
    allowed_tools,
    answer_form,
    choose_tool,
    client_tools,
    hosted_tool,
    model_options,
)
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.records import NOT_STORED
from rkllm_mcp.sampling import Api, overrides_of

_Metadata = Annotated[dict[str, str], Field(max_length=16)]
# A tool of free text has this argument here.
_INPUT = "input"
RESPONSE_PREFIX = "resp_"
_CALLS = ("function_call", "custom_tool_call")
# A call of a server's tool, which has its result with it.
_SERVER_CALL = "mcp_call"
_READ = frozenset({"message", _SERVER_CALL, *_CALLS, *(f"{call}_output" for call in _CALLS)})
# Items that bring tools, which Codex sends in place of the request's (from 0.150 on), or has searched for.
_BRINGING = frozenset({"additional_tools", "tool_search_output"})


_Contents = str | Annotated[list[api.ContentPart], Field(max_length=api.MOST_PARTS)]


class InputItem(api.ApiBody):
    """A message, a call, the output of a call, both in one (``mcp_call``), or thinking, which is not read again."""

    type: str = "message"
    role: api.Role | None = None
    content: Annotated[
        _Contents | None, BeforeValidator(api.content_parts, json_schema_input_type=api.LooseContent)
    ] = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | dict[str, Any] | None = None
    input: str | None = None
    output: Any = None
    error: Any = None
    tools: Any = None


class ResponsesTool(api.ApiBody):
    """A function or custom tool of the program, a namespace of them, or a server of this service (``mcp``)."""

    type: str
    tools: Annotated[list[ResponsesTool], Field(max_length=api.MOST_TOOLS)] | None = None
    name: str | None = None
    description: str | None = None
    parameters: Any = None
    format: dict[str, Any] | None = None
    server_label: str | None = None
    allowed_tools: list[str] | dict[str, Any] | None = None
    server_url: str | None = None
    connector_id: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None


class ResponsesChoice(api.ApiBody):
    """The tool that has to be called, or the tools that may be (``allowed_tools``)."""

    type: str
    name: str | None = None
    server_label: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=api.MOST_TOOLS)] | None = None


class ReasoningBody(api.ApiBody):
    """Thinking; it comes as a summary, which is the whole of it."""

    effort: api.ThinkLevel | None = None


class TextFormat(api.ApiBody):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    # "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    description: str | None = None


class TextBody(api.ApiBody):
    """Settings of the text."""

    format: TextFormat | None = None
    verbosity: api.Verbosity | None = None


_APIS: tuple[Api, ...] = ("openai", "compatible")


class ResponsesBody(api.add_sampling(api.WholeBody, *_APIS)):
    """POST /v1/responses."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "background": ("an answer is made while its request waits; stream it instead",),
        "conversation": ("conversations are not kept that way; send previous_response_id",),
        "prompt": ("prompts are not kept here; send instructions and input",),
        "top_logprobs": api.LOGPROBS,
        "stop": ("the Responses API has no stop strings; ask POST /v1/chat/completions",),
        "n": api.ONE_ANSWER,
        "logprobs": api.LOGPROBS,
        "logit_bias": api.LOGIT_BIAS,
        "functions": ("functions became tools; send tools and tool_choice",),
        **api.belongs_to("/v1/chat/completions", "response_format", instead="send text.format"),
        **api.belongs_to("/v1/chat/completions", "messages", instead="send input"),
        **api.belongs_to("/v1/chat/completions", "verbosity", instead="send text.verbosity"),
        **api.belongs_to("/v1/messages", "system", instead="send instructions"),
        **api.belongs_to("/v1/messages", "thinking", instead="send reasoning.effort"),
        **api.GRAMMARS,
        **api.OF_OTHER_SERVERS,
    }
    IGNORED = (
        *("access_programs", "background_options", "context_management", "image", "include"),
        *("moderation", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"),
        *("service_tier", "stream_options", "truncation", "user"),
    )

    input: str | Annotated[list[InputItem], Field(max_length=api.MOST_MESSAGES)] = ""
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: api.Limit | None = None
    # The same in the words of chat completions.
    max_tokens: api.Limit | None = None
    max_completion_tokens: api.Limit | None = None
    # Of chat completions.
    reasoning_effort: api.ThinkLevel | None = None
    max_tool_calls: api.Integer | None = None
    tools: Annotated[list[ResponsesTool], Field(max_length=api.MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponsesChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningBody | None = None
    text: TextBody | None = None
    metadata: _Metadata | None = None
    background: bool | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    top_logprobs: api.Integer | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: api.Tokens | None = None

    def items(self) -> list[InputItem]:
        """Return the input as items."""
        return [InputItem(role="user", content=self.input)] if isinstance(self.input, str) else list(self.input)

    @cached_property
    def all_tools(self) -> list[ResponsesTool]:
        """The tools of the request, and those of its items, without what is not a tool in a history."""
        tools = list(self.tools or ())
        names = {name for _, _, name in _named_tools(tools)}
        brought = (tool for item in self.items() if item.type in _BRINGING for tool in as_list(item.tools))
        for sent in islice(brought, api.MOST_TOOLS):
            with suppress(ValidationError):
                tool = ResponsesTool.model_validate(sent)
                added = {name for _, _, name in _named_tools([tool])}
                tools += [] if added & names else [tool]
                names |= added
        return tools


class ResponseObject(BaseModel):
    """The response; its items are those of OpenAI's API."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)

    id: str
    object: Literal["response"]
    created_at: float
    status: Literal["completed", "incomplete", "in_progress", "failed"]
    model: str
    output: list[dict[str, Any]]


class InputTokens(api.ResponsePart):
    """Tokens of a request."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class InputItems(api.ResponsePart):
    """The items of the request of a response, a page of them."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


def events_of(response: Json) -> list[str]:
    """Return the events of a stored response: its beginning, its items as wholes, and its end."""
    started: Json = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(response["output"]):
        events += ({"type": f"response.output_item.{kind}", "output_index": index, "item": item} for kind in _WHOLE)
    events.append({"type": f"response.{response['status']}", "response": response})
    return [typed_record({**event, "sequence_number": number}) for number, event in enumerate(events)]


_WHOLE = ("added", "done")


class ResponseDeleted(api.ResponsePart):
    """A response that is gone."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


@dataclass(frozen=True)
class StoredItems:
    """The items that a request refers to: those before its input, and stored responses' output by item id."""

    before: Sequence[Json] = ()
    output: Mapping[str, Json] = field(default_factory=dict[str, Json])


def responses_request(body: ResponsesBody, stored: StoredItems, context: RequestContext) -> ChatRequest:
    """Return the request of a body; a RequestRefusedError names a field that cannot be honoured."""
    api.refuse_impossible(body)
    declared, servers, hosted = _split_tools(body.all_tools)
    choice, forced = body.tool_choice, None
    mode: ToolMode | None = None if isinstance(choice, ResponsesChoice) else choice
    if isinstance(choice, ResponsesChoice) and choice.type == "allowed_tools":
        names = {str(tool.get("name")) for tool in choice.tools or ()}
        declared, mode = allowed_tools(declared, names, choice.mode or "auto")
    elif isinstance(choice, ResponsesChoice):
        is_server = choice.type == "mcp" and choice.server_label in servers
        if not (is_server or choice.type in ("function", "custom")):
            raise hosted_tool(choice.type, "tool_choice.type")
        forced = choice.name or ""
    tools = client_tools(declared, servers, hosted)
    host_tools = context.runs_host_tools(tools, True if servers else body.mcp)
    history = MessageHistory(tools, context)
    if host_tools and body.max_tool_calls is not None:
        message = "calls of a server's tools are not counted here; leave it out, or name the tools in allowed_tools"
        raise RequestRefusedError(message, "max_tool_calls", "unsupported_parameter")
    for rule in (body.instructions, api.LENGTHS[body.text.verbosity if body.text else None]):
        history.add_system(rule or "")
    # Only items that this service stored: their fields were checked then.
    items = [(InputItem.model_validate(item), "previous_response_id") for item in stored.before]
    for index, item in enumerate(body.items()):
        param, output = f"input[{index}]", None
        if item.type == "item_reference" and (output := stored.output.get(item.id or "")) is None:
            message = f"no item {item.id!r} is stored here; send the item itself, as with store = false"
            raise RequestRefusedError(message, f"{param}.id", "item_not_found")
        items.append((item if output is None else InputItem.model_validate(output), param))
    # Thinking, and calls that a service has run itself, whose outcome is in its answer, are not read.
    items = [(item, param) for item, param in items if item.type in _READ]
    for index, (item, param) in enumerate(items):
        _add_item(history, item, param, is_question=index == len(items) - 1)
    if not body.input or history.is_empty:
        raise RequestRefusedError("there is nothing to answer; send a text or items", "input")
    options = model_options(
        choose_tool(mode, forced, tools, host_tools=host_tools),
        limit=body.max_output_tokens or body.max_completion_tokens or body.max_tokens,
        sampling=overrides_of(body, _APIS),
        thinking=body.reasoning.effort if body.reasoning else body.reasoning_effort,
        single_call=body.parallel_tool_calls is False,
    )
    form = body.text.format if body.text and body.text.format else TextFormat(type="text")
    return ChatRequest(
        history.messages("input"),
        tools,
        options,
        answer_form(form.type, form.schema_, context.check_schema, "text.format", form.description),
        host_tools,
        servers,
        tokens=body.tokens or {},
        field_names={"messages": "input", "response_format": "text.format"},
    )


_FREE_TEXT: Json = {"type": "object", "properties": {_INPUT: {"type": "string"}}, "required": [_INPUT]}


_BY_LABEL = "{} is not taken: a server of this service's configuration is named by server_label alone"


def _split_tools(
    tools: Sequence[ResponsesTool],
) -> tuple[list[ToolDeclaration], dict[str, Sequence[str] | None], list[tuple[str, str]]]:
    """Return the tools of the program, the servers whose tools are used, and the tools of the vendor's."""
    declared: list[ToolDeclaration] = []
    servers: dict[str, Sequence[str] | None] = {}
    hosted: list[tuple[str, str]] = []
    for where, tool, name in _named_tools(tools):
        if tool.type == "mcp":
            allowed = tool.allowed_tools
            if isinstance(allowed, Mapping):
                allowed = allowed.get("tool_names")
            for key in ("server_url", "connector_id", "authorization", "headers"):
                if getattr(tool, key):
                    raise RequestRefusedError(_BY_LABEL.format(key), f"{where}.{key}", "unsupported_parameter")
            if not tool.server_label:
                raise RequestRefusedError("a server has a name; send server_label", f"{where}.server_label")
            servers[tool.server_label] = None if allowed is None else [str(entry) for entry in allowed]
            continue
        if tool.type not in ("function", "custom"):
            hosted.append((tool.type, f"{where}.type"))
            continue
        # The runtime cannot hold a text to a grammar: it is shown to the model and not checked.
        grammar = as_mapping(tool.format).get("definition") if tool.type == "custom" else None
        description = "\n".join(filter(None, (tool.description, grammar if isinstance(grammar, str) else "")))
        parameters = tool.parameters if tool.type == "function" else _FREE_TEXT
        declared.append(ToolDeclaration(name, description, parameters))
    return declared, servers, hosted


def _named_tools(tools: Sequence[ResponsesTool]) -> Iterator[tuple[str, ResponsesTool, str]]:
    """Yield every tool with its field before it and its name after it, those of namespaces among them."""
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if tool.type != "namespace":
            yield where, tool, tool.name or ""
            continue
        for inner, member in enumerate(tool.tools or ()):
            name = "__".join(filter(None, (tool.name, member.name))) if member.name else ""
            yield f"{where}.tools[{inner}]", member, name


def _add_item(history: MessageHistory, item: InputItem, param: str, *, is_question: bool) -> None:
    """Add an item; what an assistant said and called in a row is one message."""
    if item.type == "message":
        if item.role is None or item.content is None:
            raise RequestRefusedError("a message has a role and a content; send both", param)
        content = api.blocks_of(item.content)
        if item.role == "assistant":
            blocks = [content] if isinstance(content, str) else content or ()
            history.add_answer("".join(map(content_text, blocks)), continues=True)
        else:
            history.add(item.role, content, param, is_question=is_question)
    elif item.type in (*_CALLS, _SERVER_CALL):
        call_id = item.call_id or item.id
        if not call_id or item.name is None:
            raise RequestRefusedError("a call has a call_id and a name; send both", param)
        result = item.output if item.error is None else item.error
        if item.type == _SERVER_CALL and result in (None, NOT_STORED):
            return  # the model would take it for one that failed
        arguments = {_INPUT: item.input or ""} if item.type == "custom_tool_call" else item.arguments
        name = "__".join(filter(None, (item.namespace, item.name)))
        history.add_answer("", [HistoryCall(call_id, name, arguments)], continues=True)
        if item.type == _SERVER_CALL:
            history.add_result(result, call_id)
    else:
        history.add_result(item.output, item.call_id)


@dataclass(frozen=True)
class _ItemShape:
    prefix: str  # of its ids
    delta: str  # the event of a piece
    done: tuple[str, str]  # the event after the last piece, and the field that has the whole text
    # The field of the item that has its content, and the events around a part of it, if it has parts.
    part: tuple[str, str] | None = None


_ITEMS: Mapping[PartKind, _ItemShape] = {
    "text": _ItemShape("msg", "output_text.delta", ("output_text.done", "text"), ("content_index", "content_part")),
    "thinking": _ItemShape(
        "rs",
        "reasoning_summary_text.delta",
        ("reasoning_summary_text.done", "text"),
        ("summary_index", "reasoning_summary_part"),
    ),
    "call": _ItemShape("fc", "function_call_arguments.delta", ("function_call_arguments.done", "arguments")),
    "server_call": _ItemShape("mcp", "mcp_call_arguments.delta", ("mcp_call_arguments.done", "arguments")),
}
_CUSTOM = _ItemShape("ctc", "custom_tool_call_input.delta", ("custom_tool_call_input.done", "input"))
# Those codes of an answer's error by which programs do something else than to report it.
_ERROR_CODES = frozenset({"rate_limit_exceeded", "context_length_exceeded"})


class ResponsesShape(ReplyShape):
    """The response of ``reply`` to ``body``; ``is_stored`` if it can be continued by its id."""

    def __init__(self, reply: Reply, body: ResponsesBody, *, is_stored: bool) -> None:
        self._reply = reply
        self._number = 0
        self._tools = {name: tool for _, tool, name in _named_tools(body.all_tools)}
        form = body.text.format if body.text and body.text.format else TextFormat(type="text")
        choice, sampling = body.tool_choice, overrides_of(body, _APIS)
        chosen = choice.model_dump(exclude_none=True) if isinstance(choice, ResponsesChoice) else choice or "auto"
        tools: list[Json] = []
        for tool in body.all_tools:
            if tool.type == "function":
                fields = tool.model_dump(include={"type", "name", "description", "parameters"})
                tools.append({**fields, "strict": False})
            else:
                tools.append(tool.model_dump(exclude_none=True))
        # The settings of the request, as the response repeats them.
        self._echo: Json = {
            "background": False,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "service_tier": "default",
            "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
            "text": {"format": form.model_dump(by_alias=True, exclude_none=True)},
            "tool_choice": chosen,
            "tools": tools,
            "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
            "truncation": "disabled",
            "user": None,
            "store": is_stored,
        }

    def begin(self) -> str:
        """Return the events before the first item."""
        response = self._response("in_progress", output=[])
        return self._event("created", response=response) + self._event("in_progress", response=response)

    def piece(self, part: Part) -> str:
        """Return the event of a piece, after those that begin its item for the first one."""
        records = ""
        if len(part.pieces) == 1:
            records = self._event("output_item.added", output_index=part.index, item=self._item(part, is_open=True))
            if part.kind == "server_call":
                records += self._part_event(part, "mcp_call.in_progress")
            records += self._content_event(part, "added", "")
        extra: Json = {"logprobs": []} if part.kind == "text" else {}
        return records + self._part_event(
            part, self._shape(part).delta, **extra, delta=self._event_text(part, part.pieces[-1])
        )

    def closing(self, part: Part) -> str:
        """Return the events after the last piece of an item."""
        shape = self._shape(part)
        event, field_ = shape.done
        extra: Json = {"logprobs": []} if part.kind == "text" else {}
        if part.kind == "call" and part.call is not None and shape is not _CUSTOM:
            extra["name"] = self._split_name(part.call.name)[0]
        records = self._part_event(part, event, **extra, **{field_: self._event_text(part, part.text)})
        records += self._content_event(part, "done", part.text)
        if part.result is not None:
            records += self._part_event(part, "mcp_call.failed" if part.result.is_error else "mcp_call.completed")
        return records + self._event("output_item.done", output_index=part.index, item=self._item(part))

    def finish(self) -> str:
        """Return the last event, with the whole response."""
        response = self.whole()
        return self._event(response["status"], response=response)

    def failure(self, body: Json) -> str:
        """Return the last event, with the error."""
        code = body["error"]["code"] if body["error"]["code"] in _ERROR_CODES else "server_error"
        response = self._response("failed", error={"code": code, "message": body["error"]["message"]})
        return self._event("failed", response=response)

    def whole(self) -> Json:
        """Return the response object."""
        if not self._reply.is_cut:
            return self._response("completed")
        return self._response("incomplete", incomplete_details={"reason": "max_output_tokens"})

    def _response(self, status: str, **fields: Any) -> Json:
        reply = self._reply
        usage: Json = {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": reply.generated_tokens,
            "output_tokens_details": reply.generated_details,
            "total_tokens": reply.prompt_tokens + reply.generated_tokens,
        }
        return {
            "id": reply.id,
            "object": "response",
            "created_at": reply.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": reply.model,
            **self._echo,
            "output": [self._item(part) for part in reply.parts] if "output" not in fields else [],
            "usage": None if status == "in_progress" else usage,
            **fields,
        }

    def _shape(self, part: Part) -> _ItemShape:
        tool = self._tools.get(part.call.name) if part.kind == "call" and part.call is not None else None
        return _CUSTOM if tool is not None and tool.type == "custom" else _ITEMS[part.kind]

    def _event_text(self, part: Part, text: str) -> str:
        """Return a piece as its event has it: of a custom tool the text itself."""
        if part.call is None or self._shape(part) is not _CUSTOM:
            return text
        return str(part.call.arguments.get(_INPUT, ""))

    def _item(self, part: Part, *, is_open: bool = False) -> Json:
        shape = self._shape(part)
        text = "" if is_open else self._event_text(part, part.text)
        head: Json = {"id": self._id(part)}
        status = {"status": "in_progress" if is_open else "completed"}
        if part.kind == "thinking":
            summary = [] if is_open else [_content_part(part.kind, text)]
            return {**head, "type": "reasoning", "summary": summary, "encrypted_content": None}
        if part.call is None:
            content = [] if is_open else [_content_part(part.kind, text)]
            return {**head, "type": "message", **status, "role": "assistant", "content": content}
        name, space = self._split_name(part.call.name)
        call_item = {**head, **status, "name": name, **space, shape.done[1]: text}
        if part.result is None:
            kind = "custom_tool_call" if shape is _CUSTOM else "function_call"
            return {**call_item, "type": kind, "call_id": part.call.id}
        outcome: Json = {"output": None, "error": None}
        if not is_open:
            outcome["error" if part.result.is_error else "output"] = part.result.text
        return {
            **call_item,
            "type": _SERVER_CALL,
            "server_label": part.call.server,
            **outcome,
            "approval_request_id": None,
        }

    def _split_name(self, full_name: str) -> tuple[str, Json]:
        """Return the name of a call and its namespace, if it has one."""
        tool = self._tools.get(full_name)
        if tool is None or tool.name is None or tool.name == full_name:
            return full_name, {}
        return tool.name, {"namespace": full_name.removesuffix(f"__{tool.name}")}

    def _id(self, part: Part) -> str:
        return f"{self._shape(part).prefix}_{self._reply.id.removeprefix(RESPONSE_PREFIX)}_{part.index}"

    def _content_event(self, part: Part, moment: str, text: str) -> str:
        """Return the event around the part of an item; empty if its items have no parts."""
        shape = self._shape(part).part
        return self._part_event(part, f"{shape[1]}.{moment}", part=_content_part(part.kind, text)) if shape else ""

    def _part_event(self, source: Part, event: str, /, **fields: Any) -> str:
        shape = self._shape(source).part
        position = {shape[0]: 0} if shape else {}
        return self._event(event, item_id=self._id(source), output_index=source.index, **position, **fields)

    def _event(self, name: str, /, **fields: Any) -> str:
        record = typed_record({"type": f"response.{name}", "sequence_number": self._number, **fields})
        self._number += 1
        return record


def _content_part(kind: PartKind, text: str) -> Json:
    if kind == "thinking":
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
