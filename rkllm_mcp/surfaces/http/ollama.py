"""Ollama's API, for the many programs that know it: Home Assistant, Open WebUI, editors.

    /api/chat, /api/generate ─▶ the same path as /v1/chat/completions, other objects
    /api/embed ─▶ the embedding model
    /api/pull, /api/delete ─▶ model folders, for the owner

A request without a question loads its model, or unloads it. Errors have Ollama's shape. ``VERSION`` is the release of
Ollama whose API is followed; programs choose their requests by it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp.app.models import ListedModel
from rkllm_mcp.completions.api import Positive
from rkllm_mcp.completions.ollama import (
    OllamaChat,
    OllamaGenerate,
    OllamaShape,
    ollama_request,
)
from rkllm_mcp.completions.reply import Reply
from rkllm_mcp.config.section import DocumentedModel, keep_alive_s
from rkllm_mcp.errors import ModelNotFoundError
from rkllm_mcp.events import to_json
from rkllm_mcp.models.downloads import Download
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.completions import answer
from rkllm_mcp.surfaces.http.errors import OLLAMA, HTTPError
from rkllm_mcp.surfaces.http.model_catalogue import check_owner, remove_model
from rkllm_mcp.surfaces.http.models import DEFAULT_MODEL, DEFAULT_TAG, choose_model, listed_models, named_models
from rkllm_mcp.surfaces.http.openai import MOST_TEXTS, count_tokens, embed_in_turn, embedder_of
from rkllm_mcp.surfaces.http.route import NDJSON, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import lists_elsewhere, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import EventStream, Write, lines, list_response, load_in_turn, while_connected
from rkllm_mcp.tasks import open_task_group

if TYPE_CHECKING:
    from rkllm_mcp.models.install import Pull

VERSION = "0.12.0"
_CAPABILITIES = {
    "chat": "completion",
    "tools": "tools",
    "thinking": "thinking",
    "vision": "vision",
    "embed": "embedding",
}
# Between two lines about a download, seconds.
_PROGRESS_S = 0.25
_NEVER = datetime(9999, 12, 31, tzinfo=timezone.utc)


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
async def chat(request: Request) -> object:
    """Answer a conversation, as Ollama does."""
    body = await bodies.read(request, OllamaChat)
    return await _make_answer(request, body, is_chat=True, is_asked=bool(body.messages))


@Route("POST", "/api/generate", body=OllamaGenerate, answers=_ANSWERS, problems=(404, 429, 503))
async def generate(request: Request) -> object:
    """Answer a prompt, as Ollama does."""
    body = await bodies.read(request, OllamaGenerate)
    return await _make_answer(request, body, is_chat=False, is_asked=bool(body.prompt))


async def _make_answer(request: Request, body: OllamaChat | OllamaGenerate, *, is_chat: bool, is_asked: bool) -> object:
    model = await choose_model(request, body.model, body.keep_alive)
    if not is_asked:
        unloads = body.keep_alive is not None and keep_alive_s(body.keep_alive) == 0
        if unloads:
            service_of(request).tenants.unload(model, tenant_of(request).name)
        else:
            await while_connected(request, lambda: load_in_turn(request))
        shape = OllamaShape(Reply("", body.model), is_chat=is_chat)
        return shape.nothing("unload" if unloads else "load")
    # Ollama loads a model when it is asked, and its clients do not ask a second time. Its lines have no heartbeat.
    return await answer(
        request,
        partial(ollama_request, body),
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
    tokens = (await count_tokens(request, texts, embedder_of(request).tokenizer)).tokens
    duration_ns = round((time.monotonic() - started) * 1e9)
    fields = {"model": body.model, "total_duration": duration_ns, "load_duration": 0, "prompt_eval_count": tokens}
    return await list_response(request, fields, "embeddings", vectors)


@Route("POST", "/api/embeddings", body=EmbedOneBody, answers=(RouteResponse(OllamaVector),), problems=(404, 429, 503))
async def embed_one(request: Request) -> OllamaVector:
    """Turn a text into a vector, as older releases of Ollama do."""
    body = await bodies.read(request, EmbedOneBody)
    vectors = await _vectors(request, body.model, [body.prompt])
    return OllamaVector(embedding=vectors[0] if vectors else [])


async def _vectors(
    request: Request, model: str, texts: Sequence[str], dimensions: int | None = None
) -> list[list[float]]:
    await _model_named(request, model.removesuffix(DEFAULT_TAG))
    # An empty input is a way to check that the model exists.
    return [list(vector) for vector in await embed_in_turn(request, texts, dimensions)] if any(texts) else []


class OllamaVersion(DocumentedModel):
    """The release of Ollama whose API this is."""

    version: str


class OllamaModels(DocumentedModel):
    """Every model."""

    models: list[dict[str, Any]]


class OllamaDetails(bodies.LenientBody):
    """What a model is."""

    parent_model: str = ""
    format: str = ""
    family: str = ""
    families: list[str] | None = None
    parameter_size: str = ""
    quantization_level: str = ""


class OllamaModelOfBoard(bodies.LenientBody):
    """An entry of the list of another board."""

    name: str = Field(min_length=1, max_length=200)
    model: str
    modified_at: str
    size: int
    digest: str = ""
    details: OllamaDetails
    capabilities: list[str] | None = None


class NameBody(bodies.LenientBody):
    """A model; older programs call it ``name``."""

    model: str | None = None
    name: str | None = None

    @property
    def wanted_name(self) -> str:
        """The name without Ollama's default tag."""
        return (self.model or self.name or "").removesuffix(DEFAULT_TAG)


class PullBody(NameBody):
    """The model to download: a name of the catalogue, or OWNER/REPOSITORY[:FILE] of Hugging Face."""

    # One of both is given; for readers of the schema.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"type": "string", "minLength": 1}}}
                for name in ("model", "name")
            ]
        }
    )

    stream: bool = True


class PullProgress(DocumentedModel):
    """A step of a download, or the progress of a file."""

    status: str = Field(description="The last one is success.")
    digest: str | None = Field(default=None, description="The file.")
    total: int | None = Field(default=None, description="Its size, bytes.")
    completed: int | None = Field(default=None, description="Bytes that are there.")


@Route("GET", "/api/tags", answers=(RouteResponse(OllamaModels),), problems=(503,))
async def tags(request: Request) -> dict[str, Any]:
    """List the models, as Ollama does."""
    models = {name: _describe(name, model) for name, model in (await _ollama_models(request)).items()}
    names = {model["name"] for model in models.values()}
    entries = await lists_elsewhere(request, "/api/tags", "models", OllamaModelOfBoard)
    elsewhere = {
        entry.name: entry.model_dump(exclude_unset=True)
        for board_entries in entries.values()
        for entry in board_entries
    }
    return {"models": [*models.values(), *(entry for name, entry in elsewhere.items() if name not in names)]}


@Route("GET", "/api/ps", answers=(RouteResponse(OllamaModels),), problems=(503,))
async def running(request: Request) -> dict[str, Any]:
    """List what is loaded."""
    tenants = service_of(request).tenants
    seconds = tenants.unloads_in_s
    expires = _NEVER if math.isinf(seconds) else datetime.fromtimestamp(time.time() + seconds, tz=timezone.utc)
    models = [
        {
            **_describe(model.name, model),
            "expires_at": (expires if model.name == tenants.model_host.name else _NEVER).isoformat(),
            "size_vram": model.size_bytes,
            "context_length": model.context_tokens,
        }
        for model in (await listed_models(request)).values()
        if model.is_loaded
    ]
    return {"models": models}


@Route("POST", "/api/show", body=NameBody, answers=(RouteResponse(dict[str, Any]),), problems=(404, 503))
async def show(request: Request) -> dict[str, Any]:
    """Describe a model, as Ollama does."""
    body = await bodies.read(request, NameBody)
    model = await _model_named(request, body.wanted_name)
    described = _describe(model.name, model)
    return {
        **dict.fromkeys(("license", "modelfile", "parameters", "template"), ""),
        "details": described["details"],
        "model_info": {
            "general.architecture": model.family,
            "general.basename": model.name,
            f"{model.family}.context_length": model.context_tokens,
        },
        "capabilities": described["capabilities"],
        "modified_at": described["modified_at"],
    }


async def _ollama_models(request: Request) -> dict[str, ListedModel]:
    """Return the models that chat or embed; Ollama has none that only rank."""
    models = await named_models(request)
    return {name: model for name, model in models.items() if {"chat", "embed"} & set(model.capabilities)}


async def _model_named(request: Request, name: str) -> ListedModel:
    models, host = await _ollama_models(request), service_of(request).model_host.name
    model = models.get(host if name == DEFAULT_MODEL else name)
    if model is None:
        raise HTTPError(404, f"model '{name}' not found; there is '{host}'")
    return model


@Route(
    "POST",
    "/api/pull",
    body=PullBody,
    answers=(
        RouteResponse(PullProgress, media=NDJSON, says="Its progress, one JSON object a line."),
        RouteResponse(PullProgress, says="Its end, when stream is false."),
    ),
    problems=(400, 403, 404, 503),
)
async def pull(request: Request) -> object:
    """Download a model, as Ollama does; for the owner."""
    check_owner(request)
    body = await bodies.read(request, PullBody)
    if not body.wanted_name:
        raise HTTPError(400, "name the model to download", param="model")
    from rkllm_mcp.models.install import Pull

    name = body.wanted_name.removeprefix("hf.co/").removeprefix("huggingface.co/")
    repository, _, file = name.partition(":")
    wish = Pull(repository.rpartition("/")[2].lower(), repository, file or None) if "/" in name else Pull(name)
    if body.stream:
        return EventStream(
            lambda stream: _pull(wish, stream.write),
            media=NDJSON,
            heartbeat=b"",
            failure=lambda problem: lines([to_json(problem.body(OLLAMA))]),
        )

    async def silent(_: bytes) -> None:
        pass

    await while_connected(request, partial(_pull, wish, silent))
    return {"status": "success"}


async def _pull(wish: Pull, write: Write) -> None:
    """Download a model and write lines about it; what has arrived stays when the client leaves."""
    from rkllm_mcp.models.install import ModelSources

    download = Download(wish, ModelSources())
    sent = dict[str, tuple[int, int]]()

    def news() -> list[str]:
        changed = [(name, *counts) for name, counts in download.files.copy().items() if sent.get(name) != counts]
        sent.update({name: (received, total) for name, received, total in changed})
        return [
            to_json({"status": f"pulling {name}", "digest": name, "total": total, "completed": received})
            for name, received, total in changed
        ]

    async def send_news() -> None:
        while True:
            await anyio.sleep(_PROGRESS_S)
            if changes := news():
                await write(lines(changes))

    await write(lines([to_json({"status": "pulling manifest"})]))
    try:
        async with open_task_group() as tasks:
            tasks.start_soon(send_news)
            try:
                await download.run()
            finally:
                tasks.cancel_scope.cancel()
    except ModelNotFoundError as error:
        raise HTTPError(404, str(error)) from None
    ends = ("verifying sha256 digest", "writing manifest", "success")
    await write(lines([*news(), *(to_json({"status": status}) for status in ends)]))


@Route("DELETE", "/api/delete", body=NameBody, answers=(RouteResponse(),), problems=(403, 404, 409, 503))
async def delete(request: Request) -> None:
    """Remove an installed model that is not in use, as Ollama does; for the owner."""
    check_owner(request)
    body = await bodies.read(request, NameBody)
    await remove_model(request, body.wanted_name)


@Route("GET", "/api/version", answers=(RouteResponse(OllamaVersion),))
async def version(request: Request) -> OllamaVersion:
    """The release of Ollama whose API this is."""
    del request
    return OllamaVersion(version=VERSION)


def _describe(name: str, model: ListedModel) -> dict[str, Any]:
    tagged = name if ":" in name else f"{name}{DEFAULT_TAG}"
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": datetime.fromtimestamp(model.modified_unix, tz=timezone.utc).isoformat(),
        "size": model.size_bytes,
        "digest": hashlib.sha256(f"{model.name} {model.size_bytes}".encode()).hexdigest(),
        "details": {
            "parent_model": "",
            "format": "remote" if model.family == "remote" else "rkllm",
            "family": model.family,
            "families": [model.family],
            "parameter_size": "",
            "quantization_level": "",
            "context_length": model.context_tokens,
        },
        # Models of Ollama either chat or embed.
        "capabilities": [
            _CAPABILITIES[capability]
            for capability in model.capabilities
            if capability in _CAPABILITIES and (capability != "embed" or "chat" not in model.capabilities)
        ],
    }
