"""Tool names: ``mcp__{server}__{tool}`` inside the host; the model sees the short name if it is unique.

Every name matches ``[A-Za-z0-9_-]{1,64}``, as model services require, and is unique. The same tools in the same order
always get the same names, so that a cached prompt prefix stays valid.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

MAX_NAME_CHARS = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MARK_CHARS = 8


def safe_name(name: str) -> str:
    """Replace unsupported characters with ``_``; add a hash if the name is too long or nothing is left."""
    safe = _UNSAFE.sub("_", name)
    if not safe.strip("_-"):
        return f"tool_{_mark(name)}"
    return safe if len(safe) <= MAX_NAME_CHARS else _marked(safe, name)


def long_name(server: str, tool: str) -> str:
    """Return ``mcp__{server}__{tool}`` as a safe name."""
    name = f"mcp__{safe_name(server)}__{safe_name(tool)}"
    return name if len(name) <= MAX_NAME_CHARS else _marked(name, f"{server}\n{tool}")


def shown_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """Return one unique name for each (server, wire name) pair; pairs must be unique."""
    shorts = Counter(safe_name(tool) for _, tool in tools)
    longs = Counter(long_name(server, tool) for server, tool in tools)
    # A short name that equals another tool's long name would shadow that tool.
    shorts.update(longs.keys() & shorts.keys())
    names: list[str] = []
    taken: set[str] = set()
    for server, tool in tools:
        short, long = safe_name(tool), long_name(server, tool)
        # If neither the short nor the long name is unique, append a hash of server and tool.
        wanted = [name for name, count in ((short, shorts[short]), (long, longs[long])) if count == 1]
        name = next((name for name in wanted if name not in taken), _marked(long, f"{server}\n{tool}"))
        names.append(name)
        taken.add(name)
    return names


def _marked(name: str, whole: str) -> str:
    return f"{name[: MAX_NAME_CHARS - _MARK_CHARS - 1]}_{_mark(whole)}"


def _mark(whole: str) -> str:
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:_MARK_CHARS]
