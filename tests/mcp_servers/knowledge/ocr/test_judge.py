"""A language model behind an address judges; whatever goes wrong there is one problem, told without the key."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import anyio
import pytest

from mcp_servers.knowledge.embedding.remote import ChatJudge, ModelAddress
from mcp_servers.knowledge.errors import ModelServiceUnavailableError
from mcp_servers.knowledge.ocr.normalize import normalize

pytestmark = pytest.mark.anyio
KEY = "sk-not-to-be-told"


def completion(content: object) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}


@dataclass
class FakeService:
    """An OpenAI-compatible service with one answer; none at all when that is None."""

    answer: object
    status: int = 200
    url: str = ""
    asked: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list[Any])
    over: Event = field(default_factory=Event)

    def address(self, timeout_s: float = 10.0) -> ModelAddress:
        return ModelAddress(self.url, "elyza", KEY, timeout_s)


@contextmanager
def serving(service: FakeService) -> Generator[FakeService, None, None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.asked.append((self.path, self.headers["Authorization"], body))
            if service.answer is None:
                service.over.wait(10)
                return
            content = service.answer if isinstance(service.answer, bytes) else json.dumps(service.answer).encode()
            self.send_response(service.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass  # a test run's stderr is for what went wrong

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        service.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


async def test_the_unsure_places_are_asked_in_one_request_that_asks_for_no_invention() -> None:
    with serving(FakeService(completion("ユーザーIDの一覧"))) as service:
        result = await normalize("ユーザ-IDの一覧", ChatJudge(service.address()).answer)
    assert (result.normalized_text, result.status) == ("ユーザーIDの一覧", "success")
    ((path, key, body),) = service.asked
    assert (path, key) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["temperature"]) == ("elyza", 0)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][1]["content"] == "ユーザ-IDの一覧"


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ({"error": "no such model"}, 404, "HTTP 404 for /chat/completions"),
        (b"<html>", 200, "its answer is not JSON that can be read (expected value at line 1 column 1)"),
        ({"choices": []}, 200, "its answer is not a chat completion"),
        ([], 200, "its answer is not an object"),
        (completion(None), 200, "its answer has no text"),
    ],
)
async def test_an_answer_that_is_not_one_is_a_service_that_is_not_available(
    answer: object, status: int, reason: str
) -> None:
    with serving(FakeService(answer, status)) as service:
        result = await normalize("ユーザ-ID", ChatJudge(service.address()).answer)
    assert result.normalized_text == "ユーザーID"
    assert result.status == f"LLM service unavailable: {reason}; decided by rules alone"


async def test_a_service_that_says_nothing_is_waited_for_that_long_and_no_longer() -> None:
    with serving(FakeService(None)) as service, anyio.fail_after(60):
        with pytest.raises(ModelServiceUnavailableError, match=r"no answer in 0\.2 s"):
            await ChatJudge(service.address(timeout_s=0.2)).answer("", "")
        service.over.set()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://[", "ftp://127.0.0.1/v1"])
async def test_an_address_without_a_service_is_reported_without_the_key(url: str) -> None:
    with anyio.fail_after(60), pytest.raises(ModelServiceUnavailableError, match="LLM service unavailable") as caught:
        await ChatJudge(ModelAddress(url, "elyza", KEY)).answer("", "")
    assert KEY not in str(caught.value)
    assert KEY not in repr(ChatJudge(ModelAddress(url, "elyza", KEY)))
