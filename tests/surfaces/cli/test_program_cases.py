"""MCP servers that misbehave (``shared/cases/programs``) are used for what they do right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.outcome import Command
from tests.support.program_cases import SETS, listed, program_rows
from tests.support.shared import shared_path

_CONFIG = """[security]
approve = "never"

[[servers]]
name = "odd"
command = {command}
args = {args}
timeout_s = 8
"""


@pytest.mark.parametrize("cases", SETS)
def test_every_server_of_the_cases_is_used_for_what_it_does_right(command: Command, tmp_path: Path, cases: str) -> None:
    server, failed = str(shared_path("cases", cases, "mcp_server.py")), dict[str, str]()
    for row in program_rows("mcp.jsonl", cases):
        config = tmp_path / f"{row['id']}.toml"
        args = json.dumps([server, row["scenario"]])
        config.write_text(_CONFIG.format(command=json.dumps(sys.executable), args=args), "utf-8")
        outcome = command("--config", str(config), *row["run"])
        printed = outcome.out + outcome.err
        lacks = [words for words in row["contains"] if words not in printed]
        has = [words for words in row["not_contains"] if words in printed]
        if lacks or has:
            failed[row["id"]] = f"lacks {lacks}, has {has}: {printed[-500:]}"
    assert listed(failed) == ""
