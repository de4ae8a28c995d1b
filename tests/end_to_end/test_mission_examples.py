"""The four usage examples of the mission (使用例), word for word, with the status lines it shows."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.demo_app import PATIENT, Demo, make_demo
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.fake_jma import FakeAgency
from tests.support.shared import REPOSITORY
from tests.support.third_party import program, server

SCRIPT = REPOSITORY / "tests" / "support" / "mission.rkllm"
USERS = (
    (1, "Bob", "bob@example.com", "2025-01-02 11:30:00"),
    (2, "Alice", "alice@example.com", "2025-01-01 10:00:00"),
)


def make_example(folder: Path, *servers: str) -> Demo:
    """A configuration with these ``servers``."""
    demo = make_demo(folder, [])
    demo.config.write_text(demo.config.read_text("utf-8") + "".join(servers), encoding="utf-8")
    return Demo(folder, {**demo.environment, **PATIENT})


def scripted_model(folder: Path) -> str:
    """A model that plays the examples."""
    folder.mkdir()
    shutil.copyfile(SCRIPT, folder / "mission.rkllm")
    shutil.copyfile(DEMO_TOKENIZER, folder / "tokenizer.json")
    card = 'name = "mission"\ntemplate = "qwen2.5"\nfile = "mission.rkllm"\nemulated = true\n'
    (folder / "model.toml").write_text(card, encoding="utf-8")
    return str(folder)


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


def test_example_1_the_weather(tmp_path: Path) -> None:
    """例1: 天気情報の取得."""
    with FakeAgency() as agency:
        done = make_example(tmp_path, weather(agency, tmp_path / "cache")).run("run", "東京の天気を教えて")
        assert agency.count("/forecast/130000.json") == 1
    assert calls_of(done) == [
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'get_weather']",
        "[MCP: Tool 'get_weather' completed]",
    ]
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
    done = demo.run("--model", scripted_model(tmp_path / "model"), "run", question)
    assert calls_of(done) == [
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'search_files']",
        "[MCP: Tool 'search_files' completed]",
    ]
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
    done = demo.run("--model", scripted_model(tmp_path / "model"), "run", question)
    assert calls_of(done) == [
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'read_query']",
        "[MCP: Tool 'read_query' completed]",
    ]
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
    done = demo.run(
        "--model", scripted_model(tmp_path / "model"), "run", "データベースから最新のユーザー情報を取得して要約して"
    )
    assert calls_of(done) == [
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'list_resources']",
        "[MCP: Tool 'list_resources' completed]",
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'read_resource']",
        "[MCP: Connecting to database server...]",
        "[MCP: Fetched resource: database://users/latest]",
        "[MCP: Loaded 150 records]",
        "[MCP: Tool 'read_resource' completed]",
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
    assert calls_of(done) == [
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'get_weather']",
        "[MCP: Tool 'get_weather' completed]",
        "[MCP: Detected 1 tool call]",
        "[MCP: Calling tool 'write_file']",
        "[MCP: Tool 'write_file' completed]",
    ]
    assert done.stdout == "◆ 天気情報を取得し、weather_report.txt に保存しました。\n"
    assert "東京" in (folder / "weather_report.txt").read_text(encoding="utf-8")


def test_the_demo_of_a_clone_lists_its_files_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "main.rs").touch()
    demo = make_example(tmp_path, filesystem(tmp_path / "files"))
    demo.config.write_text(demo.config.read_text("utf-8") + 'allowed_tools = ["list_directory"]\n', encoding="utf-8")
    done = demo.run("run", "フォルダのファイルを全部リストアップして")
    assert "[FILE] main.rs" in done.stdout
