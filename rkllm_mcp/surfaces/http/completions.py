"""Answers in the shapes of all APIs that programs know: every route reads its body as the same request.

body ─▶ ChatRequest ─▶ completions.completion ─▶ events ─▶ ReplyWriter ─▶ stream or object
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.app.settings import seeing_model
from rkllm_mcp.completions.anthropic import (
    OLDEST_VERSION,
    CountBody,
    KeptThread,
    MessagesBody,
    MessagesReply,
    MessagesShape,
    TokenCount,
    messages_request,
    thread_items,
)
from rkllm_mcp.completions.chat_completions import (
    ChatBody,
    ChatCompletion,
    ChatCompletionChunk,
    ChatShape,
    CompletionBody,
    StreamOptions,
    TextCompletion,
    TextShape,
    chat_request,
    completion_request,
    joined_completions,
)
from rkllm_mcp.completions.completion import complete
from rkllm_mcp.completions.reply import Reply, ReplyShape, new_id
from rkllm_mcp.completions.request import ChatRequest, RequestContext, RequestRefusedError
from rkllm_mcp.completions.responses import (
    RESPONSE_PREFIX,
    InputItems,
    InputTokens,
    ResponseDeleted,
    ResponseObject,
    ResponsesBody,
    ResponsesShape,
    StoredItems,
    events_of,
    responses_request,
)
from rkllm_mcp.events import to_json
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.surfaces.http import bodies, openai
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError, problem_of
from rkllm_mcp.surfaces.http.idempotency import REPLAYED, RepeatableRequest, repeatable, still_answered
from rkllm_mcp.surfaces.http.models import choose_model
from rkllm_mcp.surfaces.http.owner import check_own
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import (
    check_length,
    chosen_model,
    id_prefix,
    model_header,
    run_work,
    service_of,
    tenant_of,
)
from rkllm_mcp.surfaces.http.streaming import (
    HEARTBEAT,
    EventStream,
    ReplyWriter,
    meter_answer,
    queue_place,
    while_connected,
)

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App


CountBodyT = TypeVar("CountBodyT", bound=CountBody)
# Reads the body of an API.
RequestReader: TypeAlias = Callable[[RequestContext], ChatRequest]


def _answers(reply_model: Any, record: Any, says: str) -> tuple[RouteResponse, ...]:
    return (
        RouteResponse(reply_model, says="The answer, when stream is not true."),
        RouteResponse(record, media=EVENT_STREAM, says=f"The answer in pieces; {says}"),
    )


_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_DONE = "the last record is [DONE]."
_NOT_STORED = "no response {!r} is stored here"


@Route(
    "POST",
    "/v1/chat/completions",
    body=ChatBody,
    answers=_answers(ChatCompletion, ChatCompletionChunk, _DONE),
    problems=(400, 404, 429, 503),
)
async def chat_completions(request: Request) -> Response:
    """Answer a conversation, as OpenAI's API does."""
    body = await bodies.read(request, ChatBody)
    await choose_model(request, body.model)
    reply = partial(Reply, new_id("chatcmpl-"), with_events=body.x_events is True)
    shape = partial(ChatShape, with_usage=(body.stream_options or StreamOptions()).include_usage is True)
    return await answer(request, partial(chat_request, body), reply, shape, streams=body.stream is True)


@Route(
    "POST",
    "/v1/completions",
    body=CompletionBody,
    answers=_answers(TextCompletion, TextCompletion, _DONE),
    problems=(400, 404, 429, 503),
)
async def completions(request: Request) -> Response:
    """Answer a prompt, as OpenAI's older API does."""
    body = await bodies.read(request, CompletionBody)
    await choose_model(request, body.model)
    if body.stream and len(body.prompts) > 1:
        raise HTTPError(400, "several prompts are answered without a stream; leave stream out", param="prompt")
    reply, wholes = partial(Reply, new_id("cmpl-")), list[dict[str, Any]]()
    for prompt in body.prompts:
        shape = partial(
            TextShape,
            echo=prompt if body.echo else "",
            with_usage=(body.stream_options or StreamOptions()).include_usage is True,
        )
        read = partial(completion_request, body, prompt)
        response = await answer(
            request,
            read,
            reply,
            shape,
            streams=body.stream is True,
            finished=lambda answered: wholes.append(answered.whole()),
        )
        if len(body.prompts) == 1:
            return response
    return JSONResponse(joined_completions(wholes))


@Route(
    "POST",
    "/v1/responses",
    body=ResponsesBody,
    answers=_answers(ResponseObject, dict[str, Any], "the last event has the whole response."),
    problems=(400, 404, 409, 429, 502, 503),
)
async def responses(request: Request) -> Response:
    """Answer items, as OpenAI's Responses API does."""
    body = await bodies.read(request, ResponsesBody)
    app = tenant_of(request).app
    is_stored = app.config.service.history and body.store is not False
    repeatable_request = await repeatable(
        request, lambda: body.model_dump_json(exclude={"stream"}), is_stored=is_stored
    )
    if repeatable_request.is_under_way:
        raise still_answered()
    if repeatable_request.earlier is not None:
        earlier, _ = await app.store.responses.get(app.tenant, repeatable_request.earlier.response)
        if earlier and body.stream is not True:
            return JSONResponse(earlier, headers=REPLAYED)
        if earlier:
            return Response("".join(events_of(earlier)), media_type=EVENT_STREAM, headers=REPLAYED)
    await choose_model(request, body.model)
    stored = await _stored_items(app, body)

    def on_finish(shape: ReplyShape) -> None:
        if is_stored:
            response = shape.whole()
            items = [item.model_dump(exclude_none=True) for item in body.items() if item.type != "item_reference"]
            output = [*items, *response["output"]]
            app.store.responses.save(app.tenant, response, output, made_with=request.state.parent)
            repeatable_request.response = response["id"]

    return await answer(
        request,
        partial(responses_request, body, stored),
        partial(Reply, new_id(f"{RESPONSE_PREFIX}{id_prefix(request)}"), with_server_calls=True),
        partial(ResponsesShape, body=body, is_stored=is_stored),
        streams=body.stream is True,
        finished=on_finish,
        asked=repeatable_request,
    )


async def _stored_items(app: App, body: ResponsesBody) -> StoredItems:
    """Return the stored items that a request refers to; an HTTPError 400 if they are not stored."""
    # The id of an item contains that of its response.
    item_ids = (item.id for item in body.items() if item.type == "item_reference" and item.id)
    response_ids = dict.fromkeys(RESPONSE_PREFIX + item.partition("_")[2].partition("_")[0] for item in item_ids)
    previous = body.previous_response_id
    if not response_ids and previous is None:
        return StoredItems()
    param = "input" if previous is None else "previous_response_id"
    if not app.config.service.history:
        message = "no response is stored (history = false in [service]); send the whole conversation as input"
        raise HTTPError(400, message, param=param, code="not_stored")
    before = await app.store.responses.chain(app.tenant, previous) if _is_response(previous) else None
    if previous is not None and before is None:
        message = f"no response {previous!r} is stored here, or not all before it; send the conversation as input"
        raise HTTPError(400, message, param=param, code="previous_response_not_found")
    output: dict[str, Any] = {}
    for response_id in response_ids:
        response, _ = await app.store.responses.get(app.tenant, response_id)
        output |= {item["id"]: item for item in (response or {"output": ()})["output"]}
    return StoredItems(before or (), output)


class RetrieveQuery(bodies.LenientBody):
    """How a response comes."""

    stream: bool = Field(False, description="As the events of its stream.")
    starting_after: int = Field(-1, ge=-1, le=10**9, description="Leave out the events up to this number.")


class ItemsQuery(bodies.LenientBody):
    """Which items come."""

    order: Literal["asc", "desc"] = Field("desc", description="The oldest or the newest first.")
    limit: int = Field(20, ge=1, le=100, description="At most so many.")
    after: str = Field("", description="Those behind the item of this id.")


@Route(
    "GET",
    "/v1/responses/{id}",
    query=RetrieveQuery,
    answers=_answers(ResponseObject, dict[str, Any], "the last event has the whole response."),
    problems=(404,),
)
async def show_response(request: Request) -> object:
    """Show a stored response."""
    app, response_id = tenant_of(request).app, request.path_params["id"]
    response, _ = await app.store.responses.get(app.tenant, response_id)
    if response is None or not _is_response(response_id):
        raise HTTPError(404, _NOT_STORED.format(response_id), param="id")
    query = bodies.query(request, RetrieveQuery)
    if not query.stream:
        return response
    records = events_of(response)[query.starting_after + 1 :]
    return Response("".join(records), media_type=EVENT_STREAM)


@Route(
    "GET",
    "/v1/responses/{id}/input_items",
    query=ItemsQuery,
    answers=(RouteResponse(InputItems),),
    problems=(404,),
)
async def show_input_items(request: Request) -> InputItems:
    """List the items of the request of a stored response."""
    app, response_id = tenant_of(request).app, request.path_params["id"]
    items = await app.store.responses.input_items(app.tenant, response_id)
    if items is None or not _is_response(response_id):
        raise HTTPError(404, _NOT_STORED.format(response_id), param="id")
    query = bodies.query(request, ItemsQuery)
    # One without an id gets one by its place.
    name = response_id.removeprefix(RESPONSE_PREFIX)
    entries = [{"id": f"in_{name}_{index}", **item} for index, item in enumerate(items)]
    entries = entries[::-1] if query.order == "desc" else entries
    start = next((index + 1 for index, item in enumerate(entries) if item["id"] == query.after), 0)
    page = entries[start : start + query.limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    has_more = len(entries) > start + query.limit
    return InputItems(object="list", data=page, first_id=first, last_id=last, has_more=has_more)


@Route("DELETE", "/v1/responses/{id}", answers=(RouteResponse(ResponseDeleted),), problems=(403, 404))
async def delete_response(request: Request) -> ResponseDeleted:
    """Forget a stored response."""
    app, response_id = tenant_of(request).app, request.path_params["id"]
    # A program deletes what was made with its key.
    response, made_with = await app.store.responses.get(app.tenant, response_id)
    if response is not None and made_with != request.state.parent:
        check_own(request, "delete a response that another key made")
    if not await app.store.responses.delete(app.tenant, response_id):
        raise HTTPError(404, _NOT_STORED.format(response_id), param="id")
    return ResponseDeleted(id=response_id, object="response", deleted=True)


@Route(
    "POST",
    "/v1/messages",
    body=MessagesBody,
    answers=_answers(MessagesReply, dict[str, Any], "the last event is message_stop."),
    problems=(400, 404, 429, 502, 503),
)
async def messages(request: Request) -> Response:
    """Answer a conversation, as Anthropic's API does."""
    body = await _anthropic(request, MessagesBody)
    app, thread = tenant_of(request).app, body.thread
    kept_thread: KeptThread | None = None
    if thread is not None and not app.config.service.history:
        # After this code and the next one the SDKs' tool runners send the whole conversation, without a thread or as a
        # new one.
        message = "no thread is kept (history = false in [service]); send the whole conversation, without thread"
        raise HTTPError(400, message, param="thread", code="thread_unsupported_request")
    if thread is not None and thread.type == "continue":
        previous = thread.previous_message_id or ""
        items = None if _is_response(previous) else await app.store.responses.chain(app.tenant, previous)
        if items is None:
            message = f"no message {thread.previous_message_id!r} of a thread is kept here; send the whole conversation"
            raise HTTPError(400, message, param="thread.previous_message_id", code="thread_not_found")
        kept_thread = KeptThread.of(items)

    def on_finish(shape: ReplyShape) -> None:
        if thread is not None:
            message = shape.whole()
            kept_message: dict[str, Any] = {
                "id": message["id"],
                "previous_response_id": thread.previous_message_id,
                "output": [],
            }
            app.store.responses.save(
                app.tenant, kept_message, thread_items(body, message["content"]), made_with=request.state.parent
            )

    return await answer(
        request,
        partial(messages_request, body, kept=kept_thread),
        partial(Reply, new_id(f"msg_{id_prefix(request)}")),
        MessagesShape,
        streams=body.stream is True,
        heartbeat=_PING,
        finished=on_finish,
    )


@Route(
    "POST",
    "/v1/messages/count_tokens",
    body=CountBody,
    answers=(RouteResponse(TokenCount),),
    problems=(400, 404, 502, 503),
)
async def count_tokens(request: Request) -> TokenCount:
    """Count the tokens of a conversation, as Anthropic's API does."""
    body = await _anthropic(request, CountBody)
    return TokenCount(input_tokens=await _count_prompt(request, partial(messages_request, body)))


@Route(
    "POST",
    "/v1/responses/input_tokens",
    body=ResponsesBody,
    answers=(RouteResponse(InputTokens),),
    problems=(400, 404, 502, 503),
)
async def count_input_tokens(request: Request) -> InputTokens:
    """Count the tokens of items, as OpenAI's Responses API does."""
    body = await bodies.read(request, ResponsesBody)
    await choose_model(request, body.model)
    stored = await _stored_items(tenant_of(request).app, body)
    tokens = await _count_prompt(request, partial(responses_request, body, stored))
    return InputTokens(object="response.input_tokens", input_tokens=tokens)


async def _count_prompt(request: Request, read: RequestReader) -> int:
    """Return the tokens of the prompt of a request, about where it does not fit."""
    question = await _read_request(request, read)
    app = tenant_of(request).app
    if (npu := app.model_host.npu) is None:
        raise HTTPError(400, "the model is at another service, which counts its tokens; read the usage of an answer")
    if chosen_model(request) not in ("", app.model_host.name):
        message = f"tokens are counted by the loaded model alone; ask for {app.model_host.name!r}"
        raise HTTPError(400, message, param="model")
    tools = app.tools(AnswerOptions(allowed_tools=question.allowed_tools)) if question.host_tools else question.tools
    prompt = ConversationPrompt(
        npu.form.tokenizer, npu.form.template, thinking=npu.form.thinks(question.options.thinking)
    )
    texts: list[str] = []
    for message in question.messages:
        texts += (message.text, message.context, message.thinking)
        texts += (result.text for result in message.results)
        texts += (to_json(call.arguments) for call in message.calls)
    texts += (tool.description for tool in question.tools)
    total = await openai.count_tokens(request, texts, npu.form.tokenizer, app.model_host.listing.context_tokens)
    if not total.is_exact:
        # Of what does not fit anyway an estimate is enough.
        return total.tokens
    sight = await npu.chat_model.see_to_count(question.messages)
    parts = await run_work(request, prompt.parts, sight.messages, tools, sight.text)
    return sum(len(part.ids) for part in parts)


async def _anthropic(request: Request, model: type[CountBodyT]) -> CountBodyT:
    version = request.headers.get("anthropic-version", OLDEST_VERSION)
    body = await bodies.read(request, model)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", version, re.ASCII) or version < OLDEST_VERSION:
        raise HTTPError(400, f"anthropic-version: {version!r} is not known here; send {OLDEST_VERSION} or a later one")
    await choose_model(request, body.model)
    return body


def _is_response(kept_id: str | None) -> TypeGuard[str]:
    """Return True for the id of a response; the messages of threads are kept with them."""
    return kept_id is not None and kept_id.startswith(RESPONSE_PREFIX)


async def answer(
    request: Request,
    read: RequestReader,
    new_reply: Callable[..., Reply],
    new_shape: Callable[[Reply], ReplyShape],
    *,
    streams: bool,
    may_load: bool = False,
    model: str = "",
    media: str = EVENT_STREAM,
    heartbeat: bytes = HEARTBEAT,
    finished: Callable[[ReplyShape], None] | None = None,
    asked: RepeatableRequest | None = None,
) -> Response:
    """Answer a request of any API, whose body ``read`` reads, once if ``asked`` has its key.

    ``new_reply`` and ``new_shape`` make the answer's reply and shape. With ``may_load`` it waits while the model loads,
    instead of a refusal. ``finished`` gets the shape of a complete answer before its last record is sent.
    """
    question = replace(await _read_request(request, read), recalls=request.state.recalls)
    last = next((message.text for message in reversed(question.messages) if message.role == "user"), "")
    check_length(request, last, question.field_names.get("messages", "messages"))
    reply = new_reply(
        model=model or chosen_model(request) or service_of(request).model_host.name,
        host_tools=question.host_tools,
        names={tool.name: tool.wire_name for tool in question.tools if tool.wire_name},
    )
    writer = ReplyWriter(reply, new_shape(reply))
    make = partial(_make_reply, request, question, writer, asked, may_load=may_load, finished=finished)
    if streams:
        return EventStream(
            make,
            media=media,
            headers=model_header(request),
            failure=lambda problem: writer.failure(problem.body(request.url.path)),
            heartbeat=heartbeat,
        )
    await while_connected(request, make)
    return JSONResponse(writer.shape.whole(), headers=model_header(request))


async def _make_reply(
    request: Request,
    question: ChatRequest,
    writer: ReplyWriter,
    asked: RepeatableRequest | None,
    stream: EventStream | None = None,
    *,
    may_load: bool,
    finished: Callable[[ReplyShape], None] | None,
) -> None:
    """Answer when the request's turn has come; an HTTPError if the answer then fails or is cancelled."""
    # The first record is sent with the first part and not before: while nothing was sent, a failure has a status.
    writer.stream = stream
    service = service_of(request)
    async with asked.held(lambda: asked.response != "") if asked else nullcontext():
        try:
            async with (
                queue_place(request, model=chosen_model(request), may_load=may_load) as queue_slot,
                queue_slot.turn(writer),
                meter_answer(service, request.state.tenant) as meter,
            ):
                tenant = request.state.tenant
                await complete(
                    meter.tenant.app, service.conversation_cache, question, writer, [meter], tenant, writer.reply.begin
                )
            end, problem = writer.reply.end, None
            if end.reason in ("cancelled", "interrupted"):
                message = "the answer was stopped; ask again in a moment"
                problem = HTTPError(503, message, retry_after_s=RETRY_AFTER_S)
            elif end.reason == "failed" and end.cause is not None:
                problem = problem_of(end.cause)
            elif end.reason == "failed":
                problem = HTTPError(500, end.error or "the answer failed; ask again")
            if problem is not None:
                raise problem
        except (RequestRefusedError, HTTPError) as error:
            if error.param:
                error.param = question.field_names.get(error.param, error.param)
            raise
        if finished is not None:
            finished(writer.shape)
        if stream is not None:
            stream.feed(writer.finish())


async def _read_request(request: Request, read: RequestReader) -> ChatRequest:
    """Return the request that a body describes; a refusal is an HTTPError 400, 403, 422 or 502."""
    service, tenant = service_of(request), tenant_of(request)
    tenant_servers = tenant.section.mcp if tenant.section is not None else None
    may_use_tools = "tools" in tenant.rights
    host_tools = may_use_tools and (service.config.service.mcp if tenant_servers is None else tenant_servers)
    model_host = tenant.app.model_host
    other = partial(seeing_model, emulated=None if model_host.npu is None else model_host.npu.model.card.emulated)
    context = RequestContext(service.schemas, host_tools, model_host.takes_pictures, other)
    # Checking a hundred tools takes a while, and all other answers would wait for it.
    question = await run_work(request, read, context)
    if question.host_tools and not may_use_tools:
        param = "tools" if question.servers else "mcp"
        raise HTTPError(403, "this key may not use the host's tools; leave them out", param=param, code="key_purpose")
    if not question.servers:
        return question
    toolbox, allowed = tenant.app.toolbox, list[str]()
    await toolbox.wait(dict.fromkeys(question.servers, math.inf))
    connections = {connection.spec.name: connection for connection in toolbox.connections}
    for server, names in question.servers.items():
        if server not in connections:
            server_names = ", ".join(connections) or "none"
            raise HTTPError(
                400, f"there is no server {server!r} in the configuration; there is {server_names}", param="tools"
            )
        if connections[server].backoff.ends_in_a_row:
            raise HTTPError(
                502, f"server {server!r} cannot be used: {connections[server].explanation()}", param="tools"
            )
        tools = {tool.original_name: tool.qualified_name for tool in toolbox.tools() if tool.server == server}
        for name in tools if names is None else names:
            if name not in tools:
                raise HTTPError(400, f"server {server!r} has no tool {name!r} that is on", param="tools")
            allowed.append(tools[name])
    return replace(question, allowed_tools=tuple(allowed))
