"""The agency's site on the loopback interface, for tests of the weather server and of what is on it.

    with FakeAgency() as agency:                          invented forecasts, some Saturday at noon
    with FakeAgency(cases_folder()) as agency:            the saved real responses (only where they are at hand)
        environment = agency.environment(cache=tmp_path)  JMA_BASE_URL, WEATHER_NOW, XDG_CACHE_HOME for a child process

It answers conditional requests, counts what it was asked, and fails on demand.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.jma_forecasts import TABLES, invented_forecast, last_edition
from tests.support.shared import shared_path

_TABLE_PATHS = {
    "/bosai/common/const/area.json": "area.json",
    "/bosai/forecast/const/forecast_area.json": "forecast_area.json",
    "/bosai/forecast/const/week_area.json": "week_area.json",
    "/bosai/forecast/const/week_area05.json": "week_area05.json",
}
_FORECAST = re.compile(r"/bosai/forecast/data/forecast/(\d{6})\.json")
_PATIENCE_S = 60.0
NOON = datetime(2026, 11, 21, 12, 30, tzinfo=timezone(timedelta(hours=9)))
# A moment after the newest of the saved forecasts of Tokyo was published.
NOW_IN_CASES = "2026-01-05T18:00:00+09:00"


def cases_folder() -> Path:
    """Real responses of the agency; skips the calling test where they are not at hand."""
    return shared_path("cases", "jma")


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What a path is answered with."""

    status: int
    body: bytes = b""


class FakeAgency:
    """The site, served from a thread while the block lasts.

    Args:
        folder: tables and ``forecast_{office}_{time}.json`` files, of which the newest is served; without one, the
            small tables of this repository and invented forecasts.
        now: the moment whose newest edition is invented, whatever the time is where the tests run.
    """

    def __init__(self, folder: Path | None = None, now: datetime = NOON) -> None:
        self._folder = folder or TABLES
        self._now = now
        self._overrides: dict[str, Answer] = {}
        self._failure: Answer | None = None
        self._failures_left, self._failure_for_now = 0, Answer(503)
        self._hang = threading.Event()
        self._hangs = False
        self.asked: list[Asked] = []
        self._news = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def base_url(self) -> str:
        """What ``JMA_BASE_URL`` is set to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self, cache: Path) -> dict[str, str]:
        """Variables for a weather server that shall meet this agency, with its cache in its own folder."""
        now = self._now.isoformat() if self._folder == TABLES else NOW_IN_CASES
        return {"JMA_BASE_URL": self.base_url, "XDG_CACHE_HOME": str(cache), "WEATHER_NOW": now}

    def __enter__(self) -> FakeAgency:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening: from now on connections are refused."""
        self._hang.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def serve(self, path: str, body: object, *, status: int = 200) -> None:
        """Answers a path with this from now on: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        self._overrides[path] = Answer(status, content)

    def serve_forecast(self, office: str, body: object) -> None:
        """Answers for an office with this forecast from now on."""
        self.serve(f"/bosai/forecast/data/forecast/{office}.json", body)

    def fail(self, status: int = 503) -> None:
        """Answers everything with an error from now on."""
        self._failure = Answer(status)

    def fail_next(self, requests: int, status: int = 503) -> None:
        """Answers that many requests with an error, then recovers."""
        self._failures_left, self._failure_for_now = requests, Answer(status)

    def recover(self) -> None:
        """Ends what ``fail`` began."""
        self._failure = None

    def hang(self) -> None:
        """Accepts requests from now on and never answers them."""
        self._hangs = True

    def count(self, path_part: str = "") -> int:
        """How many requests had this in their path."""
        return sum(path_part in asked.path for asked in self.asked)

    def hear(self, request: Asked) -> None:
        """A request has come."""
        with self._news:
            self.asked.append(request)
            self._news.notify_all()

    def wait_for(self, requests: int) -> None:
        """Wait until this many have come: a client that gives up may do so before its request was read."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.asked) >= requests, _PATIENCE_S)

    def answer(self, path: str) -> Answer:
        """What a path is answered with now."""
        if self._hangs:
            self._hang.wait()
        if self._failures_left:
            self._failures_left -= 1
            return self._failure_for_now
        if self._failure:
            return self._failure
        if path in self._overrides:
            return self._overrides[path]
        if path in _TABLE_PATHS:
            return Answer(200, (self._folder / _TABLE_PATHS[path]).read_bytes())
        forecast = _FORECAST.fullmatch(path)
        return self._forecast(forecast[1]) if forecast else Answer(404)

    def _forecast(self, office: str) -> Answer:
        if self._folder == TABLES:
            published = last_edition(self._now)
            try:
                return Answer(200, json.dumps(invented_forecast(office, published), ensure_ascii=False).encode())
            except KeyError:
                return Answer(404)
        files = sorted(self._folder.glob(f"forecast_{office}_*.json"))
        return Answer(200, files[-1].read_bytes()) if files else Answer(404)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that gave up waiting is what some tests are about.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(agency: FakeAgency) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def do_GET(self) -> None:
            agency.hear(Asked(self.path, dict(self.headers.items())))
            answer = agency.answer(self.path)
            etag = f'"{hashlib.sha256(answer.body).hexdigest()[:12]}"'
            fresh = answer.status == 200 and self.headers.get("If-None-Match") == etag
            self.send_response(304 if fresh else answer.status)
            body = b"" if fresh else answer.body
            self.send_header("ETag", etag)
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 08:00:00 GMT")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
            pass

    return Handler
