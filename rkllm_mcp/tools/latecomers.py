"""Report servers that are still connecting after 3 s."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from rkllm_mcp.tools.sources import Source

# Most servers connect faster than this and need no status line.
PATIENCE_S = 3.0


async def tell_latecomers(
    servers: Sequence[Source], tell: Callable[[str], None], patience_s: float = PATIENCE_S
) -> None:
    """Write one status line after ``patience_s`` seconds that names the servers still connecting, if any."""
    await anyio.sleep(patience_s)
    late = [server.spec for server in servers if server.state == "connecting"]
    if late:
        names = ", ".join(f"'{spec.name}'" for spec in late)
        limit_s = max(spec.connect_timeout_s for spec in late)
        tell(f"[MCP: Still waiting for {names}, at most {limit_s:g} s in all]")
