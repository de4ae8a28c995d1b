"""Coding agents of other people go on after each odd input: what a session has in its history never ends it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import scripted_demo, serving
from tests.support.installed import installed
from tests.support.mcp_servers import puzzling
from tests.support.served import scripted_model

RULES = r"""
rule
  user Still there
  say Heard: still there.

rule
  user Use (\S+) now
  results 0
  say <tool_call>
  say {"name": "$1", "arguments": {}}
  say </tool_call>

rule
  user Break (\S+) now
  results 0
  say <tool_call>
  say {"name": "$1", "arguments": {"a":
  say </tool_call>

rule
  results 1+
  result ^(.*)$
  say It says %1

rule
  say Heard you.
"""
SERVER = [sys.executable, puzzling.__file__]
LONG = str(puzzling.TOOLS[3]["name"])
_TURN_LIMIT_S = 120


@dataclass(frozen=True)
class Program:
    """A program: its files, its environment, the command of a turn, and its name of the server's tools."""

    name: str
    files: Callable[[str], dict[str, str]]  # by path below its home, for the address of the service
    environment: dict[str, str]
    turn: Callable[[str, bool], Sequence[str]]  # for a question, and True after the first
    prefix: str


def _codex(url: str) -> dict[str, str]:
    provider = f'name = "board"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "BOARD_KEY"\n'
    server = f"[mcp_servers.odd]\ncommand = {json.dumps(SERVER[0])}\nargs = {json.dumps(SERVER[1:])}\n"
    head = (
        'model = "default"\nmodel_provider = "board"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    )
    return {".codex/config.toml": f"{head}[model_providers.board]\n{provider}{server}"}


def _opencode(url: str) -> dict[str, str]:
    model = {"name": "parrot", "limit": {"context": 65536, "output": 4096}}
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "b", "options": options, "models": {"parrot": model}}
    server = {"type": "local", "command": SERVER, "enabled": True}
    settings: dict[str, Any] = {"provider": {"board": provider}, "model": "board/parrot", "permission": "allow"}
    return {"opencode.json": json.dumps({**settings, "mcp": {"odd": server}})}


def _claude(_url: str) -> dict[str, str]:
    return {"mcp.json": json.dumps({"mcpServers": {"odd": {"command": SERVER[0], "args": SERVER[1:]}}})}


CLAUDE = ("--mcp-config", "mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__odd")
CODEX = ("codex", "exec", "--skip-git-repo-check")
PROGRAMS = (
    Program(
        "claude",
        _claude,
        {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_MODEL": "default",
            "ANTHROPIC_SMALL_FAST_MODEL": "default",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        lambda question, goes_on: ("claude", "-p", *(("--continue",) if goes_on else ()), question, *CLAUDE),
        "mcp__odd__",
    ),
    Program(
        "codex",
        _codex,
        {"BOARD_KEY": "none"},
        lambda question, goes_on: (*CODEX, *(("resume", "--last") if goes_on else ()), question),
        "mcp__odd__",
    ),
    Program(
        "opencode",
        _opencode,
        {},
        lambda question, goes_on: ("opencode", "run", *(("--continue",) if goes_on else ()), question),
        "odd_",
    ),
)


@pytest.fixture(scope="module")
def binaries() -> Path:
    """The folder of the programs."""
    found = installed("programs")
    if not found.lines or shutil.which("node") is None:
        pytest.skip(f"the programs of .programs are not here: {found.reason or 'node is not installed'}")
    return Path(found.lines[0])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    folder = tmp_path_factory.mktemp("programs")
    model = scripted_model(folder / "model", RULES, template="qwen3", context=65_536)
    demo = scripted_demo(folder / "home", model)
    text = demo.config.read_text("utf-8").replace("[model]", "[model]\ncontext_tokens = 65536", 1)
    demo.config.write_text(text, "utf-8")
    with serving(demo) as service:
        yield service.url


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_session_goes_on_after_each_odd_input(program: Program, binaries: Path, url: str, tmp_path: Path) -> None:
    for path, text in program.files(url).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    own = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "ANTHROPIC_BASE_URL": url, **program.environment}
    environment = {"PATH": f"{binaries}:{os.environ['PATH']}", "LANG": "C.UTF-8", **own}

    def said(question: str, *, goes_on: bool = True) -> str:
        done = subprocess.run(
            program.turn(question, goes_on),
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TURN_LIMIT_S,
        )
        return done.stdout + done.stderr

    prefix = program.prefix
    # The next turn shows that the session goes on where a program has its own view of the input before.
    # Claude Code puts a reminder after a result now and then, which the script answers as a question ("Heard you.").
    turns = [
        (f"Use {prefix}unfit now", ""),
        (f"Use {prefix}pattern now", "pattern was called"),
        (f"Use {prefix}picture now", ""),
        (f"Use {prefix}dotted_name_read now", "dotted.name/read was called"),
        (f"Break {prefix}pattern now", ""),
        (f"Use {prefix}{LONG} now", f"{LONG} was called"),
        ("Still there?", "Heard: still there."),
    ]
    texts = [said(question, goes_on=index > 0) for index, (question, _) in enumerate(turns)]
    lost = [
        f"{question}: {text[-600:]}"
        for (question, answer), text in zip(turns, texts, strict=True)
        if answer not in text and "Heard you." not in text
    ]
    assert lost == []
