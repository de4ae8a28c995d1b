"""``ChatRequest``, which contains the whole conversation, and what the reader of every API's body is made of.

    body ─▶ reader of its API: MessageHistory, client_tools, choose_tool, model_options, answer_form ─▶ ChatRequest

System texts at the front are joined into one; a later one precedes the next user text. One odd thing costs only itself:
a tool that cannot be used is left out, with a line in the log, and a history is repaired, because a client cannot
change its past messages. Only the question itself can be refused. A refusal names the field as it is in the
client's body, the ``param`` of OpenAI's errors, so every function that can refuse gets it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from rkllm_base.installation import install_command
from rkllm_mcp.completions.content import (
    content_text,
    image_of,
    is_image,
    is_unreadable,
    without_media,
)
from rkllm_mcp.completions.structured_output import MOST_SCHEMA_CHARS, ResponseFormat, SchemaCheck
from rkllm_mcp.errors import UsageError
from rkllm_mcp.generation import AnswerGrammar, ForcedTool, ModelOptions, ToolChoice
from rkllm_mcp.messages import (
    Message,
    Picture,
    ToolCall,
    ToolResult,
    ToolSpec,
    as_list,
    as_mapping,
    safe_name,
    shown_names,
)
from rkllm_mcp.sampling import SamplingOverrides
from rkllm_mcp.toolcalls.constraint import answer_constraint, is_installed
from rkllm_mcp.toolcalls.lenient_json import UnreadableError, read_value
from rkllm_mcp.toolcalls.schemas import SchemaCostError, SchemaError, arguments_schema, measure_schema

logger = logging.getLogger(__name__)

ToolMode: TypeAlias = Literal["auto", "required", "none"]

# OpenAI accepts four; clients of other servers send one for every role name.
MOST_STOPS = 16
_OWN_CALL_ID = re.compile(r"call_(\d{1,9})")
_NO_THINKING = frozenset({"none", "minimal", "off", "false", "disabled"})
# A line that Claude Code puts before its system text, with a number that changes: everything after it would be read
# again in each session.
_CHANGING_LINE = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")
_NO_RESULT = "(no result)"
# Pictures of a request, the last ones: each may take seconds, and more do not fit the window of any model.
MOST_PICTURES = 16
# Arguments in one request that are repaired; each character takes about a microsecond.
_MOST_REPAIRED_CHARS = 65_536
_AS_DATA = (
    "addresses, paths and ids of pictures are not opened; send the picture itself, as base64 "
    "(data:image/jpeg;base64,… in image_url, or a source of the type base64)"
)


@dataclass(eq=False)
class RequestRefusedError(UsageError):
    """A request that cannot be answered; the message names the problem and the remedy."""

    param: str = ""  # the field, such as ``messages[2].content``; empty for the whole request
    code: str = ""  # error code; may be empty
    is_too_costly: bool = False  # the request is well-formed but too expensive


@dataclass(frozen=True)
class ChatRequest:
    """A request for one answer."""

    messages: tuple[Message, ...]  # the conversation; a system message comes first, and every call has its result
    tools: tuple[ToolSpec, ...] = ()  # the client's own tools; their calls are returned
    options: ModelOptions = field(default_factory=ModelOptions)  # options of the model's response
    form: ResponseFormat | None = None  # the required format of the answer; None for plain text
    host_tools: bool = False  # run the assistant's own tools and return the text; only without ``tools``
    # The configured servers whose tools alone may be used, each with the names of those tools, or all.
    servers: Mapping[str, Sequence[str] | None] = field(default_factory=dict[str, "Sequence[str] | None"])
    allowed_tools: tuple[str, ...] | None = None  # the only ones of the host's tools that may be used; all when None
    # Secrets for ``headers_template`` placeholders, by name; used for this answer only.
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    recalls: bool = False  # what the owner wants remembered is recalled for the question
    # What ``messages`` and ``response_format`` are called in the client's body, if not so.
    field_names: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def calls_made(self) -> int:
        """Greatest call number of ``Conversation.next_call_id`` in the request, so that ids stay unique."""
        numbers = (_OWN_CALL_ID.fullmatch(call.id) for message in self.messages for call in message.calls)
        return max((int(match.group(1)) for match in numbers if match), default=0)


@dataclass(frozen=True)
class RequestContext:
    """The settings of service, tenant and model by which a body is read."""

    check_schema: SchemaCheck
    host_tools: bool = False  # the host's tools are run if the body does not say
    sees: bool = False  # the model takes pictures
    seeing_model: Callable[[], str] = str  # returns the name of one that does; empty if none exists

    def runs_host_tools(self, tools: Sequence[ToolSpec], mcp: bool | None) -> bool:
        """Return True if an answer runs the host's tools; ``mcp`` is the body's wish."""
        return not tools and (self.host_tools if mcp is None else mcp)


class ToolDeclaration(NamedTuple):
    """A client's tool as it declares it."""

    name: str
    description: str | None
    schema: object


def client_tools(
    declared: Sequence[ToolDeclaration],
    servers: Collection[str] = (),
    hosted: Sequence[tuple[str, str]] = (),
) -> tuple[ToolSpec, ...]:
    """Return the tools that can be used, under names that every model can write.

    ``wire_name`` is the client's own name where that is another one. A request with both tools and servers is refused.
    ``hosted`` are tools that run at the vendor's, by type and field. They are left out, and refused without any other
    tool, because the client then expects what only they can do.
    """
    if declared and servers:
        message = "a request has either tools of its own or a server's; send them in two requests"
        raise RequestRefusedError(message, "tools", "unsupported_parameter")
    for kind, param in hosted:
        if not (declared or servers):
            raise hosted_tool(kind, param)
        _log_once(f"the hosted tool {kind!r} of a request does not run here and is left out")
    chars = sum(len(tool.description or "") + len(json.dumps(tool.schema)) for tool in declared)
    if chars > MOST_SCHEMA_CHARS:
        message = f"the tools have {chars} characters, and no prompt has room for so many; send fewer"
        raise RequestRefusedError(message, "tools", "context_length_exceeded")
    usable: dict[str, ToolSpec] = {}
    for name, description, parameters in declared:
        problem = "it has no name" if not name else "there are two of this name" if name in usable else ""
        if not problem:
            remarks: list[str] = []
            schema = arguments_schema(parameters, remarks.append)
            for remark in remarks:
                _log_once(f"tool {name!r} of a request: {remark}")
            try:
                measure_schema(schema)
            except SchemaCostError as error:
                problem = f"its parameters take too much work: {error}"
            else:
                usable[name] = ToolSpec(name, description or "", schema)
        if problem:
            _log_once(f"tool {name!r} of a request is left out: {problem}")
    names = shown_names([("", name) for name in usable])
    pairs = zip(usable.values(), names, strict=True)
    return tuple(tool if tool.name == name else replace(tool, name=name, wire_name=tool.name) for tool, name in pairs)


@lru_cache(maxsize=256)
def _log_once(line: str) -> None:
    """Write a line to the log; programs send the same with every request."""
    logger.warning("%s", line)


def hosted_tool(kind: str, param: str) -> RequestRefusedError:
    """Return the refusal of a tool that runs at the vendor's."""
    message = (
        f"the hosted tool {kind!r} does not run here; leave it out, offer a function of your own, or name a server of "
        'this service: {"type": "mcp", "server_label": NAME}'
    )
    return RequestRefusedError(message, param, "unsupported_tool")


def allowed_tools(
    declared: Sequence[ToolDeclaration], names: Collection[str], mode: ToolMode
) -> tuple[Sequence[ToolDeclaration], ToolMode]:
    """Return the tools that may be called with ``mode``; without any, all of them and ``none``."""
    allowed = [tool for tool in declared if tool.name in names]
    return (allowed, mode) if allowed else (declared, "none")


def choose_tool(
    mode: ToolMode | None, forced: str | None, tools: Sequence[ToolSpec], *, host_tools: bool = False
) -> ToolChoice:
    """Return the choice of a tool: ``mode``, or the tool ``forced`` by the client's name.

    With ``host_tools`` that may be one of the host's.
    """
    if forced == "":
        raise RequestRefusedError("the tool to call has a name; send it", "tool_choice.name")
    names = {tool.original_name: tool.name for tool in tools}
    if not names and (mode == "required" or (forced is not None and not host_tools)):
        raise RequestRefusedError("there is no tool to choose; send tools with tool_choice", "tool_choice")
    if names and forced is not None and forced not in names:
        raise RequestRefusedError(f"there is no tool {forced!r} among the tools; send it with them", "tool_choice")
    if mode == "required" and len(names) == 1:
        # The model need not write the name of the only tool.
        (forced,) = names
    return mode or "auto" if forced is None else ForcedTool(names.get(forced, forced))


def model_options(
    tool_choice: ToolChoice = "auto",
    *,
    limit: int | None,
    sampling: SamplingOverrides | None = None,
    stop: str | Sequence[str] | None = None,
    stop_place: str = "stop",
    thinking: bool | str | None = None,
    single_call: bool = False,
) -> ModelOptions:
    """Return the options of an answer, from the values that the APIs define; ``limit`` is that of its tokens."""
    # Forms send an empty text for none, which would end every answer at once.
    stops = tuple(filter(None, (stop,) if isinstance(stop, str) else stop or ()))
    if len(stops) > MOST_STOPS:
        raise RequestRefusedError(f"stop has {len(stops)} texts; send {MOST_STOPS} at most", stop_place)
    if isinstance(thinking, str):
        # A level that is not known here is one.
        thinking = thinking.lower() not in _NO_THINKING
    # Programs also write 0 or less for no limit.
    limit = limit if limit is not None and limit > 0 else None
    return ModelOptions(limit, sampling or SamplingOverrides(), stops, thinking, tool_choice, single_call)


def answer_form(
    kind: str, schema: Mapping[str, Any] | None, check: SchemaCheck, param: str, description: str | None = None
) -> ResponseFormat | None:
    """Return the form of an answer of ``kind`` (text, json_object or json_schema); None for plain text."""
    if kind == "text":
        return None
    if schema is None:
        if kind == "json_object":
            return ResponseFormat()
        raise RequestRefusedError("a json_schema belongs to this type; send its name and schema", param)
    try:
        check(schema)
    except SchemaError as error:
        message = f"the schema of the answer cannot be used: {error}"
        is_costly = isinstance(error, SchemaCostError)
        raise RequestRefusedError(message, f"{param}.schema", is_too_costly=is_costly) from None
    return ResponseFormat(schema, description or "")


def text_form(kind: Literal["regex", "choice", "grammar"], text: str, param: str) -> ResponseFormat:
    """Return the form of an answer that is not JSON; ``text`` is what an ``AnswerGrammar`` of that kind has.

    Raises:
        RequestRefusedError: it cannot be used, or checking the answer needs the extra ``held``.
    """
    grammar = AnswerGrammar(kind, text)
    if kind != "choice":
        if not is_installed():
            message = f"{param} is checked after: {install_command('held')}; or name a JSON Schema as the form"
            raise RequestRefusedError(message, param, "unsupported_parameter")
        try:
            answer_constraint(grammar)
        except ValueError as error:
            raise RequestRefusedError(f"{param} cannot be used: {error}; send a simpler one", param) from None
    return ResponseFormat(text=grammar)


class HistoryCall(NamedTuple):
    """A call in an assistant's message as the client sends it back."""

    id: str | None
    name: str
    arguments: object


@dataclass(frozen=True)
class _OpenCall:
    """A call without a result."""

    sent_id: str  # the client's, by which its result names it
    id: str  # unique in its message
    name: str


class MessageHistory:
    """The messages of a request, which a reader adds in order, as the model reads them.

    A content is a text, or blocks as in ``content``. With ``numbers_calls`` the calls have no ids, or ids that do not
    count: they are numbered as a conversation numbers its own. A model that does not see reads a line in place of a
    picture, after one in the question also which model sees.
    """

    def __init__(self, tools: Sequence[ToolSpec], context: RequestContext, *, numbers_calls: bool = False) -> None:
        self._names = {tool.original_name: tool.name for tool in tools}
        self._takes_id = {tool.name for tool in tools if "id" in as_mapping(tool.input_schema.get("properties"))}
        self._sees = context.sees
        self._seeing_model = context.seeing_model
        self._numbers_calls = numbers_calls
        self._calls_made = 0
        self._messages: list[Message] = []
        # System texts at the front.
        self._front: list[str] = []
        # Later system texts, which precede the next user text.
        self._rules: list[str] = []
        self._open_calls: list[_OpenCall] = []
        self._results: list[ToolResult] = []
        self._repairable_chars = _MOST_REPAIRED_CHARS

    def add(
        self,
        role: str,
        content: object,
        param: str,
        *,
        name: str | None = None,
        calls: Iterable[HistoryCall] = (),
        call_id: str | None = None,
        is_question: bool = False,
    ) -> None:
        """Add a message of any role; ``name`` is that of a user or, of a result, that of its tool."""
        if role == "user":
            self.add_user(content, param, name=name, is_question=is_question)
        elif role == "assistant":
            self.add_answer(content, calls)
        elif role == "tool":
            self.add_result(content, call_id, tool_name=name)
        else:
            self.add_system(content)

    @property
    def is_empty(self) -> bool:
        """True if there are system texts at most."""
        return not (self._messages or self._rules or self._results)

    def add_system(self, content: object, *, is_behind: bool = False) -> None:
        """Add a system text; with ``is_behind`` it belongs to the question before it, if there is one."""
        self._close_results()
        text = content_text(content)
        is_behind = is_behind and not self._rules and bool(self._messages) and self._messages[-1].role == "user"
        if len(self._messages) > (1 if is_behind else 0):
            if is_behind:
                question = self._messages[-1]
                context = "\n\n".join(filter(None, (question.context, text)))
                self._messages[-1] = replace(question, context=context)
            elif text:
                self._rules.append(text)
            return
        if not self._front:
            text = _CHANGING_LINE.sub("", text)
        if text:
            self._front.append(text)

    def add_user(self, content: object, param: str, *, name: str | None = None, is_question: bool = False) -> None:
        """Add a user's message; as the question of the request it is refused if the model cannot read it."""
        # A picture after a tool's result is one of the tool's.
        is_question = is_question and not (self._results or (self._messages and self._messages[-1].role == "tool"))
        if is_question and content is None:
            raise RequestRefusedError("a message of this role has a content; send a text", f"{param}.content")
        for index, block in enumerate(as_list(content) if is_question else ()):
            if is_image(block):
                if self._sees and image_of(block) is None:
                    raise RequestRefusedError(_AS_DATA, f"{param}.content[{index}]", "unsupported_content")
            elif is_unreadable(block):
                refusal = f"this model reads text; send parts of the type text, not {block.get('type')!r}"
                raise RequestRefusedError(refusal, f"{param}.content[{index}].type", "unsupported_content")
        self._close_results()
        text, pictures = self._read_content(content)
        text = f"{name}: {text}" if name else text
        if is_question and not self._sees and any(is_image(as_mapping(block)) for block in as_list(content)):
            other = self._seeing_model()
            text += f"\n[this model does not see pictures{f'; {other} does' if other else ''}]"
        self._messages.append(Message("user", text, context=self._joined_rules(), pictures=pictures))

    def add_answer(self, content: object, calls: Iterable[HistoryCall] = (), *, continues: bool = False) -> None:
        """Add an assistant's message, which is one with an assistant's message just before it.

        After a call without a result it is another one, but with ``continues``.
        """
        is_one = not (self._results or self._rules) and bool(self._messages) and (continues or not self._open_calls)
        if is_one and self._messages[-1].role == "assistant":
            before = self._messages.pop()
        else:
            self._close_results()
            before = Message("assistant")
        if self._rules:
            self._messages.append(Message("user", self._joined_rules()))
        earlier_calls = list(before.calls)
        for call in calls:
            self._calls_made += 1
            call_id = call.id or f"call_of_{len(self._messages)}_{len(earlier_calls)}"
            sent_id = call_id
            if self._numbers_calls:
                call_id = f"call_{self._calls_made}"
                # A client may omit the id in the call and still send it in the result, as it received it.
                sent_id = call.id or call_id
            elif any(other.id == call_id for other in self._open_calls):
                call_id = f"{call_id}_{len(earlier_calls)}"
            open_call = _OpenCall(sent_id, call_id, self._names.get(call.name) or safe_name(call.name))
            self._open_calls.append(open_call)
            # A value that is not an object becomes the only argument.
            value = call.arguments
            if isinstance(value, str):
                written = value = value.strip()
                try:
                    value = json.loads(written or "{}")
                except (ValueError, RecursionError):
                    # A long text takes too long to repair.
                    self._repairable_chars -= len(written)
                    if self._repairable_chars >= 0:
                        with suppress(UnreadableError):
                            value = read_value(written).value
            arguments = (
                cast("dict[str, Any]", value) if isinstance(value, dict) else {"arguments": value} if value else {}
            )
            # n8n adds the call's id to the arguments; the model would read, and write, what it never wrote.
            if call.id and arguments.get("id") == call.id and open_call.name not in self._takes_id:
                arguments = {name: value for name, value in arguments.items() if name != "id"}
            earlier_calls.append(ToolCall(open_call.id, open_call.name, arguments))
        text = content_text(content)
        text = "\n".join(filter(None, (before.text, text))) if before.text else text
        self._messages.append(Message("assistant", text, calls=tuple(earlier_calls)))

    def add_result(
        self, content: object, call_id: str | None, *, tool_name: str | None = None, prefix: str = ""
    ) -> None:
        """Add the result of a call, which is found by its id, or without one by its tool."""
        call = next((call for call in self._open_calls if call.sent_id == call_id), None)
        if call is None and (self._numbers_calls or not call_id):
            name = tool_name and (self._names.get(tool_name) or safe_name(tool_name))
            call = next((call for call in self._open_calls if name in (None, "", call.name)), None)
        text, pictures = self._read_content(content)
        text, inside = without_media(text)
        pictures += tuple(inside) if self._sees else ()
        if call is None:
            # Programs cut long histories in front of a result.
            _log_once("a result in a request has no call before it; it is read as a text")
            self._rules.append(f"[The result of a tool]\n{prefix}{text}")
            return
        self._open_calls.remove(call)
        self._results.append(ToolResult(call.id, call.name, f"{prefix}{text}", pictures=pictures))

    @property
    def ends_with_answer(self) -> bool:
        """True if the last message is a text of the assistant's, which the model goes on with."""
        is_last = bool(self._messages) and not (self._rules or self._results or self._open_calls)
        return is_last and self._messages[-1].role == "assistant" and bool(self._messages[-1].text)

    def messages(self, param: str = "messages") -> tuple[Message, ...]:
        """Return all messages; a request without any is refused."""
        self._close_results()
        if self._rules:
            self._messages.append(Message("user", self._joined_rules()))
        system = [Message("system", "\n\n".join(self._front))] if self._front else []
        if not (system or self._messages):
            raise RequestRefusedError("no message says anything; send a question", param)
        # A program sends the pictures of its history with each request, so too many of them must not end the
        # conversation: the last ones are kept, and an earlier one is a line about it.
        remaining, messages = MOST_PICTURES, list[Message]()
        for message in reversed(self._messages):
            latest_first = [(result.text, result.pictures) for result in reversed(message.results)]
            kept: list[tuple[str, tuple[Picture, ...]]] = []
            for text, pictures in (*latest_first, (message.text, message.pictures)):
                dropped = max(0, len(pictures) - remaining)
                remaining -= len(pictures) - dropped
                lines = [*["[image, not shown]"] * dropped, text]
                kept.append(("\n".join(lines) if dropped else text, pictures[dropped:]))
            text, pictures = kept.pop()
            pairs = zip(message.results, reversed(kept), strict=True)
            results = tuple(replace(result, text=words, pictures=images) for result, (words, images) in pairs)
            messages.insert(0, replace(message, text=text, pictures=pictures, results=results))
        return (*system, *messages)

    def _read_content(self, content: object) -> tuple[str, tuple[Picture, ...]]:
        """Return the text of a content, and its pictures for a model that sees."""
        if not self._sees or not as_list(content):
            return content_text(content), ()
        blocks: list[Any] = []
        pictures: list[Picture] = []
        for block in as_list(content):
            picture = image_of(as_mapping(block)) if is_image(as_mapping(block)) else None
            if picture is None:
                blocks.append(block)
            else:
                pictures.append(picture)
        return content_text(blocks), tuple(pictures)

    def _joined_rules(self) -> str:
        rules, self._rules = self._rules, []
        return "\n\n".join(rules)

    def _close_results(self) -> None:
        """End the results of a round: every call has one, in the order of the calls."""
        self._results += [ToolResult(call.id, call.name, _NO_RESULT) for call in self._open_calls]
        self._open_calls = []
        if self._results:
            order = {call.id: index for index, call in enumerate(self._messages[-1].calls)}
            results = sorted(self._results, key=lambda result: order[result.call_id])
            self._messages.append(Message("tool", results=tuple(results)))
            self._results = []
