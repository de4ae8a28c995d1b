"""``rkllm-mcp models``: list, show, pull, add, remove."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The models on this machine and in the catalogue.", no_args_is_help=True)

_AnyPlatform = Annotated[
    bool, typer.Option("--any-platform", metavar="", help="Take a file for another chip than this board's, too.")
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask.")]


@app.command("list")
def list_(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False
) -> None:
    """List the models there are cards for: which are here, how fast they are, which fit this board."""
    from rkllm_mcp.surfaces.cli.models import list_all

    raise typer.Exit(list_all(context.obj, as_json=as_json))


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name or a path.")],
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """Show one model's card and files."""
    from rkllm_mcp.surfaces.cli.models import show as command

    raise typer.Exit(command(context.obj, name, as_json=as_json))


@app.command()
def pull(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name of 'models list', or a new one with the two options below.")],
    repository: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="The repository to take it from, on Hugging Face.")
    ] = None,
    file: Annotated[str | None, typer.Option(metavar="FILE", help="The .rkllm file in it.")] = None,
    any_platform: _AnyPlatform = False,
) -> None:
    """Fetch a model and its tokenizer; broken off, it goes on where it was when it is run again."""
    from rkllm_mcp.models.install import Pull
    from rkllm_mcp.surfaces.cli.models import pull as command

    raise typer.Exit(command(context.obj, Pull(name, repository, file, any_platform)))


@app.command()
def add(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A .rkllm file.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call it here.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="PATH|hf:OWNER/NAME", help="Its tokenizer.json, or where to fetch it.")
    ] = None,
    template: Annotated[str | None, typer.Option(metavar="NAME", help="How it is spoken to, such as qwen3.")] = None,
    copy: Annotated[bool, typer.Option("--copy", metavar="", help="Copy the file; it is linked otherwise.")] = False,
    yes: _Yes = False,
    any_platform: _AnyPlatform = False,
) -> None:
    """Add a .rkllm file that you have; asks only what the file does not tell."""
    from pathlib import Path

    from rkllm_mcp.models.install import Addition
    from rkllm_mcp.surfaces.cli.models import add as command

    wish = Addition(Path(path), name, tokenizer, template, copy=copy, sure=yes, any_platform=any_platform)
    raise typer.Exit(command(context.obj, wish))


@app.command()
def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The model's name.")],
    yes: _Yes = False,
) -> None:
    """Remove a model that was pulled or added; what comes with rkllm-mcp stays."""
    from rkllm_mcp.surfaces.cli.models import remove as command

    raise typer.Exit(command(context.obj, name, sure=yes))
