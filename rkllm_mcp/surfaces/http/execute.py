"""POST /v1/execute: answer a question with the assistant and its tools, as a stream of events.

    body ─▶ conversation ─▶ queue ─▶ events ─▶ one record each, the last one ``end``

The conversation's id is a response header, known before the first record. As a request header it names the conversation
like the body's field, visible to a load balancer.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import anyio
from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import Self

from rkllm_mcp.app.assistant import App, PromptQuestion
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.completions.api import MOST_MESSAGES, MOST_TOOLS, Positive, Tokens, whole
from rkllm_mcp.config.section import DocumentedModel, Right
from rkllm_mcp.conversations.recorder import AnswerRecord, ask_again, begin_again, continue_answer, replace_turns
from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import End, Event, Text, event_from_dict, event_to_dict, event_to_json
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, Picture, picture_type
from rkllm_mcp.protocols import EventSink
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.sampling import overrides_of
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.conversations import ConversationSettings
from rkllm_mcp.surfaces.http.errors import HTTPError, problem_of
from rkllm_mcp.surfaces.http.idempotency import REPLAYED, RepeatableRequest, other_request, repeatable, still_answered
from rkllm_mcp.surfaces.http.models import choose_model
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse
from rkllm_mcp.surfaces.http.running_answers import (
    DETACHED_APPROVAL_S,
    DETACHED_S,
    RunningAnswer,
    answer_under_way,
    read_elsewhere,
)
from rkllm_mcp.surfaces.http.state import check_length, chosen_model, id_prefix, model_header, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import (
    EventList,
    EventRecords,
    EventStream,
    meter_answer,
    queue_place,
    records,
    while_connected,
)
from rkllm_mcp.tasks import open_task_group
from rkllm_mcp.text import language_of_header

CONVERSATION = "X-Conversation-Id"
_Words = Annotated[str, Field(min_length=1)]
_Name = Annotated[str, Field(min_length=1, max_length=256)]


# Of a question; each takes 64 to 256 tokens of the context.
MOST_PICTURES = 8


def _picture(data: object) -> Picture:
    if not isinstance(data, str):
        raise ValueError("a picture is a string in base64")  # noqa: TRY004  (Pydantic reports this kind only)
    try:
        picture = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("send the picture itself, in base64; addresses and paths are not opened") from None
    if not picture_type(picture):
        raise ValueError("this is no picture that is read; send JPEG, PNG, WebP, AVIF, HEIC, GIF or BMP")
    return Picture.of(picture)


# The first bytes of JPEG, PNG, GIF, BMP, WebP, AVIF and HEIC in base64: what is none is known before it is sent.
_PICTURE_PATTERN = (
    "^(/9j/|iVBORw0KGg[opqr][A-Za-z0-9+/]|R0lGOD[dl]h"
    "|Qk[0-3][A-Za-z0-9+/]{15}([AEIMQUYcgkosw048][Mo04]|[BFJNRVZdhlptx159][As8])AAAA"
    "|UklGR[g-v][A-Za-z0-9+/]{4}[BFJNRVZdhlptx159]XRUJQ"
    "|AAAA[A-Za-z0-9+/][GWm2]Z0eXB(hdml[mz]|oZ(Wl[j4tz]|XZ[j4])|t(aWYx|c2Yx)))"
    "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
)
# Any: the class itself would be described next to the string.
_Picture = Annotated[
    Any,
    PlainValidator(_picture),
    WithJsonSchema(
        {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*", "pattern": _PICTURE_PATTERN}
    ),
]
_Pictures = Annotated[tuple[_Picture, ...], Field(strict=False, max_length=MOST_PICTURES)]


class MessageBody(bodies.RequestBody):
    """A turn of a conversation that went on elsewhere."""

    role: Literal["user", "assistant"]
    """Who said it."""
    text: str
    """The words."""
    pictures: _Pictures = ()
    """The pictures of a question."""


class PromptBody(bodies.RequestBody):
    """A question that a server has prepared."""

    name: _Name
    """Its name, or server:name."""
    arguments: dict[str, str] = Field(default_factory=dict[str, str])
    """What it is filled with."""


class ExecuteBody(bodies.RequestBody):
    """A question."""

    # The rules of ``_check_question``, for readers of the schema.
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["message"], "properties": {"message": {"type": "string"}, "continue": {"const": False}}},
                {"required": ["prompt"], "properties": {"prompt": {"type": "object"}, "continue": {"const": False}}},
                {"required": ["again"], "properties": {"again": {"const": True}, "continue": {"const": False}}},
                {
                    "required": ["continue", "conversation"],
                    "properties": {
                        "continue": {"const": True},
                        "conversation": {"type": "string", "minLength": 1},
                        "message": {"type": "null"},
                        "prompt": {"type": "null"},
                        "again": {"const": False},
                        "force_tool": {"type": "null"},
                    },
                },
            ],
            "allOf": [
                {
                    "anyOf": [
                        {"properties": {"pictures": {"maxItems": 0}}},
                        {"required": ["message"], "properties": {"message": {"type": "string"}}},
                    ]
                },
                {
                    "anyOf": [
                        {"properties": {"detached": {"const": False}}},
                        {"properties": {"stream": {"const": True}}},
                    ]
                },
            ],
            "anyOf": [
                {"properties": {"replaces": {"type": "null"}}},
                {
                    "required": ["replaces", "conversation"],
                    "properties": {
                        "conversation": {"type": "string", "minLength": 1},
                        "again": {"const": False},
                        "continue": {"const": False},
                    },
                },
            ],
        }
    )

    message: _Words | None = None
    """The question; a resource is named in it as @server:uri. Required unless there is a prompt."""
    pictures: _Pictures = ()
    """Pictures of the message, in base64, for a model that sees: JPEG, PNG, WebP, AVIF, HEIC (with the
    extra `heic`), GIF or BMP."""
    prompt: PromptBody | None = None
    """A server's prepared question instead."""
    replaces: Annotated[int, Field(ge=0, le=10**9), BeforeValidator(whole)] | None = None
    """The position in its conversation of the question that the message replaces. That question stays with all behind
    it as an earlier version (POST /v1/conversations/{id}/versions)."""
    again: bool = False
    """Instead: the last question of the conversation, whose answer was broken off, is asked again in its place."""
    continues: Annotated[bool, Field(alias="continue")] = False
    """Instead: the model goes on with the last answer of the conversation, which was stopped or cut off in its text.
    The stream begins with the events of that answer so far, and both become one answer. Needs a model on the board,
    and a conversation that is stored."""
    conversation: _Name | None = None
    """The conversation to go on with; that of the header X-Conversation-Id, or a new one, when not given."""
    history: tuple[MessageBody, ...] = Field(default=(), strict=False, max_length=MOST_MESSAGES)
    """What was said before, for a conversation that this board does not know; it goes on under a new id then."""
    model: _Name | None = None
    """The installed model that answers; it is loaded first if another one is. The loaded one when not given."""
    system: str | None = None
    """The system text of a new conversation; the configuration's when not given."""
    settings: ConversationSettings | None = None
    """Options of all questions of a new conversation; PATCH /v1/conversations/{id} changes them."""
    options: ConversationSettings | None = None
    """Options of this answer alone, which go before those of its conversation."""
    tokens: Tokens = Field(default_factory=dict[str, str])
    """Secrets for headers of servers, by name; used for this answer and kept nowhere."""
    resources: bool = True
    """Resources that the message names as @server:uri are read; false for a message with text of others."""
    memory: bool = True
    """What the message asks to be remembered is kept, and what the caller wanted remembered is recalled for it, with a
    key that may approve; false for a temporary conversation."""
    store: bool = True
    """The answer is stored with its conversation, if the service stores conversations."""
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
    detached: bool = False
    """The answer goes on when its reader leaves; GET /v1/conversations/{id}/stream continues it. For a stream, where
    conversations are stored; at most two at a time for a key, 30 minutes each."""

    @model_validator(mode="after")
    def _check_question(self) -> Self:
        if (self.message is not None) + (self.prompt is not None) + self.again + self.continues != 1:
            raise ValueError("give either message, prompt, again or continue")
        if self.pictures and self.message is None:
            raise ValueError("pictures need a message")
        if self.replaces is not None and (self.again or self.continues or not self.conversation):
            raise ValueError("replaces needs a message or prompt, and a conversation")
        if self.continues and (self.force_tool or not self.conversation):
            raise ValueError("continue needs a conversation, and takes no force_tool")
        return self


class Executed(DocumentedModel):
    """A whole answer."""

    conversation: str = Field(description="The conversation's id.")
    text: str = Field(description="The words of the answer.")
    events: list[dict[str, Any]] = Field(description="Everything that happened, in order; the last one is the end.")


_ID_HEADER = ((CONVERSATION, "The conversation's id."), ("X-Model", "The model that answers."))


@Route(
    "POST",
    "/v1/execute",
    body=ExecuteBody,
    answers=(
        RouteResponse(
            dict[str, Any],
            media=EVENT_STREAM,
            says="One event in each record, by its kind; the last kind is end.",
            headers=_ID_HEADER,
        ),
        RouteResponse(Executed, says="The whole answer, when stream is false.", headers=_ID_HEADER),
    ),
    problems=(400, 404, 409, 429, 503),
)
async def execute(request: Request) -> Response:
    """Ask the assistant, with its tools."""
    service = service_of(request)
    body = await bodies.read(request, ExecuteBody)
    tenant = tenant_of(request)
    app = tenant.app
    if (body.prompt or body.force_tool) and "tools" not in tenant.rights:
        raise HTTPError(403, "this key may not use tools and servers' prompts", code="key_purpose")
    keeps = body.store and app.config.service.history
    repeatable_request = await repeatable(request, partial(_all_asked, body), is_stored=keeps)
    request.state.asked = repeatable_request
    earlier = await _earlier_answer(request, app, body, repeatable_request)
    if isinstance(earlier, Response):
        return earlier
    if earlier is not None:
        # The answer to this very request was broken off: it is asked again in its place.
        body = body.model_copy(
            update={"again": True, **dict.fromkeys(("message", "prompt", "replaces")), "pictures": ()}
        )
    await choose_model(request, body.model)
    service.check_ready()
    check_length(request, body.message or "", "message")
    if body.detached and not (body.stream and body.store and app.config.service.history):
        message = "a detached answer needs stream, store, and history in [service]"
        raise HTTPError(422, message, param="detached")
    conversation = earlier or await _conversation(request, app, body)
    await service.answers.check_elsewhere(app, conversation.id)
    if body.again and not conversation.broken_off:
        raise HTTPError(409, "no answer of this conversation was broken off; send a message", param="again")
    if body.replaces is not None:
        await _find_replaced(app, conversation.id, body.replaces)
    if body.continues:
        await _continued_events(app, conversation)
    # Where the question is, or will be, among the turns.
    position = conversation.kept_turns - 2 if body.again or body.continues else conversation.kept_turns
    position = position if body.replaces is None else body.replaces
    repeatable_request.request = replace(repeatable_request.request, conversation=conversation.id, position=position)
    running = RunningAnswer(conversation.id, app.tenant, request.state.key, body.detached, repeatable_request.name)
    if body.detached:
        running.scope.deadline = anyio.current_time() + DETACHED_S
    headers = {CONVERSATION: conversation.id, **model_header(request)}
    if body.detached:
        service.tenants.tasks.start_soon(partial(_make_detached_answer, request, conversation, body, running))
        return EventStream(lambda stream: running.read(0, stream.write), headers=headers)
    if body.stream:
        # No coroutine of its own: each that waits for a token costs one more step.
        return EventStream(
            lambda stream: _make_answer(request, conversation, body, running, EventRecords(stream)), headers=headers
        )
    collected = EventList()
    await while_connected(request, partial(_make_answer, request, conversation, body, running, collected))
    return JSONResponse(_whole_answer(conversation.id, collected.events), headers=headers)


def _all_asked(body: ExecuteBody) -> str:
    """Return all that a body asks for, apart from its conversation, whose id may be known the second time alone."""
    digests = [picture.digest for message in (body, *body.history) for picture in message.pictures]
    excluded = {"pictures", "stream", "detached", "tokens", "history", "conversation", "system", "settings"}
    history = [(message.role, message.text) for message in body.history]
    return json.dumps([body.model_dump(exclude=excluded), history, digests], sort_keys=True)


async def _earlier_answer(
    request: Request, app: App, body: ExecuteBody, asked: RepeatableRequest
) -> Response | Conversation | None:
    """Return the answer to the same request of before: as it is made, or as it is stored.

    If it was broken off, the conversation in which it is asked again; None if nothing of it is stored. An HTTPError 409
    if it is being made and cannot be read on.
    """
    if asked.earlier is None:
        return None
    conversation_id, position, key = asked.earlier.conversation, asked.earlier.position, request.state.key
    if (body.conversation or conversation_id) != conversation_id:
        raise other_request()
    service, leases, headers = service_of(request), app.store.leases, {CONVERSATION: conversation_id, **REPLAYED}
    running = service.answers.find_detached(app.tenant, key, conversation_id)
    if body.stream and running is not None and running.request_key == asked.name:
        return EventStream(lambda stream: running.read(0, stream.write), headers=headers)
    if asked.is_under_way:
        is_held = leases is not None and await leases.is_held(app.tenant, conversation_id, elsewhere=True)
        if not (leases and is_held and body.stream and await leases.events(app.tenant, conversation_id, key, 0)):
            raise still_answered()
        read = partial(read_elsewhere, app, conversation_id, key, 0)
        return EventStream(lambda stream: read(stream.write), headers=headers)
    stored = await app.store.conversations.get(app.tenant, conversation_id)
    if stored is None or len(stored.turns) < position + 2:
        return None
    answer = stored.turns[position + 1]
    is_broken_off = answer.ending in ("", "interrupted", "cancelled")
    if is_broken_off and body.continues:
        return None
    if is_broken_off and position + 2 == len(stored.turns):
        if service.answers.find(app.tenant, conversation_id) is not None:
            raise still_answered()
        service.open_conversations.drop(app, conversation_id)
        turns = (*stored.turns[:-1], replace(answer, ending="interrupted"))
        return service.open_conversations.put(app, app.resume(replace(stored, turns=turns)))
    events = [event_from_dict(event) for event in json.loads(answer.events or "[]")] or [Text(answer.text)]
    reason = answer.ending or "interrupted"
    events.append(End(reason, "the answer failed; ask again" if reason == "failed" else None))
    if not body.stream:
        return JSONResponse(_whole_answer(conversation_id, events), headers=headers)

    async def write_events(stream: EventStream) -> None:
        stream.feed(records(map(event_to_json, events)))

    return EventStream(write_events, headers=headers)


def _whole_answer(conversation_id: str, events: Sequence[Event]) -> dict[str, Any]:
    """Return the whole answer; a prompt that is too long is an HTTPError."""
    last = events[-1]
    if isinstance(last, End) and isinstance(last.cause, PromptTooLongError):
        raise replace(problem_of(last.cause), param="message")
    text = "".join(event.text for event in events if isinstance(event, Text))
    return {"conversation": conversation_id, "text": text, "events": list(map(event_to_dict, events))}


async def _make_detached_answer(
    request: Request, conversation: Conversation, body: ExecuteBody, running: RunningAnswer
) -> None:
    async with open_task_group() as tasks:
        tasks.start_soon(running.publish, tenant_of(request).app)
        try:
            # The request of a detached answer ends before it does.
            with getattr(request.state, "while_good", nullcontext)():
                await _make_answer(request, conversation, body, running, running)
        except Exception as error:  # noqa: BLE001  (its readers are told)
            running.failure = problem_of(error)
        finally:
            running.finish()


async def _make_answer(
    request: Request, conversation: Conversation, body: ExecuteBody, running: RunningAnswer, sink: EventSink
) -> None:
    """Answer a request once, however often it is sent (see ``idempotency``), when its turn has come.

    Its question is stored when it has a place in the queue.
    """
    repeatable_request: RepeatableRequest = request.state.asked
    service, app = service_of(request), tenant_of(request).app
    asked = conversation.broken_off[0] if body.again else Message("user", body.message or "", pictures=body.pictures)
    question = asked.text
    draft: AnswerRecord | None = None
    is_refused = False
    async with repeatable_request.held(lambda: conversation.kept_turns > repeatable_request.request.position):
        with service.answers.running(running):
            try:
                async with queue_place(request, model=chosen_model(request)) as queue_slot:
                    earlier_events = await _make_room(app, conversation, body)
                    service.open_conversations.put(app, conversation)
                    if body.store and app.config.service.history:
                        secrets = tuple(body.tokens.values())
                        draft = AnswerRecord(
                            app.recorder,
                            conversation,
                            question,
                            secrets,
                            earlier_events=earlier_events,
                            pictures=asked.pictures,
                        )
                        if not await draft.begin():
                            service.open_conversations.drop(app, conversation.id)
                            raise answer_under_way()  # noqa: TRY301
                    async with queue_slot.turn(sink), meter_answer(service, request.state.tenant) as meter:
                        # The earlier part was counted when it came.
                        if earlier_events:
                            sink.feed(earlier_events)
                        running.assistant = meter.tenant.app
                        if missed := request.state.missed_model:
                            sink.feed([status_line("other_model", missed=missed, name=service.model_host.name)])
                        options = _answer_options(request, conversation, body, earlier_events, meter.tenant.app)
                        options = replace(options, pictures=asked.pictures)
                        words: str | PromptQuestion = question
                        if body.prompt is not None:
                            words = PromptQuestion(body.prompt.name, body.prompt.arguments)
                        elif earlier_events:
                            users = (
                                message.text for message in reversed(conversation.messages) if message.role == "user"
                            )
                            words = next(users, "")
                        await meter.tenant.app.answer(conversation, words, sink, options, [meter])
            except Exception:
                # A reader that has left is told nothing: the question of a detached answer stays.
                is_refused = not running.is_detached
                raise
            finally:
                # An answer that began has saved its question itself.
                if draft is not None and conversation.draft is not None and not conversation.unkept:
                    await draft.save("cancelled", is_refused=is_refused)
                if body.replaces is not None and conversation.kept_turns <= body.replaces:
                    # The question before it is back in the store.
                    service.open_conversations.drop(app, conversation.id)
        if running.scope.cancelled_caught:
            if anyio.current_time() >= running.scope.deadline:
                sink.feed([status_line("detached", minutes=f"{DETACHED_S / 60:.0f}")])
            sink.feed([End("cancelled")])


async def _make_room(app: App, conversation: Conversation, body: ExecuteBody) -> tuple[Event, ...]:
    """Take away what the answer replaces; return the events of the answer that it continues, if any."""
    if body.again:
        ask_again(conversation)
    if body.replaces is not None:
        stored = await _find_replaced(app, conversation.id, body.replaces)
        replace_turns(replace(stored, turns=stored.turns[: body.replaces]), body.replaces, conversation)
        conversation.replaces = body.replaces
    if not body.continues:
        return ()
    earlier_events = await _continued_events(app, conversation)
    begin_again(conversation)
    return earlier_events


async def _continued_events(app: App, conversation: Conversation) -> tuple[Event, ...]:
    """Return the events of the last answer, which the model goes on with."""
    if app.model_host.npu is None:
        message = "the remote service that answers here cannot go on with an answer; send a message"
        raise HTTPError(409, message, param="continue")
    stored = await app.store.conversations.get(app.tenant, conversation.id)
    earlier_events = continue_answer(stored, conversation) if stored is not None else ()
    if not earlier_events:
        message = "the last answer of this conversation was not cut off in its text, or is not stored; send a message"
        raise HTTPError(409, message, param="continue")
    return earlier_events


async def _find_replaced(app: App, conversation_id: str, position: int) -> StoredConversation:
    stored = await app.store.conversations.get(app.tenant, conversation_id)
    if stored is None or not (position < len(stored.turns) and stored.turns[position].role == "user"):
        message = f"no question is stored at position {position} of this conversation; its messages are counted from 0"
        raise HTTPError(409, message, param="replaces")
    return stored


async def _conversation(request: Request, app: App, body: ExecuteBody) -> Conversation:
    conversations = service_of(request).open_conversations
    history = [Message(turn.role, turn.text, pictures=turn.pictures) for turn in body.history]
    conversation_id = body.conversation or request.headers.get(CONVERSATION)
    conversation = await conversations.find(app, conversation_id) if conversation_id else None
    if conversation is None and (history or not conversation_id):
        # Not open before its answer has a place, so that a refused request evicts none.
        conversation = app.new_conversation(body.system)
        for message in history:
            conversation.add(message)
        conversation.settings = body.settings.model_dump_json(exclude_none=True) if body.settings else ""
    if conversation is None:
        message = f"there is no conversation {conversation_id!r} here; leave it out to begin one, or send its history"
        raise HTTPError(404, message, param="conversation")
    return conversation


def _answer_options(
    request: Request, conversation: Conversation, body: ExecuteBody, earlier_events: tuple[Event, ...], app: App
) -> AnswerOptions:
    rights: Sequence[Right] = request.state.rights
    own_options = body.options.model_dump(exclude_none=True) if body.options else {}
    settings = ConversationSettings.model_validate({**json.loads(conversation.settings or "{}"), **own_options})
    # A forced tool is asked for now, and goes before what the conversation may use otherwise.
    allowed = settings.tools if body.allowed_tools is None and not body.force_tool else body.allowed_tools
    if "approve" in rights:
        approvals = body.approvals or ("ask" if body.stream else "refuse")
    else:
        # Another key of the owner may answer what this one asks; a tenant has one key.
        approvals = "ask" if body.approvals == "ask" and not app.tenant else "no_right"
    return AnswerOptions(
        ModelOptions(
            body.max_tokens or settings.max_tokens,
            overrides_of(settings),
            thinking=settings.thinking,
            tool_choice=ForcedTool(body.force_tool) if body.force_tool else "auto",
            continues=bool(earlier_events),
        ),
        tools="tools" in rights and (allowed is None or bool(allowed)),
        allowed_tools=allowed,
        approvals=approvals,
        approval_timeout_s=DETACHED_APPROVAL_S if body.detached else None,
        id_prefix=id_prefix(request),
        tokens=body.tokens,
        save=body.store and app.config.service.history,
        resources="tools" in rights and body.resources and not earlier_events,
        memory=body.memory and "approve" in rights,
        language=language_of_header(request.headers.get("accept-language", "")),
        begun=earlier_events,
    )
