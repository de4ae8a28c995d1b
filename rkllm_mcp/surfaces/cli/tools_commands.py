"""``rkllm-mcp tools``: list, show, call, enable, disable, history, approvals, serve."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The tools of the configured servers.", no_args_is_help=True)


@app.command("list")
def list_(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False
) -> None:
    """List the tools that a model is shown."""
    from rkllm_mcp.surfaces.cli.tools import list_all

    raise typer.Exit(list_all(context.obj, as_json=as_json))


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The tool's short or long name.")],
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """Show one tool's description and arguments."""
    from rkllm_mcp.surfaces.cli.tools import show as command

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
    yes: Annotated[
        bool, typer.Option("--yes", "-y", metavar="", help="Run it also when it changes something.")
    ] = False,
) -> None:
    """Call a tool and print its result; exit code 1 when it fails."""
    from rkllm_mcp.surfaces.cli.tools import call as command

    raise typer.Exit(command(context.obj, name, arguments or [], as_json=as_json, yes=yes))


_Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Tools, by short or long name, or servers.")]


@app.command()
def enable(context: typer.Context, names: _Names) -> None:
    """Switch tools or servers on again, for this and every later run."""
    from rkllm_mcp.surfaces.cli.tools import switch

    raise typer.Exit(switch(context.obj, names, is_on=True))


@app.command()
def disable(context: typer.Context, names: _Names) -> None:
    """Switch tools or servers off, for this and every later run."""
    from rkllm_mcp.surfaces.cli.tools import switch

    raise typer.Exit(switch(context.obj, names, is_on=False))


@app.command()
def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The latest N calls.")] = 20,
    server: Annotated[str | None, typer.Option(metavar="NAME", help="Of this server alone.")] = None,
    errors: Annotated[
        bool, typer.Option("--errors", metavar="", help="Those alone that failed or were refused.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """Show which tools were called, with what, and how it was decided."""
    from rkllm_mcp.surfaces.cli.tools import HistoryQuery
    from rkllm_mcp.surfaces.cli.tools import history as command

    raise typer.Exit(command(context.obj, HistoryQuery(limit, server, errors), as_json=as_json))


@app.command()
def approvals(
    context: typer.Context,
    forget: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Ask again about this tool, or server; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """Show which tools were allowed or refused for good, or take that back."""
    from rkllm_mcp.surfaces.cli.tools import approvals as command

    raise typer.Exit(command(context.obj, forget or [], as_json=as_json))


@app.command()
def serve(
    context: typer.Context,
    http: Annotated[
        bool, typer.Option("--http", metavar="", help="Over HTTP instead of standard input and output.")
    ] = False,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen; [service] host.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help="The port; [service] port, 0 for any.")
    ] = None,
    embed_model: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="The model that embeds, where it is another one.")
    ] = None,
    rank_model: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="The model that ranks, where it is another one.")
    ] = None,
) -> None:
    """Offer the board to other hosts as an MCP server: generate, embed, rerank, board_status."""
    from rkllm_mcp.surfaces.mcp_server import ServeOptions
    from rkllm_mcp.surfaces.mcp_server import serve as command

    raise typer.Exit(command(context.obj, ServeOptions(http, host, port, embed_model, rank_model)))
