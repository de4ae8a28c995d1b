"""Ollama's API, for the many programs that know it: Home Assistant, Open WebUI, editors.

    /api/chat, /api/generate ─▶ the same path as /v1/chat/completions, other objects
    /api/embed ─▶ the embedding model

A request without a question loads its model, or unloads it. Errors have Ollama's shape. ``ollama_models`` has the
routes about models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.completions.ollama import (
    OllamaChat,
    OllamaGenerate,
    OllamaRequest,
    OllamaShape,
    chat_body,
    generate_body,
)
from rkllm_mcp.completions.openai_request import Translated
from rkllm_mcp.completions.openai_types import Positive
from rkllm_mcp.completions.reply import Reply
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.completions import answer
from rkllm_mcp.surfaces.http.models import choose_model
from rkllm_mcp.surfaces.http.ollama_models import TAG, check_embedder
from rkllm_mcp.surfaces.http.openai import MOST_TEXTS, count_tokens, embedded, embedder_of
from rkllm_mcp.surfaces.http.route import NDJSON, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import list_response, loaded, while_connected


class OllamaAnswer(DocumentedModel):
    """A piece of an answer, or the whole of it."""

    model: str
    created_at: str
    done: bool = Field(description="It is the last piece.")
    message: dict[str, Any] | None = Field(default=None, description="Of /api/chat: role, content, tool_calls.")
    response: str | None = Field(default=None, description="Of /api/generate.")


class EmbedBody(bodies.LenientBody):
    """The texts to embed."""

    model: Annotated[str, Field(min_length=1)]
    input: str | Annotated[list[str], Field(max_length=MOST_TEXTS)] = Field(default_factory=list[str])
    dimensions: Positive | None = None


class EmbedOneBody(bodies.LenientBody):
    """The text to embed, for older programs."""

    model: Annotated[str, Field(min_length=1)]
    prompt: str = ""


class OllamaVector(DocumentedModel):
    """The vector of a text; empty when there was none."""

    embedding: list[float]


class OllamaVectors(DocumentedModel):
    """A vector for each text."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


_ANSWERS = (
    RouteResponse(
        OllamaAnswer, media=NDJSON, says="The answer in pieces, one JSON object a line; the last one is done."
    ),
    RouteResponse(OllamaAnswer, says="The whole answer, when stream is false."),
)


@Route("POST", "/api/chat", body=OllamaChat, answers=_ANSWERS, problems=(404, 429, 503))
async def chat(request: Request) -> Response:
    """Answer a conversation, as Ollama does."""
    body = await bodies.read(request, OllamaChat)
    return await _answer(request, body, chat_body, is_chat=True, is_asked=bool(body.messages))


@Route("POST", "/api/generate", body=OllamaGenerate, answers=_ANSWERS, problems=(404, 429, 503))
async def generate(request: Request) -> Response:
    """Answer a prompt, as Ollama does."""
    body = await bodies.read(request, OllamaGenerate)
    return await _answer(request, body, generate_body, is_chat=False, is_asked=bool(body.prompt))


async def _answer(
    request: Request, body: OllamaRequest, translate: Callable[[Any], Translated], *, is_chat: bool, is_asked: bool
) -> Response:
    model = await choose_model(request, body.model, body.keep_alive, default_tag=TAG)
    if not is_asked and body.unloads:
        service_of(request).tenants.unload(model, tenant_of(request).name)
    elif not is_asked:
        await while_connected(request, lambda: loaded(request))
    if not is_asked:
        shape = OllamaShape(Reply("", body.model), is_chat=is_chat)
        return JSONResponse(shape.nothing("unload" if body.unloads else "load"))
    # Ollama loads a model when it is asked, and its clients do not ask a second time. Its lines have no heartbeat.
    return await answer(
        request,
        translate(body),
        partial(Reply, ""),
        partial(OllamaShape, is_chat=is_chat),
        streams=body.stream is not False,
        may_load=True,
        model=body.model,
        media=NDJSON,
        heartbeat=b"",
    )


@Route("POST", "/api/embed", body=EmbedBody, answers=(RouteResponse(OllamaVectors),), problems=(404, 429, 503))
async def embed(request: Request) -> Response:
    """Turn texts into vectors, as Ollama does."""
    started = time.monotonic()
    body = await bodies.read(request, EmbedBody)
    texts = [body.input] if isinstance(body.input, str) else list(body.input)
    vectors = await _vectors(request, body.model, texts, body.dimensions)
    tokens = await count_tokens(texts, embedder_of(request).tokenizer)
    duration_ns = round((time.monotonic() - started) * 1e9)
    fields = {"model": body.model, "total_duration": duration_ns, "load_duration": 0, "prompt_eval_count": tokens}
    return await list_response(fields, "embeddings", vectors)


@Route("POST", "/api/embeddings", body=EmbedOneBody, answers=(RouteResponse(OllamaVector),), problems=(404, 429, 503))
async def embed_one(request: Request) -> Response:
    """Turn a text into a vector, as older releases of Ollama do."""
    body = await bodies.read(request, EmbedOneBody)
    vectors = await _vectors(request, body.model, [body.prompt])
    return JSONResponse(OllamaVector(embedding=vectors[0] if vectors else []).model_dump())


async def _vectors(
    request: Request, model: str, texts: Sequence[str], dimensions: int | None = None
) -> list[list[float]]:
    await check_embedder(request, model)
    # An empty input is a way to check that the model exists.
    return [list(vector) for vector in await embedded(request, texts, dimensions)] if any(texts) else []


ROUTES = (chat, generate, embed, embed_one)
