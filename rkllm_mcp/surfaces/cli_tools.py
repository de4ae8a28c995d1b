"""``rkllm-mcp tools``: list, show, call."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The tools of the configured servers.", no_args_is_help=True)


@app.command("list")
def list_(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False
) -> None:
    """List the tools that a model is shown."""
    from rkllm_mcp.surfaces.tools import list_all

    raise typer.Exit(list_all(context.obj, as_json=as_json))


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The tool's short or long name.")],
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """Show one tool's description and arguments."""
    from rkllm_mcp.surfaces.tools import show as command

    raise typer.Exit(command(context.obj, name, as_json=as_json))


@app.command()
def call(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The tool's short or long name.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JSON | KEY=VALUE]...", help="Its arguments; - reads JSON from standard input."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="The result as an event.")] = False,
) -> None:
    """Call a tool and print its result; exit code 1 when it fails."""
    from rkllm_mcp.surfaces.tools import call as command

    raise typer.Exit(command(context.obj, name, arguments or [], as_json=as_json))
