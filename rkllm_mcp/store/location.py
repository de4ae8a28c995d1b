"""Path of the database: ``$RKLLM_MCP_STATE``, else ``$XDG_STATE_HOME/rkllm-mcp``, else ``~/.local/state/rkllm-mcp``.

Reference: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "state.db"
OVERRIDE = "RKLLM_MCP_STATE"


def state_file(env: Mapping[str, str], tenant: str = "") -> Path:
    """Return the path of the database under these environment variables; the file need not exist.

    Each tenant has a folder below the owner's; the owner is the empty name.
    """
    folder = _state_folder(env)
    if tenant:
        # A tenant's name can contain any character; its hash is a valid folder name.
        folder = folder / "tenants" / hashlib.sha256(tenant.encode()).hexdigest()[:16]
    return folder / FILE_NAME


def _state_folder(env: Mapping[str, str]) -> Path:
    if named := env.get(OVERRIDE, ""):
        return Path(named).expanduser()
    base = env.get("XDG_STATE_HOME", "")
    # The specification requires ignoring a relative path.
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "rkllm-mcp"
