"""Servers that are installed by name: a file in the format of the official MCP registry, shipped with the release."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from rkllm_mcp.errors import UsageError

_META = "io.github.rkllm-mcp/gallery"
_VERSION_MARK = {"npm": "@", "pypi": "=="}


@cache
def gallery() -> tuple[dict[str, Any], ...]:
    """Return the servers: name, title, description, description_ja, version, command, reaches, needs_folder."""
    text = Path(__file__).with_name("gallery.json").read_text("utf-8")
    return tuple(_shown(entry) for entry in json.loads(text)["servers"])


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    server, meta = entry["server"], entry["_meta"][_META]
    (package,) = server["packages"]
    arguments = package.get("packageArguments", [])
    pinned = f"{package['identifier']}{_VERSION_MARK[package['registryType']]}{package['version']}"
    runner = [package["runtimeHint"], *(["-y"] if package["runtimeHint"] == "npx" else []), pinned]
    words = [word for each in arguments for word in ([each["name"]] if "name" in each else []) + ["FOLDER"]]
    return {
        "name": meta["short"],
        "title": server["title"],
        "description": server["description"],
        "description_ja": meta["description_ja"],
        "version": server["version"],
        "command": [*runner, *words],
        "reaches": meta["reaches"],
        "needs_folder": bool(arguments),
    }


def server_table(name: str, folder: str | None) -> dict[str, Any]:
    """Return the ``[[servers]]`` table of a gallery server, pinned and in the sandbox; a UsageError without one."""
    found = next((each for each in gallery() if each["name"] == name), None)
    if found is None:
        known = ", ".join(each["name"] for each in gallery())
        raise UsageError(f"the gallery has no server {name!r}; it has {known}")
    if found["needs_folder"] != (folder is not None):
        advice = f"name it: rkllm-mcp servers install {name} --folder PATH"
        raise UsageError(f"{name} works in a folder; {advice}" if folder is None else f"{name} takes no --folder")
    command = [folder if word == "FOLDER" and folder else word for word in found["command"]]
    # The runner downloads the pinned version at the first start.
    table = {"name": name, "command": command[0], "args": command[1:], "sandbox": True, "sandbox_network": True}
    return {**table, "sandbox_write": [folder]} if folder else table
