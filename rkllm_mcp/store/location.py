"""Where the file is: ``$RKLLM_MCP_STATE``, else ``$XDG_STATE_HOME/rkllm-mcp``, else ``~/.local/state/rkllm-mcp``.

Followed: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "state.db"
OVERRIDE = "RKLLM_MCP_STATE"


def state_file(env: Mapping[str, str]) -> Path:
    """The file under these environment variables; it need not exist."""
    if named := env.get(OVERRIDE, ""):
        return Path(named).expanduser() / FILE_NAME
    base = env.get("XDG_STATE_HOME", "")
    # A relative path there is to be ignored, says the specification.
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "rkllm-mcp" / FILE_NAME
