"""Names the servers that are still connecting after a while, so that whoever waits knows for what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from rkllm_mcp.tools.sources import Source

# Most servers need less; a line about them would only be noise.
PATIENCE_S = 3.0


async def tell_latecomers(
    servers: Sequence[Source], tell: Callable[[str], None], patience_s: float = PATIENCE_S
) -> None:
    """Say once, after ``patience_s`` seconds, which servers are waited for; nothing when there is none.

    Args:
        servers: all of them.
        tell: is given the line.
        patience_s: how long nothing is said, seconds.
    """
    await anyio.sleep(patience_s)
    late = [server.spec for server in servers if server.state == "connecting"]
    if late:
        names = ", ".join(f"'{spec.name}'" for spec in late)
        limit_s = max(spec.connect_timeout_s for spec in late)
        tell(f"[MCP: Still waiting for {names}, at most {limit_s:g} s in all]")
