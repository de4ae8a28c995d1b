"""How an answer ends in each API when it cannot go on: the runtime's process dies, or the queue is full."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.support.served import SLOW, Served, scripted_model, served

Json = dict[str, Any]
RULES = f"""
rule it dies later
  user die later
  say one two three four five six
  fault crash SIGSEGV after 3

rule it never ends
  user for ever
  say one {" ".join(map(str, range(1000)))}

rule
  say I see.
"""
MESSAGES = "messages"
# By route: the body for a question, and its fields.
ASKED: dict[str, Json] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": None},
    "/v1/responses": {"input": None},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 100},
    "/api/chat": {"messages": MESSAGES},
    "/api/generate": {"prompt": None},
}


def body(path: str, question: str) -> Json:
    """A streaming request."""
    values = {MESSAGES: [{"role": "user", "content": question}], None: question}
    fields = {name: values.get(value, value) for name, value in ASKED[path].items()}
    return {"model": "default", "stream": True, **fields}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("ends")
    model = scripted_model(folder / "model", RULES, speed=SLOW)
    with served(folder / "home", model, extra="[service]\nparallel = 1\nqueue = 0\n", speed="") as it:
        yield it


def sentence(path: str, error: Json) -> str:
    """The message of an error in the shape of a route's API, all of which is checked."""
    if path.startswith("/api/"):
        assert set(error) == {"error"}
        return error["error"]
    if path == "/v1/messages":
        assert (set(error), error["type"]) == ({"type", "error", "request_id"}, "error")
        assert set(error["error"]) == {"type", "message"}
        return error["error"]["message"]
    assert set(error["error"]) == {"message", "type", "param", "code"}
    return error["error"]["message"]


@pytest.mark.parametrize("path", ASKED)
def test_a_runtime_that_dies_in_the_middle_ends_the_stream_as_its_api_says(service: Served, path: str) -> None:
    # Ollama's routes wait while the model loads, as it does again after each death.
    ready = httpx2.post(f"{service.url}/api/chat", json={**body("/api/chat", "Hi"), "stream": False}, timeout=120)
    assert ready.json()["message"]["content"] == "I see."
    answer = httpx2.post(f"{service.url}{path}", json=body(path, "die later"), timeout=120)
    assert answer.status_code == 200
    records = [record for record in answer.text.split("\n\n") if record and not record.startswith(":")]
    if path.startswith("/api/"):
        records = answer.text.splitlines()
    assert "one" in answer.text
    last = json.loads(records[-1].rpartition("data: ")[2])
    if path == "/v1/responses":
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        message = last["response"]["error"]["message"]
    else:
        message = sentence(path, last)
    assert "SIGSEGV" in message
    if path == "/v1/messages":
        assert records[-1].startswith("event: error\n")


HI = {**body("/api/chat", "Hi"), "stream": False}


@pytest.mark.parametrize("path", ASKED)
def test_a_full_queue_is_a_429_in_the_shape_of_its_api(service: Served, path: str) -> None:
    until = time.monotonic() + 60
    # The answer of before may still be stopping.
    while (ready := httpx2.post(f"{service.url}/api/chat", json=HI, timeout=120)).status_code == 429:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert ready.status_code == 200
    with httpx2.stream("POST", f"{service.url}{path}", json=body(path, "for ever"), timeout=120) as running:
        pieces = running.iter_bytes()
        while b"one" not in next(pieces):
            pass
        refused = httpx2.post(f"{service.url}{path}", json=body(path, "Hi"), timeout=120)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert "wait" in sentence(path, refused.json()) or "queue" in sentence(path, refused.json())
