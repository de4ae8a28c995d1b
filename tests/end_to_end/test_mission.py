"""What the mission's documents write out, as it stands there: their examples (使用例), configurations and requests.

Each is looked up in its document where that is here; ``docs/development/mission.md`` says where the rest
of the mission is tested.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.tool_retrieval import read_tools
from rkllm_mcp import MCPClient
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.app.root import open_app
from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import BuiltinServer, OpenAPIServer, RemoteServer, StdioServer
from rkllm_mcp.diagnostics.doctor import config_warnings
from rkllm_mcp.events import End, Status, Text, ToolCallDetected, ToolFinished
from rkllm_mcp.messages import PromptArgument, PromptTemplate, Resource, ToolCall, ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.tools.search import ToolSearch
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support import knowledge_server
from tests.support.demo_app import PATIENT, Demo, make_demo, reply_of, running
from tests.support.fake_jma import FakeAgency
from tests.support.local_api import open_api
from tests.support.mcp_servers.sockets import Sockets, sockets
from tests.support.mcp_servers.specs import PATIENCE_S, local_server
from tests.support.served import scripted_model
from tests.support.shared import REPOSITORY, shared_path
from tests.support.third_party import program, server

pytestmark = pytest.mark.anyio
RULES = REPOSITORY / "tests" / "support" / "mission.rules"
USERS = (
    (1, "Bob", "bob@example.com", "2025-01-02 11:30:00"),
    (2, "Alice", "alice@example.com", "2025-01-01 10:00:00"),
)


def make_example(folder: Path, *servers: str) -> Demo:
    """A configuration with these ``servers``."""
    demo = make_demo(folder, [])
    demo.config.write_text(demo.config.read_text("utf-8") + "".join(servers), encoding="utf-8")
    return Demo(folder, {**demo.environment, **PATIENT})


def mission_model(folder: Path) -> str:
    """A model that plays the examples."""
    return str(scripted_model(folder, RULES.read_text("utf-8"), name="mission", context=8192))


def weather(agency: FakeAgency, cache: Path) -> str:
    """The weather server, at an agency of the test's own."""
    return server(
        "weather", command="${PYTHON}", args=["-m", "mcp_servers.weather"], env=dict(agency.environment(cache))
    )


def filesystem(folder: Path) -> str:
    """The mission's file system server, for one folder."""
    command = str(program("mcp-server-filesystem"))
    return server("filesystem", command=command, args=[str(folder)], cwd=str(folder))


def calls_of(done: subprocess.CompletedProcess[str]) -> Sequence[str]:
    """The status lines about calls."""
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("[MCP: ")]
    return lines[lines.index("[MCP: Detected 1 tool call]") :]


def lines_of(tool: str, *within: str) -> list[str]:
    """The status lines of a call, with those that its execution adds."""
    called, completed = f"[MCP: Calling tool '{tool}']", f"[MCP: Tool '{tool}' completed]"
    return ["[MCP: Detected 1 tool call]", called, *within, completed]


def quoted(number: str, *literals: str) -> None:
    """Check that the document has these words, so that a test runs what is asked for; skips where it is not there."""
    (document,) = shared_path("mission").glob(f"{number}_*.txt")
    text = document.read_text("utf-8")
    assert [literal for literal in literals if literal not in text] == []


# --- the four examples of the command line ----------------------------------------------------------------------------


def test_example_1_the_weather(tmp_path: Path) -> None:
    """例1: 天気情報の取得."""
    with FakeAgency() as agency:
        done = make_example(tmp_path, weather(agency, tmp_path / "cache")).run("run", "東京の天気を教えて")
        assert agency.count("/forecast/130000.json") == 1
    assert calls_of(done) == lines_of("get_weather")
    assert done.stdout.startswith("◆ 東京")
    assert "天気は" in done.stdout


def test_example_2_the_file_system(tmp_path: Path) -> None:
    """例2: ファイルシステムツールとの連携."""
    project = tmp_path / "project"
    for name in ("src/main.rs", "src/ffi.rs", "src/llm.rs", "README.md"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    demo = make_example(tmp_path, filesystem(project))
    question = "プロジェクト内の .rs ファイルを全部リストアップして"
    done = demo.run("--model", mission_model(tmp_path / "model"), "run", question)
    assert calls_of(done) == lines_of("search_files")
    head, *files = done.stdout.splitlines()
    assert head == "◆ プロジェクト内の Rust ファイルは以下の通りです:"
    assert sorted(files) == ["- src/ffi.rs", "- src/llm.rs", "- src/main.rs"]


def test_example_3_the_database(tmp_path: Path) -> None:
    """例3: データベースツールとの連携."""
    path = tmp_path / "users.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, email TEXT, created_at TEXT)")
        database.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", USERS)
    database.close()
    demo = make_example(
        tmp_path, server("database", command=str(program("mcp-server-sqlite")), args=["--db-path", str(path)])
    )
    question = "データベースから最新の10件のユーザーを取得して表形式で表示して"
    done = demo.run("--model", mission_model(tmp_path / "model"), "run", question)
    assert calls_of(done) == lines_of("read_query")
    assert done.stdout.splitlines() == [
        "◆ 最新の10件のユーザー情報:",
        "",
        "| ID | Name | Email | Created At |",
        "|----|------|-------|------------|",
        *(f"| {' | '.join(map(str, user))} |" for user in USERS),
    ]


DATABASE = """
import json
from mcp.server import MCPServer
server = MCPServer("database")

@server.resource("database://users/latest", name="The latest users", mime_type="application/json")
def latest() -> str:
    return json.dumps([{"id": n, "name": f"user{n}"} for n in range(150, 0, -1)])

@server.resource("database://tables", name="Tables")
def tables() -> str:
    return "users"

server.run("stdio")
"""


def test_the_example_of_a_resource_that_the_question_needs(tmp_path: Path) -> None:
    """3.2 使用例: the model finds and reads it; the status lines are those of the document, in its order."""
    program_file = tmp_path / "database.py"
    program_file.write_text(DATABASE, encoding="utf-8")
    demo = make_example(tmp_path, server("database", command="${PYTHON}", args=[str(program_file)]))
    done = demo.run_here(
        "--model", mission_model(tmp_path / "model"), "run", "データベースから最新のユーザー情報を取得して要約して"
    )
    assert calls_of(done) == [
        *lines_of("list_resources"),
        *lines_of(
            "read_resource",
            "[MCP: Connecting to database server...]",
            "[MCP: Fetched resource: database://users/latest]",
            "[MCP: Loaded 150 records]",
        ),
    ]
    assert done.stdout == "◆ 最新のユーザー情報を要約します: 最新は user150 です。\n"


def test_example_4_two_tools(tmp_path: Path) -> None:
    """例4: 複数ツールの連携."""
    folder = tmp_path / "files"
    folder.mkdir()
    with FakeAgency() as agency:
        demo = make_example(tmp_path, weather(agency, tmp_path / "cache"), filesystem(folder))
        demo.config.write_text(
            demo.config.read_text("utf-8") + 'allowed_tools = ["list_directory", "write_file"]\n', "utf-8"
        )
        question = "東京の天気を取得して、その結果をファイル weather_report.txt に保存して"
        done = demo.run("run", "--yes", question)
    assert calls_of(done) == [*lines_of("get_weather"), *lines_of("write_file")]
    assert done.stdout == "◆ 天気情報を取得し、weather_report.txt に保存しました。\n"
    assert "東京" in (folder / "weather_report.txt").read_text(encoding="utf-8")


def test_the_demo_of_a_clone_lists_its_files_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "main.rs").touch()
    demo = make_example(tmp_path, filesystem(tmp_path / "files"))
    demo.config.write_text(demo.config.read_text("utf-8") + 'allowed_tools = ["list_directory"]\n', encoding="utf-8")
    done = demo.run("run", "フォルダのファイルを全部リストアップして")
    assert "[FILE] main.rs" in done.stdout


# --- 001 MCP クライアント仕様 --------------------------------------------------------------------------

DEVELOPMENT = """
from typing import Annotated
from pathlib import Path
from pydantic import Field
from mcp.server import MCPServer
from mcp.server.mcpserver.resources import FunctionResource

server = MCPServer("development")

@server.tool(description="Get current weather for a location", structured_output=False)
def get_weather(location: Annotated[str, Field(description="City name")]) -> str:
    return f"The weather in {location} is sunny, 25°C."

@server.resource("file:///path/to/document.txt", name="Project Documentation", mime_type="text/plain")
def document() -> str:
    return "How the project is built."

@server.prompt(description="Review code for best practices")
def code_review(language: Annotated[str, Field(description="Programming language")]) -> str:
    return f"Review this {language} code for best practices."

server.run("stdio")
"""


@pytest.fixture
def development(tmp_path: Path) -> Path:
    """The program of a server that offers what the documents show."""
    path = tmp_path / "development.py"
    path.write_text(DEVELOPMENT, encoding="utf-8")
    return path


async def test_001_the_client_lists_and_calls_as_sections_3_1_to_3_3_show(development: Path) -> None:
    client = MCPClient(sys.executable, [str(development)])
    with anyio.fail_after(PATIENCE_S):
        async with client:
            (tool,) = await client.list_tools()
            result = await client.call_tool("get_weather", {"location": "Tokyo"})
    assert (tool["name"], tool["description"]) == ("get_weather", "Get current weather for a location")
    assert tool["inputSchema"]["required"] == ["location"]
    assert result == {
        "content": [{"type": "text", "text": "The weather in Tokyo is sunny, 25°C."}],
        "isError": False,
    }
    quoted("001", '"description": "Get current weather for a location"', "The weather in Tokyo is sunny, 25°C.")


# --- 002 RKLLM CLI MCP対応 -------------------------------------------------------------------------------


async def test_002_the_tool_resource_and_prompt_of_the_document_are_offered(development: Path) -> None:
    spec = local_server("development", command=sys.executable, args=[str(development)])
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec]) as toolbox:
            await toolbox.wait_until_connected()
            tool = toolbox.resolve("get_weather")
            resources = await toolbox.offerings.resources()
            prompts = await toolbox.offerings.prompts()
    assert tool is not None
    assert tool.description == "Get current weather for a location"
    location = tool.input_schema["properties"]["location"]
    assert (location["type"], location["description"]) == ("string", "City name")
    assert tool.input_schema["required"] == ["location"]
    assert resources == (
        Resource("development", "file:///path/to/document.txt", "Project Documentation", mime_type="text/plain"),
    )
    language = PromptArgument("language", "Programming language", required=True)
    assert prompts == (PromptTemplate("development", "code_review", "Review code for best practices", (language,)),)
    quoted("002", '"uri": "file:///path/to/document.txt"', '"description": "Review code for best practices"')


def test_002_the_prompt_of_section_4_2_is_used_as_it_is_typed(tmp_path: Path, development: Path) -> None:
    demo = make_example(tmp_path, server("development", command="${PYTHON}", args=[str(development)]))
    typed = "/prompt code_review language=rust"
    done = demo.run_here("--model", mission_model(tmp_path / "model"), "chat", stdin=f"{typed}\n/quit\n")
    assert done.returncode == 0, done.stderr
    status = "[MCP: Using prompt template 'code_review' from server 'development']"
    answer = "◆ Rust コードのレビューを開始します..."
    assert status in done.stderr + done.stdout
    assert answer in done.stdout
    quoted("002", f"> {typed}", status, answer)


def block(language: str, containing: str) -> str:
    """The block of code in the requirements for the command line that has this in it."""
    (document,) = shared_path("mission").glob("002_*.txt")
    blocks = re.findall(rf"```{language}\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    return next(text for text in blocks if containing in text)


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


@pytest.mark.parametrize(("language", "marker"), [("json", "[TOOL_CALL]"), ("xml", "<tool_call name=")])
def test_a_call_is_found_in_the_missions_two_styles(language: str, marker: str) -> None:
    """JSON スタイルのツール呼び出し検出, XML スタイルのツール呼び出し検出."""
    tool = ToolSpec("get_weather", "", {"type": "object", "properties": {"location": {"type": "string"}}})
    for pieces in ([block(language, marker)], list(block(language, marker))):
        detector = Detector(tools=[tool], syntaxes=["project_json", "project_xml"])
        events = [event for piece in pieces for event in detector.feed(piece)] + list(detector.finish())
        (call,) = [event for event in events if isinstance(event, ToolCallDetected)]
        assert (call.name, call.arguments) == ("get_weather", {"location": "Tokyo"})
        assert "".join(event.text for event in events if isinstance(event, Text)).strip() == ""


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


async def test_phase_3_servers_over_sse_websocket_and_http_are_used_together_with_a_local_one(tmp_path: Path) -> None:
    tiny = ["-S", "-m", "tests.support.mcp_servers.tiny"]
    with ExitStack() as started:
        web = started.enter_context(remote("http"))
        events = started.enter_context(remote("sse"))
        async with sockets(Sockets()) as socket:
            servers = [
                server("local", command="${PYTHON}", args=tiny, cwd=str(REPOSITORY)),
                server("http", url=f"{web}/mcp"),
                server("sse", url=f"{events}/sse", transport="sse"),
                server("websocket", url=socket),
            ]
            path = tmp_path / "mcp_config.toml"
            path.write_text("".join(['[security]\napprove = "dangerous"\n', *servers]), encoding="utf-8")
            with anyio.fail_after(PATIENCE_S):
                async with open_tools(load_config(path)) as opened:
                    await opened.toolbox.wait_until_connected()
                    assert [state.reason for state in opened.toolbox.servers()] == [""] * 4
                    for name in ("http", "sse"):
                        result = await opened.toolbox.call(ToolCall("1", f"mcp__{name}__header", {"name": "host"}))
                        assert (result.text.startswith("127.0.0.1:"), result.is_error) == (True, False)
                    for name in ("local", "websocket"):
                        result = await opened.toolbox.call(ToolCall("1", f"mcp__{name}__add", {"a": 1, "b": 1}))
                        assert (result.text, result.is_error) == ("2", False)


async def test_mcp_switched_off(tmp_path: Path) -> None:
    """MCP 無効時: it answers as if there were no tools."""
    async with running(make_demo(tmp_path), MCP_ENABLED="false") as app:
        events = await reply_of(app, "What time is it in Tokyo?")
        assert (app.toolbox.servers(), app.tools()) == ((), ())
        assert not any(isinstance(event, ToolFinished) for event in events)
        assert [event for event in events if isinstance(event, Status) and "MCP" in event.text] == []
        assert any(isinstance(event, Text) for event in events)
        assert events[-1] == End("answered")


async def test_no_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """設定ファイル不在: it goes on without MCP."""
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    monkeypatch.chdir(tmp_path)
    config = load_config().with_options(model="demo", library="emulator")
    assert config.origin.source is None
    with anyio.fail_after(60):
        async with open_app(config) as app:
            events = await reply_of(app, "Hello")
            assert app.toolbox.servers() == ()
            assert events[-1] == End("answered")


# --- 003 MCP統合設計 ---------------------------------------------------------------------------------


async def test_003_the_headers_of_the_example_reach_the_api_with_its_tokens_and_its_tool_has_the_long_name() -> None:
    get = {"operationId": "get_incidents", "summary": "Lists incidents"}
    entry: dict[str, Any] = {
        "name": "servicenow",
        "transport": "openapi",
        "openapi_spec": {"openapi": "3.0.0", "paths": {"/echo": {"get": get}}},
        "headers_template": {"Authorization": "Bearer ${servicenow}", "X-API-Key": "${api_key}"},
    }
    tokens = {"servicenow": "eyJhbGc...", "api_key": "sk-1234..."}
    with anyio.fail_after(PATIENCE_S):
        async with open_api() as api:
            spec = OpenAPIServer.model_validate({**entry, "openapi_base_url": api.url})
            async with open_toolbox([spec]) as toolbox:
                await toolbox.wait_until_connected()
                call = ToolCall("1", "mcp__servicenow__get_incidents", {})
                result = await toolbox.call(call, CallContext(tokens=tokens))
                (tool,) = toolbox.tools()
        assert api.keys == ["Bearer eyJhbGc..."]
    assert (tool.name, tool.qualified_name) == ("get_incidents", "mcp__servicenow__get_incidents")
    # The API echoes its headers; the model is not shown a token.
    assert json.loads(result.text)["headers"]["x-api-key"] == "[REDACTED]"
    assert not result.is_error
    quoted("003", "Authorization: Bearer ${servicenow}", "X-API-Key: ${api_key}", "mcp__servicenow__get_incidents")


def test_003_the_servers_of_the_types_stdio_and_builtin_are_read_as_the_document_has_them(tmp_path: Path) -> None:
    servers: dict[str, Any] = {
        "files": {
            "transport": "stdio",
            "command": "npx",
            "args": ["-y", "@anthropic-ai/mcp-server-filesystem", "/workspace"],
        },
        "utilities": {
            "transport": "builtin",
            "tools": [
                {"name": "calculate", "description": "計算", "input_schema": {"type": "object", "properties": {}}},
                {"name": "clock", "description": "現在時刻取得"},
            ],
        },
    }
    path = tmp_path / "mcp_config.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    config = load_config(path)
    files, utilities = config.servers
    assert isinstance(files, StdioServer)
    assert (files.command, files.args) == ("npx", ("-y", "@anthropic-ai/mcp-server-filesystem", "/workspace"))
    assert isinstance(utilities, BuiltinServer)
    # A definition alone names nothing that runs: that tool is left out, the file and the others are used.
    assert [tool.name for tool in utilities.tools if tool.problem] == ["calculate"]
    assert any("tool 'calculate' is left out" in line for line in config_warnings(config))
    quoted("003", '["-y", "@anthropic-ai/mcp-server-filesystem", "/workspace"]')


# --- 004 MCP Tools詳細仕様 ------------------------------------------------------------------------------

ALUMNI = (
    "マイナビアルムナイは、退職者と企業をつなぐプラットフォームです。退職後も会社とつながるアルムナイサービスです。"
)
QUERY = "マイナビのアルムナイサービスについて教えて"
OCR = "マイナビキャリ-では、キャリアコンサルティングを提供しています。"


async def test_004_the_requests_of_the_document_get_its_responses(tmp_path: Path) -> None:
    async with knowledge_server.open_tools(tmp_path) as tools:
        created = await tools.call(
            "create_knowledge_base", name="マイナビサービス概要", description="マイナビが提供する各種サービスの説明資料"
        )
        # The id is the only part of the request that is not the document's.
        base_id = created.facts["knowledge_base_id"]
        await tools.call("add_document", knowledge_base_id=base_id, text=ALUMNI)
        found = await tools.call(
            "search_documents", query=QUERY, knowledge_base_id=base_id, threshold=0.7, max_results=5
        )
        summary = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
        corrected = await tools.call("normalize_ocr_text", text=OCR)
    assert {key: found.facts[key] for key in ("query", "knowledge_base_id", "threshold", "count")} == {
        "query": QUERY,
        "knowledge_base_id": base_id,
        "threshold": 0.7,
        "count": 1,
    }
    assert found.facts["results"][0]["content"].startswith(
        "マイナビアルムナイは、退職者と企業をつなぐプラットフォームです"
    )
    assert summary.facts["summary"] == "マイナビサービス概要: マイナビが提供する各種サービスの説明資料"
    assert summary.facts["statistics"] == {"total_documents": 1, "total_collections": 1, "total_chunks": 1}
    assert corrected.facts == {
        "original_text": OCR,
        "normalized_text": "マイナビキャリアでは、キャリアコンサルティングを提供しています。",
        "status": "success",
    }
    quoted("004", QUERY, OCR, summary.facts["summary"], corrected.facts["normalized_text"])


async def test_004_a_forced_tool_skips_the_choice() -> None:
    question, forced = "マイナビのサービスは？", "search_documents"
    selection = ToolSelection(ToolSearch, lambda _: 1, SelectionSettings(budget_tokens=2, auto_select=True))
    find, only = await selection.choose(question, read_tools(), forced)
    assert (find.name, only.name) == ("find_tools", forced)
    quoted("004", f'query="{question}"', f'force_tool="{forced}"')
