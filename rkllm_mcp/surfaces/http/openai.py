"""OpenAI's API for embeddings, and ``/v1/rerank`` in the shape that Jina and Cohere share.

``[service] ranking_model`` ranks, or the chat model if none is configured and it has tokens for yes and no.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp.completions.openai_types import Positive, TokenId
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.prompt.tokenizer import ModelTokenizer, PlainText
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse
from rkllm_mcp.surfaces.http.state import tenant_of
from rkllm_mcp.surfaces.http.streaming import evaluated, list_response

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import AuxiliaryModel


# As many as OpenAI takes.
MOST_TEXTS = 2048
# As long as the longest context window of any model here.
MOST_IDS = 131_072

Tokens = Annotated[list[TokenId], Field(min_length=1, max_length=MOST_IDS)]
Words = Annotated[str, Field(min_length=1)]
ManyTexts = Annotated[list[Words], Field(min_length=1, max_length=MOST_TEXTS)]
ManyTokens = Annotated[list[Tokens], Field(min_length=1, max_length=MOST_TEXTS)]


class EmbeddingsBody(bodies.LenientBody):
    """The texts to embed."""

    IGNORED: ClassVar[tuple[str, ...]] = ("user",)

    input: Words | ManyTexts | Tokens | ManyTokens
    """A text, texts, or either as token ids of this model."""
    model: str = Field("", description="Whatever a program sends; there is one model that embeds.")
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


@Route("POST", "/v1/embeddings", body=EmbeddingsBody, answers=(RouteResponse(Embeddings),), problems=(429, 503))
async def embed(request: Request) -> Response:
    """Turn texts into vectors."""
    body = await bodies.read(request, EmbeddingsBody)
    embedder = embedder_of(request)
    texts = await to_thread.run_sync(texts_of, body.input, embedder)

    vectors = await embedded(request, texts, body.dimensions)
    tokens = await count_tokens(texts, embedder.tokenizer)
    written = _in_base64 if body.encoding_format == "base64" else list[float]
    data = ({"object": "embedding", "index": index, "embedding": written(each)} for index, each in enumerate(vectors))
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
    """Return the texts of an input in any of OpenAI's forms; an unknown token id is refused with 400."""
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        given = [given]  # pyright: ignore[reportAssignmentType]  # pydantic has seen that all of them are
    return [each if isinstance(each, str) else _decoded(each, embedder) for each in given]  # pyright: ignore[reportArgumentType]


def _decoded(ids: Sequence[int], embedder: AuxiliaryModel) -> str:
    tokenizer = embedder.tokenizer
    if (largest := max(ids)) >= tokenizer.size:
        message = f"input: {largest} is no token of {embedder.name}, which has {tokenizer.size}; send texts"
        raise HTTPError(400, message, param="input")
    return tokenizer.decode(ids)


async def count_tokens(texts: Sequence[str], tokenizer: ModelTokenizer) -> int:
    """Count the tokens of texts."""

    def counted() -> int:
        return sum(len(tokenizer.encode([PlainText(text)])) for text in texts)

    return await to_thread.run_sync(counted)


def _in_base64(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode("ascii")


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
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    cost = partial(count_tokens, [f"{body.query}\n{text}" for text in texts], ranker.tokenizer)

    async def work(ranker: AuxiliaryModel) -> list[float]:
        return await ranker.rerank(body.query, texts)

    scores = await evaluated(request, app.config.service.ranking_model, work, cost)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in order]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    return {"model": ranker.name, "results": results}
