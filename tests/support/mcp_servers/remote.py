"""An MCP server behind HTTP, made with the SDK: prints its port, then serves.

python -m tests.support.mcp_servers.remote http|sse
"""

from __future__ import annotations

import os
import signal
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from rkllm_base.listener import listening_socket

server = MCPServer("remote")


@server.tool()
def header(name: str, ctx: Context) -> str:
    """The value of a header of this request."""
    request = ctx.request_context.request
    return str(request.headers.get(name, "")) if request is not None else "no request"


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def main() -> None:
    app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
    listener = listening_socket("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
