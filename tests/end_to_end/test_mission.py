"""The phases, test list and edge cases of the mission (実装フェーズ, テストケース, エッジケース), a test for each.

The configuration and the calls are the mission's own, read from its document where that is here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.loop import LoopSettings
from rkllm_mcp.agent.question import Question
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.app.environment import ToolEnvironment
from rkllm_mcp.app.root import open_app
from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import RemoteServer, StdioServer
from rkllm_mcp.events import End, Event, Status, Text, ToolCallDetected, ToolFinished
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.tools.search import ToolSearch
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.asked import answer_question
from tests.support.demo_app import TIME_SERVER, PythonServer, make_demo, reply_of, running
from tests.support.mcp_servers.sockets import Sockets, sockets
from tests.support.mcp_servers.specs import PATIENCE_S, local_server
from tests.support.scripted_model import Round, ScriptedModel
from tests.support.shared import REPOSITORY, shared_path
from tests.support.third_party import server
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
TOOLS = [ToolSpec("get_weather", "", {"type": "object", "properties": {"location": {"type": "string"}}})]


def block(language: str, containing: str) -> str:
    """The block of code in the requirements for the command line that has this in it."""
    (document,) = shared_path("mission").glob("002_*.txt")
    blocks = re.findall(rf"```{language}\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    return next(text for text in blocks if containing in text)


def tiny(name: str) -> str:
    """A small server over stdio."""
    args = ["-S", "-m", "tests.support.mcp_servers.tiny"]
    return server(name, command="${PYTHON}", args=args, cwd=str(REPOSITORY))


@asynccontextmanager
async def environment(folder: Path, *servers: str) -> AsyncGenerator[ToolEnvironment]:
    """The toolbox of a configuration file with these servers; bounded."""
    path = folder / "mcp_config.toml"
    path.write_text("".join(['[security]\napprove = "dangerous"\n', *servers]), encoding="utf-8")
    with anyio.fail_after(PATIENCE_S):
        async with open_tools(load_config(path)) as opened:
            await opened.toolbox.connected()
            yield opened


async def called(opened: ToolEnvironment, tool: str, /, **arguments: object) -> tuple[str, bool]:
    result = await opened.toolbox.call(ToolCall("call_1", tool, arguments))
    return result.text, result.is_error


# --- test list 1: the client ------------------------------------------------------------------------------------------


def test_the_configuration_file_is_read(tmp_path: Path) -> None:
    """設定ファイルの読み込み."""
    path = tmp_path / "mcp_config.toml"
    path.write_text(block("toml", "transport"), encoding="utf-8")
    filesystem, weather, database = load_config(path).servers
    assert isinstance(filesystem, StdioServer)
    assert isinstance(weather, StdioServer)
    assert isinstance(database, RemoteServer)
    assert (filesystem.name, filesystem.command, filesystem.args[1]) == (
        "filesystem",
        "npx",
        "@modelcontextprotocol/server-filesystem",
    )
    assert (weather.name, weather.command, weather.args) == ("weather", "/usr/local/bin/weather-mcp-server", ())
    assert (database.name, database.transport, database.url) == ("database", "sse", "http://localhost:8080/mcp")


async def test_the_tools_of_a_server_over_stdio_are_listed_and_called_and_one_that_is_not_there_fails(
    tmp_path: Path,
) -> None:
    """stdio サーバへの接続, ツール一覧の取得, ツール呼び出しの成功, ツール呼び出しの失敗（存在しないツール）."""
    async with environment(tmp_path, tiny("one")) as opened:
        (state,) = opened.toolbox.servers()
        assert (state.state, state.tool_count) == ("ready", 7)
        assert [tool.name for tool in opened.toolbox.tools()][:2] == ["add", "steps"]
        assert await called(opened, "add", a=20, b=5) == ("25", False)
        assert await called(opened, "ad", a=20, b=5) == ("There is no tool 'ad'; did you mean 'add'?", True)


async def test_several_servers_are_connected_and_their_equal_tools_have_different_names(tmp_path: Path) -> None:
    """複数サーバとの接続."""
    async with environment(tmp_path, tiny("one"), tiny("two")) as opened:
        assert await called(opened, "mcp__one__add", a=1, b=1) == ("2", False)
        assert await called(opened, "mcp__two__add", a=1, b=2) == ("3", False)
        text, is_error = await called(opened, "add", a=1, b=2)
        assert (text, is_error) == (
            "Several servers have a tool 'add'; name one of mcp__one__add, mcp__two__add.",
            True,
        )


# --- test list 2: finding calls ---------------------------------------------------------------------------------------


def found(text: str) -> tuple[str, list[ToolCallDetected]]:
    """What is left as text, and the calls in it, however it is cut."""
    seen: list[tuple[str, list[ToolCallDetected]]] = []
    for pieces in ([text], list(text)):
        detector = Detector(tools=TOOLS, syntaxes=["project_json", "project_xml"])
        events = [event for piece in pieces for event in detector.feed(piece)] + list(detector.finish())
        words = "".join(event.text for event in events if isinstance(event, Text))
        seen.append((words, [event for event in events if isinstance(event, ToolCallDetected)]))
    assert [call.arguments for call in seen[0][1]] == [call.arguments for call in seen[1][1]]
    assert seen[0][0] == seen[1][0]
    return seen[0]


@pytest.mark.parametrize(("language", "marker"), [("json", "[TOOL_CALL]"), ("xml", "<tool_call name=")])
def test_a_call_is_found_in_the_missions_two_styles(language: str, marker: str) -> None:
    """JSON スタイルのツール呼び出し検出, XML スタイルのツール呼び出し検出."""
    text, (call,) = found(block(language, marker))
    assert (text.strip(), call.name, call.arguments) == ("", "get_weather", {"location": "Tokyo"})


def test_several_calls_are_found() -> None:
    """複数ツール呼び出しの検出."""
    calls = "".join(
        f"[TOOL_CALL]\n{json.dumps({'name': 'get_weather', 'arguments': {'location': place}})}\n[END_TOOL_CALL]\n"
        for place in ("Tokyo", "Osaka")
    )
    text, detected = found(f"調べます。\n{calls}")
    assert text.strip() == "調べます。"
    assert [call.arguments for call in detected] == [{"location": "Tokyo"}, {"location": "Osaka"}]


def test_without_a_call_the_text_is_the_answer() -> None:
    """ツール呼び出しがない場合."""
    words = 'It is [sunny]; a tool is called with "[TOOL_CALL]", and <b>tools</b> are {"name": "x"}.'
    assert found(words) == (words, [])


# --- test list 3: the whole -------------------------------------------------------------------------------------------


async def test_tools_are_used_in_a_conversation_of_several_turns_also_after_one_failed(tmp_path: Path) -> None:
    """マルチターン会話でのツール利用, エラーハンドリング."""
    async with running(make_demo(tmp_path)) as app:
        await app.ready()
        conversation = app.new_conversation()
        for question, is_error in (
            ("What time is it in London?", False),
            ("火星は今何時？", True),
            ("What time is it in Paris?", False),
        ):
            events = await reply_of(app, question, conversation)
            assert Status("[MCP: Calling tool 'get_current_time']") in events
            assert [event.is_error for event in events if isinstance(event, ToolFinished)] == [is_error]
            words = "".join(event.text for event in events if isinstance(event, Text))
            assert is_error or words.startswith(f"In Europe/{question[19:-1]} it is ")
        assert [message.role for message in conversation.messages] == [
            "system",
            *("user", "assistant", "tool", "assistant") * 3,
        ]


# --- phases 3 and 4, as one configuration has them; 1 and 2 are above and in test_app_asking --------------------------


@contextmanager
def remote(transport: str) -> Generator[str]:
    """The address of a server behind HTTP."""
    command = [sys.executable, "-m", "tests.support.mcp_servers.remote", transport]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def test_phase_3_servers_behind_sse_websocket_and_http_are_used_together_with_a_local_one(tmp_path: Path) -> None:
    with ExitStack() as running:
        web = running.enter_context(remote("http"))
        events = running.enter_context(remote("sse"))
        async with sockets(Sockets()) as socket:
            servers = [
                tiny("local"),
                server("http", url=f"{web}/mcp"),
                server("sse", url=f"{events}/sse", transport="sse"),
                server("websocket", url=socket),
            ]
            async with environment(tmp_path, *servers) as opened:
                assert {state.name: state.reason for state in opened.toolbox.servers()} == dict.fromkeys(
                    ("local", "http", "sse", "websocket"), ""
                )
                for name in ("http", "sse"):
                    said, is_error = await called(opened, f"mcp__{name}__header", name="host")
                    assert (said.startswith("127.0.0.1:"), is_error) == (True, False)
                for name in ("local", "websocket"):
                    assert await called(opened, f"mcp__{name}__add", a=1, b=1) == ("2", False)


async def test_phase_4_stopping_an_answer_cancels_the_tool_it_waits_for(tmp_path: Path) -> None:
    begun = anyio.Event()

    @FunctionSink
    def sink(event: Event) -> None:
        if event == Status("[MCP: Calling tool 'wait']"):
            begun.set()

    async with environment(tmp_path, tiny("one")) as opened:
        model = ScriptedModel([Round([ToolCallDetected("wait", {})])])
        preparation = TurnPreparation(opened.toolbox, ToolSelection(ToolSearch, lambda _: 1, SelectionSettings(1000)))
        request = TurnRequest(Question("Wait."), opened.toolbox.tools())
        arguments = (model, preparation, Conversation(), request, sink)
        async with anyio.create_task_group() as answering:
            answering.start_soon(answer_question, *arguments)
            await begun.wait()
            # The call is on its way once another one has come back behind it.
            assert await called(opened, "add", a=1, b=1) == ("2", False)
            answering.cancel_scope.cancel()
        assert await called(opened, "cancellations") == ("wait", False)


# --- edge cases (エッジケース): the docstring has the case, and what has to happen ------------------------------------

TINY = ("-m", "tests.support.mcp_servers.tiny")
MISSING: PythonServer = ("missing", ("-c", "raise SystemExit(3)"), {})


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
    async with running(make_demo(tmp_path, (MISSING, TIME_SERVER))) as app:
        await app.ready()
        assert [server.state for server in app.toolbox.servers()] == ["failed", "ready"]
        assert [tool.name for tool in app.tools()] == ["get_current_time", "convert_time"]
        events = await reply_of(app, "What time is it in Tokyo?")
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
    async with running(make_demo(tmp_path), MCP_ENABLED="false") as app:
        events = await reply_of(app, "What time is it in Tokyo?")
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
            events = await reply_of(app, "Hello")
            assert app.toolbox.servers() == ()
            assert events[-1] == End("answered")
