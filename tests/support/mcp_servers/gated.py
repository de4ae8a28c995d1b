"""A server that becomes ready when a file appears: ``python -m tests.support.mcp_servers.gated FILE``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("gated")


@server.tool()
def water_plants(bed: str) -> str:
    """Water the plants of a bed in the garden."""
    return f"watered {bed}"


if __name__ == "__main__":
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
    server.run("stdio")
