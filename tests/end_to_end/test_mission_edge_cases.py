"""The edge cases that the project was asked for (エッジケース), one test for each row, with real servers.

What a row says is in the docstring of its test: the case, and what has to happen.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.loop import LoopSettings
from rkllm_mcp.agent.question import Question
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import End, Event, Status, Text, ToolCallDetected, ToolFinished
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.tools.search import ToolSearch
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.asked import answer_question
from tests.support.demo_app import TIME_SERVER, PythonServer, make_demo
from tests.support.mcp_servers.specs import local_server
from tests.support.scripted_model import Round, ScriptedModel
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
TINY = ("-m", "tests.support.mcp_servers.tiny")
MISSING: PythonServer = ("missing", ("-c", "raise SystemExit(3)"), {})


@asynccontextmanager
async def assistant(
    folder: Path, servers: tuple[PythonServer, ...] = (TIME_SERVER,), **environment: str
) -> AsyncGenerator[App, None]:
    """A running assistant on the emulated NPU; bounded."""
    demo = make_demo(folder, servers)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**demo.environment, **environment}.items():
            patch.setenv(name, value)
        with anyio.fail_after(60):
            async with open_app(load_config(demo.config)) as app:
                yield app


async def events_of(app: App, text: str) -> list[Event]:
    async with aclosing(app.reply(app.new_conversation(), text)) as stream:
        return [event async for event in stream]


async def with_tiny(
    *rounds: Round, settings: LoopSettings | None = None, timeout_s: float = 30.0
) -> tuple[list[Event], ScriptedModel, Conversation]:
    """One answer of a scripted model with the tools of a real server."""
    events: list[Event] = []
    model, conversation = ScriptedModel(list(rounds)), Conversation()

    @FunctionSink
    def sink(event: Event) -> None:
        events.append(event)

    spec = local_server("tiny", command=sys.executable, args=TINY, inherit_env=True, timeout_s=timeout_s)
    with anyio.fail_after(60):
        async with open_toolbox([spec]) as toolbox:
            await toolbox.connected()
            preparation = TurnPreparation(toolbox, ToolSelection(ToolSearch, lambda _: 1, SelectionSettings(1000)))
            request = TurnRequest(Question("Do it."), toolbox.tools())
            await answer_question(model, preparation, conversation, request, sink, settings)
    return events, model, conversation


def finished(events: list[Event]) -> list[ToolFinished]:
    return [event for event in events if isinstance(event, ToolFinished)]


async def test_a_server_that_fails_to_connect(tmp_path: Path) -> None:
    """サーバー接続失敗: it is skipped, and the tools of the others are there."""
    async with assistant(tmp_path, (MISSING, TIME_SERVER)) as app:
        await app.ready()
        assert [server.state for server in app.toolbox.servers()] == ["failed", "ready"]
        assert [tool.name for tool in app.tools()] == ["get_current_time", "convert_time"]
        events = await events_of(app, "What time is it in Tokyo?")
        assert [result.is_error for result in finished(events)] == [False]
        assert events[-1] == End("answered")


async def test_a_tool_that_fails() -> None:
    """ツール実行エラー: the model is told what failed, and answers."""
    rounds = (Round([ToolCallDetected("fail", {"why": "the disk is full"})]), Round([Text("It did not work.")]))
    events, model, _ = await with_tiny(*rounds)
    (result,) = finished(events)
    assert (result.is_error, result.text) == (True, "the disk is full")
    assert model.asked[1][0][-1].results[0].text == "the disk is full"
    assert events[-2:] == [Text("It did not work."), End("answered")]


async def test_the_limit_of_the_tool_loop() -> None:
    """ツールループ上限到達: the loop ends, the model is told and has to answer in text."""
    rounds = [Round([ToolCallDetected("add", {"a": number, "b": 1})]) for number in range(3)]
    settings = LoopSettings(max_rounds=3)
    events, model, conversation = await with_tiny(*rounds, Round([Text("That is all.")]), settings=settings)
    assert len(finished(events)) == 3
    assert model.asked[3][0][-1].text == translate("model.round_limit")
    assert events[-2:] == [Text("That is all."), End("round_limit")]
    assert conversation.messages[-1] == Message("assistant", "That is all.")


async def test_a_tool_that_takes_too_long() -> None:
    """ツール実行タイムアウト: it is an error like any other, which the model is told."""
    rounds = (Round([ToolCallDetected("wait", {})]), Round([Text("It takes too long.")]))
    events, model, _ = await with_tiny(*rounds, timeout_s=0.2)
    text = "Tool 'wait' did not answer within 0.2 s and was stopped."
    assert [(result.is_error, result.text) for result in finished(events)] == [(True, text)]
    assert model.asked[1][0][-1].results[0].text == text
    assert events[-1] == End("answered")


async def test_mcp_switched_off(tmp_path: Path) -> None:
    """MCP 無効時: it answers as if there were no tools."""
    async with assistant(tmp_path, MCP_ENABLED="false") as app:
        events = await events_of(app, "What time is it in Tokyo?")
        assert (app.toolbox.servers(), app.tools()) == ((), ())
        assert finished(events) == []
        assert [event for event in events if isinstance(event, Status) and "MCP" in event.text] == []
        assert any(isinstance(event, Text) for event in events)
        assert events[-1] == End("answered")


async def test_no_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """設定ファイル不在: it goes on without MCP."""
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    monkeypatch.chdir(tmp_path)
    config = load_config().overridden(model="demo", library="emulator")
    assert config.origin.source is None
    with anyio.fail_after(60):
        async with open_app(config) as app:
            events = await events_of(app, "Hello")
            assert app.toolbox.servers() == ()
            assert events[-1] == End("answered")
