"""A start loads what the configuration uses: the modules of a real ``run``, read in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HEAD = '[model]\nname = "demo"\n[runtime]\nlibrary = "emulator"\n'
SERVERS = """
[[servers]]
name = "remote"
url = "http://127.0.0.1:9/mcp"
headers_template = { Authorization = "Bearer ${token}" }
[[servers]]
name = "api"
transport = "openapi"
openapi_spec = "https://api.example.com/openapi.json"
[[servers]]
name = "own"
transport = "builtin"
tools = [{ name = "calculator" }]
"""
# The parts that only servers need, and their libraries; ``tools.search`` finds tools among too many to list.
UNUSED = (
    *(f"rkllm_mcp.{name}" for name in ("mcp_client", "openapi", "builtin", "tools.tool_servers", "tools.search")),
    *("mcp", "httpx2", "jsonschema", "starlette", "uvicorn", "openai", "anthropic", "prompt_toolkit", "rich", "yaml"),
)
LIST = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(chr(10) + chr(10).join(sys.modules)))
from rkllm_mcp.__main__ import main
main()
"""


def modules_of(config: str, words: Sequence[str], folder: Path) -> set[str]:
    """The modules that a process has imported when the command has ended."""
    path = folder / "config.toml"
    path.write_text(config, encoding="utf-8")
    command = [sys.executable, "-c", LIST, "--config", str(path), *words, "run", "--json", "Hello"]
    environment = {**os.environ, "RKLLM_EMULATOR_SPEED": "flat"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    assert json.loads(done.stdout.splitlines()[-1])["kind"] == "end"
    return set(done.stderr.splitlines())


@pytest.mark.parametrize(("config", "words"), [(HEAD, ()), (HEAD + SERVERS, ("--no-mcp",))], ids=["none", "no_mcp"])
def test_a_run_without_servers_loads_nothing_of_them(config: str, words: Sequence[str], tmp_path: Path) -> None:
    loaded = modules_of(config, words, tmp_path)
    assert "rkllm_mcp.app.assistant" in loaded
    assert sorted(name for name in loaded if name.startswith(tuple(f"{each}." for each in UNUSED))) == []
    assert loaded & set(UNUSED) == set()
    assert len([name for name in loaded if name.partition(".")[0] == "rkllm_mcp"]) <= 150
