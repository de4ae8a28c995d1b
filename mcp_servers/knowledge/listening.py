"""An application on a port, until it is cancelled; what is under way then may still end."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp

from mcp_servers.knowledge.settings import HttpSettings, SettingsError

# What is under way may end by itself for so long once the server is told to stop, seconds.
_STOP_S = 5
_MOST_CONNECTIONS = 256


class _Listener(uvicorn.Server):
    """Leaves the signals to the program, which cancels it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


async def listen(app: ASGIApp, http: HttpSettings, told: Callable[[int], None]) -> None:
    """Serve until cancelled.

    Args:
        app: the application.
        http: where.
        told: the port, once it is open.

    Raises:
        SettingsError: the port cannot be had.
    """
    settings = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_S,
    )
    listener = _Listener(settings)
    with _open_socket(http) as opened:
        told(opened.getsockname()[1])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_cancelled, listener)
            try:
                # Cancelled it would leave its connections open; it is told to stop instead.
                with anyio.CancelScope(shield=True):
                    await listener.serve([opened])
            finally:
                tasks.cancel_scope.cancel()
    # Whoever cancelled this is to be heard.
    await anyio.lowlevel.checkpoint()


def _open_socket(http: HttpSettings) -> socket.socket:
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(http.host.strip("[]"), http.port, type=socket.SOCK_STREAM)
        opened = socket.create_server(address, family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"Cannot listen on {http.host}:{http.port} ({reason}): give another one.") from None
    opened.setblocking(False)
    return opened


async def _until_cancelled(listener: _Listener) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        listener.should_exit = True
