"""A REST API and built-in tools from a configuration file, through the command that a person types."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.api_calls import PATIENCE_S
from tests.support.local_api import open_api

pytestmark = pytest.mark.anyio

CONFIG = """
[[servers]]
name = "tools"
transport = "builtin"
tools = [
    { name = "calculator" },
    { name = "add", entry_point = "tests.support.local_tools:add", read_only = true },
]

[[servers]]
name = "things"
openapi_spec = "things.yaml"
openapi_base_url = "BASE"
headers_template = { Authorization = "Bearer key-of-the-configuration" }
"""
SPEC = """
openapi: 3.1.0
paths:
  /echo/{id}:
    delete: {operationId: removeThing, summary: Removes a thing}
"""


async def run(folder: Path, *words: str) -> str:
    """The standard output of ``rkllm-mcp tools WORDS``."""
    command = [sys.executable, "-m", "rkllm_mcp", "--config", str(folder / "config.toml"), "tools", *words]
    with anyio.fail_after(PATIENCE_S * 3):
        done = await anyio.run_process(command, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def test_both_are_listed_and_called_from_the_shell(tmp_path: Path) -> None:
    async with open_api() as api:
        (tmp_path / "config.toml").write_text(CONFIG.replace("BASE", api.url), encoding="utf-8")
        (tmp_path / "things.yaml").write_text(SPEC, encoding="utf-8")
        listed = json.loads(await run(tmp_path, "list", "--json"))
        assert [(tool["name"], tool["server"]) for tool in listed] == [
            ("calculator", "tools"),
            ("add", "tools"),
            ("removeThing", "things"),
        ]
        assert await run(tmp_path, "call", "add", "a=41") == '{"sum":42}\n'
        told = json.loads(await run(tmp_path, "call", "--yes", "removeThing", "id=7"))
    assert (told["method"], told["path"], told["headers"]["authorization"]) == ("DELETE", "/echo/7", "[REDACTED]")
