"""The listening side of the HTTP servers: sockets, connections and their limits."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import anyio
import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

logger = logging.getLogger(__name__)

# From the first byte, or from the beginning of the connection, to the end of the head, seconds. Browsers open
# connections in advance and come back to them within a few.
HEAD_S = 30.0
# The longest head. A parser that has no limit of its own would collect headers for as long as HEAD_S.
HEAD_BYTES = 65_536
# Connections without a request under way, in all and of one address. Browsers open 6, a load balancer may keep 100.
# A burst of some hundred that arrives while a question is prepared must not push out those that have just come.
MOST_WAITING = 512
MOST_OF_ONE_ADDRESS = 128
# Bytes around the data of a chunked body that are read, beyond 16 for each chunk.
EXCESS_BYTES = 65_536
# Between two lines in the log about connections that were closed, seconds.
LOG_INTERVAL_S = 60.0
# State of a socket in /proc/net/tcp.
_LISTENING = "0A"
# In the scope of a request: ``write_body`` for its response.
WRITE_BODY = "rkllm_mcp.write_body"
# The headers that say where a body ends.
_FRAMING = (b"content-length", b"transfer-encoding")


class ListenError(Exception):
    """Nothing can listen at an address; the message ends with what to do."""


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
        group = ""
        if not self.is_proxy(address):
            # A Unix socket has no address; its clients are proxies.
            with suppress(ValueError):
                parsed = ip_address(address)
                if isinstance(parsed, IPv6Address):
                    # An IPv6 host chooses its address in a network of this size freely.
                    parsed = parsed.ipv4_mapped or IPv6Network((parsed.packed, 64), strict=False)
                group = str(parsed)
        self._groups[connection] = group
        self._members[group][connection] = None
        has_too_many = bool(group) and len(self._members[group]) > self.most_of_one
        if not self._is_check_due and (has_too_many or len(self._groups) > self.most):
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

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_check_due = False
        closing: dict[PatientConnection, None] = {}
        for group, members in self._members.items():
            closing.update(dict.fromkeys(islice(members, max(0, len(members) - self.most_of_one) if group else 0)))
        others = (connection for connection in self._groups if connection not in closing)
        closing.update(dict.fromkeys(islice(others, max(0, len(self._groups) - len(closing) - self.most))))
        for connection in closing:
            self.discard(connection)
            # Not ``close``, which waits for the other end to take what is left of an answer.
            connection.transport.abort()
        self._closed += len(closing)
        if self._closed and self._log_timer is None:
            self._log(loop)

    def _log(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log the connections closed since the last line, and again after each interval with any."""
        self._log_timer = None
        if self._closed:
            # Level error: visible without a log, since clients may have been disconnected.
            logger.error(
                "closed %d connections without a complete request, the oldest first: at most %d are kept open, "
                "%d of one address; a proxy of many clients has to be configured as a trusted one",
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
    _excess_bytes = 0
    _is_in_body = False
    _is_upgrade_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # as in uvicorn
        """Wait for the first request."""
        super().connection_made(transport)
        self.waiting.add(self, self.client[0] if self.client else "")
        self._deadline = self.loop.call_later(self.head_s, self.transport.close)

    def data_received(self, data: bytes) -> None:
        """Parse what came, as uvicorn does; an offer to speak another protocol is passed over with its body intact.

        ``Upgrade: h2c``, which Java's HttpClient sends with every first request, is to be ignored (RFC 9110, 7.8).
        httptools skips the body of a request like that and stops after its head, so that body is announced once more.
        """
        self._unset_keepalive_if_required()
        is_valid = True
        while data and is_valid:
            if self._is_in_body:
                self._excess_bytes += len(data)
            else:
                self._head_bytes += len(data)
            try:
                self.parser.feed_data(data)  # pyright: ignore[reportOptionalMemberAccess]  # None once it is closed
                data = b""
                # After the end of a body come further requests.
                self._excess_bytes = max(0, self._excess_bytes) if self._is_in_body else 0
            except httptools.HttpParserUpgrade as offer:
                self._is_upgrade_refused = True
                framing = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
                data = b"".join([b"POST / HTTP/1.1\r\n", *framing, b"\r\n", data[offer.args[0] :]])
            except httptools.HttpParserError:
                is_valid = False
        is_too_long = self._head_bytes > HEAD_BYTES
        if not is_valid or self._excess_bytes > EXCESS_BYTES or (is_too_long and self._is_waiting):
            self._renew_date()
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)
        elif is_too_long:
            # After a request that is being answered.
            self.transport.abort()
        elif self._is_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self.transport.close)

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
        """Take one of its headers; a ValueError if the head is too long.

        Trailers are not headers (RFC 9110, 6.5.1): a proxy does not check them, and they may not bring a key or a host.
        """
        if not self._is_upgrade_refused:
            if not self._is_in_body:
                super().on_header(name, value)
            self._header_bytes += len(name) + len(value)
            if self._header_bytes > HEAD_BYTES:
                raise ValueError("the head is too long")

    def on_headers_complete(self) -> None:
        """Answer the request: its head is complete.

        It is one of HTTP/1 and names one host (RFC 9112, 2.3 and 3.2), or it is a ValueError.
        """
        self._end()
        self._head_bytes, self._header_bytes, self._excess_bytes, self._is_in_body = 0, 0, 0, True
        if self._is_upgrade_refused:
            self._is_upgrade_refused = False
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        version = self.parser.get_http_version()  # pyright: ignore[reportOptionalMemberAccess]  # None once it is closed
        is_http_1_0 = version == "1.0"
        if version not in ("1.0", "1.1"):
            raise ValueError("not HTTP/1")
        if hosts > 1 or (not hosts and not is_http_1_0):
            raise ValueError("not one host")
        if not self.url.startswith((b"/", b"*")):
            # The host of the target replaces Host (RFC 9112, 3.2.2); a user name is refused.
            target = urlsplit(self.url)
            if not target.netloc or b"@" in target.netloc:
                raise ValueError("not a target")
            self.headers[:] = [(b"host", target.netloc), *(header for header in self.headers if header[0] != b"host")]
        self.waiting.discard(self)
        self._renew_date()
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)[WRITE_BODY] = partial(write_body, self.cycle)
        if not is_http_1_0:
            return
        # An answer of unknown length goes on up to the end of the connection there; uvicorn sends chunks.
        cycle, send, is_open_ended = self.cycle, self.cycle.send, False

        async def send_unframed(message: ASGISendEvent) -> None:
            nonlocal is_open_ended
            if message["type"] == "http.response.start":
                is_open_ended = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                if is_open_ended:
                    cycle.chunked_encoding = False
            elif message["type"] == "http.response.body" and is_open_ended:
                # uvicorn counts down to the announced length.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        cycle.send = send_unframed

    def on_chunk_header(self) -> None:
        """Note the beginning of a chunk."""
        self._excess_bytes -= 16

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._excess_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of its body, which after an offer to upgrade is still to come."""
        if not self.parser.should_upgrade():  # pyright: ignore[reportOptionalMemberAccess]  # None once it is closed
            self._is_in_body = False
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if self._is_waiting and not self.transport.is_closing():
            self.waiting.add(self, self.client[0] if self.client else "")

    @property
    def _is_waiting(self) -> bool:
        """No request is under way; of one that was answered early the body may still come."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]  # None at first

    def _renew_date(self) -> None:
        """Set the Date header of the next response; uvicorn's timer would wake an idle service."""
        date = formatdate(usegmt=True).encode()
        self.server_state.default_headers = [(b"date", date), *self.config.encoded_headers]

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def write_body(cycle: RequestResponseCycle, content: bytes) -> bool:
    """Write a part of a body of unknown length to the connection without waiting.

    Return False if the buffer of the connection is full; the part is then to be sent with ``send``.
    """
    if cycle.flow.write_paused:
        return False
    if not cycle.disconnected:
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(content), content) if cycle.chunked_encoding else content)
    return True


# What has been answered may still be on its way to the client for that long at the end, seconds.
FLUSH_S = 5
# A connection whose other end takes nothing, or is not there any more, is dropped after this long, milliseconds.
DEAD_AFTER_MS = 60_000
# Longer than load balancers keep an idle connection, so that it is they who end it and no request gets lost, seconds.
KEEP_ALIVE_S = 75
# Descriptors left for files, tools and the runtime when connections have taken the rest.
OTHER_DESCRIPTORS = 128
# Below this many connections a page and a few clients have no room next to connections that say nothing.
LEAST_CONNECTIONS = 64


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise a ListenError; connections inherit its timeout for dead peers."""
    most, least = _most_connections(), OTHER_DESCRIPTORS + LEAST_CONNECTIONS
    if most is not None and most < LEAST_CONNECTIONS:
        message = f"only {most + OTHER_DESCRIPTORS} files may be open (ulimit -n), and {least} are needed to serve"
        raise ListenError(f"{message}; raise the limit: ulimit -n 1024, or LimitNOFILE=1024 in the unit of the service")
    # That name stands for two addresses, of which people and programs mean this one.
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on {host} ({error.strerror}); choose another --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
        listening.bind(address)
        # Here already: SO_REUSEADDR lets two bind that do not listen, and the second would learn it much later.
        listening.listen(socket.SOMAXCONN)
    except OSError as error:
        listening.close()
        user = _port_user(port) if error.errno == errno.EADDRINUSE else ""
        remedy = f"cannot listen on {host}:{port} ({error.strerror}{user}); choose another --host or --port"
        raise ListenError(remedy) from None
    listening.setblocking(False)
    return listening


class Listener(uvicorn.Server):
    """Serves an application; leaves the signals to its caller.

    It sleeps while no client asks, where uvicorn wakes up ten times a second.

    Args:
        app: the application.
        is_proxy: tells of an address whether it is that of a trusted proxy.
        lifespan: on for an application that is told of the start and the end.
        most: connections that may be open in all; None for as many as this process has descriptors for.
    """

    def __init__(
        self,
        app: ASGIApp,
        is_proxy: Callable[[str], bool] = lambda _: False,
        lifespan: Literal["on", "off"] = "off",
        most: int | None = None,
    ) -> None:
        most = min(filter(None, (most, _most_connections())), default=None)

        class Connection(PatientConnection):
            waiting = waiting_connections(most, is_proxy)

        settings = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=most,
            # So many are accepted before those that are too many are closed.
            backlog=socket.SOMAXCONN if most is None else min(socket.SOMAXCONN, most // 8),
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=FLUSH_S,
        )
        super().__init__(settings)
        self._exiting = asyncio.Event()

    def exit(self, *, at_once: bool = False) -> None:
        """End ``serve``; ``at_once`` does not wait for connections."""
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
        self._exiting.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; connections that are not accepted yet wait in a queue of the usual length."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(socket.SOMAXCONN)

    async def main_loop(self) -> None:
        """Wait for ``exit``."""
        await self._exiting.wait()

    async def serve_until_cancelled(self, listening: socket.socket) -> None:
        """Serve at a socket until cancelled, then let running requests finish for ``FLUSH_S``."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._exit_when_cancelled)
            # Cancelled it would leave its sockets open; it is told to stop instead.
            with anyio.CancelScope(shield=True):
                await self.serve([listening])
            tasks.cancel_scope.cancel()
        # Deliver a cancellation from outside.
        await anyio.lowlevel.checkpoint()

    async def _exit_when_cancelled(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.exit()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def _port_user(port: int) -> str:
    """Return `` by NAME, process ID`` of the program that listens on a TCP port; empty if it cannot be found out."""
    sockets: list[str] = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text("ascii").splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    sockets.append(f"socket:[{inode}]")
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        # Other users' processes are closed to this one, and any may end meanwhile.
        with suppress(OSError):
            if any(str(descriptor.readlink()) == sockets[0] for descriptor in (process / "fd").iterdir()):
                return f" by {(process / 'comm').read_text('utf-8').strip()}, process {process.name}"
    return ""


def waiting_connections(most: int | None, is_proxy: Callable[[str], bool]) -> WaitingConnections:
    """Return the limits for connections without a request, where ``most`` connections may be open in all.

    They leave a quarter of ``most`` to requests, and those of one address leave two thirds of the rest to others.
    """
    in_all = MOST_WAITING if most is None else min(MOST_WAITING, most * 3 // 4)
    return WaitingConnections(in_all, min(MOST_OF_ONE_ADDRESS, in_all // 3), is_proxy)


def _most_connections() -> int | None:
    """Connections that this process has descriptors for; None without a limit. Up to there only the queue refuses."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit - OTHER_DESCRIPTORS
