"""OpenAI's API for embeddings, and ``/v1/rerank`` in the shape that Jina and Cohere share.

``[service] ranking_model`` ranks, or the chat model if none is configured and it has tokens for yes and no.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import anyio
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp.completions.api import Positive, TokenId
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.prompt.budget import COUNTED_WINDOWS
from rkllm_mcp.prompt.tokenizer import PIECE_CHARS, ModelTokenizer, PlainText, pieces_of
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse
from rkllm_mcp.surfaces.http.state import run_work, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import list_response, queue_place, while_connected

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import AuxiliaryModel


T = TypeVar("T")
# As many as OpenAI takes.
MOST_TEXTS = 2048
# As long as the longest context window of any model here.
MOST_IDS = 131_072
# Shorter texts are counted at once: that takes a few milliseconds.
UNCOUNTED_CHARS = 8_192

Tokens = Annotated[list[TokenId], Field(min_length=1, max_length=MOST_IDS)]
Words = Annotated[str, Field(min_length=1)]
ManyTexts = Annotated[list[Words], Field(min_length=1, max_length=MOST_TEXTS)]
ManyTokens = Annotated[list[Tokens], Field(min_length=1, max_length=MOST_TEXTS)]


class EmbeddingsBody(bodies.LenientBody):
    """The texts to embed."""

    IGNORED: ClassVar[tuple[str, ...]] = ("user",)

    input: Words | ManyTexts | Tokens | ManyTokens
    """A text, or texts; token ids are refused, because they are those of another model's vocabulary."""
    model: str = Field("", description="Whatever a program sends; there is one model that embeds.")
    encoding_format: Literal["float", "base64"] | None = None
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


@Route("POST", "/v1/embeddings", body=EmbeddingsBody, answers=(RouteResponse(Embeddings),), problems=(429, 503))
async def embed(request: Request) -> Response:
    """Turn texts into vectors."""
    body = await bodies.read(request, EmbeddingsBody)
    embedder = embedder_of(request)
    texts = [body.input] if isinstance(body.input, str) else [text for text in body.input if isinstance(text, str)]
    if not texts:
        message = (
            "token ids are not taken, which mean something else to each model; send texts (in LangChain with "
            "check_embedding_ctx_length=False)"
        )
        raise HTTPError(400, message, param="input")
    vectors = await embed_in_turn(request, texts, body.dimensions)
    tokens = (await count_tokens(request, texts, embedder.tokenizer)).tokens
    is_base64 = body.encoding_format == "base64"
    written = (base64.b64encode(vector.tobytes()).decode("ascii") if is_base64 else list(vector) for vector in vectors)
    data = ({"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(written))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return await list_response(request, {"object": "list", "model": embedder.name, "usage": usage}, "data", data)


def embedder_of(request: Request) -> AuxiliaryModel:
    """Return the model that embeds for the caller's tenant."""
    app = tenant_of(request).app
    return app.model_host.evaluator(app.config.service.embedding_model)


async def embed_in_turn(request: Request, texts: Sequence[str], dimensions: int | None) -> list[array[float]]:
    """Return the vectors of texts, once the request's turn has come."""
    cost = partial(count_tokens, request, texts, embedder_of(request).tokenizer)
    name = tenant_of(request).app.config.service.embedding_model
    work = partial(evaluate_in_turn, request, name, lambda model: model.embed(texts, dimensions=dimensions), cost)
    return await while_connected(request, work)


@dataclass(frozen=True)
class TokenTotal:
    """Tokens of texts."""

    tokens: int
    is_exact: bool  # False: their beginning is counted, the rest is estimated from it


async def count_tokens(
    request: Request, texts: Sequence[str], tokenizer: ModelTokenizer, context_tokens: int | None = None
) -> TokenTotal:
    """Count the tokens of texts, exactly up to a few windows of ``context_tokens``; see ``state.run_work``.

    Where that is given, the count is not part of an evaluation, and refused when the tokens of the day are used up.
    """
    most = sys.maxsize if context_tokens is None else context_tokens * COUNTED_WINDOWS
    chars = sum(map(len, texts))
    if chars <= UNCOUNTED_CHARS:
        return TokenTotal(_count(texts, tokenizer), is_exact=True)
    if context_tokens is not None:
        await service_of(request).quota.check(tenant_of(request))
    tokens = counted_chars = 0
    for piece in _pieces(texts):
        tokens += await run_work(request, _count, piece, tokenizer)
        counted_chars += sum(map(len, piece))
        if tokens > most and counted_chars < chars:
            return TokenTotal(tokens * chars // counted_chars, is_exact=False)
    return TokenTotal(tokens, is_exact=True)


async def count_text(request: Request, text: str) -> int | None:
    """Count the tokens of a text for the model on the board, about where it is very long; None without that model."""
    model_host = service_of(request).model_host
    if model_host.npu is None:
        return None
    tokenizer, context_tokens = model_host.npu.form.tokenizer, model_host.listing.context_tokens
    return (await count_tokens(request, [text], tokenizer, context_tokens)).tokens


def _pieces(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield pieces of texts, together about as long as a piece of the tokenizer."""
    pieces: list[str] = []
    size = 0
    for text in texts:
        for piece in pieces_of(text):
            pieces.append(piece)
            # Empty texts count as well.
            size += len(piece) + 1
            if size >= PIECE_CHARS:
                yield pieces
                pieces, size = [], 0
    if pieces:
        yield pieces


def _count(texts: Sequence[str], tokenizer: ModelTokenizer) -> int:
    return sum(len(tokenizer.encode([PlainText(text)])) for text in texts)


async def evaluate_in_turn(
    request: Request,
    name: str | None,
    work: Callable[[AuxiliaryModel], Awaitable[T]],
    cost: Callable[[], Awaitable[TokenTotal]],
) -> T:
    """Return what ``work`` evaluates with a configured model, or the chat model, once the request's turn has come.

    ``cost`` counts its tokens, also of an evaluation that was cancelled; it is called where there is a quota. What
    cannot be evaluated costs nothing. See ``queue_place`` for refusals.
    """
    service, tenant = service_of(request), tenant_of(request)
    is_auxiliary = (name or "") in tenant.app.model_host.auxiliary_models
    model = None if is_auxiliary else ""
    async with queue_place(request, "evaluation", model=model) as queue_slot, queue_slot.turn():
        # Counted before, since that can be cancelled.
        tokens = (await cost()).tokens if service.quota.limit(tenant) is not None else 0
        try:
            return await work(tenant_of(request).app.model_host.evaluator(name))
        except RkllmMcpError:
            tokens = 0
            raise
        finally:
            if tokens:
                with anyio.CancelScope(shield=True):
                    await service.quota.spend(tenant, tokens)


class Document(DocumentedModel):
    """A document as an object, as some programs send it."""

    text: Words


class RerankBody(bodies.LenientBody):
    """The documents to rank, and the query."""

    query: Words = Field(description="What is looked for.")
    documents: list[Words | Document] = Field(min_length=1, max_length=1024, description="What may answer it.")
    model: str = Field("", description="Whatever a program sends; there is one model that ranks.")
    top_n: Positive | None = Field(None, description="Return the best N alone.")
    return_documents: bool = Field(False, description="Return the documents as well.")


class Ranked(DocumentedModel):
    """One document's place."""

    index: int = Field(description="Which of the documents, from 0.")
    relevance_score: float = Field(description="How well it answers the query, from 0 to 1.")
    document: Document | None = None


class Reranked(DocumentedModel):
    """The documents, the best first."""

    model: str
    results: list[Ranked]


@Route("POST", "/v1/rerank", body=RerankBody, answers=(RouteResponse(Reranked),), problems=(429, 503))
async def rerank(request: Request) -> dict[str, Any]:
    """Order documents by how well they answer a query."""
    body = await bodies.read(request, RerankBody)
    app = tenant_of(request).app
    ranker = app.model_host.evaluator(app.config.service.ranking_model)
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    # The query is evaluated with each document.
    queries = [body.query] * len(texts)
    cost = partial(count_tokens, request, [*queries, *texts], ranker.tokenizer)
    name = app.config.service.ranking_model
    work = partial(evaluate_in_turn, request, name, lambda model: model.rerank(body.query, texts), cost)
    scores = await while_connected(request, work)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in order]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    return {"model": ranker.name, "results": results}
