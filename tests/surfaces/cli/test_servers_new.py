"""``servers new``: what it writes runs, passes its own tests, and answers through the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rkllm_mcp import __version__
from rkllm_mcp.config.gallery import gallery
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import StdioServer
from tests.support.demo_app import make_demo
from tests.support.outcome import Command


def test_a_new_server_passes_its_own_tests_and_is_called_through_the_host(tmp_path: Path) -> None:
    demo = make_demo(tmp_path / "home", ())
    target = tmp_path / "my notes"
    made = demo.run("servers", "new", "word-counter", "--folder", str(target), "--add")
    assert made.returncode == 0, made.stderr
    assert sorted(path.name for path in target.iterdir()) == [
        "README.md",
        "pyproject.toml",
        "server.py",
        "test_server.py",
    ]
    assert not any("@" in path.read_text("utf-8").replace("@server", "") for path in target.iterdir())

    own = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=target,
        env=dict(demo.environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "4 passed" in own.stdout, own.stdout + own.stderr

    called = demo.run("tools", "call", "count_words", '{"text": "one two three"}')
    assert (called.returncode, called.stdout.strip()) == (0, "3"), called.stderr


def test_a_server_of_the_gallery_is_installed_pinned_in_a_sandbox_where_its_command_is_allowed(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    (tmp_path / "notes").mkdir()
    made = demo.run("servers", "install", "files", "--folder", str(tmp_path / "notes"))
    assert (made.returncode, made.stdout.startswith("files: added to ")) == (0, True), made.stderr
    (server,) = [each for each in load_config(demo.config).servers if each.name == "files"]
    assert isinstance(server, StdioServer)
    (package,) = [each for each in server.args if each.startswith("@modelcontextprotocol/")]
    assert (server.command, package.count("@"), server.sandbox) == ("npx", 2, True)
    assert [str(path) for path in server.sandbox_write] == [str(tmp_path / "notes")]
    for words, said in (
        (("nothing",), "the gallery has no server 'nothing'; it has knowledge, time"),
        (("git",), "--folder PATH"),
        (("time", "--folder", "x"), "takes no --folder"),
        (("files", "--folder", str(tmp_path)), "has a server 'files'"),
    ):
        refused = demo.run("servers", "install", *words)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    demo.config.write_text(f'{demo.config.read_text("utf-8")}\n[security]\nallowed_commands = ["/bin/true"]\n', "utf-8")
    refused = demo.run("servers", "install", "memory")
    assert "security.allowed_commands allows /bin/true" in refused.stderr


def test_without_bubblewrap_a_server_of_the_gallery_is_added_if_a_person_agrees(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = "bubblewrap is missing, the sandbox of MCP servers: sudo apt install bubblewrap"
    refused = command("servers", "install", "time")
    assert (refused.code, "Say it with --no-sandbox" in refused.err, missing in refused.err) == (2, True, True)
    shown = command("servers", "install")
    rows = {line.split()[0]: line for line in shown.out.splitlines()}
    assert ("bubblewrap, npx" in rows["memory"], "bubblewrap" in rows["knowledge"]) == (True, False)
    assert missing in shown.err

    assert command("servers", "install", "time", "--no-sandbox").code == 0
    (server,) = json.loads(command("servers", "list", "--json").out)
    assert (server["name"], server["command"], server["sandbox"]) == ("time", "uvx", False)


def test_a_command_that_is_not_here_is_told_when_the_server_is_added(command: Command) -> None:
    added = command("servers", "add", "foo", "--", "no-such-command", "--option")
    advice = "take the server out again: rkllm-mcp servers remove foo"
    assert (added.code, "no program 'no-such-command'" in added.err, advice in added.err) == (0, True, True)
    shown = command("servers", "show", "foo")
    assert shown.out.splitlines()[0].split() == ["runs", "no-such-command", "--option"]
    assert "rkllm-mcp servers test foo" in shown.err


def test_the_tools_of_a_server_are_listed_without_starting_it_once_it_was_started(
    tmp_path: Path, command: Command
) -> None:
    server = tmp_path / "config.toml"
    server.write_text(
        f"""
[[servers]]
name = "local"
transport = "builtin"
tools = [{{ name = "clock" }}]

[[servers]]
name = "weather"
command = "{sys.executable}"
args = ["-m", "mcp_servers.weather"]
""",
        "utf-8",
    )

    def shown(*words: str) -> tuple[bool, bool]:
        said = command("--config", str(server), "servers", *words)
        return "find_area" in said.out, "servers test weather" in said.err

    assert shown("show", "weather") == (False, True)
    assert shown("test", "weather") == (True, False)
    assert shown("show", "weather") == (True, False)
    local = command("--config", str(server), "servers", "show", "local").out
    assert ("The present date and time" in local, "address" in local) == (True, False)


def test_the_knowledge_server_is_in_the_gallery_and_answers_without_the_name_of_a_base(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    made = demo.run_here("servers", "install", "knowledge")
    assert (made.returncode, "sandbox" in made.stderr) == (0, False), made.stderr
    assert f"It runs: {sys.executable} -m mcp_servers.knowledge --default-base '*'" in made.stderr
    (tmp_path / "bins.txt").write_text("The bins are emptied on Thursday.", "utf-8")
    for words in (("create", "house"), ("add", str(tmp_path / "bins.txt"))):
        assert demo.run_here("knowledge", *words).returncode == 0
    found = demo.run_here("tools", "call", "search_documents", '{"query": "When are the bins emptied?"}')
    assert "emptied on Thursday" in found.stdout, found.stderr
    (knowledge,) = [each for each in gallery() if each["name"] == "knowledge"]
    assert knowledge["version"] == __version__


@pytest.mark.parametrize("name", ["", "9lives", "a/b", "-x", "ほげ"])
def test_a_name_that_cannot_be_one_is_refused(command: Command, name: str, tmp_path: Path) -> None:
    outcome = command("servers", "new", "--folder", str(tmp_path / "new"), "--", name)
    assert (outcome.code, "cannot name a server; use letters, digits" in outcome.err) == (2, True)
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("mine", encoding="utf-8")
    assert "is not empty; name another folder" in command("servers", "new", "x", "--folder", str(tmp_path)).err
    assert (tmp_path / "server.py").read_text("utf-8") == "mine"
