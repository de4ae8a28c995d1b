"""Ollama's API, for the many programs that know it: Home Assistant, Open WebUI, editors.

    /api/chat, /api/generate ─▶ the same path as /v1/chat/completions, other objects
    /api/tags, /api/show, /api/ps, /api/version ─▶ the chat and the embedding model, as Ollama describes models
    /api/embed ─▶ the embedding model

The model stays loaded: requests to load or unload it are confirmed without effect. Errors have Ollama's shape.
``VERSION`` is the release of Ollama whose API is followed; programs choose their requests by it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

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
from rkllm_mcp.surfaces.http.completions import DEFAULT_MODEL, answer, known_models, translated
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.openai import MOST_TEXTS, count_tokens, embedder_of
from rkllm_mcp.surfaces.http.route import NDJSON, Link, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import ServiceState, service_of
from rkllm_mcp.surfaces.http.streaming import evaluated, list_response

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import ModelHost

VERSION = "0.12.0"
_TAG = ":latest"


class OllamaAnswer(DocumentedModel):
    """A piece of an answer, or the whole of it."""

    model: str
    created_at: str
    done: bool = Field(description="It is the last piece.")
    message: dict[str, Any] | None = Field(default=None, description="Of /api/chat: role, content, tool_calls.")
    response: str | None = Field(default=None, description="Of /api/generate.")


class OllamaVersion(DocumentedModel):
    """The release of Ollama whose API this is."""

    version: str


class OllamaModels(DocumentedModel):
    """Every model."""

    models: list[dict[str, Any]]


class ShowBody(bodies.LenientBody):
    """The model to show; older programs call it ``name``."""

    model: str | None = None
    name: str | None = None


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


async def chat(request: Request) -> Response:
    """Answer a conversation."""
    body = await bodies.read(request, OllamaChat, service_of(request).body_limit, takes_any_type=True)
    return await _answer(request, body, chat_body, is_chat=True, is_asked=bool(body.messages))


async def generate(request: Request) -> Response:
    """Answer a prompt."""
    body = await bodies.read(request, OllamaGenerate, service_of(request).body_limit, takes_any_type=True)
    return await _answer(request, body, generate_body, is_chat=False, is_asked=bool(body.prompt))


async def _answer(
    request: Request, body: OllamaRequest, translate: Callable[[Any], Translated], *, is_chat: bool, is_asked: bool
) -> Response:
    _check_model(body.model, service_of(request))
    if not is_asked:
        shape = OllamaShape(Reply("", body.model), is_chat=is_chat)
        return JSONResponse(shape.nothing("unload" if body.unloads else "load"))
    # Ollama loads a model when it is asked, and its clients do not ask a second time. Its lines have no heartbeat.
    return await answer(
        request,
        translated(translate, body),
        partial(Reply, ""),
        partial(OllamaShape, is_chat=is_chat),
        streams=body.stream is not False,
        may_load=True,
        model=body.model,
        media=NDJSON,
        heartbeat=b"",
    )


async def tags(request: Request) -> Response:
    """List the chat model and the embedding model."""
    service = service_of(request)
    others = (_tagged(each.name) for each in service.model_host.auxiliary_models.values())
    embedders = (name for name in others if _embedder_tokens(name, service) is not None)
    return JSONResponse({"models": [_described(name, service) for name in (*_names(service), *embedders)]})


async def running(request: Request) -> Response:
    """List the loaded model."""
    service = service_of(request)
    described = [_described(name, service) for name in _names(service)[:1]]
    never = datetime(9999, 12, 31, tzinfo=timezone.utc).isoformat()
    return JSONResponse({"models": [{**each, "expires_at": never, "size_vram": each["size"]} for each in described]})


async def show(request: Request) -> Response:
    """Describe a model."""
    service = service_of(request)
    body = await bodies.read(request, ShowBody, service.body_limit, takes_any_type=True)
    name = body.model or body.name or ""
    embedder_tokens = _embedder_tokens(name, service)
    if embedder_tokens is None:
        _check_model(name, service)
    described = _described(name, service)
    family = described["details"]["family"]
    return JSONResponse(
        {
            "license": "",
            "modelfile": "",
            "parameters": "",
            "template": "",
            "details": described["details"],
            "model_info": {
                "general.architecture": family,
                "general.basename": service.model_host.name if embedder_tokens is None else name.removesuffix(_TAG),
                f"{family}.context_length": embedder_tokens or service.model_host.listing.context_tokens,
            },
            "capabilities": _capabilities(service.model_host) if embedder_tokens is None else ["embedding"],
            "modified_at": described["modified_at"],
        }
    )


def _capabilities(model_host: ModelHost) -> list[str]:
    thinks = bool(model_host.npu and model_host.npu.form.thinking != "off")
    return ["completion", "tools", *(["thinking"] if thinks else [])]


async def embed(request: Request) -> Response:
    """Turn texts into vectors."""
    started = time.monotonic()
    body = await bodies.read(request, EmbedBody, service_of(request).body_limit, takes_any_type=True)
    texts = [body.input] if isinstance(body.input, str) else list(body.input)
    vectors = await _vectors(request, body.model, texts, body.dimensions)
    tokens = await count_tokens(texts, embedder_of(request).tokenizer)
    duration_ns = round((time.monotonic() - started) * 1e9)
    fields = {"model": body.model, "total_duration": duration_ns, "load_duration": 0, "prompt_eval_count": tokens}
    return await list_response(fields, "embeddings", vectors)


async def embed_one(request: Request) -> Response:
    """Turn one text into a vector."""
    body = await bodies.read(request, EmbedOneBody, service_of(request).body_limit, takes_any_type=True)
    vectors = await _vectors(request, body.model, [body.prompt])
    return JSONResponse(OllamaVector(embedding=vectors[0] if vectors else []).model_dump())


async def _vectors(
    request: Request, model: str, texts: Sequence[str], dimensions: int | None = None
) -> list[list[float]]:
    _check_model(model, service_of(request), embeds=True)
    embedder = embedder_of(request)
    # An empty input is a way to check that the model exists.
    if not any(texts):
        return []
    cost = partial(count_tokens, texts, embedder.tokenizer)
    vectors = await evaluated(request, partial(embedder.embed, texts, dimensions=dimensions), cost)
    return [list(vector) for vector in vectors]


async def version(request: Request) -> Response:
    """Return the version."""
    del request
    return JSONResponse({"version": VERSION})


def _names(service: ServiceState) -> list[str]:
    return [_tagged(name) for name in known_models(service)]


def _embedder_tokens(name: str, service: ServiceState) -> int | None:
    """The context window of the model that embeds, if that is its name; None for all others."""
    found = service.model_host.auxiliary_models.get(service.config.service.embedding_model or "")
    if found is None or _tagged(name) != _tagged(found.name) or _tagged(name) in _names(service):
        return None
    return found.engine.context_tokens


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}{_TAG}"


def _check_model(name: str, service: ServiceState, *, embeds: bool = False) -> None:
    known = {_tagged(each) for each in (*known_models(service), DEFAULT_MODEL)}
    if embeds:
        known |= {_tagged(each.name) for each in service.model_host.auxiliary_models.values()}
    if _tagged(name) not in known:
        raise HTTPError(404, f"model '{name}' not found; there is '{service.model_host.name}'")


def _described(name: str, service: ServiceState) -> dict[str, Any]:
    model_host = service.model_host
    is_embedder = _embedder_tokens(name, service) is not None
    size = 0 if is_embedder else _size(model_host)
    since = datetime.fromtimestamp(service.started_unix, tz=timezone.utc).isoformat()
    family = model_host.npu.model.card.template if model_host.npu else "remote"
    return {
        "name": name,
        "model": name,
        "modified_at": since,
        "size": size,
        "digest": hashlib.sha256(f"{name if is_embedder else model_host.name} {size}".encode()).hexdigest(),
        "details": {
            "parent_model": "",
            "format": "rkllm" if model_host.npu else "remote",
            "family": "embedding" if is_embedder else family,
            "families": ["embedding" if is_embedder else family],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def _size(model_host: ModelHost) -> int:
    try:
        return model_host.npu.model.file.stat().st_size if model_host.npu else 0
    except OSError:
        return 0


_ANSWERS = (
    RouteResponse(
        OllamaAnswer, media=NDJSON, says="The answer in pieces, one JSON object a line; the last one is done."
    ),
    RouteResponse(OllamaAnswer, says="The whole answer, when stream is false."),
)
_OF_A_MODEL = tuple(
    Link("POST", f"/api/{name}", "model", "$response.body#/models/0/model", in_body=True)
    for name in ("chat", "generate", "show", "embed", "embeddings")
)
ROUTES = (
    Route(
        "POST",
        "/api/chat",
        chat,
        "Answer a conversation, as Ollama does",
        body=OllamaChat,
        answers=_ANSWERS,
        problems=(404, 429, 503),
        takes_any_type=True,
    ),
    Route(
        "POST",
        "/api/generate",
        generate,
        "Answer a prompt, as Ollama does",
        body=OllamaGenerate,
        answers=_ANSWERS,
        problems=(404, 429, 503),
        takes_any_type=True,
    ),
    Route(
        "GET",
        "/api/tags",
        tags,
        "List the models, as Ollama does",
        answers=(RouteResponse(OllamaModels, links=_OF_A_MODEL),),
        problems=(503,),
    ),
    Route("GET", "/api/ps", running, "List what is loaded", answers=(RouteResponse(OllamaModels),), problems=(503,)),
    Route(
        "POST",
        "/api/show",
        show,
        "Describe a model, as Ollama does",
        body=ShowBody,
        answers=(RouteResponse(dict[str, Any]),),
        problems=(404, 503),
        takes_any_type=True,
    ),
    Route(
        "POST",
        "/api/embed",
        embed,
        "Turn texts into vectors, as Ollama does",
        body=EmbedBody,
        answers=(RouteResponse(OllamaVectors),),
        problems=(404, 429, 503),
        takes_any_type=True,
    ),
    Route(
        "POST",
        "/api/embeddings",
        embed_one,
        "Turn a text into a vector, as older releases of Ollama do",
        body=EmbedOneBody,
        answers=(RouteResponse(OllamaVector),),
        problems=(404, 429, 503),
        takes_any_type=True,
    ),
    Route(
        "GET",
        "/api/version",
        version,
        "The release of Ollama whose API this is",
        answers=(RouteResponse(OllamaVersion),),
    ),
)
