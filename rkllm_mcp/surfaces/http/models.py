"""``/v1/models``: the model that answers, and those that embed and rank, in OpenAI's shape."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.surfaces.http.context import Service, service_of
from rkllm_mcp.surfaces.http.problems import Problem
from rkllm_mcp.surfaces.http.route import Answer, Link, Route

OWNED_BY = "rkllm-mcp"


class Model(BaseModel):
    """A model."""

    id: str = Field(description="Its name.")
    object: Literal["model"] = "model"
    created: int = Field(description="Since when it is served, Unix time.")
    owned_by: str = OWNED_BY


class Models(BaseModel):
    """Every model."""

    object: Literal["list"] = "list"
    data: list[Model]


def _models(service: Service) -> list[Model]:
    core = service.core
    others = (specialist.name for specialist in core.specialists.values())
    # Under its aliases too: some programs ask only for what is listed.
    names = dict.fromkeys([core.name, *service.config.service.model_aliases, *others])
    return [Model(id=name, created=int(service.started_unix)) for name in names]


async def list_models(request: Request) -> Response:
    """Every model."""
    return JSONResponse(Models(data=_models(service_of(request))).model_dump())


async def show_model(request: Request) -> Response:
    """One model."""
    wanted = request.path_params["model"]
    models = _models(service_of(request))
    found = next((model for model in models if model.id == wanted), None)
    if found is None:
        names = ", ".join(model.id for model in models)
        raise Problem(404, f"there is no model {wanted!r}; there is {names}", param="model", code="model_not_found")
    return JSONResponse(found.model_dump())


_A_MODEL = (Link("GET", "/v1/models/{model:path}", "model", "$response.body#/data/0/id"),)
ROUTES = (
    Route(
        "GET", "/v1/models", list_models, "List the models", answers=(Answer(Models, links=_A_MODEL),), problems=(503,)
    ),
    # A service in place of the NPU may have names with slashes.
    Route("GET", "/v1/models/{model:path}", show_model, "Show a model", answers=(Answer(Model),), problems=(404, 503)),
)
