"""A server of HTTP that answers as one that wants to harm its client does."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

PIECE = b" " * 65_536
# A drip comes this often, seconds, and the server gives up after this many bytes of an answer without end.
DRIP_S, MOST_BYTES = 0.05, 4 * 2**30
DEEP = b"[" * 100_000 + b"]" * 100_000

# Whole answers by name, JSON of their own.
BODIES: dict[str, bytes] = {
    "deep": DEEP,
    "a list": b"[1, 2]",
    "no JSON": b"<html>",
    "many": b"[" + b"[]," * 2_000_000 + b"[]]",
    "nothing": b"",
    "text": b'"' + b"x" * 500_000 + b'"',
}


_COMPRESSED = gzip.compress(b" " * 2_000_000)


class HostileServer(ThreadingHTTPServer):
    """The server, which answers every path and method in its way: ``WITHOUT_END``, ``compressed`` or a body's name."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.way, self.status = "a list", 200
        self.body: object = None  # of the way ``given``, as JSON
        self.sent = 0  # bytes of the answers without end
        self.seen: list[dict[str, str]] = []  # headers of the requests, in small letters
        self.is_over = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing of connections that clients break."""


WITHOUT_END = ("endless", "dripping", "announced")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the standard library
        """Write nothing."""

    def _answer(self) -> None:
        server = cast("HostileServer", self.server)
        server.seen.append({name.lower(): value for name, value in self.headers.items()})
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = BODIES.get(server.way, b"")
        self.send_response(server.status)
        self.send_header("Content-Type", "application/json")
        if server.status == HTTPStatus.FOUND:
            self.send_header("Location", server.url)
        if server.way == "compressed":
            self.send_header("Content-Encoding", "gzip")
            body = _COMPRESSED
        elif server.way == "given":
            body = json.dumps(server.body).encode()
        self.close_connection = server.way in WITHOUT_END
        if server.way == "announced":
            self.send_header("Content-Length", str(2**40))
        elif not self.close_connection:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.close_connection:
            self._go_on()
        else:
            self.wfile.write(body)

    def _go_on(self) -> None:
        server, sent = cast("HostileServer", self.server), 0
        piece = b" " if server.way == "dripping" else PIECE
        while sent < MOST_BYTES and not server.is_over.wait(DRIP_S if server.way == "dripping" else 0):
            self.wfile.write(piece)
            sent += len(piece)
            server.sent += len(piece)

    def _answer_until_they_leave(self) -> None:
        try:
            self._answer()
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_HEAD = _answer_until_they_leave  # noqa: N815  # the names of the standard library


@contextmanager
def hostile_server(port: int = 0) -> Generator[HostileServer, None, None]:
    """Serve until the end of the block."""
    with HostileServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()
