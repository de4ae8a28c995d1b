"""POST /v1/chat/completions: OpenAI's chat, whole or as a stream.

    body ─▶ ChatRequest ─▶ its turn ─▶ exchange ─▶ events ─▶ one object, or chunks and [DONE]

What fails before the first word is a status; what fails later is the last record of the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.completions.exchange import Occurrence, exchange
from rkllm_mcp.completions.openai_body import ChatBody
from rkllm_mcp.completions.openai_objects import ChatCompletion, ChatCompletionChunk
from rkllm_mcp.completions.openai_reply import ReplyChunks, ReplyHead, WholeReply, new_reply_id
from rkllm_mcp.completions.openai_request import chat_request
from rkllm_mcp.completions.request import ChatRequest, RequestRefusedError
from rkllm_mcp.events import End
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.context import Service, service_of, tenant_of
from rkllm_mcp.surfaces.http.problems import RETRY_AFTER_S, Problem, problem_of
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Answer, Route
from rkllm_mcp.surfaces.http.streams import DONE, event_stream, record, while_connected
from rkllm_mcp.surfaces.http.turns import in_turn
from rkllm_mcp.tenancy import Tenant

# The name that every service knows its model by.
DEFAULT_MODEL = "default"

_Events: TypeAlias = AsyncGenerator[Occurrence, None]


async def complete(request: Request) -> Response:
    """Answer a chat request."""
    service = service_of(request)
    body = await bodies.read(request, ChatBody, service.body_limit)
    tenant = tenant_of(request)
    check_model(body.model, service)
    asked = await asked_by(body, service, tenant)
    head = ReplyHead(
        new_reply_id(),
        int(time.time()),
        service.core.name,
        host_tools=asked.host_tools,
        with_events=body.x_events is True,
    )
    events = in_turn(request, partial(exchange, threads=service.threads, request=asked, tenant=tenant.name))
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage is True
        return event_stream(_records(events, ReplyChunks(head, with_usage=with_usage)))
    return JSONResponse(await while_connected(request, partial(_whole, events, WholeReply(head))))


def check_model(name: str | None, service: Service) -> None:
    """See that a model is the one there is.

    Raises:
        Problem: 404.
    """
    if name is not None and name not in (*known_models(service), DEFAULT_MODEL):
        message = f"there is no model {name!r} here; ask for {service.core.name!r}, or add the name to model_aliases"
        raise Problem(404, message, "invalid_request_error", param="model", code="model_not_found")


def known_models(service: Service) -> tuple[str, ...]:
    """The names of the model that answers, its own first."""
    return (service.core.name, *service.config.service.model_aliases)


async def asked_by(body: ChatBody, service: Service, tenant: Tenant) -> ChatRequest:
    """What a body asks.

    Args:
        body: as it came.
        service: who is asked.
        tenant: who asks.

    Raises:
        Problem: 400, a field cannot be what it is.
    """
    own = tenant.section.mcp if tenant.section is not None else None
    host_tools = service.config.service.mcp if own is None else own
    try:
        # To check a hundred tools takes a while, and everybody else's answers would wait for that.
        return await to_thread.run_sync(partial(chat_request, body, service.schemas, host_tools=host_tools))
    except RequestRefusedError as error:
        raise _problem(error) from None


def _problem(error: RequestRefusedError) -> Problem:
    return Problem(422 if error.is_too_costly else 400, str(error), param=error.param or None, code=error.code or None)


async def _whole(events: _Events, reply: WholeReply) -> dict[str, Any]:
    async with aclosing(sound(events)) as heard:
        async for event in heard:
            reply.take(event)
    return reply.object()


async def _records(events: _Events, chunks: ReplyChunks) -> AsyncGenerator[bytes, None]:
    has_begun = False
    async with aclosing(sound(events)) as heard:
        async for event in heard:
            for chunk in chunks.of(event):
                # Not before: as long as nothing was sent, a failure has a status of its own.
                if not has_begun:
                    has_begun = True
                    yield record(chunks.first())
                yield record(chunk)
    if not has_begun:
        yield record(chunks.first())
    for chunk in chunks.last():
        yield record(chunk)
    yield DONE


async def sound(events: AsyncGenerator[Occurrence, None]) -> AsyncGenerator[Occurrence, None]:
    """The events of an answer that comes to its end; every other end is raised."""
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, End):
                    _check_end(event)
                yield event
        except RequestRefusedError as error:
            raise _problem(error) from None


def _check_end(end: End) -> None:
    if end.reason == "cancelled":
        raise Problem(503, "the answer was stopped; ask again in a moment", retry_after_s=RETRY_AFTER_S)
    if end.reason == "failed":
        raise Problem(500, end.error or "the answer failed; ask again") if end.cause is None else problem_of(end.cause)


ROUTES = (
    Route(
        "POST",
        "/v1/chat/completions",
        complete,
        "Answer a conversation, as OpenAI's API does",
        body=ChatBody,
        answers=(
            Answer(ChatCompletion, says="The answer, when stream is not true."),
            Answer(ChatCompletionChunk, media=EVENT_STREAM, says="The answer in pieces; the last record is [DONE]."),
        ),
        problems=(400, 404, 429, 503),
    ),
)
