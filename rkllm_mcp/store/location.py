"""Where the file is: ``$RKLLM_MCP_STATE``, else ``$XDG_STATE_HOME/rkllm-mcp``, else ``~/.local/state/rkllm-mcp``.

Followed: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "state.db"
OVERRIDE = "RKLLM_MCP_STATE"


def state_file(env: Mapping[str, str], tenant: str = "") -> Path:
    """The file under these environment variables; it need not exist.

    Args:
        env: the environment.
        tenant: whose; each has a folder of their own below the owner's, who is the empty name.
    """
    folder = _state_folder(env)
    if tenant:
        # The name is the owner's to choose; a hash of it is a folder's name whatever it holds.
        folder = folder / "tenants" / hashlib.sha256(tenant.encode()).hexdigest()[:16]
    return folder / FILE_NAME


def _state_folder(env: Mapping[str, str]) -> Path:
    if named := env.get(OVERRIDE, ""):
        return Path(named).expanduser()
    base = env.get("XDG_STATE_HOME", "")
    # A relative path there is to be ignored, says the specification.
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "rkllm-mcp"
