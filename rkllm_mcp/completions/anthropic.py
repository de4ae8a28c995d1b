"""Anthropic's Messages API: its request -> OpenAI's chat body; an answer -> the message or its stream of events.

Follows Anthropic's API reference, Messages and streaming messages, versions 2023-06-01 to 2026-10-21. Thinking is a
block of its own in answers, and is not read in requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rkllm_mcp.completions import openai_types as openai
from rkllm_mcp.completions.content import content_text
from rkllm_mcp.completions.openai_request import (
    Declared,
    Translated,
    checked_tools,
    chosen_tool,
    refuse_impossible,
    schema_form,
)
from rkllm_mcp.completions.reply import Json, Part, PartKind, Reply, ReplyShape, typed_record
from rkllm_mcp.completions.request import RequestRefusedError

# The oldest version of the API, by its date, whose objects and events these are.
OLDEST_VERSION = "2023-06-01"


class MessagesBlock(openai.ContentPart):
    """A block of a message, or of a tool's result."""

    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | list[Any] | str | None = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


_Blocks = str | Annotated[list[MessagesBlock], Field(max_length=openai.MOST_PARTS)]


class MessagesMessage(openai.OpenAIBody):
    """One message."""

    role: openai.Role
    content: _Blocks


class MessagesTool(openai.OpenAIBody):
    """A tool of the program, or the tools of a configured server (``mcp_toolset``)."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: Any = None
    mcp_server_name: str | None = None


class MessagesChoice(openai.OpenAIBody):
    """Which tools may or have to be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: Annotated[str, Field(max_length=256)] | None = None
    disable_parallel_tool_use: bool | None = None


class MessagesThinking(openai.OpenAIBody):
    """Switch for thinking; a budget has no effect."""

    type: str


class OutputFormat(openai.OpenAIBody):
    """The form of an answer."""

    type: Literal["json_schema"]
    # "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(openai.OpenAIBody):
    """Settings of the answer; an effort has no effect."""

    format: OutputFormat | None = None


class CountBody(openai.OpenAIBody):
    """POST /v1/messages/count_tokens."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "mcp_servers": ("no server is reached at an address of the client's; name a configured one in an mcp_toolset",),
    }
    IGNORED = (
        *("betas", "billing_policy", "cache_control", "compaction", "context_management", "speed", "user_profile_id"),
        "workspace_id",
    )

    messages: Annotated[list[MessagesMessage], Field(min_length=1, max_length=openai.MOST_MESSAGES)]
    model: str
    system: _Blocks | None = None
    tools: Annotated[list[MessagesTool], Field(max_length=openai.MOST_TOOLS)] | None = None
    tool_choice: MessagesChoice | None = None
    thinking: MessagesThinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    mcp_servers: list[dict[str, Any]] | None = None


class MessagesBody(CountBody):
    """POST /v1/messages."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **CountBody.REFUSED,
        "container": ("no code runs here for a model; leave it out",),
    }
    IGNORED = (
        *(*CountBody.IGNORED, "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "metadata"),
        *("service_tier", "thread"),
    )

    max_tokens: openai.Positive
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: openai.Integer | None = None
    container: str | dict[str, Any] | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: openai.Tokens | None = None


class MessagesUsage(openai.ResponsePart):
    """Tokens of the answer; the prompt's are those that were prefilled and those that were in the KV cache."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessagesReply(openai.ResponsePart):
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


class TokenCount(openai.ResponsePart):
    """Tokens of a prompt."""

    input_tokens: int


def messages_body(body: CountBody) -> Translated:
    """Return the request as OpenAI's chat body; a RequestRefusedError names a field with an invalid value."""
    refuse_impossible(body)
    messages, locations = _messages(body)
    if body.messages[-1].role == "assistant":
        message = "the last message is the user's: an answer cannot be begun for the model; instruct it instead"
        raise RequestRefusedError(message, f"messages[{len(body.messages) - 1}].role")
    tools, servers = _tools(body.tools or ())
    choice = body.tool_choice or MessagesChoice(type="auto")
    chosen = "required" if choice.type == "any" else choice.type
    form = (body.output_config.format if body.output_config else None) or body.output_format
    update: Json = {
        "model": body.model,
        "tools": tools or None,
        "tool_choice": chosen_tool(choice.name) if choice.type == "tool" else chosen,
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
        "thinking": None if body.thinking is None else body.thinking.type != "disabled",
        "response_format": None if form is None else schema_form(form.schema_),
        "mcp": True if servers else None,
    }
    if isinstance(body, MessagesBody):
        update |= body.model_dump(include={"max_tokens", "temperature", "top_p", "top_k", "tokens", "stream"})
        update |= {"stop": body.stop_sequences, "mcp": update["mcp"] or body.mcp}
    names = {
        ".function.parameters": ".input_schema",
        ".function": "",
        "response_format.json_schema": "output_config.format",
        "response_format": "output_config.format",
        "stop": "stop_sequences",
    }
    return Translated(
        openai.ChatBody(messages=messages).model_copy(update=update), locations, names, dict.fromkeys(servers)
    )


def _tools(tools: Sequence[MessagesTool]) -> tuple[list[openai.DeclaredTool], list[str]]:
    declared: list[Declared] = []
    servers: list[str] = []
    hosted: list[tuple[str, str]] = []
    for index, tool in enumerate(tools):
        if tool.type == "mcp_toolset" and tool.mcp_server_name:
            servers.append(tool.mcp_server_name)
        elif tool.type not in (None, "custom"):
            hosted.append((tool.type, f"tools[{index}].type"))
        else:
            declared.append((tool.name or "", tool.description, tool.input_schema))
    return checked_tools(declared, servers, hosted), servers


def _messages(body: CountBody) -> tuple[list[openai.BodyMessage], list[str]]:
    """Return the messages and the place of each."""
    system = [openai.BodyMessage(role="system", content=text) for text in _system_texts(body.system)]
    messages, locations = system, ["system" for _ in system]
    for index, message in enumerate(body.messages):
        for part in _parts(message):
            # Instructions behind a question belong to it, and the question stays the last message.
            is_behind = part.role == "system" and bool(messages) and messages[-1].role == "user"
            at = len(messages) - is_behind
            messages.insert(at, part)
            locations.insert(at, f"messages[{index}]")
    return messages, locations


def _system_texts(system: _Blocks | None) -> Iterator[str]:
    """Yield the system texts, each of which may begin with a line to leave out."""
    if isinstance(system, str):
        yield system
    elif system is not None:
        yield from (content_text(block.model_dump()) for block in system)


def _parts(message: MessagesMessage) -> Iterator[openai.BodyMessage]:
    """Yield the tool results of a message, then its texts and calls."""
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [MessagesBlock(type="text", text=blocks)]
    if message.role == "assistant":
        calls = [_tool_call(block) for block in blocks if block.type == "tool_use" and block.name]
        texts = (content_text(block.model_dump()) for block in blocks if block.type != "tool_use")
        yield openai.BodyMessage(role="assistant", content="".join(texts), tool_calls=calls or None)
        return
    for block in blocks:
        if block.type == "tool_result":
            content = openai.parts_of(block.content, "Error: " if block.is_error else "")
            yield openai.BodyMessage(role="tool", content=content, tool_call_id=block.tool_use_id or "")
    # A result leaves its place, so that a refusal names a block by the client's own index.
    others_as_parts = [openai.ContentPart() if block.type == "tool_result" else block for block in blocks]
    if not blocks or any(block.type != "tool_result" for block in blocks):
        yield openai.BodyMessage(role=message.role, content=others_as_parts)


def _tool_call(block: MessagesBlock) -> openai.MessageCall:
    function = openai.CalledFunction(name=block.name or "", arguments=block.input)
    return openai.MessageCall(id=block.id, function=function)


# By kind of part: the block before its first piece, and its field and the kind of delta that have a piece.
_BLOCKS: dict[PartKind, tuple[Json, str, str]] = {
    "text": ({"type": "text", "text": ""}, "text", "text_delta"),
    "thinking": ({"type": "thinking", "thinking": "", "signature": ""}, "thinking", "thinking_delta"),
    "call": ({"type": "tool_use", "id": "", "name": "", "input": {}}, "partial_json", "input_json_delta"),
}


class MessagesShape(ReplyShape):
    """The message of ``reply``."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def begin(self) -> str:
        """Return the event before the first block; the tokens are not known yet."""
        return typed_record({"type": "message_start", "message": self._message([], None, None)})

    def opened(self, part: Part) -> str:
        """Return the event before the first piece of a block."""
        block = dict(_BLOCKS[part.kind][0])
        if part.call is not None:
            block |= {"id": part.call.id, "name": part.call.name}
        return typed_record({"type": "content_block_start", "index": part.index, "content_block": block})

    def piece(self, part: Part) -> str:
        """Return the event of a piece."""
        _, field, kind = _BLOCKS[part.kind]
        delta = {"type": kind, field: part.pieces[-1]}
        return typed_record({"type": "content_block_delta", "index": part.index, "delta": delta})

    def closed(self, part: Part) -> str:
        """Return the event behind the last piece of a block."""
        return typed_record({"type": "content_block_stop", "index": part.index})

    def finish(self) -> str:
        """Return the last events: the reason of the end, and the usage."""
        reason, sequence = self._stop()
        delta = {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None, "container": None}
        end = typed_record({"type": "message_delta", "delta": delta, "usage": self._usage()})
        return end + typed_record({"type": "message_stop"})

    def failed(self, body: Json) -> str:
        """Return the error."""
        return typed_record(body)

    def whole(self) -> Json:
        """Return the message."""
        return self._message([_block(part) for part in self._reply.parts], *self._stop())

    def _message(self, content: list[Json], reason: StopReason | None, sequence: str | None) -> Json:
        return {
            "id": self._reply.id,
            "type": "message",
            "role": "assistant",
            "model": self._reply.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "stop_details": None,
            "container": None,
            "usage": self._usage(),
        }

    def _stop(self) -> tuple[StopReason, str | None]:
        reply = self._reply
        if reply.is_cut:
            return "max_tokens", None
        if reply.calls:
            return "tool_use", None
        stop = reply.end.stop_string
        return ("stop_sequence", stop) if stop else ("end_turn", None)

    def _usage(self) -> Json:
        reply = self._reply
        return {
            "input_tokens": reply.prompt_tokens - reply.cached_tokens,
            "output_tokens": reply.generated_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": reply.cached_tokens,
        }


def _block(part: Part) -> Json:
    block, field, _ = _BLOCKS[part.kind]
    if part.call is None:
        return {**block, field: part.text}
    return {**block, "id": part.call.id, "name": part.call.name, "input": json.loads(part.text)}
