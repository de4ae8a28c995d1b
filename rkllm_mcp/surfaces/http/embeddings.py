"""``/v1/embeddings``: texts become vectors, in OpenAI's shape.

``[service] embedding_model`` embeds, and the chat model where none is configured; its vectors compare texts, too, and
those of a model made for it do so far better. One request at a time; the others wait in a queue, fair between keys.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.abilities import Abilities, abilities_of
from rkllm_mcp.completions.openai_body import Positive, TokenId
from rkllm_mcp.prompt.vocabulary import Foreign, Vocabulary
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.context import service_of, tenant_of
from rkllm_mcp.surfaces.http.problems import Problem
from rkllm_mcp.surfaces.http.route import Answer, Route
from rkllm_mcp.surfaces.http.turns import evaluated

# As many as OpenAI takes.
MOST_TEXTS = 2048
# As long as the longest context window of any model here.
MOST_IDS = 131_072

Tokens = Annotated[list[TokenId], Field(min_length=1, max_length=MOST_IDS)]
ManyTexts = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_TEXTS)]
ManyTokens = Annotated[list[Tokens], Field(min_length=1, max_length=MOST_TEXTS)]


class EmbeddingsBody(bodies.ForeignBody):
    """What is to be embedded."""

    input: Annotated[str, Field(min_length=1)] | ManyTexts | Tokens | ManyTokens
    """A text, texts, or either as token ids of this model."""
    model: str = ""
    """Whatever a program sends; there is one model that embeds."""
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or base64 of 32-bit floats, least significant byte first."""
    dimensions: Positive | None = None
    """Keep this many leading numbers of each vector, for models trained for it; its length is 1 again."""


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """What it cost."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """A vector for each text."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage


async def embed(request: Request) -> Response:
    """Turn texts into vectors."""
    service = service_of(request)
    body = await bodies.read(request, EmbeddingsBody, service.body_limit)
    abilities = abilities_of(tenant_of(request).app)
    texts = await to_thread.run_sync(texts_of, body.input, abilities)

    cost = partial(count_tokens, texts, abilities.embedder.vocabulary)
    vectors = await evaluated(request, partial(abilities.embed, texts, dimensions=body.dimensions), cost)
    tokens = await cost()
    answer = Embeddings(
        data=[
            Embedding(index=index, embedding=_encoded(vector) if body.encoding_format == "base64" else vector)
            for index, vector in enumerate(vectors)
        ],
        model=abilities.embedder.name,
        usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )
    return JSONResponse(answer.model_dump())


def texts_of(given: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]], abilities: Abilities) -> list[str]:
    """The texts of an input in any of OpenAI's forms.

    Raises:
        Problem: 400, an id is not one of the model's.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        given = [given]  # pyright: ignore[reportAssignmentType]  # pydantic has seen that all of them are
    return [each if isinstance(each, str) else _decoded(each, abilities) for each in given]  # pyright: ignore[reportArgumentType]


def _decoded(ids: Sequence[int], abilities: Abilities) -> str:
    vocabulary = abilities.embedder.vocabulary
    if (largest := max(ids)) >= vocabulary.size:
        raise Problem(
            400,
            f"input: {largest} is no token of {abilities.embedder.name}, which has {vocabulary.size}; send texts",
            param="input",
        )
    return vocabulary.decode(ids)


async def count_tokens(texts: Sequence[str], vocabulary: Vocabulary) -> int:
    """How many tokens texts have."""

    def counted() -> int:
        return sum(len(vocabulary.encode([Foreign(text)])) for text in texts)

    return await to_thread.run_sync(counted)


def _encoded(vector: Sequence[float]) -> str:
    numbers = array("f", vector)
    return base64.b64encode(numbers.tobytes()).decode("ascii")


ROUTES = (
    Route(
        "POST",
        "/v1/embeddings",
        embed,
        "Turn texts into vectors",
        body=EmbeddingsBody,
        answers=(Answer(Embeddings),),
        problems=(429, 503),
    ),
)
