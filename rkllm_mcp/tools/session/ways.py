"""Fallback after a failed connection attempt.

    cached revision ─▶ server/discover ─▶ handshake at once, if the server closed the connection on server/discover
                             └──────────▶ HTTP with SSE, if the server does not support Streamable HTTP

Servers of older SDKs exit on ``server/discover``, which was added in 2026-07-28 (observed: Python SDK 1.5.0, over stdio
and SSE).
"""

from __future__ import annotations

from dataclasses import replace

from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.session.eras import LEGACY, UNKNOWN, Era, Memory
from rkllm_mcp.tools.session.failures import has_hung_up, may_be_an_older_server


def another_way(spec: ServerSpec, memory: Memory, tried: Era, error: Exception | None) -> Era | None:
    """Return the protocol revision and transport to try next; None if all were tried.

    A cached revision that failed is dropped from ``memory``. ``error`` is None after a timeout.
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
