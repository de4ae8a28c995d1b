"""``rkllm-mcp servers``: list, test, import, add, new, remove."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The servers that tools come from.", no_args_is_help=True)


@app.command("list")
def list_(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False
) -> None:
    """List the configured servers, without starting them."""
    from rkllm_mcp.surfaces.cli.servers import list_all

    raise typer.Exit(list_all(context.obj, as_json=as_json))


@app.command("test")
def check(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="All of them when none is named.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="As they are for this tenant, whose logins are their own.")
    ] = None,
) -> None:
    """Start servers, ask for their tools, stop them; exit code 1 when one of them fails."""
    from rkllm_mcp.surfaces.cli.servers import connect

    raise typer.Exit(connect(context.obj, names or [], as_json=as_json, tenant=tenant))


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Such as claude_desktop_config.json.")],
) -> None:
    """Copy the servers of another host's file (mcpServers) into the configuration."""
    from rkllm_mcp.surfaces.cli.servers import import_file

    raise typer.Exit(import_file(context.obj, file))


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the new server.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ARGS...]", help="How to start it.")
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Its address, instead of a command.")] = None,
    transport: Annotated[str | None, typer.Option(metavar="NAME", help="stdio, http, sse or websocket.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An environment variable for it.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="An HTTP header for it.")] = None,
) -> None:
    """Add a server to the configuration: rkllm-mcp servers add time -- uvx mcp-server-time"""  # noqa: D415  # a command
    from rkllm_mcp.surfaces.cli.servers import NewServer
    from rkllm_mcp.surfaces.cli.servers import add as action

    server = NewServer(name, tuple(command or ()), url, transport, tuple(env or ()), tuple(header or ()))
    raise typer.Exit(action(context.obj, server))


@app.command()
def new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the new server.")],
    folder: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where to write it; ./NAME otherwise.")] = None,
    is_added: Annotated[bool, typer.Option("--add", metavar="", help="Put it into the configuration as well.")] = False,
) -> None:
    """Write a small MCP server to begin with: it runs, and its tests pass."""
    from rkllm_mcp.surfaces.cli.servers import create

    raise typer.Exit(create(context.obj, name, folder, is_added=is_added))


@app.command()
def remove(context: typer.Context, name: Annotated[str, typer.Argument(help="The server's name.")]) -> None:
    """Take a server out of the configuration."""
    from rkllm_mcp.surfaces.cli.servers import remove as command

    raise typer.Exit(command(context.obj, name))
