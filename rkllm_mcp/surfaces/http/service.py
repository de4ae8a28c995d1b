"""``rkllm-mcp serve``: the house behind an HTTP server, from the first line on standard error to an orderly end.

    port ─▶ house (the model loads) ─▶ listening, /readyz 503 ─▶ loaded, 200 ─▶ SIGTERM: 503, answers end ─▶ gone

SIGHUP puts a changed configuration in force without letting anybody go; a second SIGINT or SIGTERM does not wait for
answers. systemd is told all of it. A model that cannot be loaded, at the start or after its process died, ends the
service with the reason, unless a fallback answers in its place.
"""

from __future__ import annotations

import logging
import resource
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus

from rkllm_mcp.config import Config
from rkllm_mcp.config.service import is_loopback
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.auth import needs_key
from rkllm_mcp.surfaces.http.connections import PatientConnection, WaitingConnections
from rkllm_mcp.surfaces.http.context import Service, service_for
from rkllm_mcp.surfaces.http.logs import log_to
from rkllm_mcp.surfaces.http.page import mounts
from rkllm_mcp.surfaces.http.routes import ROUTES
from rkllm_mcp.surfaces.session import EXIT_DONE, EXIT_INTERRUPTED, Session, emulation_note
from rkllm_mcp.surfaces.systemd.notify import Notifier
from rkllm_mcp.tenancy import open_house

logger = logging.getLogger(__name__)

# What has been answered may still be on its way to the client for so long at the end, seconds.
FLUSH_S = 5
# A connection whose other end takes nothing, or is not there any more, is dropped after so long, milliseconds.
DEAD_AFTER_MS = 60_000
# Longer than load balancers keep an idle connection, so that it is they who end it and no request gets lost, seconds.
KEEP_ALIVE_S = 75
# Descriptors left for files, tools and the runtime when connections have taken the rest.
OTHER_DESCRIPTORS = 128


@dataclass(frozen=True)
class Address:
    """Where to listen, as far as the command line says.

    Args:
        host: the configuration's when None.
        port: likewise; 0 for any that is free.
    """

    host: str | None = None
    port: int | None = None


def serve(session: Session, address: Address) -> int:
    """Serve until told to stop; returns the exit code.

    Raises:
        UsageError: the port cannot be had, or a key is missing.
        RuntimeUnusableError: the model cannot be loaded.
    """
    config = session.config()
    host = address.host or config.service.host
    port = config.service.port if address.port is None else address.port
    check_key(host, config)
    handler = log_to(sys.stderr, config.service.log)
    try:
        # Made inside the event loop, which its lock needs.
        return anyio.run(lambda: _Serving(session, config, host, port).run())
    finally:
        logging.getLogger().removeHandler(handler)


def check_key(host: str, config: Config) -> None:
    """Refuse to let other machines in without a key.

    Raises:
        UsageError: there is none.
    """
    if not is_loopback(host) and not needs_key(config):
        raise UsageError(f"off loopback ({host}) a key is required; 'rkllm-mcp config add-key' makes one")


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens, on which what comes in inherits how long a dead connection is kept.

    Raises:
        UsageError: the port is taken, or the address is none of this machine's.
    """
    # That name stands for two addresses, of which people and programs mean this one.
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"cannot listen on {host} ({error.strerror}); choose another --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
        listening.bind(address)
        # Here already: SO_REUSEADDR lets two bind that do not listen, and the second would learn it much later.
        listening.listen(socket.SOMAXCONN)
    except OSError as error:
        listening.close()
        remedy = f"cannot listen on {host}:{port} ({error.strerror}); choose another --host or --port"
        raise UsageError(remedy) from None
    listening.setblocking(False)
    return listening


class _Listener(uvicorn.Server):
    """Leaves the signals to ``_Serving``."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


class _Serving:
    """One run of the service."""

    def __init__(self, session: Session, config: Config, host: str, port: int) -> None:
        self._session = session
        self._config = config
        self._host = host
        self._port = port
        self._notifier = Notifier()
        self._service: Service | None = None
        self._listener: _Listener | None = None
        self._failure: Exception | None = None
        self._code = EXIT_DONE
        self._watching = anyio.CancelScope()
        self._reloading = anyio.Lock()

    async def run(self) -> int:
        """Serve; returns the exit code."""
        with listening_socket(self._host, self._port) as listening:
            async with anyio.create_task_group() as tasks:
                # Before anything is started: whoever is stopped while it starts leaves nothing behind.
                await tasks.start(self._obey, tasks)
                try:
                    await self._open(listening, tasks)
                except Exception as error:  # noqa: BLE001  (raised again below: the group would wrap it in a group)
                    self._failure = self._failure or error
                tasks.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure
        return self._code

    async def _open(self, listening: socket.socket, tasks: TaskGroup) -> None:
        self._notifier.extend_start(self._config.runtime.start_timeout_s)
        async with open_house(self._config, status=self._session.status) as house:
            service = self._service = service_for(house)
            listener = self._listener = _Listener(_settings(service))
            self._say_where(listening, service)
            tasks.start_soon(self._watch, service)
            tasks.start_soon(self._notifier.feed, lambda: house.failure is not None)
            await listener.serve([listening])

    def _say_where(self, listening: socket.socket, service: Service) -> None:
        status = self._session.status
        host, port = _in_address(self._host), listening.getsockname()[1]
        status(f"Serving at http://{host}:{port}")
        name = host if is_loopback(host) else socket.gethostname()
        status(f"The page: http://{name}:{port}/{' (it asks for a key)' if needs_key(service.config) else ''}")
        if service.core.is_emulated:
            status(emulation_note(service.core.name))

    def _leave(self, failure: Exception | None = None) -> None:
        self._failure = failure
        if self._listener is not None:
            self._listener.should_exit = True

    async def _watch(self, service: Service) -> None:
        """Tell when the model is loaded, and leave when it will not be loaded again."""
        with anyio.CancelScope() as self._watching:
            try:
                core = service.house.core
                await core.ready()
            except RkllmMcpError as error:
                self._leave(error)
                return
            self._session.status(f"Ready: {core.name}")
            self._notifier.ready(f"ready: {core.name}")
            await core.given_up()
            self._leave(core.failure)

    async def _obey(self, tasks: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        """Do what signals say."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                service, listener = self._service, self._listener
                if number == signal.SIGHUP:
                    if service is not None and not service.is_draining:
                        tasks.start_soon(self._reload, service)
                    continue
                self._code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_DONE
                if service is None or listener is None:
                    tasks.cancel_scope.cancel()
                elif service.is_draining:
                    listener.should_exit = listener.force_exit = True
                else:
                    tasks.start_soon(self._drain, service)

    async def _drain(self, service: Service) -> None:
        """Take no more answers, let those under way end, and leave."""
        self._watching.cancel()
        service.drain()
        running = service.turnstile.running + service.evaluations.running
        if running:
            self._session.status(f"Stopping after {running} answer{'s' if running > 1 else ''}; again to stop at once")
        self._notifier.stopping(f"{running} answers under way")
        with anyio.move_on_after(service.config.service.drain_s):
            await service.idle()
        service.stop_answers()
        self._leave()

    async def _reload(self, service: Service) -> None:
        """Put the configuration in force as it is now; one that cannot be used changes nothing."""
        self._notifier.reloading()
        async with self._reloading:
            # The model that is being watched may go now, and is no failure then.
            self._watching.cancel()
            try:
                config = self._session.config()
                check_key(self._host, config)
                before = service.config.service
                is_same_model = await service.house.reload(config, drain_s=config.service.drain_s)
            except RkllmMcpError as error:
                self._session.terminal.error(f"The configuration stays as it was: {error}")
            else:
                service.resize()
                model = "the model stays" if is_same_model else "another model"
                self._session.status(f"Configuration in force; {model}")
                if (config.service.host, config.service.port) != (before.host, before.port):
                    self._session.status("Another host or port is used after a restart")
        # Another model is being loaded now; one that cannot be is the end, as at the start.
        await self._watch(service)


def _settings(service: Service) -> uvicorn.Config:
    def is_proxy(address: str) -> bool:
        # Looked up each time: the configuration may be exchanged.
        return service.config.service.is_trusted_proxy(address)

    class Connection(PatientConnection):
        waiting = WaitingConnections(is_proxy=is_proxy)

    return uvicorn.Config(
        create_app(service, ROUTES, mounts()),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_most_connections(),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=FLUSH_S,
    )


def _most_connections() -> int | None:
    """Connections that this process has descriptors for; None without a limit. Up to there only the queue refuses."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else max(1, limit - OTHER_DESCRIPTORS)


def _in_address(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
