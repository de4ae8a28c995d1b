"""POST /v1/execute: answer a question with the assistant and its tools, as a stream of events.

    body ─▶ conversation ─▶ queue ─▶ events ─▶ one record each, the last one ``end``

The conversation's id is a response header, known before the first record. As a request header it names the conversation
like the body's field, visible to a load balancer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import Self

from rkllm_mcp.app.assistant import ApprovalMode, Assistant, ReplyOptions
from rkllm_mcp.completions.openai_types import MOST_MESSAGES, MOST_TOOLS, Positive, Tokens
from rkllm_mcp.config.section import Right
from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import End, Event, Text, event_to_dict
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import EmitEvents, Language
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.conversations import leads_on
from rkllm_mcp.surfaces.http.errors import HTTPError, problem_of
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import EventStream, Write, in_turn, record, while_connected

LANGUAGES: tuple[Language, ...] = ("en", "ja")
CONVERSATION = "X-Conversation-Id"
_Words = Annotated[str, Field(min_length=1)]
_Name = Annotated[str, Field(min_length=1, max_length=256)]
# Runs an answer and emits its events.
_Run: TypeAlias = Callable[[EmitEvents], Awaitable[None]]


class MessageBody(bodies.RequestBody):
    """A turn of a conversation that went on elsewhere."""

    role: Literal["user", "assistant"]
    """Who said it."""
    text: str
    """The words."""


class PromptBody(bodies.RequestBody):
    """A question that a server has prepared."""

    name: _Name
    """Its name, or server:name."""
    arguments: dict[str, str] = Field(default_factory=dict[str, str])
    """What it is filled with."""


def _is_given(name: str, type_: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"type": type_}}}


class ExecuteBody(bodies.RequestBody):
    """A question."""

    # The rule of ``_check_question``, for readers of the schema.
    model_config = ConfigDict(
        json_schema_extra={"oneOf": [_is_given("message", "string"), _is_given("prompt", "object")]}
    )

    message: _Words | None = None
    """The question; a resource is named in it as @server:uri. Required unless there is a prompt."""
    prompt: PromptBody | None = None
    """A server's prepared question instead."""
    conversation: _Name | None = None
    """The conversation to go on with; that of the header X-Conversation-Id, or a new one, when not given."""
    history: tuple[MessageBody, ...] = Field(default=(), strict=False, max_length=MOST_MESSAGES)
    """What was said before, for a conversation that this board does not know; it goes on under a new id then."""
    system: str | None = None
    """The system text of a new conversation; the configuration's when not given."""
    tokens: Tokens = Field(default_factory=dict[str, str])
    """Secrets for headers of servers, by name; used for this answer and kept nowhere."""
    force_tool: _Name | None = None
    """The tool that the answer begins with."""
    allowed_tools: tuple[_Name, ...] | None = Field(default=None, strict=False, max_length=MOST_TOOLS)
    """The only tools that it may use; none when empty."""
    max_tokens: Positive | None = None
    """The longest answer of one round."""
    approvals: Literal["ask", "grant", "refuse"] | None = None
    """What becomes of a call that needs a yes: ask puts it on the stream and waits, for a stream; else refuse."""
    stream: bool = True
    """One record for each event as it comes; false answers once, at the end."""

    @model_validator(mode="after")
    def _check_question(self) -> Self:
        if (self.message is None) == (self.prompt is None):
            raise ValueError("give either message or prompt")
        return self


class Executed(BaseModel):
    """A whole answer."""

    conversation: str = Field(description="The conversation's id.")
    text: str = Field(description="The words of the answer.")
    events: list[dict[str, Any]] = Field(description="Everything that happened, in order; the last one is the end.")


async def execute(request: Request) -> Response:
    """Answer a question."""
    service = service_of(request)
    body = await bodies.read(request, ExecuteBody, service.body_limit)
    tenant = tenant_of(request)
    app = tenant.app
    if (body.prompt or body.force_tool) and "tools" not in tenant.rights:
        raise HTTPError(403, "this key may not use tools and servers' prompts", code="key_purpose")
    language = reader_language(request)
    service.check_ready()
    conversation = await _conversation(request, app, body)
    answering = partial(_answer, conversation, body, tenant.rights, language)
    placed = partial(service.desk.put, app, conversation)
    headers = {CONVERSATION: conversation.id}

    async def run(emit: EmitEvents) -> None:
        await in_turn(request, answering, emit, placed)

    if body.stream:
        return EventStream(partial(_stream, run), headers=headers)
    return JSONResponse(await while_connected(request, partial(_whole, conversation.id, run)), headers=headers)


async def _conversation(request: Request, app: Assistant, body: ExecuteBody) -> Conversation:
    desk = service_of(request).desk
    told = [(turn.role, turn.text) for turn in body.history]
    wanted = body.conversation or request.headers.get(CONVERSATION)
    if not wanted:
        return desk.begin(app, body.system, told)
    found = await desk.find(app, wanted)
    if found is None and told:
        return desk.begin(app, body.system, told)
    if found is None:
        message = f"there is no conversation {wanted!r} here; leave it out to begin one, or send its history"
        raise HTTPError(404, message, param="conversation")
    if app.is_answering(found.id):
        message = "this conversation has an answer under way; wait for it, or cancel it"
        raise HTTPError(409, message, param="conversation", code="answer_under_way")
    return found


async def _answer(
    conversation: Conversation,
    body: ExecuteBody,
    rights: Sequence[Right],
    language: Language | None,
    app: Assistant,
    emit: EmitEvents,
) -> None:
    may_use_tools = "tools" in rights
    options = ReplyOptions(
        tools=may_use_tools and (body.allowed_tools is None or bool(body.allowed_tools)),
        resources=may_use_tools,
        max_new_tokens=body.max_tokens,
        force_tool=body.force_tool,
        approvals=_approvals(app, body, rights),
        tokens=body.tokens,
        allowed_tools=body.allowed_tools,
        keep=app.config.service.history,
        language=language,
    )
    if body.prompt is not None:
        await app.answer_prompt(conversation, body.prompt.name, body.prompt.arguments, emit, options)
    else:
        await app.answer(conversation, body.message or "", emit, options)


def reader_language(request: Request) -> Language | None:
    """Return the first known language of ``Accept-Language``; None if it names none."""
    named = (each.strip()[:2].lower() for each in request.headers.get("accept-language", "").split(","))
    return next((language for name in named for language in LANGUAGES if name == language), None)


def _approvals(app: Assistant, body: ExecuteBody, rights: Sequence[Right]) -> ApprovalMode:
    if "approve" in rights:
        return body.approvals or ("ask" if body.stream else "refuse")
    # Another key of the owner may answer what this one asks; a tenant has one key.
    return "ask" if body.approvals == "ask" and not app.tenant else "no_right"


async def _stream(run: _Run, write: Write) -> None:
    async def emit(events: Sequence[Event]) -> None:
        await write(b"".join([record(event_to_dict(event)) for event in events]))

    await run(emit)


async def _whole(conversation: str, run: _Run) -> dict[str, Any]:
    happened: list[Event] = []

    async def emit(events: Sequence[Event]) -> None:
        happened.extend(events)

    await run(emit)
    last = happened[-1]
    if isinstance(last, End) and isinstance(last.cause, PromptTooLongError):
        raise replace(problem_of(last.cause), param="message")
    text = "".join(event.text for event in happened if isinstance(event, Text))
    return {"conversation": conversation, "text": text, "events": _as_dicts(happened)}


def _as_dicts(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [event_to_dict(event) for event in events]


_ID_HEADER = ((CONVERSATION, "The conversation's id."),)
_LINKS = leads_on(f"$response.header.{CONVERSATION}")
ROUTES = (
    Route(
        "POST",
        "/v1/execute",
        execute,
        "Ask the assistant, with its tools",
        body=ExecuteBody,
        answers=(
            RouteResponse(
                dict[str, Any],
                media=EVENT_STREAM,
                says="One event in each record, by its kind; the last kind is end.",
                headers=_ID_HEADER,
                links=_LINKS,
            ),
            RouteResponse(Executed, says="The whole answer, when stream is false.", headers=_ID_HEADER, links=_LINKS),
        ),
        problems=(400, 404, 409, 429, 503),
    ),
)
