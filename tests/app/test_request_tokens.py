"""A token that comes with a question opens its server for that answer, and is found nowhere afterwards."""

from __future__ import annotations

import logging
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import End, ToolFinished, event_to_json
from rkllm_mcp.generation import AnswerOptions
from tests.support.demo_app import make_demo
from tests.support.mcp_servers.tiny import Arguments, TinyServer
from tests.support.mcp_servers.web import Mcp, Reply, Request, serving

pytestmark = pytest.mark.anyio

TOKEN = "tok-5f3a/secret+of=somebody"
QUESTION = "What time is it in London?"


class Clock(Mcp):
    """Tells the time to whoever has a token, and repeats the token."""

    def __init__(self) -> None:
        super().__init__({"get_current_time": self.tell})
        self.meanwhile = self.check

    def check(self, request: Request) -> Reply | None:
        return None if request.headers.get("authorization") == f"Bearer {TOKEN}" else Reply(401, b"who are you?")

    def tell(self, _: TinyServer, __: Arguments) -> str:
        return f"12:00 says {self.request.headers['authorization']}"


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".so")


async def test_a_token_opens_its_server_for_one_answer_and_is_stored_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    state = tmp_path / "state"
    said: list[str] = []
    async with serving(Clock()) as url:
        server = f'[[servers]]\nname = "clock"\nurl = "{url}/mcp"\n'
        header = 'headers_template = { Authorization = "Bearer ${clock}" }\n'
        demo = make_demo(tmp_path, (), extra=f"[security]\nlog_wire = true\n{server}{header}")
        for name, value in {**demo.environment, "RKLLM_MCP_STATE": str(state)}.items():
            monkeypatch.setenv(name, value)
        with anyio.fail_after(60):
            async with open_app(load_config(demo.config), status=said.append) as app:
                conversation = app.new_conversation()
                options = AnswerOptions(tokens={"clock": TOKEN}, approvals="grant")
                async with aclosing(app.reply(conversation, QUESTION, options)) as stream:
                    events = [event async for event in stream]
                (result,) = [event for event in events if isinstance(event, ToolFinished)]
                assert (result.is_error, "12:00 says" in result.text) == (False, True)
                assert "[REDACTED]" in result.text
                assert events[-1] == End("answered")
                # Its tool is known from now on, and says what it wants.
                async with aclosing(app.reply(app.new_conversation(), QUESTION, AnswerOptions())) as stream:
                    without = [event async for event in stream]
                said += [event_to_json(event) for event in (*events, *without)]
                said += [repr(conversation), repr(app.toolbox.servers()), repr(options), caplog.text]
    assert any("No token 'clock' was given" in line for line in said)
    everything = "\n".join(said).encode() + contents(state)
    assert b"get_current_time" in contents(state)
    for spelling in (TOKEN, TOKEN[:12], TOKEN[-12:]):
        assert spelling.encode() not in everything
