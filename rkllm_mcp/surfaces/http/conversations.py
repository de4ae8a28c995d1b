"""The conversations of a tenant: list, read, rename, export, delete, and stop the answer under way in one."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.completions.api import MOST_TOOLS, Positive, whole
from rkllm_mcp.config.sampling import with_sampling
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.conversations import exports
from rkllm_mcp.conversations.exports import summary_dict
from rkllm_mcp.conversations.recorder import replace_turns
from rkllm_mcp.errors import StoreAwayError
from rkllm_mcp.messages import picture_type
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.owner import check_own
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, JSON, Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.running_answers import RunningAnswer, read_elsewhere
from rkllm_mcp.surfaces.http.state import OWNER, run_work, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import EventStream
from rkllm_mcp.text import stamp

if TYPE_CHECKING:
    from rkllm_mcp.records import StoredConversation

MARKDOWN = "text/markdown"
# A picture of this address is always the same.
_KEPT = "private, max-age=31536000, immutable"
_MISSING = "there is no conversation {!r} here; GET /v1/conversations lists them"
_EMPTY_TURN: dict[str, Any] = {"created": "", "events": [], "version": 1, "versions": 1, "ending": ""}
_Name = Annotated[str, Field(min_length=1, max_length=256)]
_Number = Annotated[int, Field(le=10**9), BeforeValidator(whole)]


class Summary(DocumentedModel):
    """A conversation without its words."""

    id: str
    title: str = Field(description="The first words of its first question until the model or a person names it.")
    created: str = Field(description="When its first question was asked, ISO 8601.")
    updated: str = Field(description="When its last answer ended, ISO 8601.")
    messages: int = Field(description="How many turns it has.")
    pinned: bool
    passage: str = Field(description="The words around what was searched; empty where only the title holds it.")


class Summaries(DocumentedModel):
    """Conversations, the one that went on last first."""

    conversations: list[Summary]
    count: int = Field(description="How many there are without the limit.")


class TurnBody(DocumentedModel):
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str
    thinking: str = Field(description="What the model thought before it said that.")
    created: str = Field(description="ISO 8601; empty where it is not kept.")
    events: list[dict[str, Any]]
    """The records that the reader of an answer received, without its end; empty where they are not kept."""
    version: int = Field(description="Which version of the question this is, from 1.")
    versions: int = Field(description="How many versions of the question there are.")
    pictures: list[str] = Field(
        description="The SHA-256 of each picture of a question; GET /v1/conversations/{id}/pictures/{sha256} has it."
    )
    ending: str = Field(
        description="How an answer ended; empty for a question. running: it has not; interrupted: it was broken off "
        "with the process, and POST /v1/execute with again asks its question again."
    )


class ConversationSettings(with_sampling(bodies.RequestBody)):
    """Options of an answer, or of all in a conversation; the conversation's or the configuration's if not given."""

    max_tokens: Positive | None = Field(None, description="The longest answer of one round.")
    thinking: bool | None = Field(None, description="Think before the answer.")
    tools: tuple[_Name, ...] | None = Field(None, strict=False, max_length=MOST_TOOLS)
    """The only tools that answers may use; none when empty."""


class Whole(DocumentedModel):
    """A conversation."""

    id: str
    title: str
    created: str
    updated: str
    pinned: bool
    system: str | None = Field(description="Its own system text; null for the configuration's.")
    settings: ConversationSettings
    messages: list[TurnBody]


class Changed(bodies.RequestBody):
    """What is to be changed; the rest stays."""

    title: str | None = Field(None, min_length=1, max_length=200, pattern=r"\S", description="Another title.")
    pinned: bool | None = Field(None, description="True puts it to the top of the list.")
    settings: ConversationSettings | None = None
    """Options of its questions, in place of those before."""
    system: str | None = Field(None, max_length=100_000)
    """Its own system text; the configuration's when empty. The model reads the conversation again."""


class VersionBody(bodies.RequestBody):
    """A version of a question."""

    position: _Number = Field(ge=0, description="The question's place among the messages, from 0.")
    version: _Number = Field(ge=1, description="Which one, from 1, in the order in which they were asked.")


class ConversationQuery(bodies.RequestBody):
    """Filter of the list of conversations."""

    limit: int = Field(50, ge=1, le=500, description="At most so many.")
    offset: int = Field(0, ge=0, le=10**9, description="Leave out so many at the front.")
    search: str = Field("", max_length=200, description="Those alone whose title, turns or calls hold these words.")


class ExportQuery(bodies.RequestBody):
    """Format of an export."""

    format: Literal["markdown", "json"] = Field("markdown", description="For people, or to be imported again.")


class StreamQuery(bodies.RequestBody):
    """Where to go on."""

    after: int = Field(0, ge=0, le=10**9, description="The id of the last record that was received.")


class CancelResult(DocumentedModel):
    """Result of a cancellation."""

    cancelled: bool = Field(description="False when no answer was under way.")


@Route(
    "GET",
    "/v1/conversations",
    query=ConversationQuery,
    answers=(RouteResponse(Summaries),),
)
async def list_all(request: Request) -> dict[str, Any]:
    """List the conversations."""
    app, wish = tenant_of(request).app, bodies.query(request, ConversationQuery)
    conversations = app.store.conversations
    latest = await conversations.latest(app.tenant, wish.limit, wish.offset, wish.search, pinned_first=True)
    count = await conversations.count(app.tenant, wish.search)
    return {"conversations": [summary_dict(summary) for summary in latest], "count": count}


@Route("GET", "/v1/conversations/{id}", answers=(RouteResponse(Whole),), problems=(404,))
async def show(request: Request) -> object:
    """Read a conversation."""
    app, conversation_id, service = tenant_of(request).app, request.path_params["id"], service_of(request)
    opened = service.open_conversations.get_open(app, conversation_id)
    try:
        stored = await app.store.conversations.get(app.tenant, conversation_id)
    except StoreAwayError:
        if opened is None:
            raise
        stored = None
    if stored is not None:
        is_running = service.answers.find(app.tenant, conversation_id) is not None
        is_unfinished = bool(stored.turns) and stored.turns[-1].ending == "interrupted"
        if not is_running and app.store.leases is not None and is_unfinished:
            is_running = await app.store.leases.is_held(app.tenant, conversation_id)
        # Megabytes of stored events are read and written.
        content = await run_work(request, lambda: JSONResponse(_stored_json(stored, is_running=is_running)).body)
        return Response(bytes(content), media_type=JSON)
    if opened is None:
        raise app.store.shared.catching_up or HTTPError(404, _MISSING.format(conversation_id))
    # It is open and not stored: its turns with text.
    turns = [
        shown(TurnBody, message, **_EMPTY_TURN, pictures=[picture.digest for picture in message.pictures])
        for message in opened.messages
        if message.role in ("user", "assistant") and message.text.strip()
    ]
    title = turns[0]["text"][:60] if turns else ""
    settings = json.loads(opened.settings or "{}")
    unsaved = {"title": title, "created": "", "updated": "", "pinned": False, "system": opened.own_system}
    return shown(Whole, opened, **unsaved, settings=settings, messages=turns)


@Route("PATCH", "/v1/conversations/{id}", body=Changed, answers=(RouteResponse(Whole),), problems=(404, 409))
async def change(request: Request) -> object:
    """Rename or pin a conversation, or change the options of its questions."""
    app, conversation_id, service = tenant_of(request).app, request.path_params["id"], service_of(request)
    body = await bodies.read(request, Changed)
    values: dict[str, Any] = body.model_dump(exclude_none=True, include={"title", "pinned"})
    if body.settings is not None:
        values["settings"] = body.settings.model_dump_json(exclude_none=True)
    if body.system is not None:
        values["system"] = body.system or None
    if "system" in values:
        await service.answers.check_elsewhere(app, conversation_id)
    # No answer runs in it meanwhile; 409 if one does.
    held = service.answers.running(RunningAnswer(conversation_id, app.tenant, ""))
    with held if "system" in values else nullcontext():
        if not await app.store.conversations.change(app.tenant, conversation_id, values):
            raise HTTPError(404, _MISSING.format(conversation_id))
        if "system" in values:
            service.open_conversations.drop(app, conversation_id)
    if "settings" in values and (opened := service.open_conversations.get_open(app, conversation_id)) is not None:
        opened.settings = values["settings"]
    return await show.handler(request)


@Route(
    "POST", "/v1/conversations/{id}/versions", body=VersionBody, answers=(RouteResponse(Whole),), problems=(404, 409)
)
async def show_version(request: Request) -> object:
    """Go on with another version of a question."""
    app, conversation_id, service = tenant_of(request).app, request.path_params["id"], service_of(request)
    body = await bodies.read(request, VersionBody)
    await service.answers.check_elsewhere(app, conversation_id)
    # No answer runs in it meanwhile; 409 if one does.
    with service.answers.running(RunningAnswer(conversation_id, app.tenant, "")):
        conversations = app.store.conversations
        if not await conversations.show_version(app.tenant, conversation_id, body.position, body.version):
            raise HTTPError(404, "there is no such version of a question; GET /v1/conversations/{id} counts them")
        stored = await conversations.get(app.tenant, conversation_id)
        opened = service.open_conversations.get_open(app, conversation_id)
        if stored is not None and opened is not None:
            replace_turns(stored, body.position, opened)
    return await show.handler(request)


class PromptText(DocumentedModel):
    """What the model has of a conversation."""

    text: str = Field(description="As the model has read and written it, with its control tokens.")
    tokens: int


@Route("GET", "/v1/conversations/{id}/prompt", answers=(RouteResponse(PromptText),), problems=(403, 404))
async def prompt(request: Request) -> PromptText:
    """Read what was sent to the model: system text, tools, passages, turns and results, as far as it is in memory.

    Only for the owner, whose system text it is.
    """
    app, conversation_id, service = tenant_of(request).app, request.path_params["id"], service_of(request)
    if app.tenant != OWNER:
        raise HTTPError(403, "what was sent to the model has the owner's texts; this takes a key of the owner")
    npu = app.model_host.npu
    is_open = npu is not None and service.open_conversations.get_open(app, conversation_id) is not None
    read = npu.chat_model.prompts.get(conversation_id) if npu is not None and is_open else None
    if read is None:
        raise HTTPError(404, "the model does not have this conversation in memory; ask in it, then look again")
    return PromptText(text=read.text, tokens=read.tokens)


@Route(
    "DELETE", "/v1/conversations/{id}", answers=(RouteResponse(status=204, says="It is gone."),), problems=(403, 404)
)
async def delete(request: Request) -> None:
    """Forget a conversation and the records of its tool calls."""
    check_own(request, "delete the owner's conversations")
    app, conversation_id = tenant_of(request).app, request.path_params["id"]
    # An answer that is saved when it stops would restore the deleted conversation.
    await service_of(request).answers.stop(app, conversation_id)
    was_open = service_of(request).open_conversations.drop(app, conversation_id)
    if not await app.store.conversations.delete(app.tenant, conversation_id) and not was_open:
        raise HTTPError(404, _MISSING.format(conversation_id))


@Route(
    "GET",
    "/v1/conversations/{id}/pictures/{sha256}",
    answers=(RouteResponse(media="image/*", says="The picture as it was sent."),),
    problems=(404,),
)
async def picture(request: Request) -> Response:
    """Read a picture of a question."""
    app, conversation_id = tenant_of(request).app, request.path_params["id"]
    digest: str = request.path_params["sha256"]
    data = await app.store.conversations.picture(app.tenant, conversation_id, digest)
    opened = service_of(request).open_conversations.get_open(app, conversation_id)
    if data is None and opened is not None:
        pictures = (picture for message in opened.messages for picture in message.pictures)
        data = next((picture.data for picture in pictures if picture.digest == digest), None)
    if not data:
        raise HTTPError(404, "this conversation has no such picture; GET /v1/conversations/{id} names those it has")
    media = picture_type(data) or "application/octet-stream"
    return Response(data, media_type=media, headers={"Cache-Control": _KEPT, "X-Content-Type-Options": "nosniff"})


@Route(
    "GET",
    "/v1/conversations/{id}/export",
    query=ExportQuery,
    answers=(
        RouteResponse(media=MARKDOWN, says="For people."),
        RouteResponse(dict[str, Any], says="To be imported again."),
    ),
    problems=(404,),
)
async def export(request: Request) -> Response:
    """Write a conversation as a file."""
    app, conversation_id = tenant_of(request).app, request.path_params["id"]
    is_json = bodies.query(request, ExportQuery).format == "json"
    stored = await app.store.conversations.get(app.tenant, conversation_id)
    if stored is None:
        raise HTTPError(404, _MISSING.format(conversation_id))
    written = partial(exports.as_json, [stored]) if is_json else partial(exports.as_markdown, stored)
    text = await run_work(request, lambda: written().encode("utf-8", "replace"))
    file = f"conversation-{stored.id}.{'json' if is_json else 'md'}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(text, media_type=JSON if is_json else f"{MARKDOWN}; charset=utf-8", headers=headers)


@Route("POST", "/v1/conversations/{id}/cancel", answers=(RouteResponse(CancelResult),))
async def cancel(request: Request) -> CancelResult:
    """Stop the answer under way in a conversation."""
    app, conversation_id = tenant_of(request).app, request.path_params["id"]
    is_cancelled = service_of(request).answers.cancel(app, conversation_id)
    if not is_cancelled and app.store.leases is not None:
        is_cancelled = await app.store.leases.cancel(app.tenant, conversation_id)
    return CancelResult(cancelled=is_cancelled)


@Route(
    "GET",
    "/v1/conversations/{id}/stream",
    query=StreamQuery,
    answers=(
        RouteResponse(
            dict[str, Any],
            media=EVENT_STREAM,
            says="The events behind number after, each with its number as id. Where that is too old, a text with "
            "whole comes first, which replaces all text before it.",
        ),
    ),
    problems=(404, 429),
)
async def stream(request: Request) -> Response:
    """Go on reading a detached answer."""
    app, conversation_id = tenant_of(request).app, request.path_params["id"]
    after = bodies.query(request, StreamQuery).after
    key, leases = request.state.key, app.store.leases
    answer = service_of(request).answers.find_detached(app.tenant, key, conversation_id)
    if answer is not None:
        read = answer.read
    elif leases is not None and await leases.events(app.tenant, conversation_id, key, after) is not None:
        read = partial(read_elsewhere, app, conversation_id, key)
    else:
        message = "no detached answer of this key is here; GET /v1/conversations/{id} has what is stored"
        raise HTTPError(404, message, param="id")

    async def write_events(stream: EventStream) -> None:
        with service_of(request).answers.reading(key):
            await read(after, stream.write)

    return EventStream(write_events)


def _stored_json(stored: StoredConversation, *, is_running: bool) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for position, turn in enumerate(stored.turns):
        version, versions = stored.versions.get(position, (1, 1))
        ending = "running" if is_running and turn.ending == "interrupted" else turn.ending
        fields = {"created": stamp(turn.at), "events": json.loads(turn.events or "[]"), "ending": ending}
        fields |= {"version": version, "versions": versions, "pictures": [picture.digest for picture in turn.pictures]}
        turns.append(shown(TurnBody, turn, **fields))
    settings = json.loads(stored.settings or "{}")
    times = {"created": stamp(stored.created), "updated": stamp(stored.updated)}
    return shown(Whole, stored, **times, settings=settings, messages=turns)
