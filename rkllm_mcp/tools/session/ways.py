"""A server that did not come up is tried in another way.

    as it was last found ─▶ by asking it ─▶ with the handshake at once, where it fell over the question
                                 └────────▶ over SSE, where it is behind HTTP and knows no other way

The question is ``server/discover``, of which nobody knew before 2026-07-28: what is to be answered with an error ends
servers of older SDKs (seen: Python's 1.5.0, over stdio and SSE).
"""

from __future__ import annotations

from dataclasses import replace

from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.session.eras import LEGACY, UNKNOWN, Era, Memory
from rkllm_mcp.tools.session.failures import has_hung_up, may_be_an_older_server


def another_way(spec: ServerSpec, memory: Memory, tried: Era, error: Exception | None) -> Era | None:
    """How to try a server next; None when there is no other way.

    Args:
        spec: the server.
        memory: what was remembered of it, and is forgotten where it has failed.
        tried: how it was tried.
        error: what came of that; None for nothing in time.
    """
    if memory.era != UNKNOWN:
        memory.forget_era()
        return UNKNOWN
    if error is None or tried.version == LEGACY:
        return None
    if has_hung_up(error) and (spec.transport != "http" or tried.transport):
        return replace(tried, version=LEGACY)
    if tried == UNKNOWN and spec.transport == "http" and may_be_an_older_server(error):
        return Era(transport="sse")
    return None
