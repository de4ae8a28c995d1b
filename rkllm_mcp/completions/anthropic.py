"""Anthropic's Messages API: its body -> ``ChatRequest``; an answer -> the message or its stream of events.

Follows Anthropic's API reference, Messages and streaming messages, versions 2023-06-01 to 2026-10-21. Thinking is a
block of its own in answers, and is not read in requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationError

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
    answer_form,
    choose_tool,
    client_tools,
    model_options,
)
from rkllm_mcp.messages import ToolSpec, as_mapping
from rkllm_mcp.sampling import Api, overrides_of

# The oldest version of the API, by its date, whose objects and events these are.
OLDEST_VERSION = "2023-06-01"
_SYSTEM = ("system", "developer")
# Penalties have no name of Anthropic's, and are taken by those that programs know.
_APIS: tuple[Api, ...] = ("anthropic", "openai", "compatible")
_NO_THINKING = ("disabled", "between_tools")
_TOOL_CHANGES = ("tool_addition", "tool_removal")
_MODES: Mapping[str, ToolMode] = {"auto": "auto", "any": "required", "none": "none"}


class MessagesBlock(api.ContentPart):
    """A block of a message, or of a tool's result."""

    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | list[Any] | str | None = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


_Blocks = str | Annotated[list[MessagesBlock], Field(max_length=api.MOST_PARTS)]


class MessagesMessage(api.ApiBody):
    """One message."""

    role: api.Role
    content: Annotated[_Blocks, BeforeValidator(api.content_parts, json_schema_input_type=api.LooseContent)]


class MessagesTool(api.ApiBody):
    """A tool of the program, or the tools of a configured server (``mcp_toolset``)."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: Any = None
    mcp_server_name: str | None = None


class MessagesChoice(api.ApiBody):
    """Which tools may or have to be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: Annotated[str, Field(max_length=256)] | None = None
    disable_parallel_tool_use: bool | None = None


class MessagesThinking(api.ApiBody):
    """Switch for thinking; a budget has no effect."""

    type: str


class OutputFormat(api.ApiBody):
    """The form of an answer."""

    type: Literal["json_schema"]
    # "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(api.ApiBody):
    """Settings of the answer."""

    IGNORED = ("effort", "task_budget")

    format: OutputFormat | None = None


class MessagesThread(api.ApiBody):
    """A conversation of which this service keeps what was said: a request that continues it brings the rest alone."""

    type: Literal["create", "continue"]
    previous_message_id: Annotated[str, Field(max_length=256)] | None = None


_OTHER_APIS: Mapping[str, tuple[Any, ...]] = {
    "n": api.ONE_ANSWER,
    "logprobs": api.LOGPROBS,
    "logit_bias": api.LOGIT_BIAS,
    "functions": ("a function is a tool; send tools and tool_choice",),
    **api.belongs_to("/v1/chat/completions", "response_format", instead="send output_config.format"),
    **api.belongs_to("/v1/chat/completions", "stop", instead="send stop_sequences"),
    **api.belongs_to("/v1/chat/completions", "max_completion_tokens", instead="send max_tokens"),
    **api.belongs_to("/v1/chat/completions", "reasoning_effort", "chat_template_kwargs", instead="send thinking"),
    **api.belongs_to("/v1/responses", "instructions", instead="send system"),
    **api.belongs_to("/v1/responses", "input", "previous_response_id", instead="send messages"),
    **api.GRAMMARS,
    **api.OF_OTHER_SERVERS,
}


_NO_EFFECT = (
    *("betas", "billing_policy", "cache_control", "context_management", "speed", "user_profile_id", "workspace_id"),
)


class CountBody(api.WholeBody):
    """POST /v1/messages/count_tokens."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "mcp_servers": ("no server is reached at an address of the client's; name a configured one in an mcp_toolset",),
        **_OTHER_APIS,
    }
    # A count does not depend on whether a summary is made.
    IGNORED = (*_NO_EFFECT, "compaction")

    messages: Annotated[list[MessagesMessage], Field(min_length=1, max_length=api.MOST_MESSAGES)]
    model: str
    system: _Blocks | None = None
    tools: Annotated[list[MessagesTool], Field(max_length=api.MOST_TOOLS)] | None = None
    tool_choice: MessagesChoice | None = None
    thinking: MessagesThinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    mcp_servers: list[dict[str, Any]] | None = None


class MessagesBody(api.add_sampling(CountBody, *_APIS)):
    """POST /v1/messages."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **CountBody.REFUSED,
        "container": ("no code runs here for a model; leave it out",),
        "compaction": ("no summary is made here; ask for one in a message",),
    }
    IGNORED = (
        *(
            *_NO_EFFECT,
            "diagnostics",
            "fallback_credit_token",
            "fallbacks",
            "inference_geo",
            "metadata",
            "service_tier",
        ),
    )

    max_tokens: api.Positive
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    container: str | dict[str, Any] | None = None
    thread: MessagesThread | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: api.Tokens | None = None


class MessagesUsage(api.ResponsePart):
    """Tokens of the answer; the prompt's are those that were prefilled and those that were in the KV cache."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessagesReply(api.ResponsePart):
    """The answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_details: None
    container: None
    usage: MessagesUsage


class TokenCount(api.ResponsePart):
    """Tokens of a prompt."""

    input_tokens: int


@dataclass(frozen=True)
class KeptThread:
    """What is kept of a thread: its system text and tools, which only its first request has, and its messages."""

    system: _Blocks | None = None
    tools: Sequence[MessagesTool] = ()
    messages: Sequence[MessagesMessage] = ()

    @classmethod
    def of(cls, items: Sequence[Json]) -> KeptThread:
        """Return what ``thread_items`` wrote."""
        head, *messages = items
        tools = tuple(MessagesTool.model_validate(tool) for tool in head["tools"] or ())
        # A system text in blocks is read as a message's.
        system = MessagesMessage.model_validate({"role": "system", "content": head["system"] or ""}).content
        return cls(system or None, tools, [MessagesMessage.model_validate(message) for message in messages])


def thread_items(body: MessagesBody, content: Sequence[Json]) -> list[Json]:
    """Return the stored part of a request and the content of its answer, as JSON."""
    sent = body.model_dump(mode="json", include={"system", "tools", "messages"}, exclude_none=True)
    items = [*sent["messages"], {"role": "assistant", "content": list(content)}]
    if body.thread is not None and body.thread.type == "create":
        items.insert(0, {"system": sent.get("system"), "tools": sent.get("tools")})
    return items


def messages_request(body: CountBody, context: RequestContext, kept: KeptThread | None = None) -> ChatRequest:
    """Return the request of a body, after what is ``kept`` of its thread.

    Raises:
        RequestRefusedError: a field cannot be honoured; it is named.
    """
    api.refuse_impossible(body)
    if kept is None:
        kept = KeptThread(body.system, body.tools or ())
    elif body.system or body.tools:
        name = "system" if body.system else "tools"
        message = f"{name} is that of the request that created the thread; leave it out, or create another thread"
        raise RequestRefusedError(message, name, "thread_fingerprint_mismatch")
    messages = [*kept.messages, *body.messages]
    tools, servers = _tools(kept.tools, messages)
    settings: Json = {"limit": None}
    if isinstance(body, MessagesBody):
        settings = {"limit": body.max_tokens, "stop": body.stop_sequences, "stop_place": "stop_sequences"}
        settings["sampling"] = overrides_of(body, _APIS)
    history = MessageHistory(tools, context)
    _add_messages(history, kept.system, messages, kept_messages=len(kept.messages))
    mcp, tokens = (body.mcp, body.tokens) if isinstance(body, MessagesBody) else (None, None)
    host_tools = context.runs_host_tools(tools, True if servers else mcp)
    choice = body.tool_choice or MessagesChoice(type="auto")
    mode, forced = (None, choice.name or "") if choice.type == "tool" else (_MODES[choice.type], None)
    options = model_options(
        choose_tool(mode, forced, tools, host_tools=host_tools),
        thinking=None if body.thinking is None else body.thinking.type not in _NO_THINKING,
        single_call=choice.disable_parallel_tool_use is True,
        **settings,
    )
    form = (body.output_config.format if body.output_config else None) or body.output_format
    return ChatRequest(
        history.messages(),
        tools,
        replace(options, continues=history.ends_with_answer),
        answer_form(form.type, form.schema_, context.check_schema, "output_config.format") if form else None,
        host_tools,
        dict.fromkeys(servers),
        tokens=tokens or {},
        field_names={"response_format": "output_config.format"},
    )


def _tools(
    tools: Sequence[MessagesTool], messages: Sequence[MessagesMessage]
) -> tuple[tuple[ToolSpec, ...], list[str]]:
    """Return the tools of the program, and the names of the servers whose tools are used.

    They are those of the request with those that its messages add, and without those that they take away.
    """
    by_name = {tool.name or f"{tool.type} {tool.mcp_server_name}": tool for tool in tools}
    offered = dict(by_name)
    blocks = (block for message in messages if not isinstance(message.content, str) for block in message.content)
    for block in blocks:
        if block.type not in _TOOL_CHANGES:
            continue
        change = as_mapping(as_mapping(block.model_extra).get("tool"))
        name = str(change.get("name") or f"mcp_toolset {change.get('server_name')}")
        if block.type == "tool_removal":
            offered.pop(name, None)
        elif change.get("type") == "tool_definition":
            with suppress(ValidationError):
                tool = MessagesTool.model_validate(change.get("definition"))
                by_name[tool.name or name] = offered[tool.name or name] = tool
        elif name in by_name:
            offered[name] = by_name[name]
    declared: list[ToolDeclaration] = []
    servers: list[str] = []
    hosted: list[tuple[str, str]] = []
    for index, tool in enumerate(offered.values()):
        if tool.type == "mcp_toolset" and tool.mcp_server_name:
            servers.append(tool.mcp_server_name)
        elif tool.type not in (None, "custom"):
            hosted.append((tool.type, f"tools[{index}].type"))
        else:
            declared.append(ToolDeclaration(tool.name or "", tool.description, tool.input_schema))
    return client_tools(declared, servers, hosted), servers


def _add_messages(
    history: MessageHistory, system: _Blocks | None, messages: Sequence[MessagesMessage], *, kept_messages: int
) -> None:
    """Add system text and messages; the client does not know the first ``kept_messages`` by their places."""
    # Each of several texts may begin with a line to leave out.
    for text in [system] if isinstance(system, str) else [block.model_dump() for block in system or ()]:
        history.add_system(text)
    # Instructions after a question belong to it, and it stays the question.
    question = max((index for index, message in enumerate(messages) if message.role not in _SYSTEM), default=0)
    for index, message in enumerate(messages):
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [MessagesBlock(type="text", text=blocks)]
        if message.role == "assistant":
            uses = [block for block in blocks if block.type == "tool_use"]
            calls = (HistoryCall(block.id, block.name, block.input) for block in uses if block.name)
            texts = (content_text(block.model_dump()) for block in blocks if block.type != "tool_use")
            history.add_answer("".join(texts), calls)
            continue
        results = [block for block in blocks if block.type == "tool_result"]
        for block in results:
            history.add_result(block.content, block.tool_use_id, prefix="Error: " if block.is_error else "")
        if results and len(results) == len(blocks):
            continue
        # A result leaves its place, so that a refusal names a block by the client's own index.
        content = [{} if block.type == "tool_result" else block.model_dump() for block in blocks]
        if message.role == "user":
            history.add_user(content, f"messages[{index - kept_messages}]", is_question=index == question)
        elif message.role == "tool":
            history.add_result(content, None)
        else:
            history.add_system(content, is_behind=True)


# By kind of part: the block before its first piece, and its field and the kind of delta that have a piece.
_BLOCKS: dict[PartKind, tuple[Json, str, str]] = {
    "text": ({"type": "text", "text": ""}, "text", "text_delta"),
    "thinking": ({"type": "thinking", "thinking": "", "signature": ""}, "thinking", "thinking_delta"),
    "call": ({"type": "tool_use", "id": "", "name": "", "input": {}}, "partial_json", "input_json_delta"),
}


@dataclass(eq=False)
class MessagesShape(ReplyShape):
    """The message of ``reply``."""

    reply: Reply
    to_record = staticmethod(typed_record)

    def begin(self) -> str:
        """Return the event before the first block; the answer's tokens are not known yet."""
        return typed_record({"type": "message_start", "message": self._message([], None, None)})

    def piece(self, part: Part) -> str:
        """Return the event of a piece, after that of its block for the first one."""
        block, field, kind = _BLOCKS[part.kind]
        head = ""
        if len(part.pieces) == 1:
            if part.call is not None:
                block = {**block, "id": part.call.id, "name": part.call.name}
            head = typed_record({"type": "content_block_start", "index": part.index, "content_block": block})
        delta = {"type": kind, field: part.pieces[-1]}
        return head + typed_record({"type": "content_block_delta", "index": part.index, "delta": delta})

    def closing(self, part: Part) -> str:
        """Return the event after the last piece of a block."""
        return typed_record({"type": "content_block_stop", "index": part.index})

    def finish(self) -> str:
        """Return the last events: the reason of the end, and the usage."""
        message = self.whole()
        delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details", "container")}
        end = typed_record({"type": "message_delta", "delta": delta, "usage": message["usage"]})
        return end + typed_record({"type": "message_stop"})

    def whole(self) -> Json:
        """Return the message."""
        blocks: list[Json] = []
        for part in self.reply.parts:
            block, field, _ = _BLOCKS[part.kind]
            if part.call is None:
                blocks.append({**block, field: part.text})
            else:
                call, arguments = part.call, json.loads(part.text)
                blocks.append({**block, "id": call.id, "name": call.name, "input": arguments})
        if self.reply.is_cut:
            return self._message(blocks, "max_tokens", None)
        if self.reply.calls:
            return self._message(blocks, "tool_use", None)
        stop = self.reply.end.stop_string
        return self._message(blocks, "stop_sequence", stop) if stop else self._message(blocks, "end_turn", None)

    def _message(self, content: list[Json], reason: StopReason | None, sequence: str | None) -> Json:
        reply = self.reply
        prompt_tokens, cached_tokens = reply.prompt_tokens, reply.cached_tokens
        if not prompt_tokens and reply.conversation is not None:
            # The first round has not ended.
            prompt_tokens = reply.conversation.prompt_tokens
            cached_tokens = max(0, prompt_tokens - reply.conversation.uncached_tokens)
        return {
            "id": reply.id,
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "stop_details": None,
            "container": None,
            "usage": {
                "input_tokens": prompt_tokens - cached_tokens,
                "output_tokens": reply.generated_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": cached_tokens,
            },
        }
