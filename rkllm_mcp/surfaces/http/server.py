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
import resource
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import formatdate
from functools import partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Literal, TextIO

import anyio
import httptools
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from uvicorn._types import ASGISendEvent
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rkllm_mcp.app.settings import unset_rights
from rkllm_mcp.config.secrets import KEY_ADVICE, problem_off_loopback
from rkllm_mcp.config.sections import Config, is_loopback, web_address
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.errors import name_request
from rkllm_mcp.surfaces.http.middleware import needs_key
from rkllm_mcp.surfaces.http.sd_notify import Notifier
from rkllm_mcp.surfaces.http.state import ServiceState
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_INTERRUPTED, Session, emulation_note

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
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _is_ours_or_a_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == _OURS


def log_to(stream: TextIO, form: LogFormat) -> logging.Handler:
    """Write the log of this process to ``stream``, when it is off only what breaks. The caller removes the handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    handler.addFilter(name_request)
    handler.addFilter(_is_ours_or_a_warning)
    root = logging.getLogger()
    root.addHandler(handler)
    if form == "off":
        # The client is told no more of it than the name of the request.
        handler.setLevel(logging.ERROR)
    elif root.level > logging.INFO or root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    return handler


logger = logging.getLogger(__name__)

# From the first byte, or from the beginning of the connection, to the end of the head, seconds. Browsers open
# connections in advance and come back to them within a few.
HEAD_S = 30.0
# The longest head. A parser that has no limit of its own would collect headers for as long as HEAD_S.
HEAD_BYTES = 65_536
# Connections without a request under way, in all and of one address. Browsers open 6, a load balancer may keep 100.
MOST_WAITING = 384
MOST_OF_ONE_ADDRESS = 128
# Between two lines in the log about connections that were closed, seconds.
LOG_INTERVAL_S = 60.0
# The headers that say where a body ends.
_FRAMING = (b"content-length", b"transfer-encoding")


@dataclass(eq=False)
class WaitingConnections:
    """Connections without a running request, oldest first; limited in total and per client address.

    Connections of a proxy are those of many clients and count in the total only. IPv6 addresses count per /64 network.
    """

    most: int = MOST_WAITING
    most_of_one: int = MOST_OF_ONE_ADDRESS
    is_proxy: Callable[[str], bool] = lambda _: False
    # Dictionaries keep the order in which their keys were added, and lose any of them in constant time.
    _groups: dict[PatientConnection, str] = field(default_factory=dict["PatientConnection", str])
    _members: dict[str, dict[PatientConnection, None]] = field(default_factory=lambda: defaultdict(dict))
    _is_check_due: bool = False
    _closed: int = 0
    _log_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, connection: PatientConnection, address: str) -> None:
        """Add a connection on which no request is under way (any more)."""
        group = "" if self.is_proxy(address) else _group(address)
        self._groups[connection] = group
        self._members[group][connection] = None
        if not self._is_check_due and (len(self._groups) > self.most or self._has_too_many(group)):
            self._is_check_due = True
            # Two rounds of the loop: what has arrived on new connections is read in the first of them, so a request
            # that is complete already counts as one.
            loop = connection.loop
            loop.call_soon(loop.call_soon, self._check, loop)

    def discard(self, connection: PatientConnection) -> None:
        """Remove a connection, if it is there: its request is complete, or it is closed."""
        group = self._groups.pop(connection, None)
        if group is not None:
            self._members[group].pop(connection)
            if not self._members[group]:
                del self._members[group]

    def _has_too_many(self, group: str) -> bool:
        return bool(group) and len(self._members.get(group, ())) > self.most_of_one

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_check_due = False
        for group in list(self._members):
            while self._has_too_many(group):
                self._close(next(iter(self._members[group])))
        while len(self._groups) > self.most:
            self._close(next(iter(self._groups)))
        if self._closed and self._log_timer is None:
            self._log(loop)

    def _close(self, connection: PatientConnection) -> None:
        self.discard(connection)
        # Not ``close``, which waits for the other end to take what is left of an answer.
        connection.transport.abort()
        self._closed += 1

    def _log(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log the connections closed since the last line, and again after each interval with any."""
        self._log_timer = None
        if self._closed:
            # Level error: visible without a log, since clients may have been disconnected.
            logger.error(
                "closed %d connections without a complete request, the oldest first: at most %d are kept open, "
                "%d of one address (proxies belong into trusted_proxies in [service])",
                self._closed,
                self.most,
                self.most_of_one,
            )
            self._closed = 0
            self._log_timer = loop.call_later(LOG_INTERVAL_S, self._log, loop)


class PatientConnection(HttpToolsProtocol):
    """uvicorn's connection, closed when the head of a request is not there in time or does not end."""

    head_s = HEAD_S  # the longest time for a head, seconds
    waiting = WaitingConnections()  # where the connections without a request are counted
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _header_bytes = 0
    _is_in_body = False
    _is_upgrade_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # as in uvicorn
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Parse what came, as uvicorn does; an offer to speak another protocol is passed over with its body intact."""
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._parsed(data)
        except httptools.HttpParserError:
            self._refuse()
            return
        if self._head_bytes > HEAD_BYTES:
            if self._is_waiting:
                self._refuse()
            else:
                # Behind a request that is being answered.
                self.transport.abort()
        elif self._is_waiting and self._deadline is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end()
        self.waiting.discard(self)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._is_upgrade_refused:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of its address."""
        if not self._is_upgrade_refused:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one of its headers; a ValueError if the head is too long."""
        if not self._is_upgrade_refused:
            super().on_header(name, value)
            self._header_bytes += len(name) + len(value)
            if self._header_bytes > HEAD_BYTES:
                raise ValueError("the head is too long")

    def on_headers_complete(self) -> None:
        """Answer the request: its head is complete. It names one host (RFC 9112, 3.2), or it is a ValueError."""
        self._end()
        self._head_bytes, self._header_bytes, self._is_in_body = 0, 0, True
        if self._is_upgrade_refused:
            self._is_upgrade_refused = False
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        is_http_1_0 = self.parser.get_http_version() == "1.0"  # pyright: ignore[reportOptionalMemberAccess]  # None once it is closed
        if hosts > 1 or (not hosts and not is_http_1_0):
            raise ValueError("not one host")
        self.waiting.discard(self)
        self._renew_date()
        super().on_headers_complete()
        if is_http_1_0:
            _send_without_chunks(self.cycle)

    def on_message_complete(self) -> None:
        """Note the end of its body, which after an offer to upgrade is still to come."""
        if not self.parser.should_upgrade():  # pyright: ignore[reportOptionalMemberAccess]  # None once it is closed
            self._is_in_body = False
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if self._is_waiting and not self.transport.is_closing():
            self._wait()

    @property
    def _is_waiting(self) -> bool:
        """No request is under way; of one that was answered early the body may still come."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]  # None at first

    def _wait(self) -> None:
        self.waiting.add(self, self.client[0] if self.client else "")

    def _parsed(self, data: bytes) -> bytes:
        """Parse, and return the data that is not parsed yet.

        ``Upgrade: h2c``, which Java's HttpClient sends with every first request, is to be ignored (RFC 9110, 7.8).
        httptools skips the body of such a request and stops behind its head, so that body is announced once more.
        """
        if not self._is_in_body:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)  # pyright: ignore[reportOptionalMemberAccess]  # None once it is closed
        except httptools.HttpParserUpgrade as offer:
            self._is_upgrade_refused = True
            framing = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
            return b"".join([b"POST / HTTP/1.1\r\n", *framing, b"\r\n", data[offer.args[0] :]])
        return b""

    def _renew_date(self) -> None:
        """Set the Date header of the next response; uvicorn's timer would wake an idle service."""
        date = formatdate(usegmt=True).encode()
        self.server_state.default_headers = [(b"date", date), *self.config.encoded_headers]

    def _refuse(self) -> None:
        self._renew_date()
        message = "Invalid HTTP request received."
        self.logger.warning(message)
        self.send_400_response(message)

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(self.head_s, self.transport.close)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _send_without_chunks(cycle: RequestResponseCycle) -> None:
    """Send an answer of unknown length as HTTP/1.0 has it, up to the end of the connection; uvicorn sends chunks."""
    send, is_open_ended = cycle.send, False

    async def unframed(message: ASGISendEvent) -> None:
        nonlocal is_open_ended
        if message["type"] == "http.response.start":
            is_open_ended = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if is_open_ended:
                cycle.chunked_encoding = False
        elif message["type"] == "http.response.body" and is_open_ended:
            # uvicorn counts down to the announced length.
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = unframed


def _group(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        # A Unix socket has no address; its clients are proxies.
        return ""
    if isinstance(parsed, IPv6Address):
        # An IPv6 host chooses its address in a network of this size freely.
        return str(parsed.ipv4_mapped or IPv6Network((parsed.packed, 64), strict=False))
    return str(parsed)


# What has been answered may still be on its way to the client for so long at the end, seconds.
FLUSH_S = 5
# A connection whose other end takes nothing, or is not there any more, is dropped after so long, milliseconds.
DEAD_AFTER_MS = 60_000
# Longer than load balancers keep an idle connection, so that it is they who end it and no request gets lost, seconds.
KEEP_ALIVE_S = 75
# Descriptors left for files, tools and the runtime when connections have taken the rest.
OTHER_DESCRIPTORS = 128


def serve(session: Session, host: str | None, port: int | None) -> int:
    """Serve until a signal; return the exit code.

    Host and port are the configuration's when None, the port any free one when 0.
    """
    config = session.config()
    session.note_missing_configuration(config)
    host = host or config.service.host
    port = config.service.port if port is None else port
    check_key(host, config)
    handler = log_to(sys.stderr, config.service.log)
    try:
        # Made inside the event loop, which its lock needs.
        return anyio.run(lambda: _Serving(session, config, host, port).run())
    finally:
        logging.getLogger().removeHandler(handler)


def check_key(host: str, config: Config) -> None:
    """Raise a UsageError if other machines can connect without a key, or with one that can be guessed."""
    if not is_loopback(host) and (problem := problem_off_loopback(config.key_entries)):
        raise UsageError(f"{host}: {problem}; {KEY_ADVICE}")


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise a UsageError; connections inherit its timeout for dead peers."""
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
    """Leaves the signals to ``_Serving``, and sleeps while no client asks; uvicorn wakes up ten times a second."""

    def __init__(self, config: UvicornConfig) -> None:
        super().__init__(config)
        self._exiting = asyncio.Event()

    def exit(self, *, at_once: bool = False) -> None:
        """End ``serve``; ``at_once`` does not wait for connections."""
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
        self._exiting.set()

    async def main_loop(self) -> None:
        """Wait for ``exit``."""
        await self._exiting.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


class _Serving:
    def __init__(self, session: Session, config: Config, host: str, port: int) -> None:
        self._session = session
        self._config = config
        self._host = host
        self._port = port
        self._notifier = Notifier()
        self._service: ServiceState | None = None
        self._listener: _Listener | None = None
        self._failure: Exception | None = None
        self._code = EXIT_DONE
        self._watching = anyio.CancelScope()
        self._reloading = anyio.Lock()

    async def run(self) -> int:
        """Serve; returns the exit code."""
        with listening_socket(self._host, self._port) as listening:
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

        self._notifier.extend_start(self._config.runtime.start_timeout_s)
        async with open_tenants(self._config, status=self._session.status) as tenants:
            service = self._service = ServiceState(tenants)
            service.config_file = self._config.origin.source or self._session.target_file()
            service.reload = partial(self._apply, service, tasks)
            listener = self._listener = _Listener(_settings(service))
            self._say_where(listening, service)
            tasks.start_soon(self._watch, service)
            tasks.start_soon(self._notifier.feed, lambda: tenants.failure is not None)
            await listener.serve([listening])

    def _say_where(self, listening: socket.socket, service: ServiceState) -> None:
        status, host, port = self._session.status, self._host, listening.getsockname()[1]
        status(f"Serving at {web_address(host, port)}")
        page = web_address(host if is_loopback(host) else socket.gethostname(), port)
        status(f"The page: {page}/{' (it asks for a key)' if needs_key(service.config) else ''}")
        for line in unset_rights(service.config):
            status(line)
        if service.model_host.is_emulated:
            status(emulation_note(service.model_host.name))

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
            self._session.status(f"Ready: {model_host.name}")
            self._notifier.ready(f"ready: {model_host.name}")
            await service.tenants.given_up()
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
        service.drain()
        scheduler = service.tenants.scheduler
        running = scheduler.running() + scheduler.running("evaluation")
        if running:
            self._session.status(f"Stopping after {running} answer{'s' if running > 1 else ''}; again to stop at once")
        self._notifier.stopping(f"{running} answers under way")
        with anyio.move_on_after(service.config.service.drain_s):
            await scheduler.idle()
        service.stop_answers()
        self._leave()

    async def _reload(self, service: ServiceState, tasks: TaskGroup) -> None:
        """Put the configuration in force as it is now; one that cannot be used changes nothing."""
        try:
            await self._apply(service, tasks)
        except RkllmMcpError as error:
            self._session.terminal.error(f"The configuration stays as it was: {error}")

    async def _apply(self, service: ServiceState, tasks: TaskGroup) -> None:
        """Put the configuration in force as it is now.

        Raises:
            RkllmMcpError: it cannot be used.
        """
        self._notifier.reloading()
        async with self._reloading:
            # The model that is being watched may go now, and is no failure then.
            self._watching.cancel()
            try:
                config = self._session.config()
                check_key(self._host, config)
                before = service.config.service
                is_same_model = await service.tenants.reload(config, drain_s=config.service.drain_s)
                model = "the model stays" if is_same_model else "another model"
                self._session.status(f"Configuration in force; {model}")
                if (config.service.host, config.service.port) != (before.host, before.port):
                    self._session.status("Another host or port is used after a restart")
            finally:
                # Another model is being loaded now; one that cannot be is the end, as at the start.
                tasks.start_soon(self._watch, service)


def _settings(service: ServiceState) -> uvicorn.Config:
    def is_proxy(address: str) -> bool:
        # Looked up each time: the configuration may be exchanged.
        return service.config.service.is_trusted_proxy(address)

    class Connection(PatientConnection):
        waiting = WaitingConnections(is_proxy=is_proxy)

    return uvicorn.Config(
        create_app(service),
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
