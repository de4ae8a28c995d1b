"""The help of every command, as it is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.resources import files
from itertools import takewhile
from typing import Any

import pytest
from typer.main import get_command

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.surfaces.cli.main import app, hoist_global_options, main
from rkllm_mcp.surfaces.cli.options import examples
from rkllm_mcp.surfaces.terminal import width
from tests.support.command_line import all_commands
from tests.support.sampled import sampled

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


WIDTH = 80
KANA = re.compile("[ぁ-ゖァ-ヶ。]")

# Of each group the first command, and some of its others.
every_command = sampled(
    "path",
    all_commands(),
    every=5,
    kind=lambda path: path[:1],
    ids=[" ".join(path) or "rkllm-mcp" for path in all_commands()],
)


@every_command
def test_a_help_text_is_whole_and_in_plain_words(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit) as ended:
        main([*path, "--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    # An example is there to be copied: it stays whole.
    assert max(len(line) for line in printed.splitlines() if not line.startswith("  $ ")) <= WIDTH
    words = " ".join(printed.split())
    # Names of types are Python's.
    wrong = re.findall(r"\[\[|<(?:bool|str|int|float|list)\b", words)
    assert wrong == [], printed
    assert "Usage: rkllm-mcp" in words


# Words of English in a row, outside of what is typed.
ENGLISH = re.compile(r"(?:\b[a-z]+\b[ ,;]+){3,}\b[a-z]+\b")
TYPED = re.compile(r"^  \$ .*$|rkllm-mcp(?: [A-Za-z-]+)*|^(?:使い方:|  \S).*?(?:  |$)", re.MULTILINE)


@every_command
def test_a_help_text_is_japanese_in_a_japanese_locale(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("LC_ALL", "ja_JP.UTF-8")
    with pytest.raises(SystemExit):
        main([*path, "--help"])
    printed = capsys.readouterr().out
    assert max(width(line) for line in printed.splitlines() if not line.startswith("  $ ")) <= WIDTH
    assert ENGLISH.findall(TYPED.sub("", printed)) == []
    command, phrase = all_commands()[path], read_catalogue("ja").phrase
    texts = [part for each in (command, *command.params) for part in (each.help or "").split("\n\n") if part]
    said = {text: phrase(" ".join(text.split())) for text in texts}
    assert {text: words for text, words in said.items() if not KANA.search(words)} == {}


@every_command
def test_every_command_has_examples_that_its_parser_takes(path: tuple[str, ...]) -> None:
    root = get_command(app)
    lines = examples(" ".join(("rkllm-mcp", *path)), getattr(all_commands()[path], "commands", {}))
    assert lines
    for line in lines:
        # What the shell takes for itself is not one of the command's words.
        _, _, typed = line.partition("rkllm-mcp ")
        words = [*takewhile(lambda word: word not in "<>|", shlex.split(typed, comments=True))]
        parsed = root.make_context("rkllm-mcp", hoist_global_options(words))
        inner: Any = root
        while hasattr(inner, "commands"):
            name, inner, words = inner.resolve_command(parsed, [*parsed._protected_args, *parsed.args])  # pyright: ignore[reportPrivateUsage]  # a word that names a command
            parsed = inner.make_context(name, list(words), parent=parsed)


def test_an_example_belongs_to_a_command() -> None:
    commands = {" ".join(path) or "rkllm-mcp" for path in all_commands()}
    assert set(tomllib.loads(files("rkllm_mcp.surfaces.cli").joinpath("examples.toml").read_text("utf-8"))) <= commands


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("rkllm-mcp ser", {"serve", "servers", "service"}), ("rkllm-mcp service sto", {"stop"})],
)
def test_the_shell_completes_commands(typed: str, expected: set[str]) -> None:
    words = typed.split(" ")
    completed = subprocess.run(
        [sys.executable, "-m", "rkllm_mcp"],
        env={
            **os.environ,
            "_RKLLM_MCP_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(completed.stdout.split()) == expected
