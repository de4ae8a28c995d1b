"""The models of the service: the list, the choice of a request, and loading one of them.

    a request's model ─▶ choose_model ─▶ request.state ─▶ its place in the queue, which has the model loaded

``[model] switching`` decides whose requests may have another model loaded; a tenant that may not sees the loaded one.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.app.models import Capability, ListedModel
from rkllm_mcp.config.section import DocumentedModel, KeepAlive, keep_alive_s
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import OLLAMA, HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse
from rkllm_mcp.surfaces.http.state import lists_elsewhere, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import load_in_turn, while_connected

# A name of the model that every service knows.
DEFAULT_MODEL = "default"
# In which the proxy of several boards says which model answers if the named one is not here.
FALLBACK_MODEL = "X-Fallback-Model"
# The end of every name in Ollama's lists; it may be left out.
DEFAULT_TAG = ":latest"


async def listed_models(request: Request) -> dict[str, ListedModel]:
    """Return the models to choose from, by name."""
    return {name: model for name, model in (await _all_models(request)).items() if model.is_shown}


async def named_models(request: Request) -> dict[str, ListedModel]:
    """Return the models by each name that they have: the loaded one first, which has the aliases."""
    # Some programs request only names that are listed.
    service, models = service_of(request), await listed_models(request)
    host = service.model_host.name
    return dict.fromkeys((host, *service.config.service.model_aliases), models[host]) | models


async def _all_models(request: Request, tenant: str | None = None) -> dict[str, ListedModel]:
    """Return the models that a tenant, by default the caller, may name."""
    tenants, tenant_name = service_of(request).tenants, tenant_of(request).name
    return await to_thread.run_sync(tenants.list_models, tenant_name if tenant is None else tenant)


async def choose_model(request: Request, name: str | None, keep_alive: str | float | None = None) -> str:
    """Note the model that a request names, and return its name; empty for the loaded one.

    Args:
        request: the request, whose answer waits until the model is loaded.
        name: as the client wrote it; the loaded one if it is None, ``default`` or an alias.
        keep_alive: how long the model stays after the answer, if the client may decide that.

    Raises:
        HTTPError: 400, keep_alive is wrong; 403, the key may not have it loaded; 404, no such model chats here.
    """
    service, tenant = service_of(request), tenant_of(request)
    tenants = service.tenants
    if keep_alive is not None:
        try:
            seconds = keep_alive_s(keep_alive)
        except ValueError as error:
            raise HTTPError(400, f"keep_alive: {error}", param="keep_alive") from None
        request.state.keep_alive_s = seconds if tenants.may_switch(tenant.name) else None
    chosen = (name or "").removesuffix(DEFAULT_TAG)
    request.state.missed_model = ""
    fallback = request.headers.get(FALLBACK_MODEL, "")
    if fallback and name is not None and chosen not in await _all_models(request):
        request.state.missed_model, name, chosen = chosen, fallback, fallback
    if name is None or {chosen, name} & {DEFAULT_MODEL, *service.config.service.model_aliases}:
        chosen = ""
    elif chosen != service.model_host.name:
        model, current = (await _all_models(request)).get(chosen), service.model_host.name
        if model is None:
            may_others = service.config.model.switching == "owner" and bool(tenant.name)
            if may_others and chosen in await _all_models(request, ""):
                message = f"this key may not have {chosen!r} loaded; {current!r} answers"
                raise HTTPError(403, message, param="model", code="model_switching")
            message = f"there is no model {chosen!r} here; ask for {current!r}, or add the name to model_aliases"
            if request.url.path.startswith(OLLAMA):
                # Programs look for these words.
                message = f"model '{chosen}' not found; there is '{current}'"
            raise HTTPError(404, message, "invalid_request_error", param="model", code="model_not_found")
        if "chat" not in model.capabilities:
            message = f"{chosen!r} does not chat; ask for {current!r}"
            raise HTTPError(404, message, param="model", code="model_not_found")
    request.state.model = chosen
    return chosen


class Model(DocumentedModel):
    """A model; OpenAI's and Anthropic's clients find their own fields."""

    id: str = Field(description="Its name.")
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    display_name: str = Field(description="Its name.")
    created: int = Field(description="Since when it is served, Unix time.")
    created_at: datetime = Field(description="The same as a date.")
    owned_by: str = "rkllm-mcp"
    capabilities: list[Capability] = Field(description="What it can do.")
    loaded: bool
    """It is loaded; another one is loaded when a request names it, which takes a moment."""
    board: str = ""
    """The other board that has it; empty for this one."""
    context_tokens: int = Field(description="Its context window.")
    context_length: int = Field(description="The same in the words of OpenRouter and LM Studio.")
    max_model_len: int = Field(description="The same in the words of vLLM.")
    max_input_tokens: int = Field(description="The same in the words of Anthropic and LiteLLM.")


class Models(DocumentedModel):
    """Every model."""

    object: Literal["list"] = "list"
    data: list[Model]
    has_more: Literal[False] = False
    first_id: str
    last_id: str


class LoadBody(bodies.RequestBody):
    """The model to load."""

    model: str = Field(min_length=1, description="Its name.")
    keep_alive: KeepAlive | None = None
    """How long it stays after its last answer: seconds, 5m or 1h30m; 0 for at once, -1 for ever."""


async def _models(request: Request) -> list[Model]:
    created = int(service_of(request).started_unix)
    own_models = [
        Model(
            id=name,
            display_name=name,
            created=created,
            created_at=datetime.fromtimestamp(created, timezone.utc),
            capabilities=list(listed_model.capabilities),
            loaded=listed_model.is_loaded,
            context_tokens=listed_model.context_tokens,
            context_length=listed_model.context_tokens,
            max_model_len=listed_model.context_tokens,
            max_input_tokens=listed_model.context_tokens,
        )
        for name, listed_model in (await named_models(request)).items()
    ]
    names = {model.id for model in own_models}
    entries = await lists_elsewhere(request, "/v1/models", "data", Model)
    elsewhere: dict[str, Model] = {}
    for board, models in entries.items():
        for model in models:
            if model.id not in names and not (model.id in elsewhere and elsewhere[model.id].loaded):
                elsewhere[model.id] = model.model_copy(update={"board": board})
    return [*own_models, *elsewhere.values()]


@Route("GET", "/v1/models", answers=(RouteResponse(Models),), problems=(503,))
async def list_models(request: Request) -> dict[str, Any]:
    """List the models."""
    models = await _models(request)
    listing = Models(data=models, first_id=models[0].id, last_id=models[-1].id).model_dump(mode="json")
    return {**listing, "data": [_for_client(request, model) for model in listing["data"]]}


def _for_client(request: Request, model: dict[str, Any]) -> dict[str, Any]:
    """Return a model; for Anthropic's clients, whose type has an object there, with such capabilities."""
    if "anthropic-version" not in request.headers:
        return model
    can = {name: {"supported": name in model["capabilities"]} for name in ("thinking", "vision")}
    no, chats = {"supported": False}, {"supported": "chat" in model["capabilities"]}
    types = {"adaptive": can["thinking"], "between_tools": chats, "disabled": chats, "enabled": can["thinking"]}
    levels = dict.fromkeys(("low", "medium", "high", "xhigh", "max"), no)
    return {
        **model,
        "lifecycle": "active",
        "capabilities": {
            **dict.fromkeys(("batch", "citations", "code_execution", "pdf_input"), no),
            "context_management": no,
            "effort": {**no, **levels},
            "image_input": can["vision"],
            "server_tools": {**no, "code_execution": no, "web_search": no},
            "structured_outputs": chats,
            "thinking": {**can["thinking"], "types": types},
        },
    }


@Route("POST", "/v1/models:load", body=LoadBody, answers=(RouteResponse(Model),), problems=(400, 403, 404, 429, 503))
async def load_model(request: Request) -> Model:
    """Load a model in place of the loaded one, and wait for it."""
    body = await bodies.read(request, LoadBody)
    await choose_model(request, body.model, body.keep_alive)
    await while_connected(request, lambda: load_in_turn(request))
    return await _model(request, service_of(request).model_host.name)


@Route("GET", "/v1/models/{model:path}", answers=(RouteResponse(Model),), problems=(404, 503))
async def show_model(request: Request) -> dict[str, Any]:
    """Show a model."""
    model = await _model(request, request.path_params["model"])
    return _for_client(request, model.model_dump(mode="json"))


async def _model(request: Request, name: str) -> Model:
    models = {model.id: model for model in await _models(request)}
    name = name if name in models else name.removesuffix(DEFAULT_TAG)
    if name not in models:
        message = f"there is no model {name!r}; there is {', '.join(models)}"
        raise HTTPError(404, message, param="model", code="model_not_found")
    return models[name]
