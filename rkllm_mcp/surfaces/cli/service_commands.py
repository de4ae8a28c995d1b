"""``rkllm-mcp service``: its words."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(help="The assistant as a service of systemd.", no_args_is_help=True)

_User = Annotated[bool, typer.Option("--user", metavar="", help="Your own systemd instead of the machine's.")]


@app.command()
def install(
    context: typer.Context,
    user: _User = False,
    credential: Annotated[
        list[str] | None,
        typer.Option("--credential", metavar="NAME=FILE", help="A secret that the configuration names as ${NAME}."),
    ] = None,
    no_start: Annotated[bool, typer.Option("--no-start", metavar="", help="Do not start it yet.")] = False,
    only_print: Annotated[bool, typer.Option("--print", metavar="", help="Print the unit and change nothing.")] = False,
) -> None:
    """Write the unit for the configuration in use, and start it."""
    from rkllm_mcp.surfaces.cli import service

    if only_print:
        sys.stdout.write(service.unit_text(context.obj, is_user=user, credentials=credential or ()))
        return
    code = service.install(context.obj, is_user=user, credentials=credential or (), start=not no_start)
    raise typer.Exit(code)


@app.command()
def uninstall(context: typer.Context, user: _User = False) -> None:
    """Stop the service and take the unit away; what it remembered stays."""
    from rkllm_mcp.surfaces.cli import service

    raise typer.Exit(service.uninstall(context.obj, is_user=user))


@app.command()
def status(context: typer.Context, user: _User = False) -> None:
    """Show how the service is; exit code 1 unless it is active."""
    from rkllm_mcp.surfaces.cli import service

    raise typer.Exit(service.status(context.obj, is_user=user))
