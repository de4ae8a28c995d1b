"""Health of the process, and readiness for answers: what a load balancer and systemd ask, without a key."""

from __future__ import annotations

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.surfaces.http.context import service_of
from rkllm_mcp.surfaces.http.route import Answer, Route


class Health(BaseModel):
    """How the service is."""

    status: str = Field(description="ok, or what it waits for.")


async def healthz(request: Request) -> Response:
    """The process lives, and its model is loaded, is being loaded, or will be loaded again."""
    service_of(request).check_alive()
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """The model is loaded and the service is not being stopped; also while it is busy."""
    service_of(request).check_ready()
    return JSONResponse({"status": "ok"})


ROUTES = (
    Route(
        "GET",
        "/healthz",
        healthz,
        "Whether the process lives and answers can still come from it",
        answers=(Answer(Health),),
        problems=(503,),
        is_open=True,
    ),
    Route(
        "GET",
        "/readyz",
        readyz,
        "Whether answers are taken: the model is loaded and the service is not being stopped",
        answers=(Answer(Health),),
        problems=(503,),
        is_open=True,
    ),
)
