"""``rkllm-mcp knowledge``: create, add, list, search, remove."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The owner's documents, in knowledge bases that are searched.", no_args_is_help=True)

_Base = Annotated[
    str, typer.Option("--base", "-b", metavar="NAME|ID", help="The knowledge base; the only one where there is one.")
]
_AsJson = Annotated[bool, typer.Option("--json", metavar="", help="As JSON.")]


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is about, in a sentence.")] = "",
    as_json: _AsJson = False,
) -> None:
    """Make an empty knowledge base and print its id."""
    from rkllm_mcp.surfaces.cli.knowledge import create as command

    raise typer.Exit(command(context.obj, name, description, as_json=as_json))


@app.command()
def add(
    context: typer.Context,
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE|FOLDER|URL...", help="What to add; - reads a text from standard input.")
    ],
    base: _Base = "",
    title: Annotated[str, typer.Option(metavar="TEXT", help="Instead of the document's own.")] = "",
    collection: Annotated[str, typer.Option(metavar="NAME", help="Where in the knowledge base.")] = "",
    as_json: _AsJson = False,
) -> None:
    """Add documents: PDF, HTML, Markdown, Word, text, source code; a folder with everything in it."""
    from rkllm_mcp.surfaces.cli.knowledge import SearchOptions
    from rkllm_mcp.surfaces.cli.knowledge import add as command

    raise typer.Exit(command(context.obj, sources, SearchOptions(base, title, collection), as_json=as_json))


@app.command("list")
def list_(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME|ID]", help="The knowledge base whose documents to list.")] = "",
    base: Annotated[str, typer.Option("--base", "-b", metavar="NAME|ID", help="The same.")] = "",
    as_json: _AsJson = False,
) -> None:
    """List the knowledge bases, or the documents of one."""
    from rkllm_mcp.errors import UsageError
    from rkllm_mcp.surfaces.cli.knowledge import list_all

    if name and base:
        raise UsageError("name one knowledge base: as an argument or with --base")
    raise typer.Exit(list_all(context.obj, name or base, as_json=as_json))


@app.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The question.")],
    base: _Base = "",
    threshold: Annotated[float, typer.Option(metavar="SHARE", help="0.5 broad, 0.6 balanced, 0.7 strict.")] = 0.6,
    max_results: Annotated[int, typer.Option(metavar="N", help="At most so many, up to 50.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", metavar="", help="Show what each stage did.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Find the passages that answer a question, in one knowledge base or in all; exit code 1 when there are none."""
    from rkllm_mcp.surfaces.cli.knowledge import KnowledgeSource
    from rkllm_mcp.surfaces.cli.knowledge import search as command

    question = KnowledgeSource(query, base, threshold, max_results, explain)
    raise typer.Exit(command(context.obj, question, as_json=as_json))


@app.command()
def remove(
    context: typer.Context,
    documents: Annotated[
        list[str] | None, typer.Argument(metavar="[DOCUMENT]...", help="By id, title, path or address.")
    ] = None,
    base: _Base = "",
    everything: Annotated[
        bool, typer.Option("--all", metavar="", help="All documents, and the knowledge base itself.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask, with --all.")] = False,
) -> None:
    """Remove documents, or with --all a whole knowledge base."""
    from rkllm_mcp.surfaces.cli.knowledge import remove as command

    raise typer.Exit(command(context.obj, documents or [], base, everything=everything, sure=yes))
