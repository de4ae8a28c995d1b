"""OpenAI's API: chat completions and embeddings; and ``/v1/rerank`` in the shape that Jina and Cohere share.

``[service] ranking_model`` ranks, or the chat model if none is configured and it has tokens for yes and no.
"""

from __future__ import annotations

import base64
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.completions.completion import complete
from rkllm_mcp.completions.openai_request import chat_request
from rkllm_mcp.completions.openai_response import ReplyChunks, ReplyHead, WholeReply, new_reply_id
from rkllm_mcp.completions.openai_types import ChatBody, ChatCompletion, ChatCompletionChunk, Positive, TokenId
from rkllm_mcp.completions.request import ChatRequest, EmitOccurrences, Occurrence, RequestRefusedError
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.events import End
from rkllm_mcp.prompt.tokenizer import ModelTokenizer, PlainText
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError, problem_of
from rkllm_mcp.surfaces.http.models import choose_model
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import ServiceState, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import (
    DONE,
    EventStream,
    Write,
    evaluated,
    in_turn,
    list_response,
    records,
    while_connected,
)

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import Assistant
    from rkllm_mcp.app.environment import AuxiliaryModel
    from rkllm_mcp.app.tenants import Tenant

# Runs an answer and emits its events.
CompletionRun: TypeAlias = Callable[[EmitOccurrences], Awaitable[None]]


async def chat_completions(request: Request) -> Response:
    """Answer a chat request."""
    service = service_of(request)
    body = await bodies.read(request, ChatBody, service.body_limit)
    tenant = tenant_of(request)
    model = await choose_model(request, body.model)
    asked = await asked_by(body, service, tenant)
    head = ReplyHead(
        new_reply_id(),
        int(time.time()),
        model or service.model_host.name,
        host_tools=asked.host_tools,
        with_events=body.x_events is True,
    )
    run = completion_run(request, asked)
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage is True
        return EventStream(partial(_stream, run, ReplyChunks(head, with_usage=with_usage)))
    return JSONResponse(await while_connected(request, partial(_whole, run, WholeReply(head))))


async def asked_by(body: ChatBody, service: ServiceState, tenant: Tenant) -> ChatRequest:
    """Return the request that a body describes.

    Args:
        body: the request's body.
        service: the service.
        tenant: the tenant that sent it.

    Raises:
        HTTPError: 400, a field is wrong; 422, a schema is too costly to check.
    """
    own = tenant.section.mcp if tenant.section is not None else None
    may_use_tools = "tools" in tenant.rights
    if body.mcp and not may_use_tools:
        raise HTTPError(403, "this key may not use the host's tools; leave mcp out", param="mcp", code="key_purpose")
    host_tools = may_use_tools and (service.config.service.mcp if own is None else own)
    try:
        # Checking a hundred tools takes a while, and all other answers would wait for it.
        return await to_thread.run_sync(partial(chat_request, body, service.schemas, host_tools=host_tools))
    except RequestRefusedError as error:
        raise _problem(error) from None


def _problem(error: RequestRefusedError) -> HTTPError:
    return HTTPError(
        422 if error.is_too_costly else 400, str(error), param=error.param or None, code=error.code or None
    )


async def _whole(run: CompletionRun, reply: WholeReply) -> dict[str, Any]:
    async def emit(events: Sequence[Occurrence]) -> None:
        for event in events:
            reply.take(event)

    await run(emit)
    return reply.object()


async def _stream(run: CompletionRun, chunks: ReplyChunks, write: Write) -> None:
    # Sent with the first chunk and not before: while nothing was sent, a failure has a status of its own.
    first = [chunks.first()]

    async def emit(events: Sequence[Occurrence]) -> None:
        if made := chunks.of(events):
            content = records(first + made)
            first.clear()
            await write(content)

    await run(emit)
    await write(records([*first, *chunks.last()]) + DONE)


def completion_run(request: Request, asked: ChatRequest, *, may_load: bool = False) -> CompletionRun:
    """Return a function that answers ``asked`` when its turn has come.

    It raises HTTPError for a request that is refused and an answer that fails or is cancelled.
    """
    service, tenant = service_of(request), tenant_of(request)

    async def answer(app: Assistant, emit: EmitOccurrences) -> None:
        try:
            await complete(app, service.conversation_cache, asked, emit, tenant.name)
        except RequestRefusedError as error:
            raise _problem(error) from None

    async def run(emit: EmitOccurrences) -> None:
        async def checked(events: Sequence[Occurrence]) -> None:
            last = events[-1]
            if isinstance(last, End):
                _check_end(last)
            await emit(events)

        await in_turn(request, answer, checked, may_load=may_load)

    return run


def _check_end(end: End) -> None:
    if end.reason == "cancelled":
        raise HTTPError(503, "the answer was stopped; ask again in a moment", retry_after_s=RETRY_AFTER_S)
    if end.reason == "failed":
        raise (
            HTTPError(500, end.error or "the answer failed; ask again") if end.cause is None else problem_of(end.cause)
        )


ROUTES = (
    Route(
        "POST",
        "/v1/chat/completions",
        chat_completions,
        "Answer a conversation, as OpenAI's API does",
        body=ChatBody,
        answers=(
            RouteResponse(ChatCompletion, says="The answer, when stream is not true."),
            RouteResponse(
                ChatCompletionChunk, media=EVENT_STREAM, says="The answer in pieces; the last record is [DONE]."
            ),
        ),
        problems=(400, 404, 429, 503),
    ),
)


# As many as OpenAI takes.
MOST_TEXTS = 2048
# As long as the longest context window of any model here.
MOST_IDS = 131_072

Tokens = Annotated[list[TokenId], Field(min_length=1, max_length=MOST_IDS)]
ManyTexts = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_TEXTS)]
ManyTokens = Annotated[list[Tokens], Field(min_length=1, max_length=MOST_TEXTS)]


class EmbeddingsBody(bodies.LenientBody):
    """The texts to embed."""

    input: Annotated[str, Field(min_length=1)] | ManyTexts | Tokens | ManyTokens
    """A text, texts, or either as token ids of this model."""
    model: str = ""
    """Whatever a program sends; there is one model that embeds."""
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or base64 of 32-bit floats, least significant byte first."""
    dimensions: Positive | None = None
    """Keep this many leading numbers of each vector, for models trained for it; its length is 1 again."""


class Embedding(DocumentedModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(DocumentedModel):
    """Tokens that were evaluated."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(DocumentedModel):
    """A vector for each text."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage


async def embed(request: Request) -> Response:
    """Turn texts into vectors."""
    service = service_of(request)
    body = await bodies.read(request, EmbeddingsBody, service.body_limit)
    embedder = embedder_of(request)
    texts = await to_thread.run_sync(texts_of, body.input, embedder)

    vectors = await embedded(request, texts, body.dimensions)
    tokens = await count_tokens(texts, embedder.tokenizer)
    data = (
        {
            "object": "embedding",
            "index": index,
            "embedding": _encoded(each) if body.encoding_format == "base64" else each.tolist(),
        }
        for index, each in enumerate(vectors)
    )
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return await list_response({"object": "list", "model": embedder.name, "usage": usage}, "data", data)


def embedder_of(request: Request) -> AuxiliaryModel:
    """Return the model that embeds for the caller's tenant."""
    app = tenant_of(request).app
    return app.model_host.evaluator(app.config.service.embedding_model)


async def embedded(request: Request, texts: Sequence[str], dimensions: int | None) -> list[array[float]]:
    """Return the vectors of texts, once the request's turn has come."""

    async def work(embedder: AuxiliaryModel) -> list[array[float]]:
        return await embedder.embed(texts, dimensions=dimensions)

    cost = partial(count_tokens, texts, embedder_of(request).tokenizer)
    return await evaluated(request, tenant_of(request).app.config.service.embedding_model, work, cost)


def texts_of(
    given: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]], embedder: AuxiliaryModel
) -> list[str]:
    """Return the texts of an input in any of OpenAI's forms.

    Raises:
        HTTPError: 400, an id is not one of the model's.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        given = [given]  # pyright: ignore[reportAssignmentType]  # pydantic has seen that all of them are
    return [each if isinstance(each, str) else _decoded(each, embedder) for each in given]  # pyright: ignore[reportArgumentType]


def _decoded(ids: Sequence[int], embedder: AuxiliaryModel) -> str:
    tokenizer = embedder.tokenizer
    if (largest := max(ids)) >= tokenizer.size:
        raise HTTPError(
            400,
            f"input: {largest} is no token of {embedder.name}, which has {tokenizer.size}; send texts",
            param="input",
        )
    return tokenizer.decode(ids)


async def count_tokens(texts: Sequence[str], tokenizer: ModelTokenizer) -> int:
    """Count the tokens of texts."""

    def counted() -> int:
        return sum(len(tokenizer.encode([PlainText(text)])) for text in texts)

    return await to_thread.run_sync(counted)


def _encoded(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode("ascii")


EMBEDDING_ROUTES = (
    Route(
        "POST",
        "/v1/embeddings",
        embed,
        "Turn texts into vectors",
        body=EmbeddingsBody,
        answers=(RouteResponse(Embeddings),),
        problems=(429, 503),
    ),
)


MOST_DOCUMENTS = 1024


class Document(DocumentedModel):
    """A document as an object, as some programs send it."""

    text: Annotated[str, Field(min_length=1)]


class RerankBody(bodies.LenientBody):
    """The documents to rank, and the query."""

    query: Annotated[str, Field(min_length=1)]
    """What is looked for."""
    documents: Annotated[
        list[Annotated[str, Field(min_length=1)] | Document], Field(min_length=1, max_length=MOST_DOCUMENTS)
    ]
    """What may answer it."""
    model: str = ""
    """Whatever a program sends; there is one model that ranks."""
    top_n: Positive | None = None
    """Return the best N alone."""
    return_documents: bool = False
    """Return the documents as well."""


class Ranked(DocumentedModel):
    """One document's place."""

    index: int = Field(description="Which of the documents, from 0.")
    relevance_score: float = Field(description="How well it answers the query, from 0 to 1.")
    document: Document | None = None


class Reranked(DocumentedModel):
    """The documents, the best first."""

    model: str
    results: list[Ranked]


async def rerank(request: Request) -> Response:
    """Order documents by how well they answer a query."""
    service = service_of(request)
    body = await bodies.read(request, RerankBody, service.body_limit)
    app = tenant_of(request).app
    ranker = app.model_host.evaluator(app.config.service.ranking_model)
    texts = [each if isinstance(each, str) else each.text for each in body.documents]

    pairs = [f"{body.query}\n{text}" for text in texts]
    cost = partial(count_tokens, pairs, ranker.tokenizer)

    async def work(ranker: AuxiliaryModel) -> list[float]:
        return await ranker.rerank(body.query, texts)

    scores = await evaluated(request, app.config.service.ranking_model, work, cost)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n]
    results = [
        Ranked(
            index=index,
            relevance_score=scores[index],
            document=Document(text=texts[index]) if body.return_documents else None,
        )
        for index in order
    ]
    answer = Reranked(model=ranker.name, results=results)
    return JSONResponse(answer.model_dump(exclude_none=True))


RERANK_ROUTES = (
    Route(
        "POST",
        "/v1/rerank",
        rerank,
        "Order documents by how well they answer a query",
        body=RerankBody,
        answers=(RouteResponse(Reranked),),
        problems=(429, 503),
    ),
)
