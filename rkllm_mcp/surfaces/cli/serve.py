"""``rkllm-mcp serve``."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command("serve")
def serve_command(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: [service] host.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="N", help="Port, 0 for any free one. Default: [service] port."),
    ] = None,
) -> None:
    """Read the options of ``serve``."""
    from rkllm_mcp.surfaces.http.server import Address, serve

    raise typer.Exit(serve(context.obj, Address(host, port)))
