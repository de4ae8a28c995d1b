"""``/v1/rerank``: documents in the order in which they answer a query, in the shape that Jina and Cohere share.

``[service] ranking_model`` ranks, and the chat model where none is configured, if it has words for yes and no.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.abilities import abilities_of
from rkllm_mcp.completions.openai_body import Positive
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.context import service_of, tenant_of
from rkllm_mcp.surfaces.http.embeddings import count_tokens
from rkllm_mcp.surfaces.http.route import Answer, Route
from rkllm_mcp.surfaces.http.turns import evaluated

MOST_DOCUMENTS = 1024


class Document(BaseModel):
    """A document as an object, as some programs send it."""

    text: Annotated[str, Field(min_length=1)]


class RerankBody(bodies.ForeignBody):
    """What is ranked, and by what."""

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


class Ranked(BaseModel):
    """One document's place."""

    index: int = Field(description="Which of the documents, from 0.")
    relevance_score: float = Field(description="How well it answers the query, from 0 to 1.")
    document: Document | None = None


class Reranked(BaseModel):
    """The documents, the best first."""

    model: str
    results: list[Ranked]


async def rerank(request: Request) -> Response:
    """Order documents by how well they answer a query."""
    service = service_of(request)
    body = await bodies.read(request, RerankBody, service.body_limit)
    abilities = abilities_of(tenant_of(request).app)
    texts = [each if isinstance(each, str) else each.text for each in body.documents]

    pairs = [f"{body.query}\n{text}" for text in texts]
    cost = partial(count_tokens, pairs, abilities.ranker.vocabulary)
    scores = await evaluated(request, partial(abilities.rerank, body.query, texts), cost)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n]
    results = [
        Ranked(
            index=index,
            relevance_score=scores[index],
            document=Document(text=texts[index]) if body.return_documents else None,
        )
        for index in order
    ]
    answer = Reranked(model=abilities.ranker.name, results=results)
    return JSONResponse(answer.model_dump(exclude_none=True))


ROUTES = (
    Route(
        "POST",
        "/v1/rerank",
        rerank,
        "Order documents by how well they answer a query",
        body=RerankBody,
        answers=(Answer(Reranked),),
        problems=(429, 503),
    ),
)
