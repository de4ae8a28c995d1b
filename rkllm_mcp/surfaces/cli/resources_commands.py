"""``rkllm-mcp resources``: list, read, subscribe; ``rkllm-mcp prompts``: list, get."""

from __future__ import annotations

from typing import Annotated

import typer

resources = typer.Typer(help="What the configured servers let others read.", no_args_is_help=True)
prompts = typer.Typer(help="The questions that the configured servers have prepared.", no_args_is_help=True)

_Server = Annotated[str | None, typer.Argument(metavar="[SERVER]", help="Of this server alone.")]
_Resource = Annotated[str, typer.Argument(metavar="URI", help="SERVER:URI, or an address that only one server has.")]
_Json = Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")]


@resources.command("list")
def list_resources(context: typer.Context, server: _Server = None, as_json: _Json = False) -> None:
    """List resources, and templates of them."""
    from rkllm_mcp.surfaces.cli.resources import list_all

    raise typer.Exit(list_all(context.obj, server, as_json=as_json))


@resources.command()
def read(
    context: typer.Context,
    uri: _Resource,
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write it to this new file, as it is.")] = None,
    as_json: _Json = False,
) -> None:
    """Print a resource."""
    from rkllm_mcp.surfaces.cli.resources import read as command

    raise typer.Exit(command(context.obj, uri, output, as_json=as_json))


@resources.command()
def subscribe(
    context: typer.Context,
    uri: _Resource,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after N changes.")] = None,
    as_json: _Json = False,
) -> None:
    """Print a line whenever a resource changes; Ctrl-C ends."""
    from rkllm_mcp.surfaces.cli.resources import subscribe as command

    raise typer.Exit(command(context.obj, uri, count, as_json=as_json))


@prompts.command("list")
def list_prompts(context: typer.Context, server: _Server = None, as_json: _Json = False) -> None:
    """List prompts and their arguments."""
    from rkllm_mcp.surfaces.cli.resources import list_prompts

    raise typer.Exit(list_prompts(context.obj, server, as_json=as_json))


@prompts.command()
def get(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="SERVER:NAME, or a name that only one server has.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What its blanks are filled with.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Print a prompt with its blanks filled."""
    from rkllm_mcp.surfaces.cli.resources import get_prompt as command

    raise typer.Exit(command(context.obj, name, arguments or [], as_json=as_json))
