"""The help of every command, as it is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from itertools import takewhile
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from rkllm_mcp.surfaces.cli.main import COMMANDS, app, hoisted, main
from rkllm_mcp.surfaces.cli.options import examples

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def paths() -> Iterator[tuple[str, ...]]:
    """Every command and group, as a person types it."""
    yield ()
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    for name in COMMANDS:
        yield from _below(
            (name,), root.resolve_command(root.make_context("rkllm-mcp", [], resilient_parsing=True), [name])[1]
        )


def _below(path: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below((*path, name), inner)


WIDTH = 80


@pytest.mark.parametrize("path", list(paths()), ids=lambda path: " ".join(path) or "rkllm-mcp")
def test_a_help_text_is_whole_and_in_plain_words(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit) as ended:
        main([*path, "--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert max(map(len, printed.splitlines())) <= WIDTH
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", printed).split())
    # Markup takes a word in brackets for a style and leaves it out; names of types are Python's.
    wrong = re.findall(
        r"\[\[|<(?:bool|str|int|float|list)\b|Default: *(?:\.(?!/)|\[)|of the configuration\. *of", words
    )
    assert wrong == [], printed
    assert "Usage: rkllm-mcp" in words


@pytest.mark.parametrize("path", list(paths()), ids=lambda path: " ".join(path) or "rkllm-mcp")
def test_every_command_has_examples_that_its_parser_takes(path: tuple[str, ...]) -> None:
    root = get_command(app)
    context = root.make_context("rkllm-mcp", [], resilient_parsing=True)
    command: Any = root
    for name in path:
        _, command, _ = command.resolve_command(context, [name])
    lines = examples(" ".join(("rkllm-mcp", *path)), getattr(command, "commands", {}))
    assert lines
    for line in lines:
        # What the shell takes for itself is none of the command's words.
        _, _, typed = line.partition("rkllm-mcp ")
        words = [*takewhile(lambda word: word not in "<>|", shlex.split(typed, comments=True))]
        parsed = root.make_context("rkllm-mcp", hoisted(words))
        inner: Any = root
        while hasattr(inner, "commands"):
            name, inner, words = inner.resolve_command(parsed, [*parsed._protected_args, *parsed.args])  # pyright: ignore[reportPrivateUsage]  # a word that names a command
            parsed = inner.make_context(name, list(words), parent=parsed)


def test_an_example_belongs_to_a_command() -> None:
    commands = {" ".join(path) or "rkllm-mcp" for path in paths()}
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
