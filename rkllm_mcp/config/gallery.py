"""Servers that are installed by name: a file in the format of the official MCP registry, shipped with the release."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rkllm_mcp.errors import UsageError

_META = "io.github.rkllm-mcp/gallery"
_VERSION_MARK = {"npm": "@", "pypi": "=="}
# Placeholder for a folder of the owner.
_FOLDER = "FOLDER"


_ENTRIES: tuple[dict[str, Any], ...] = tuple(
    json.loads(Path(__file__).with_name("gallery.json").read_text("utf-8"))["servers"]
)


@cache
def gallery() -> tuple[dict[str, Any], ...]:
    """Return the servers, as a person and the page see them."""
    servers: list[dict[str, Any]] = []
    for entry in _ENTRIES:
        server, meta = entry["server"], entry["_meta"][_META]
        if "table" in meta:
            command = [meta["table"]["command"], *meta["table"]["args"]]
        else:
            (package,) = server["packages"]
            pinned = f"{package['identifier']}{_VERSION_MARK[package['registryType']]}{package['version']}"
            runner = [package["runtimeHint"], *(["-y"] if package["runtimeHint"] == "npx" else [])]
            command = [*runner, pinned]
            for argument in package.get("packageArguments", []):
                command += [argument["name"], _FOLDER] if "name" in argument else [_FOLDER]
        servers.append(
            {
                "name": meta["short"],
                "title": server["title"],
                "description": server["description"],
                "description_ja": meta["description_ja"],
                "version": server["version"],
                "command": [word.replace("${PYTHON}", sys.executable) for word in command],
                "reaches": meta["reaches"],
                "needs_folder": _FOLDER in command,
                "is_sandboxed": "table" not in meta,
            }
        )
    return tuple(servers)


def server_table(name: str, folder: str | None, *, is_sandboxed: bool = True) -> dict[str, Any]:
    """Return the table of a gallery server or raise a UsageError; those of others are pinned and in the sandbox.

    Without the sandbox only after a person was asked.
    """
    entry = next((candidate for candidate in gallery() if candidate["name"] == name), None)
    if entry is None:
        names = ", ".join(candidate["name"] for candidate in gallery())
        raise UsageError(f"the gallery has no server {name!r}; it has {names}")
    if entry["needs_folder"] != (folder is not None):
        advice = f"name it: rkllm-mcp servers install {name} --folder PATH"
        raise UsageError(f"{name} works in a folder; {advice}" if folder is None else f"{name} takes no --folder")
    metas = {entry["_meta"][_META]["short"]: entry["_meta"][_META] for entry in _ENTRIES}
    if changes := metas[name].get("table"):
        return {"name": name, **changes}
    command = [folder if word == _FOLDER and folder else word for word in entry["command"]]
    # The runner downloads the pinned version at the first start.
    table = {"name": name, "command": command[0], "args": command[1:]}
    if not is_sandboxed:
        return {**table, "sandbox": False}
    table |= {"sandbox": True, "sandbox_network": True}
    return {**table, "sandbox_write": [folder]} if folder else table
