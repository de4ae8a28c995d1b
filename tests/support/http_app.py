"""The application without a socket: tenants that are not open, routes of the test's own, requests as values."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest

from rkllm_mcp.app.tenants import Tenants, open_tenants
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.rights import ANY_KEY, TABLE
from rkllm_mcp.surfaces.http.route import Route
from rkllm_mcp.surfaces.http.state import ServiceState
from tests.support.demo_app import Demo

BASE_URL = "http://127.0.0.1:8080"


def config_with(**sections: Any) -> Config:
    """A configuration with these sections."""
    return Config.model_validate(sections)


@dataclass
class Desk:
    """Somebody who sends requests.

    Args:
        client: sends them.
        service: what answers; its model is never loaded.
    """

    client: httpx2.AsyncClient
    service: ServiceState

    async def send(
        self, method: str, path: str, headers: Mapping[str, Any] | None = None, content: bytes | None = None
    ) -> httpx2.Response:
        """Send one request."""
        with anyio.fail_after(60):
            return await self.client.request(method, path, headers=dict(headers or {}), content=content)


@asynccontextmanager
async def desk(config: Config | None = None, routes: Sequence[Route] | None = None) -> AsyncGenerator[Desk, None]:
    """The application for a configuration; the usual routes unless a test has its own."""
    async with anyio.create_task_group() as tasks:
        service = ServiceState(Tenants(config or Config(), tasks, None))
        own = {(route.method, route.path): ANY_KEY for route in routes or ()}
        app = create_app(service) if routes is None else create_app(service, routes, {**own, **TABLE})
        # An error that comes through would be a mistake of the application: the test is to see it.
        transport = httpx2.ASGITransport(app=app)
        client = httpx2.AsyncClient(transport=transport, base_url=BASE_URL)
        async with client:
            yield Desk(client, service)


@asynccontextmanager
async def in_house(
    demo: Demo, status: Callable[[str], None] | None = None
) -> AsyncGenerator[tuple[Tenants, httpx2.AsyncClient], None]:
    """The tenants of a configuration with their model loaded, and a client of their application; bounded."""
    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(120):
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        async with open_tenants(load_config(demo.config), status=status) as tenants:
            await tenants.model_host.ready()
            transport = httpx2.ASGITransport(app=create_app(ServiceState(tenants)))
            client = httpx2.AsyncClient(transport=transport, base_url=BASE_URL)
            async with client:
                yield tenants, client


@dataclass
class Connection:
    """One request and its answer as ASGI messages, one at a time; the client may leave at any moment."""

    body: bytes = b""
    sent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left: anyio.Event = field(default_factory=anyio.Event)
    news: anyio.Event = field(default_factory=anyio.Event)
    # Set: what is sent to the client stays with the sender, as on a full connection.
    is_stuck: bool = False
    _has_asked: bool = False

    @property
    def text(self) -> str:
        """What the client has so far."""
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def status(self) -> int | None:
        """The status, once the answer has begun."""
        return self.sent[0]["status"] if self.sent else None

    async def receive(self) -> dict[str, Any]:
        """What comes from the client."""
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """What goes to the client."""
        if self.is_stuck:
            await anyio.sleep_forever()
        if self.left.is_set():
            raise OSError("the client has left")
        self.sent.append(dict(message))
        self.news.set()
        self.news = anyio.Event()

    async def until(self, text: str) -> None:
        """Wait until the client has this text."""
        with anyio.fail_after(60):
            while text not in self.text:
                await self.news.wait()
