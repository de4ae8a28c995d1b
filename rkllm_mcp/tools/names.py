"""The names tools have: inside the host ``mcp__{server}__{tool}``, to a model the short name while only one has it.

Every name made here fits ``[A-Za-z0-9_-]{1,64}``, which is what model services accept, and no two tools share one. The
same tools in the same order always get the same names, or a prefilled tool list would be worth nothing.
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
    """``name`` with other characters as ``_``; what is too long or has nothing left is marked with a hash of it."""
    safe = _UNSAFE.sub("_", name)
    if not safe.strip("_-"):
        return f"tool_{_mark(name)}"
    return safe if len(safe) <= MAX_NAME_CHARS else _marked(safe, name)


def long_name(server: str, tool: str) -> str:
    """``mcp__{server}__{tool}``, made safe."""
    name = f"mcp__{safe_name(server)}__{safe_name(tool)}"
    return name if len(name) <= MAX_NAME_CHARS else _marked(name, f"{server}\n{tool}")


def shown_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each tool, none of them twice.

    Args:
        tools: server and the server's name of the tool; no pair twice.
    """
    shorts = Counter(safe_name(tool) for _, tool in tools)
    longs = Counter(long_name(server, tool) for server, tool in tools)
    # A tool called like the long name of another one would be called in its place.
    shorts.update(longs.keys() & shorts.keys())
    names: list[str] = []
    taken: set[str] = set()
    for server, tool in tools:
        short, long = safe_name(tool), long_name(server, tool)
        # A name with a hash of the whole is what is left where both are shared.
        wanted = [name for name, count in ((short, shorts[short]), (long, longs[long])) if count == 1]
        name = next((name for name in wanted if name not in taken), _marked(long, f"{server}\n{tool}"))
        names.append(name)
        taken.add(name)
    return names


def _marked(name: str, whole: str) -> str:
    return f"{name[: MAX_NAME_CHARS - _MARK_CHARS - 1]}_{_mark(whole)}"


def _mark(whole: str) -> str:
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:_MARK_CHARS]
