"""The phases and the test list of the mission (実装フェーズ, テストケース), as far as one test can say each.

The configuration and the calls are the mission's own, read from its document where that is here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.question import Question
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.environment import ToolEnvironment
from rkllm_mcp.app.root import open_app, open_tools
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import RemoteServer, StdioServer
from rkllm_mcp.events import Event, Status, Text, ToolCallDetected, ToolFinished
from rkllm_mcp.messages import Conversation, ToolCall, ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.tools.search import ToolSearch
from tests.support.asked import answer_question
from tests.support.demo_app import TIME_SERVER, PythonServer, make_demo
from tests.support.mcp_servers.sockets import Sockets, sockets
from tests.support.mcp_servers.specs import PATIENCE_S
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


@asynccontextmanager
async def assistant(folder: Path, *servers: PythonServer) -> AsyncGenerator[App]:
    """A running assistant on the emulated NPU; bounded."""
    demo = make_demo(folder, servers)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        with anyio.fail_after(PATIENCE_S):
            async with open_app(load_config(demo.config)) as app:
                yield app


async def events_of(app: App, conversation: Conversation, text: str) -> list[Event]:
    async with aclosing(app.reply(conversation, text)) as stream:
        return [event async for event in stream]


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
    """マルチターン会話でのツール利用, エラーハンドリング; servers that fail are in test_mission_edge_cases."""
    async with assistant(tmp_path, TIME_SERVER) as app:
        await app.ready()
        conversation = app.new_conversation()
        for question, is_error in (
            ("What time is it in London?", False),
            ("火星は今何時？", True),
            ("What time is it in Paris?", False),
        ):
            events = await events_of(app, conversation, question)
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
