"""Waiting time of ``/healthz`` while the service reads, refuses or answers bodies of 7 MB.

    .venv/bin/python -m bench.large_bodies [--json] [--megabytes 7]

``rkllm-mcp serve`` on the emulated runtime. A client sends one large body after the other, each of another shape, to
each route that takes one, while another client asks ``/healthz`` again and again on a connection of its own. The aim
is an answer within 100 ms at any time; ``idle`` is the same without a large body.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.load_service import KEYS, loaded_service

AIM_MS = 100.0
_TIMEOUT_S = 60.0
_IDLE_S = 2.0
_MESSAGE_BYTES = 40


def _chat(content: Any = "plain name", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


# shape -> (route, the body for so many bytes)
SHAPES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "text": ("/v1/chat/completions", lambda size: _chat("word " * (size // 5))),
    "escaped Japanese": ("/v1/chat/completions", lambda size: _chat("日本" * (size // 12))),
    "text of JSON": ("/v1/chat/completions", lambda size: _chat('{"a": [1, 2]}, ' * (size // 19))),
    "more than body_mb": ("/v1/chat/completions", lambda size: _chat("word " * (size // 2))),
    "10,000 messages": (
        "/v1/chat/completions",
        lambda size: {"messages": [{"role": "user", "content": "x" * (size // 10_000 - _MESSAGE_BYTES)}] * 10_000},
    ),
    "100,000 values": ("/v1/chat/completions", lambda _size: _chat(extra=[[]] * 49_000)),
    "numbers": ("/v1/chat/completions", lambda size: _chat(extra=[0] * (size // 3))),
    "empty lists": ("/v1/chat/completions", lambda size: _chat(extra=[[]] * (size // 4))),
    "parts": (
        "/v1/chat/completions",
        lambda size: {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 20}] * (size // 700)},
    ),
    "message": ("/v1/execute", lambda size: {"message": "word " * (size // 5)}),
    "unknown fields": ("/v1/execute", lambda size: {f"field{number}": 0 for number in range(size // 16)}),
    "Ollama text": ("/api/chat", lambda size: {"model": "loaded", **_chat("word " * (size // 5))}),
    "token ids": ("/v1/embeddings", lambda size: {"input": [[1234] * 512] * (size // 6 // 512)}),
    "texts": ("/v1/embeddings", lambda size: {"input": ["word " * (size // 5 // 2000)] * 2000}),
}


@dataclass(frozen=True)
class Row:
    """What ``/healthz`` took while one body was sent and answered, milliseconds."""

    shape: str
    route: str
    megabytes: float
    status: int
    answered_ms: float
    health_median_ms: float
    health_worst_ms: float
    asked: int


class _Prober:
    """Asks ``/healthz`` again and again from a thread."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.taken_ms: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> _Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(_TIMEOUT_S)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_S)
        while not self._is_over.wait(0.001):
            begun = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.taken_ms.append((time.perf_counter() - begun) * 1e3)
        connection.close()


def _send(host: str, route: str, body: bytes) -> int:
    connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_S)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS[0]}"}
    connection.request("POST", route, body, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def measure(megabytes: float) -> list[Row]:
    """Send every shape once."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="large-bodies-") as folder, loaded_service(Path(folder)) as service:
        host = service.url.removeprefix("http://")
        for route in dict.fromkeys(route for route, _ in SHAPES.values()):
            # The first request of a route loads what later ones find loaded.
            _send(host, route, b'{"model": "loaded", "messages": [], "message": "plain a"}')
        with _Prober(host) as prober:
            time.sleep(_IDLE_S)
        rows.append(_row("idle", "", b"", 0, 0.0, prober))
        for shape, (route, body_of) in SHAPES.items():
            body = json.dumps(body_of(int(megabytes * 1e6)), separators=(",", ":")).encode()
            with _Prober(host) as prober:
                begun = time.perf_counter()
                status = _send(host, route, body)
                answered_ms = (time.perf_counter() - begun) * 1e3
            rows.append(_row(shape, route, body, status, answered_ms, prober))
    return rows


def _row(shape: str, route: str, body: bytes, status: int, answered_ms: float, prober: _Prober) -> Row:
    taken = prober.taken_ms
    return Row(shape, route, len(body) / 1e6, status, answered_ms, statistics.median(taken), max(taken), len(taken))


def table(rows: list[Row]) -> str:
    """The figures for a person."""
    lines = [f"{'shape':18}{'route':22}{'MB':>6}{'status':>8}{'answered ms':>13}{'median ms':>11}{'worst ms':>10}"]
    lines += [
        f"{row.shape:18}{row.route:22}{row.megabytes:6.1f}{row.status:8}{row.answered_ms:13.0f}"
        f"{row.health_median_ms:11.1f}{row.health_worst_ms:10.1f}"
        for row in rows
    ]
    return "\n".join([*lines, f"worst {max(row.health_worst_ms for row in rows):.0f} ms; the aim is {AIM_MS:.0f} ms"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--megabytes", type=float, default=7.0, help="size of the bodies")
    arguments = parser.parse_args()
    rows = measure(arguments.megabytes)
    print(json.dumps([asdict(row) for row in rows]) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
