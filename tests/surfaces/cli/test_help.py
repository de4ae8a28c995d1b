"""The help of every command, as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from rkllm_mcp.surfaces.cli.main import COMMANDS, app, main


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


@pytest.fixture(params=["80", "120"])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", request.param)
    return request.param


@pytest.mark.parametrize("path", list(paths()), ids=lambda path: " ".join(path) or "rkllm-mcp")
def test_a_help_text_is_whole_and_in_plain_words(
    path: tuple[str, ...], width: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*path, "--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert max(map(len, printed.splitlines())) <= int(width)
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", printed).split())
    # Markup takes a word in brackets for a style and leaves it out; names of types are Python's.
    wrong = re.findall(
        r"\[\[|<(?:bool|str|int|float|list)\b|Default: *(?:\.(?!/)|\[)|of the configuration\. *of", words
    )
    assert wrong == [], printed
    assert "Usage: rkllm-mcp" in words


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
