"""A server whose tool gives a picture: python -m tests.support.mcp_servers.camera FILE."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.types import ImageContent

server = MCPServer("camera")


@server.tool()
def take_photo() -> list[ImageContent]:
    """Take a photo of the garden."""
    data = base64.b64encode(Path(sys.argv[1]).read_bytes()).decode()
    return [ImageContent(type="image", data=data, mime_type="image/png")]


if __name__ == "__main__":
    server.run("stdio")
