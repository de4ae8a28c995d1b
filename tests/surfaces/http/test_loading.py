"""While the model loads: who is told to ask again, and who waits, because their programs would not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_app import make_demo
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.served import scripted_model
from tests.support.started import started

Json = dict[str, Any]
QUESTION: Json = {"model": "parrot", "messages": [{"role": "user", "content": "Hi"}], "stream": False}


@dataclass
class Loading:
    """A service whose model is loaded once ``gate``, a named pipe, has been written."""

    port: int
    gate: Path
    pid: int

    def load(self) -> None:
        """Let it load."""
        self.gate.write_bytes(DEMO_TOKENIZER.read_bytes())

    def ask(self, path: str, body: Json | None = None) -> HTTPConnection:
        """A connection on which a request is under way."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        encoded = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, encoded, {"Content-Type": "application/json"})
        return connection

    def get(self, path: str, body: Json | None = None) -> tuple[int, Json]:
        """What a request is answered."""
        with closing(self.ask(path, body)) as connection:
            return answer_on(connection)


def answer_on(connection: HTTPConnection) -> tuple[int, Json]:
    """The status and the body that come."""
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@contextmanager
def served_slowly(folder: Path, extra: str = "") -> Generator[Loading, None, None]:
    model = scripted_model(
        folder / "model", "rule\n  user crash\n  say oh\n  fault crash SIGSEGV after 1\n\nrule\n  say Hello.\n"
    )
    gate = model / "gate"
    os.mkfifo(gate)
    script = model / "model.rkllm"
    script.write_text(script.read_text("utf-8").replace("vocabulary tokenizer.json", "vocabulary gate"), "utf-8")
    with started(make_demo(folder / "home", [], path=model, extra=f"[service]\n{extra}"), is_ready=False) as it:
        yield Loading(it.port, gate, it.process.pid)


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Generator[Loading, None, None]:
    with served_slowly(tmp_path_factory.mktemp("loading")) as it:
        yield it


def test_ollamas_programs_wait_for_the_model_and_openais_get_a_retry_after(loading: Loading) -> None:
    for path in ("/readyz", "/v1/chat/completions"):
        status, refused = loading.get(path, QUESTION if path.startswith("/v1") else None)
        assert (status, refused["error"]["message"]) == (503, "the model is being loaded; ask again in a moment")
    # What Home Assistant asks when it starts, which may be when the board does.
    status, listed = loading.get("/api/tags")
    assert (status, listed["models"][0]["model"]) == (200, "parrot:latest")
    with closing(loading.ask("/api/chat", QUESTION)) as waiting:
        assert loading.get("/readyz")[0] == 503
        loading.load()
        status, answer = answer_on(waiting)
    assert (status, answer["message"]["content"]) == (200, "Hello.")


def test_the_question_after_a_crash_waits_until_the_model_is_there_again(loading: Loading) -> None:
    crash = {**QUESTION, "messages": [{"role": "user", "content": "crash"}]}
    with closing(loading.ask("/api/chat", crash)) as crashing:
        if loading.get("/readyz")[0] == 503:
            loading.load()
        status, failed = answer_on(crashing)
    assert (status, "was killed by SIGSEGV" in failed["error"]) == (503, True)
    with closing(loading.ask("/api/chat", QUESTION)) as waiting:
        loading.load()
        status, answer = answer_on(waiting)
    assert (status, answer["message"]["content"]) == (200, "Hello.")


def test_a_client_that_waits_for_the_model_is_notified_when_the_service_stops(tmp_path: Path) -> None:
    with served_slowly(tmp_path, "drain_s = 0.1\n") as loading, closing(loading.ask("/api/chat", QUESTION)) as waiting:
        assert loading.get("/healthz")[0] == 200
        os.kill(loading.pid, signal.SIGTERM)
        status, refused = answer_on(waiting)
    assert status == 503
    assert "stopped" in refused["error"]
