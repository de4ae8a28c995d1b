"""What the commands print is in the person's language, and no sentence of it in another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.outcome import Command

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
