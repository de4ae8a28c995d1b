"""The folders of a user, by the XDG Base Directory Specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

# The variable that names another folder for the stored data.
STATE_VARIABLE = "RKLLM_MCP_STATE"
_FOLDERS = {"cache": ".cache", "config": ".config", "data": ".local/share", "state": ".local/state"}


def user_folder(kind: Literal["cache", "config", "data", "state"], environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's folder for files of a kind, such as ``$XDG_CACHE_HOME/rkllm-mcp``.

    A relative path in the variable is ignored, as the XDG Base Directory Specification requires.
    """
    folder = Path(environment.get(f"XDG_{kind.upper()}_HOME", ""))
    home = Path(environment.get("HOME") or Path.home())
    return (folder if folder.is_absolute() else home / _FOLDERS[kind]) / "rkllm-mcp"


def state_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the owner's stored data."""
    override = env.get(STATE_VARIABLE, "")
    return Path(override).expanduser() if override else user_folder("state", env)
