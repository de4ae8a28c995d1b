"""Agents of other people are answered, call a tool, and send their long prompts so that the KV cache holds them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.installed import need_agents
from tests.support.served import Served, scripted_model, served
from tests.support.shared import REPOSITORY

# OpenClaw adds a user turn with its own text after the person's.
RULES = r"""
rule
  user OPENCLAW_INTERNAL_CONTEXT
  results 0
  say <tool_call>
  say {"name": "session_status", "arguments": {}}
  say </tool_call>

rule
  results 1+
  result ^(.*)$
  say It says %1

rule
  user Use (\S+) now
  results 0
  say <tool_call>
  say {"name": "$1", "arguments": {}}
  say </tool_call>

rule
  say Heard you.
"""
_TURN_LIMIT_S = 240
_AI_SDK = REPOSITORY / "tests" / "support" / "ai_sdk.mjs"
# The window that an agent is told. Theirs are of models with more words in a token than the demo's has.
WINDOW = 65_536


@dataclass(frozen=True)
class Agent:
    """An agent.

    Args:
        name: its name.
        tool: its own tool.
        turn: the command of a turn, for its folder, the address of the service and a question.
        files: its files by path below its home, for the address of the service.
        environment: its variables, for the address of the service.
        greeting: the answer to "say hello now".
    """

    name: str
    tool: str
    turn: Callable[[Path, str, str], Sequence[str | Path]]
    files: Callable[[str], Mapping[str, Any]] = lambda _url: {}
    environment: Callable[[str], Mapping[str, str]] = lambda _url: {}
    greeting: str = "Heard you."


def _nanobot(url: str) -> Mapping[str, Any]:
    # It takes a token for a character or two, and refuses its own prompt in a window of 16,384.
    model = {"model": "parrot", "provider": "custom", "maxTokens": 1024, "contextWindowTokens": WINDOW}
    providers = {"custom": {"apiKey": "none", "apiBase": f"{url}/v1"}}
    return {"nanobot.json": {"providers": providers, "agents": {"defaults": {**model, "workspace": "space"}}}}


def _openclaw(url: str) -> Mapping[str, Any]:
    model = {"id": "parrot", "name": "parrot", "contextWindow": WINDOW, "maxTokens": 1024}
    provider = {"baseUrl": f"{url}/v1", "apiKey": "none", "api": "openai-completions", "models": [model]}
    defaults = {"model": {"primary": "board/parrot"}, "workspace": "space"}
    models = {"mode": "merge", "providers": {"board": provider}}
    return {".openclaw/openclaw.json": {"models": models, "agents": {"defaults": defaults}}}


def _cline(folder: Path, url: str, question: str) -> Sequence[str | Path]:
    cline, data = f"'{folder}/npm/node_modules/.bin/cline'", '--data-dir "$PWD/data"'
    auth = f"{cline} auth openai-compatible -k none -m parrot -b {url}/v1 {data}"
    return ["sh", "-c", f"{auth} && {cline} {data} -P openai-compatible -m parrot --json '{question}'"]


AGENTS = (
    Agent("cline", "read_files", _cline),
    Agent(
        "nanobot",
        "list_dir",
        lambda folder, _url, question: [
            folder / "python" / "bin" / "nanobot",
            *("agent", "-c", "nanobot.json", "--no-markdown", "-m", question),
        ],
        _nanobot,
    ),
    Agent(
        "openclaw",
        "session_status",
        lambda folder, _url, question: [
            folder / "npm" / "node_modules" / ".bin" / "openclaw",
            *("agent", "--local", "--session-id", "board", "-m", question),
        ],
        _openclaw,
        greeting="It says",
    ),
    Agent(
        "qwen-code",
        "list_directory",
        lambda folder, _url, question: [
            folder / "npm" / "node_modules" / ".bin" / "qwen",
            *("--auth-type", "openai", "-p", question),
        ],
        environment=lambda url: {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_MODEL": "parrot",
        },
    ),
    Agent("ai 7", "look", lambda folder, url, question: ["node", _AI_SDK, folder / "npm", url, question]),
)


@pytest.fixture(scope="module")
def agents() -> Path:
    return need_agents()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("agents")
    model = scripted_model(folder / "model", RULES, context=WINDOW)
    card = model / "model.toml"
    card.write_text(f"{card.read_text('utf-8')}context_tokens = {WINDOW}\n", "utf-8")
    with served(folder / "home", model) as it:
        yield it


def _said(agent: Agent, folder: Path, home: Path, url: str, question: str) -> str:
    node = folder / "node" / "node_modules" / "node" / "bin"
    environment = {
        "PATH": f"{node}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        **agent.environment(url),
    }
    done = subprocess.run(
        agent.turn(folder, url, question),
        cwd=home,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=_TURN_LIMIT_S,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_agent_is_answered_and_its_tool_is_called(agent: Agent, agents: Path, board: Served, tmp_path: Path) -> None:
    for path, content in agent.files(board.url).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content), "utf-8")
    answered = _said(agent, agents, tmp_path, board.url, "say hello now")
    assert agent.greeting in answered, answered[-800:]
    before = len(board.runs())
    again = _said(agent, agents, tmp_path, board.url, f"Use {agent.tool} now")
    assert "It says" in again, again[-800:]
    # Its prompt comes again, of which nothing but the end is evaluated.
    longest = max(board.runs()[before:], key=lambda run: len(run["prompt"]))
    assert longest["prefill_tokens"] * 5 < len(longest["prompt"])
