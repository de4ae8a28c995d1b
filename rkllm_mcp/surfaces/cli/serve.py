"""``rkllm-mcp serve``: the assistant over HTTP."""

from __future__ import annotations

import typer

from rkllm_mcp.surfaces.cli.options import Host, Port, command
from rkllm_mcp.surfaces.invocation import Session

app = typer.Typer()


@command(app, "serve")
def serve_command(session: Session, host: Host = None, port: Port = None) -> int:
    """Serve until a signal."""
    from rkllm_mcp.surfaces.http.server import serve

    return serve(session, host, port)
