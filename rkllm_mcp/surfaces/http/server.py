"""``rkllm-mcp serve``: the tenants behind an HTTP server, from start to shutdown.

    port ─▶ tenants (the model loads) ─▶ listening, /readyz 503 ─▶ loaded, 200 ─▶ SIGTERM: 503, answers end ─▶ exit

SIGHUP applies a changed configuration without closing connections; a second SIGINT or SIGTERM does not wait for
answers. systemd is notified of each state. A model that cannot be loaded, at the start or after its process died, ends
the service with the reason, unless a fallback answers in its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Literal, TextIO

import anyio
from anyio.abc import TaskGroup, TaskStatus

from rkllm_base.addresses import is_loopback
from rkllm_base.listener import Listener
from rkllm_mcp.app.settings import unset_rights
from rkllm_mcp.config.secrets import KEY_ADVICE, problem_off_loopback, redact_record
from rkllm_mcp.config.sections import Config, own_web_address, reached_host, web_address
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.errors import name_request
from rkllm_mcp.surfaces.http.schedules import run_schedules
from rkllm_mcp.surfaces.http.sd_notify import Notifier
from rkllm_mcp.surfaces.http.state import ServiceState
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_INTERRUPTED, Session, emulation_note, open_socket
from rkllm_mcp.surfaces.running_service import ServiceRecord

LogFormat = Literal["off", "text", "json"]
_OURS = "rkllm_mcp"
_TEXT = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, request_id and message, and error with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, tz=timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "message": record.getMessage(),
        }
        extra = getattr(record, "fields", None)
        if isinstance(extra, dict):
            line.update(extra)  # pyright: ignore[reportUnknownArgumentType]  # our own records' fields are JSON values
        if record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to(stream: TextIO, form: LogFormat) -> logging.Handler:
    """Write the log of this process to ``stream``, when it is off only what breaks. The caller removes the handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    handler.addFilter(name_request)
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name.partition(".")[0] == _OURS)
    handler.addFilter(redact_record)
    root = logging.getLogger()
    root.addHandler(handler)
    if form == "off":
        # The client receives only the id of the request.
        handler.setLevel(logging.ERROR)
    elif root.level > logging.INFO or root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    return handler


def serve(session: Session, host: str | None, port: int | None) -> int:
    """Serve until a signal; return the exit code.

    Host and port are the configuration's when None, the port any free one when 0.
    """
    config = session.config()
    session.note_configuration(config)
    host = host or config.service.host
    port = config.service.port if port is None else port
    check_key(host, config)
    handler = log_to(sys.stderr, config.service.log)
    try:
        # Made inside the event loop, which its lock needs.
        return anyio.run(lambda: _Serving(session, config, host, port).run())
    finally:
        logging.getLogger().removeHandler(handler)


@asynccontextmanager
async def _answer_agent_checks(service: ServiceState, host: str) -> AsyncGenerator[None, None]:
    """Tell HAProxy's agent-check at ``[service] agent_port`` how many requests the service takes; nothing without it.

    Source: HAProxy's manual, "agent-check". A UsageError if the port cannot be used.
    """
    port = service.config.service.agent_port
    if port is None:
        yield
        return

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # One request, and one more for each answer that waits for a person.
        asking = sum(len(tenant.app.pending.open()) for tenant in service.tenants.by_name.values())
        with suppress(ConnectionError):
            writer.write(f"maxconn:{min(1 + asking, service.config.service.parallel)}\n".encode("ascii"))
            await writer.drain()
        writer.close()

    with open_socket(host, port) as listening:
        server = await asyncio.start_server(tell, sock=listening)
        try:
            yield
        finally:
            server.close()


def check_key(host: str, config: Config) -> None:
    """Raise a UsageError if other machines can connect without a key, or with one that can be guessed."""
    if not is_loopback(host) and (problem := problem_off_loopback(config.key_entries)):
        raise UsageError(f"{host}: {problem}; {KEY_ADVICE}")


@dataclass(eq=False)
class _Serving:
    session: Session
    config: Config
    host: str
    port: int
    _notifier: Notifier = field(default_factory=Notifier, init=False)
    _service: ServiceState | None = field(default=None, init=False)
    _listener: Listener | None = field(default=None, init=False)
    _record: ServiceRecord | None = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _code: int = field(default=EXIT_DONE, init=False)
    _watching: anyio.CancelScope = field(default_factory=anyio.CancelScope, init=False)
    _reloading: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    async def run(self) -> int:
        """Serve; returns the exit code."""
        with open_socket(self.host, self.port) as listening:
            async with anyio.create_task_group() as tasks:
                # Before anything is started, so that a signal during the start leaves nothing behind.
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
        from rkllm_mcp.app.tenants import open_tenants

        # systemd is to wait so much longer than the unit says.
        self._notifier.notify(EXTEND_TIMEOUT_USEC=int(self.config.runtime.start_timeout_s * 1_000_000))
        async with open_tenants(self.config, status=self.session.status) as tenants:
            service = self._service = ServiceState(tenants)
            service.config_file = self.config.origin.source or self.session.target_file()
            service.reload = partial(self._apply, service, tasks)
            address = own_web_address(self.host, listening.getsockname()[1])
            record = self._record = ServiceRecord(address, self.config)
            service.terminal_key = record.key

            def is_proxy(address: str) -> bool:
                # Looked up each time: the configuration may be exchanged.
                return service.config.service.is_trusted_proxy(address)

            listener = self._listener = Listener(create_app(service), is_proxy)
            status, port, model_host = self.session.status, listening.getsockname()[1], service.model_host
            status(f"Serving at {web_address(self.host, port)}")
            page = web_address(reached_host(self.host), port)
            status(f"The page: {page}/{' (it asks for a key)' if service.config.key_entries else ''}")
            for line in unset_rights(service.config):
                status(line)
            if model_host.is_emulated:
                status(emulation_note(model_host.name, has_weights=model_host.has_weights))
            tasks.start_soon(self._watch, service)
            tasks.start_soon(run_schedules, service)
            tasks.start_soon(self._notifier.feed, lambda: tenants.failure is not None)
            async with _answer_agent_checks(service, self.host):
                with record.announce():
                    await listener.serve([listening])

    def _leave(self, failure: Exception | None = None) -> None:
        self._failure = failure
        if self._listener is not None:
            self._listener.exit()

    async def _watch(self, service: ServiceState) -> None:
        """Tell when the model is loaded, and leave when it will not be loaded again."""
        with anyio.CancelScope() as self._watching:
            try:
                model_host = service.model_host
                await model_host.ready()
            except RkllmMcpError as error:
                self._leave(error)
                return
            self.session.status(f"Ready: {model_host.name}")
            self._notifier.notify(READY=1, STATUS=f"ready: {model_host.name}")
            await service.tenants.models.given_up()
            self._leave(service.tenants.failure)

    async def _obey(self, tasks: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                service, listener = self._service, self._listener
                if number == signal.SIGHUP:
                    if service is not None and not service.is_draining:
                        tasks.start_soon(self._reload, service, tasks)
                    continue
                self._code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_DONE
                if service is None or listener is None:
                    tasks.cancel_scope.cancel()
                elif service.is_draining:
                    listener.exit(at_once=True)
                else:
                    tasks.start_soon(self._drain, service)

    async def _drain(self, service: ServiceState) -> None:
        self._watching.cancel()
        # No more answers are taken; waiting requests are refused and may go to another board.
        service.is_draining = True
        scheduler = service.tenants.scheduler
        scheduler.close()
        running = scheduler.running() + scheduler.running("evaluation")
        if running:
            self.session.status(f"Stopping after {running} answer{'s' if running > 1 else ''}; again to stop at once")
        self._notifier.notify(STOPPING=1, STATUS=f"{running} answers under way")
        with anyio.move_on_after(service.config.service.drain_s):
            await scheduler.idle()
        # Their streams end with ``interrupted``.
        for tenant in service.tenants.by_name.values():
            tenant.app.close()
        self._leave()

    async def _reload(self, service: ServiceState, tasks: TaskGroup) -> None:
        """Put the configuration in force as it is now; one that cannot be used changes nothing."""
        try:
            await self._apply(service, tasks)
        except RkllmMcpError as error:
            self.session.terminal.error(f"The configuration stays as it was: {error}")

    async def _apply(self, service: ServiceState, tasks: TaskGroup) -> None:
        """Put the configuration in force as it is now.

        Raises:
            RkllmMcpError: it cannot be used.
        """
        # The next READY ends this.
        self._notifier.notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        async with self._reloading:
            # The model that is being watched may go now, and is not a failure then.
            self._watching.cancel()
            try:
                config = self.session.config()
                check_key(self.host, config)
                before = service.config.service
                is_same_model = await service.tenants.reload(config, drain_s=config.service.drain_s)
                if self._record is not None:
                    self._record.update(config)
                model = "the model stays" if is_same_model else "another model"
                self.session.status(f"Configuration in force; {model}")
                if (config.service.host, config.service.port) != (before.host, before.port):
                    self.session.status("Another host or port is used after a restart")
            finally:
                # Another model is being loaded now; one that cannot be is the end, as at the start.
                tasks.start_soon(self._watch, service)
