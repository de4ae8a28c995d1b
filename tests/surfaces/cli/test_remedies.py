"""What the texts of the program tell a person to type exists on the command line."""

from __future__ import annotations

import ast
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import huggingface_hub.constants
import pytest

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.loading import configuration_schema, load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ModelDownloadError, PromptTooLongError
from rkllm_mcp.models.hub import Hub
from rkllm_mcp.surfaces.chat import commands as chat_commands
from rkllm_mcp.surfaces.http.app import ROUTES
from rkllm_mcp.surfaces.running_service import ServiceRecord
from tests.support.command_line import all_commands, fault_of, options_of
from tests.support.outcome import Command
from tests.support.shared import REPOSITORY

PACKAGES = ("rkllm_mcp", "mcp_servers", "rkllm_base")
TABLES = sorted((REPOSITORY / "rkllm_mcp").glob("*.json"))
# What may be words of a command after the program's name.
MENTION = re.compile(r"(['`]?)rkllm-mcp((?: [^\s;,()。（）、'\"`「」]+)+)")
# Marks of file formats.
FORMATS = frozenset({"rkllm-mcp conversation 1", "rkllm-mcp data 1", "rkllm-mcp knowledge base"})
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# Options of other programs.
FOREIGN = frozenset({"--local-dir", "--cpus", "--cpuset-cpus"})


def code_texts() -> Iterator[tuple[str, str]]:
    """Each text in the code with its module; ``{}`` is what a formatted text inserts."""
    for file in sorted(file for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield file.name, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file.name, node.value


def table_texts() -> Iterator[tuple[str, str]]:
    """Each text of the catalogues and of the translated sentences, with its file."""
    for table in TABLES:
        waiting: list[Any] = [json.loads(table.read_text("utf-8"))]
        while waiting:
            entry = waiting.pop()
            if isinstance(entry, str):
                yield table.name, entry
                continue
            waiting += cast("list[Any]", entry)  # the keys of a table, too
            if isinstance(entry, dict):
                waiting += cast("dict[str, Any]", entry).values()


@pytest.mark.parametrize("texts", [code_texts, table_texts])
def test_each_command_that_a_text_names_exists_with_its_options(texts: Any) -> None:
    mentions = {
        (where, match[1], match[2])
        for where, text in texts()
        if text not in FORMATS
        for match in MENTION.finditer(text)
    }
    found = {(where, words): fault_of(quote, words.split()) for where, quote, words in mentions}
    assert len(found) > 50
    assert {mention: fault for mention, fault in found.items() if fault} == {}


def test_each_option_that_a_text_names_belongs_to_a_command() -> None:
    known = frozenset[str]().union(*map(options_of, all_commands())) | FOREIGN
    named = {(where, option) for where, text in table_texts() for option in OPTION.findall(text)}
    assert len(named) > 10
    assert sorted(pair for pair in named if pair[1] not in known) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("'rkllm-mcp service status' says why", ""),
        ("start it: rkllm-mcp serve --port 9000", ""),
        ("rkllm-mcp is running", ""),
        ("get it: rkllm-mcp --model demo setup --cpu", ""),
        ("get it: rkllm-mcp --model demo install --cpu", "install has no ['--cpu']"),
        ("take it out: rkllm-mcp servers add NAME -- COMMAND --any", ""),
        ("'rkllm-mcp servers delete weather' does it", "there is no command servers delete"),
        ("'rkllm-mcp is' says why", "there is no command is"),
        ("see them: rkllm-mcp lists", "there is no command lists"),
        ("see them: rkllm-mcp models list --everything", "models list has no ['--everything']"),
        ("rkllm-mcp knowledge forget で削除できます", "there is no command knowledge forget"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, fault: str) -> None:
    (mention,) = MENTION.finditer(text)
    assert fault_of(mention[1], mention[2].split()) == fault


def json_of(path: str) -> str:
    return (REPOSITORY / path).read_text("utf-8")


def config_keys() -> set[str]:
    """The names of all sections and keys of the configuration, and of the knowledge server's."""
    settings: list[dict[str, str]] = json.loads(json_of("mcp_servers/knowledge/settings.json"))
    return {*re.findall(r'"([a-z_]+)": \{', json.dumps(configuration_schema())), *(each["name"] for each in settings)}


def known_words() -> set[str]:
    """What else has a name with underscores: tools, functions of the runtime, fields of the APIs."""
    tools = "".join(map(json_of, ("mcp_servers/knowledge/tools.json", "rkllm_mcp/builtin/tools.json")))
    fields = json_of("tests/snapshots/openapi.txt")
    functions = json_of("native/include/rkllm_abi.h")
    return set(re.findall(r"[a-z]+(?:_[a-z]+)+", f"{tools}{fields}{functions}"))


# Examples, a field of a model's card and one of a result, a file of another program, a parameter of the runtime.
EXAMPLES = {"get_weather", "code_review", "claude_desktop_config", "tool_name", "board_status", "n_keep", "document_id"}
OTHER_SLASHES = {"/no", "/skip", "/mcp", "/dev"}  # of a form; paths
# The environment of the dynamic linker and of examples, and the marks of a call.
OTHER_VARIABLES = {"LD_PRELOAD", "API_KEY", "TOOL_CALL", "END_TOOL_CALL"}
CODE = "".join(file.read_text("utf-8") for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py"))
LIBRARY = Path(huggingface_hub.constants.__file__).read_text("utf-8")
KINDS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "key": (
        r"(?<![\w{/.])[a-z]+(?:_[a-z]+)+(?![\w}(])",
        lambda word: (
            word in config_keys() | known_words() | EXAMPLES or f"{word}: " in json_of("rkllm_mcp/models/cards.py")
        ),
    ),
    "section": (r"\[\[?([a-z]+)(?:\.[a-z]+)?\]", lambda word: word in config_keys() | {"source"}),
    "command of the chat": (
        r"(?<![\w/.:*{])/[a-z]+(?![\w/])",
        lambda word: word in chat_commands.COMMANDS or word in OTHER_SLASHES,
    ),
    "address of the service": (
        r"(?:GET|POST|PUT|DELETE) /[\w/{}]+",
        lambda word: word in {f"{route.method} {route.path}" for route in ROUTES},
    ),
    "variable": (
        r"(?<![\w%])[A-Z]+(?:_[A-Z]+)+(?!\w)",
        lambda word: word in CODE + LIBRARY or word in OTHER_VARIABLES or word.startswith("RKLLM_MCP_TOKEN_"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_thing_that_a_text_names_exists(kind: str) -> None:
    pattern, exists = KINDS[kind]
    named = {
        (match[match.lastindex or 0], text)
        for _, text in table_texts()
        if " " in text
        for match in re.finditer(pattern, text)
    }
    words = sorted({word for word, _ in named})
    assert words
    missing = {word for word in words if not exists(word)}
    assert {word: text for word, text in named if word in missing} == {}


LANGUAGE_SETTINGS = {"en": "C.UTF-8", "ja": "ja_JP.UTF-8"}
SAID: dict[tuple[str, ...], dict[str, str]] = {
    ("service", "stop"): {
        "en": "Error: systemd does not run on this machine; you have no running assistant to stop\n",
        "ja": "エラー: このマシンでは systemd が動いていません。停止するアシスタントは動いていません\n",
    },
    ("service", "logs"): {
        "en": "Error: systemd does not run on this machine; 'rkllm-mcp serve' writes its log to the terminal that it "
        "runs in\n",
        "ja": "エラー: このマシンでは systemd が動いていません。"
        "rkllm-mcp serve のログは、それを実行したターミナルに出力されます\n",
    },
    ("service", "status"): {
        "en": "Error: systemd does not run on this machine; see how the assistant is with: rkllm-mcp status\n",
        "ja": "エラー: このマシンでは systemd が動いていません。"
        "アシスタントの状態は次のコマンドで確認できます: rkllm-mcp status\n",
    },
    ("service", "restart"): {
        "en": "Error: systemd does not run on this machine; start the assistant another way: rkllm-mcp serve\n",
        "ja": "エラー: このマシンでは systemd が動いていません。別の方法で起動してください: rkllm-mcp serve\n",
    },
    ("backup", "/there/is/none/board.tar.gz"): {
        "en": "Error: there is no folder /there/is/none; make it first: mkdir -p /there/is/none\n",
        "ja": "エラー: フォルダー /there/is/none がありません。先に作成してください: mkdir -p /there/is/none\n",
    },
    ("update",): {
        "en": f"Error: this is a checkout; update it with: cd {REPOSITORY} && git pull && scripts/setup\n",
        "ja": f"エラー: これはソースのチェックアウトです。更新方法: cd {REPOSITORY} && git pull && scripts/setup\n",
    },
}


@pytest.mark.parametrize("language", LANGUAGE_SETTINGS)
@pytest.mark.parametrize("words", SAID, ids=" ".join)
def test_a_command_that_cannot_work_in_a_bare_home_says_what_can(
    words: tuple[str, ...], language: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", LANGUAGE_SETTINGS[language])
    refused = command(*words)
    assert (refused.code, refused.out, refused.err) == (2, "", SAID[words][language])


@pytest.mark.parametrize(
    ("verb", "remedy"),
    [
        ("stop", "end the assistant with: kill {}"),
        ("restart", "end the assistant (kill {}), then start it again: rkllm-mcp serve"),
    ],
)
def test_an_assistant_that_runs_without_systemd_is_named_by_its_process(
    verb: str, remedy: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with ServiceRecord("http://127.0.0.1:1", Config()).announce():
        refused = command("service", verb)
    assert refused.err == f"Error: systemd does not run on this machine; {remedy.format(os.getpid())}\n"


def test_what_is_too_long_is_told_in_japanese_with_a_way_for_files() -> None:
    assert read_catalogue("ja").phrase(str(PromptTooLongError(9, 5))) == (
        "プロンプトは 9 トークンで、回答と合わせて入る 5 トークンを 4 超えています。"
        "送るテキストを短くするか（長いファイルは rkllm-mcp knowledge add FILE で登録できます）、"
        "ツールを減らすか、コンテキストの大きいモデルを使ってください"
    )


def test_a_download_without_a_network_is_told_in_japanese_to_its_end() -> None:
    with pytest.raises(ModelDownloadError) as raised:
        Hub("http://127.0.0.1:9").names("them/mine")
    _, _, remedy = read_catalogue("ja").phrase(str(raised.value)).partition("）。")
    assert remedy == (
        "ネットワークを確認して、もう一度試してください（ダウンロードは途中から再開します）。"
        "HF_ENDPOINT にミラーを設定することもできます。"
        "別のマシンで取得したファイルをここにコピーして、rkllm-mcp models add PATH で追加することもできます。"
    )


class OtherProgram(BaseHTTPRequestHandler):
    """Somebody else's service, which says that it is ready."""

    def do_GET(self) -> None:
        body = b'{"status": "ok"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the library
        """Say nothing."""


@pytest.fixture
def other_port(tmp_path: Path, command: Command) -> Iterator[int]:
    """The port of the configuration of ``command``'s home, at which another program answers."""
    del command
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherProgram) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        config = tmp_path / ".config/rkllm-mcp/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f"[model]\nname = 'demo'\n[service]\nport = {server.server_port}\n", "utf-8")
        yield server.server_port
        server.shutdown()


def test_another_program_at_the_port_is_not_the_assistant(other_port: int, command: Command) -> None:
    shown = command("status", "--json")
    values = json.loads(shown.out)
    told = {name: values[name] for name in ("running", "state", "start")}
    assert (shown.code, told) == (
        1,
        {"running": False, "state": "the port is used by another program", "start": "rkllm-mcp serve --port PORT"},
    )
    with ServiceRecord(f"http://127.0.0.1:{other_port}", Config()).announce():
        assert json.loads(command("status", "--json").out)["state"] == "ok"


def test_the_status_of_an_empty_home_names_setup_and_not_what_cannot_start(command: Command) -> None:
    assert json.loads(command("status", "--json").out)["start"] == "rkllm-mcp setup"


def test_status_and_link_name_the_port_that_the_assistant_was_started_with(
    other_port: int, tmp_path: Path, command: Command
) -> None:
    config = load_config()
    (tmp_path / ".config/rkllm-mcp/config.toml").write_text("[service]\nport = 9\n", "utf-8")
    assert config.origin.source is not None
    with ServiceRecord(f"http://127.0.0.1:{other_port}", config).announce():
        values = json.loads(command("status", "--json").out)
        assert (values["state"], values["address"]) == ("ok", f"http://127.0.0.1:{other_port}")
        assert command("service", "link").out.startswith(f"http://127.0.0.1:{other_port}/#/link/")
    assert json.loads(command("status", "--json").out)["address"] == "http://127.0.0.1:9"


def test_a_restore_waits_for_the_assistant_of_the_same_home_alone(
    other_port: int, tmp_path: Path, command: Command
) -> None:
    del other_port
    file = tmp_path / "board.tar.gz"
    assert command("backup", str(file)).code == 0
    with ServiceRecord("http://127.0.0.1:1", Config()).announce():
        refused = command("restore", str(file), "--yes")
    assert refused.err == f"Error: the assistant is running; stop it first: kill {os.getpid()}\n"
    assert command("restore", str(file), "--yes").code == 0


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "Nothing answers there yet; start it within five minutes: rkllm-mcp serve\n"),
        ("ja", "まだ起動していません。5 分以内に起動してください: rkllm-mcp serve\n"),
    ],
)
def test_a_link_to_a_page_that_nothing_serves_says_so(
    language: str, said: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", LANGUAGE_SETTINGS[language])
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / ".config/rkllm-mcp").mkdir(parents=True)
    (tmp_path / ".config/rkllm-mcp/config.toml").write_text("[service]\nport = 9\n", "utf-8")
    assert command("service", "link").err.endswith(said)
