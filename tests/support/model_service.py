"""Embeddings and relevance at an address on the loopback interface, for tests of what asks for them.

    with ModelService() as service:
        service.url                      ends in /v1
        service.asked                    every request that came, with its body and its Authorization header
        service.answers["/v1/rerank"]    what a path is answered with, instead of the usual

Usually a text's vector tells which of ``WORDS`` it holds, and a passage is relevant if it holds the query's first word.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

WORDS = ("sea", "mountain", "river", "海", "山", "川")


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    authorization: str
    body: dict[str, Any]


Answer = Callable[[dict[str, Any]], tuple[int, object]]


class ModelService:
    """The service, in a thread while the block lasts."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[str, Answer] = {"/v1/embeddings": embeddings, "/v1/rerank": relevance}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fail(self, path: str, status: int = 503) -> None:
        """From now on a path is answered with an error."""
        self.answers[path] = lambda _: (status, {"error": "not now"})


def embeddings(body: dict[str, Any]) -> tuple[int, object]:
    """OpenAI's shape."""
    rows = [{"index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])]
    # The order of the rows is free.
    return 200, {"object": "list", "data": rows[::-1]}


def relevance(body: dict[str, Any]) -> tuple[int, object]:
    """Jina's and Cohere's shape."""
    first = body["query"].split()[0]
    scored = [(0.95 if first in document else 0.05, at) for at, document in enumerate(body["documents"])]
    results = [{"index": at, "relevance_score": score} for score, at in sorted(scored, reverse=True)]
    return 200, {"results": results}


def vector(text: str) -> list[float]:
    """Which words a text holds; never nothing."""
    return [0.1, *(float(word in text) for word in WORDS)]


def _handler(service: ModelService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.asked.append(Asked(self.path, self.headers.get("Authorization", ""), body))
            status, answer = service.answers[self.path](body)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
            """Says nothing."""

    return Handler
