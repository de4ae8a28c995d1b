"""``rkllm-mcp conversations``: list, show, export, delete, rename, import."""

from __future__ import annotations

from typing import Annotated

import typer

from rkllm_mcp.errors import UsageError

app = typer.Typer(help="The conversations that are kept.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="ID", help="Its id, or the beginning of it.")]
_Names = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Their ids, or the beginnings of them.")]


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 20,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Leave out so many at the front.")] = 0,
    search: Annotated[str, typer.Option(metavar="TEXT", help="Those alone whose title or words hold it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """List the conversations, the one that went on last first."""
    from rkllm_mcp.surfaces.cli.conversations import ConversationFilter, list_all

    raise typer.Exit(list_all(context.obj, ConversationFilter(limit, offset, search), as_json=as_json))


@app.command()
def show(
    context: typer.Context,
    name: _Name,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")] = False,
) -> None:
    """Show one conversation."""
    from rkllm_mcp.surfaces.cli.conversations import show as command

    raise typer.Exit(command(context.obj, name, as_json=as_json))


@app.command()
def export(
    context: typer.Context,
    names: _Names = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="All of them.")] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="markdown|json", help="To read, or to import again.")
    ] = "markdown",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="A new file instead of standard output.")
    ] = None,
) -> None:
    """Write conversations as Markdown or JSON."""
    from rkllm_mcp.surfaces.cli.conversations import export as command

    if form not in ("markdown", "json"):
        raise UsageError(f"there is no format {form!r}; choose markdown or json")
    raise typer.Exit(command(context.obj, names or [], form, output, everything=everything))


@app.command()
def delete(
    context: typer.Context,
    names: _Names = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="All of them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Yes, with --all.")] = False,
) -> None:
    """Delete conversations, and what was recorded of their tool calls, for good."""
    from rkllm_mcp.surfaces.cli.conversations import delete as command

    raise typer.Exit(command(context.obj, names or [], everything=everything, yes=yes))


@app.command()
def rename(
    context: typer.Context,
    name: _Name,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title, in quotes.")],
) -> None:
    """Give a conversation another title."""
    from rkllm_mcp.surfaces.cli.conversations import rename as command

    raise typer.Exit(command(context.obj, name, title))


@app.command("import")
def import_(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A JSON export; - reads standard input.")],
) -> None:
    """Keep the conversations of a JSON export."""
    from rkllm_mcp.surfaces.cli.conversations import import_file

    raise typer.Exit(import_file(context.obj, source))
