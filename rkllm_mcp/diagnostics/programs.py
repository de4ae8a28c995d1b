"""The programs of other projects that MCP servers need on this machine, and the commands that install them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from rkllm_base.installation import find_uv, install_command
from rkllm_mcp.mcp_client.allowed_commands import resolve_program
from rkllm_mcp.mcp_client.sandbox import unusable

SANDBOX = "bubblewrap"
_NODE = "npx"


def missing_programs() -> dict[str, str]:
    """Return the names of the programs that are missing or do not work here, each with the command that mends it."""
    missing: dict[str, str] = {}
    if shutil.which("bwrap") is None:
        missing[SANDBOX] = "sudo apt install bubblewrap"
    elif problem := unusable():
        missing[SANDBOX] = problem.rpartition("; ")[2]
    if find_uv("uvx") is None:
        missing["uvx"] = install_command("uvx")
    if shutil.which(_NODE) is None:
        missing[_NODE] = "sudo apt install npm"
    return missing


def needed_programs(command: str, *, is_sandboxed: bool) -> list[str]:
    """Return those programs that a server needs."""
    return [*([SANDBOX] if is_sandboxed else []), *([command] if command in {"uvx", _NODE} else [])]


def absent_program(table: Mapping[str, Any]) -> str:
    """Return the program of a server's table that is not on this machine; empty if it is, or is not known yet."""
    program = str(table.get("command", ""))
    if not program or "$" in program:
        return ""
    return "" if resolve_program(program, os.environ.get("PATH"), table.get("cwd")) else program
