"""What the commands print is in the person's language, and no sentence of it in another one."""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.fake_jma import FakeAgency
from tests.support.outcome import Command, run_here

CONFIGURATION = """
[model]
name = "demo"

[runtime]
library = "emulator"

[[servers]]
name = "local"
transport = "builtin"
tools = [{ name = "clock" }]

[[servers]]
name = "weather"
command = "${PYTHON}"
args = ["-m", "mcp_servers.weather"]
"""
KANA = re.compile("[ぁ-ゖァ-ヶ]")
# Four words in a row are a sentence; what is in quotes, paths, addresses and commands are names.
WORDS = re.compile(r"(?:\b[A-Za-z][a-z]+\b[ ,;:]+){3,}\b[a-z]+\b")
NAMES = re.compile(r"rkllm-mcp(?: [a-z-]+)*|https?://\S+|(?:/[\w.-]+)+|'[^']*'|\$ .*")
# Without an effect that another line depends on; those with a file that is not there end with an error.
TYPED = [
    "status",
    "doctor",
    "config check",
    "config add-key",
    "models list",
    "models show demo",
    "models add nothing.rkllm",
    "models remove nothing",
    "runtime list",
    "servers list",
    "servers show nothing",
    "servers test",
    "servers install",
    "servers add twice -- nothing-here",
    "servers remove twice",
    "tools list",
    "tools show nothing",
    "tools history",
    "tools approvals",
    "tools call nothing",
    "resources list",
    "prompts list",
    "conversations list",
    "conversations show nothing",
    "conversations export nothing",
    "knowledge list",
    "knowledge add nothing.txt",
    "knowledge add empty.txt",
    "knowledge add notes.txt",
    "knowledge list documents",
    "knowledge search Berlin",
    "knowledge model",
    "knowledge remove nothing",
    "knowledge export out.jsonl",
    "knowledge remove --all --base documents --yes",
    "service keys",
    "service keys --revoke nothing",
    "service link",
    "backup board.tar.gz",
    "backup board.tar.gz",
    "install",
    "nothing",
    "run -f nothing.txt What is it?",
    "run --yes --no-approve Hello",
]


@pytest.mark.parametrize("locale", ["ja_JP.UTF-8", "C.UTF-8"])
def test_a_walk_through_the_commands_meets_one_language(
    locale: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mcp_config.toml").write_text(CONFIGURATION, "utf-8")
    (tmp_path / "empty.txt").write_text("", "utf-8")
    (tmp_path / "notes.txt").write_text("Berlin\n", "utf-8")
    other: dict[str, tuple[list[str], str]] = {}
    for line in TYPED:
        outcome = command(*line.split())
        told = NAMES.sub("", f"{outcome.out}{outcome.err}")
        found = WORDS.findall(told) if locale.startswith("ja") else KANA.findall(told)
        if found:
            other[line] = found, told
    assert not other, "\n".join(f"{line}: {found}" for line, found in other.items())


# In a chat: every command, what each says of something that is not there, calls of tools that work and that fail.
CHATTED = """
/help
/file
/file nothing.txt
/file notes.txt
/nothing
/hel
/model
/model nothing
/system
/system {system}
/set
/set nothing 1
/set temperature 99
/set temperature 0.2
/set top_k
/set thinking maybe
/tools
/tools clock
/tools calculator
/tools find_area
/tools nothing
/servers
/resources
/resources nothing
/resource nothing:memo://x
/prompts
/prompts nothing
/prompt nothing
/disable clock
/tools
/enable clock
/enable nothing
/disable weather
/servers
/enable weather
/approve
/approve forget nothing
/history
/retry
/undo
{time}
{weather}
{nowhere}
{hello}
{missing}
/history
/stats
/retry
/undo
/edit
/rename
/rename {title}
/conversations
/conversations nothing
/resume nothing
/resume
/save
/save /nothing/answer.md
/save answer.md
/save answer.md
/new
/clear
/quit
"""
# Lines of a call that are the same in every language.
FIXED = ("[MCP: Detected 1 tool call]", "[MCP: Calling tool 'get_weather']", "[MCP: Tool 'get_weather' completed]")
QUESTIONS = {
    "ja_JP.UTF-8": {
        "system": "短く答えて",
        "time": "いま何時？",
        "weather": "東京の天気を教えて",
        "nowhere": "アトランティスの天気を教えて",
        "hello": "こんにちは",
        "missing": "@nothing.txt を要約して",
        "title": "旅行",
    },
    "C.UTF-8": {
        "system": "Be brief.",
        "time": "What time is it in London?",
        "weather": "What is the weather in Tokyo?",
        "nowhere": "What is the weather in Atlantis?",
        "hello": "Hello",
        "missing": "Summarise @nothing.txt please",
        "title": "Travels",
    },
}


@pytest.mark.parametrize("locale", QUESTIONS)
def test_a_walk_through_the_chat_meets_one_language(
    locale: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    del command  # the empty home
    monkeypatch.setenv("LC_ALL", locale)
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    monkeypatch.setenv("RKLLM_MCP_AGENT__WAIT_FOR_SERVERS_S", "60")
    (tmp_path / "notes.txt").write_text("Berlin\n", "utf-8")
    with FakeAgency(now=datetime.now(timezone.utc)) as agency:
        variables = "".join(f'{name} = "{value}"\n' for name, value in agency.environment(tmp_path / "cache").items())
        (tmp_path / "mcp_config.toml").write_text(f"{CONFIGURATION}\n[servers.env]\n{variables}", "utf-8")
        done = run_here(os.environ, "chat", stdin=CHATTED.format(**QUESTIONS[locale]).encode())
    # What the person typed, and the model's system prompt.
    said = f"{done.stdout}{done.stderr}".replace("旅行", "").replace("東京", "")
    lines = [NAMES.sub("", line) for line in said.splitlines() if line not in FIXED and "You are a helpful" not in line]
    # The forecast as data, as the model reads it: it has both languages.
    lines = [line for line in lines if '{"summary":' not in line]
    pattern = WORDS if locale.startswith("ja") else KANA
    assert [line for line in lines if pattern.search(line)] == []
    assert len(lines) > 100
    assert done.returncode == 0
