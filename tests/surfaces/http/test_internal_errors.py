"""A mistake of ours in the middle of an answer: the client learns which request it was, the log has the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio.abc import TaskGroup

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.environment import ModelHost
from rkllm_mcp.app.model_form import PromptListing
from rkllm_mcp.app.root import open_app
from rkllm_mcp.app.tenants import Tenant, Tenants
from rkllm_mcp.config.sections import Config
from rkllm_mcp.events import Text
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, ToolSpec
from rkllm_mcp.protocols import EventSink, Turn
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.errors import name_request
from rkllm_mcp.surfaces.http.state import ServiceState

pytestmark = pytest.mark.anyio
SECRET = "/home/owner/secret-of-the-machine"
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


class Broken:
    """A model with a mistake in it, before or behind its first word."""

    def __init__(self, word: str) -> None:
        self._word = word

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn:
        del conversation, tools, options
        await anyio.lowlevel.checkpoint()
        if self._word:
            sink.feed([Text(self._word)])
        raise KeyError(SECRET)

    def over(self, conversation_id: str) -> None:
        del conversation_id

    def forget(self, conversation_id: str) -> None:
        del conversation_id

    def branch(self, conversation_id: str, new_id: str) -> None:
        del conversation_id, new_id


class OnePerson(Tenants):
    """Tenants for one assistant that is there."""

    def __init__(self, app: App, tasks: TaskGroup) -> None:
        super().__init__(app.config, tasks, None)
        self._app = app

    @property
    def model_host(self) -> ModelHost:
        return self._app.model_host

    @property
    def is_ready(self) -> bool:
        return True

    def tenant(self, name: str) -> Tenant:
        return Tenant(name, self._app, None)


@asynccontextmanager
async def asking(folder: Path, word: str) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """A client of a service whose model is broken."""
    model_host = ModelHost("broken", Broken(word), PromptListing(4096, lambda _: 1), npu=None)
    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(60):
        patch.setenv("RKLLM_MCP_STATE", str(folder))
        async with open_app(Config(), model_host=model_host) as app, anyio.create_task_group() as tasks:
            transport = httpx2.ASGITransport(app=create_app(ServiceState(OnePerson(app, tasks))))
            client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")
            async with client:
                yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", ["", "So"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/execute", {"message": "Hi"}),
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", {**CHAT, "mcp": True, "x_events": True}),
        ("/api/chat", {**CHAT, "model": "broken"}),
        ("/api/generate", {"prompt": "Hi", "model": "broken"}),
    ],
)
async def test_an_internal_error_is_reported_by_the_requests_name_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any], word: str, stream: bool
) -> None:
    caplog.handler.addFilter(name_request)
    async with asking(tmp_path, word) as client:
        answer = await client.post(path, json={**body, "stream": stream}, headers={"X-Request-Id": "req-7"})
    assert "something went wrong inside the service; the log has more under request req-7" in answer.text
    for hidden in (SECRET, "KeyError", "internal error", "--debug"):
        assert hidden not in answer.text
    (record,) = [record for record in caplog.records if record.message == "an answer failed"]
    assert getattr(record, "request_id", "") == "req-7"
    assert SECRET in caplog.text
