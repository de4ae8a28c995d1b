"""HTTP connections for uvicorn: a limit on the time and size of a request's head, and on connections without a request.

    connection_made ─▶ waiting ─▶ on_headers_complete ─▶ a request is under way ─▶ on_response_complete ─▶ waiting ─▶ …

A connection is *waiting* while no request is under way on it: nothing came yet, a head is incomplete, or it is kept
alive between two requests. ``WaitingConnections`` bounds these, in all and for each address, and closes the oldest.
A request whose head is complete is never closed for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any

import httptools
from uvicorn._types import ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

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
# An IPv6 host chooses its address in a network of this size freely.
_IPV6_HOST_BITS = 64


class WaitingConnections:
    """The connections of one server on which no request is under way, oldest first.

    Args:
        most: how many there may be in all.
        most_of_one: how many there may be of one address (IPv6: of one /64 network).
        is_proxy: whether an address is a proxy's, whose connections are those of many clients; they count in all only.
    """

    def __init__(
        self,
        most: int = MOST_WAITING,
        most_of_one: int = MOST_OF_ONE_ADDRESS,
        is_proxy: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._is_proxy = is_proxy
        # Dictionaries keep the order in which their keys were added, and lose any of them in constant time.
        self._groups: dict[PatientConnection, str] = {}
        self._members: dict[str, dict[PatientConnection, None]] = {}
        self._is_check_due = False
        self._closed = 0
        self._log_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, connection: PatientConnection, address: str) -> None:
        """Add a connection on which no request is under way (any more)."""
        group = "" if self._is_proxy(address) else _group(address)
        self._groups[connection] = group
        self._members.setdefault(group, {})[connection] = None
        if not self._is_check_due and (len(self._groups) > self._most or self._has_too_many(group)):
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
        return bool(group) and len(self._members.get(group, ())) > self._most_of_one

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_check_due = False
        for group in list(self._members):
            while self._has_too_many(group):
                self._close(next(iter(self._members[group])))
        while len(self._groups) > self._most:
            self._close(next(iter(self._groups)))
        if self._closed and self._log_timer is None:
            self._log(loop)

    def _close(self, connection: PatientConnection) -> None:
        self.discard(connection)
        # Not ``close``, which waits for the other end to take what is left of an answer.
        connection.transport.abort()
        self._closed += 1

    def _log(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log what was closed since the last line, and again after the interval as long as there is something."""
        self._log_timer = None
        if self._closed:
            # An error: it is also seen where the log is off, and somebody may have been shut out.
            logger.error(
                "closed %d connections without a complete request, the oldest first: at most %d are kept open, "
                "%d of one address (proxies belong into trusted_proxies in [service])",
                self._closed,
                self._most,
                self._most_of_one,
            )
            self._closed = 0
            self._log_timer = loop.call_later(LOG_INTERVAL_S, self._log, loop)


class PatientConnection(HttpToolsProtocol):
    """uvicorn's connection, closed when the head of a request is not there in time or does not end.

    Attributes:
        head_s: the longest time for a head, seconds.
        waiting: where the connections without a request are counted.
    """

    head_s = HEAD_S
    waiting = WaitingConnections()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._header_bytes = 0
        self._is_in_body = False
        self._is_upgrade_refused = False

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
        """Take one of its headers.

        Raises:
            ValueError: the head is too long.
        """
        if not self._is_upgrade_refused:
            super().on_header(name, value)
            self._header_bytes += len(name) + len(value)
            if self._header_bytes > HEAD_BYTES:
                raise ValueError("the head is too long")

    def on_headers_complete(self) -> None:
        """Answer the request: its head is complete.

        Raises:
            ValueError: it names no host, or several (RFC 9112, 3.2).
        """
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
        """Parse; returns what is still to be parsed.

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

    def _refuse(self) -> None:
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
    """What an address counts for."""
    try:
        parsed = ip_address(address)
    except ValueError:
        # A Unix socket has none; whoever connects through it is a proxy.
        return ""
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS)}/64"
