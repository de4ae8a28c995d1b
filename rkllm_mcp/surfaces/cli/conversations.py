"""``rkllm-mcp conversations``: the owner's stored conversations.

A tenant reads theirs over HTTP. No model is loaded and no server started.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from rkllm_mcp.app.conversation_export import (
    Format,
    as_json,
    as_markdown,
    from_json,
    moment,
    summary_dict,
)
from rkllm_mcp.errors import UsageError
from rkllm_mcp.records import ENDINGS, StoredConversation, StoredTurn
from rkllm_mcp.surfaces.invocation import EXIT_DONE, Session, run_async
from rkllm_mcp.surfaces.tables import conversation_table
from rkllm_mcp.surfaces.terminal import printable, wants_color, write_json


def layout(kept: StoredConversation) -> RenderableType:
    """The conversation, for a console of any width."""
    head = Text(printable(kept.title or kept.id), style="bold")
    when = Text(f"{kept.id}, {moment(kept.created)} – {moment(kept.updated)}\n", style="dim")
    return Group(head, when, *_turns(kept))


def _turns(kept: StoredConversation) -> list[RenderableType]:
    return [Padding(part, (0, 0, 1, 0)) for turn in kept.turns for part in _parts(turn)]


def _parts(turn: StoredTurn) -> list[RenderableType]:
    when = Text(moment(turn.at), style="dim")
    if turn.role == "user":
        # A person's words are shown as they were typed, whatever they would mean in Markdown.
        return [Group(when, Text(f"❯ {printable(turn.text)}", style="bold"))]
    parts: list[RenderableType] = [when]
    if turn.thinking.strip():
        parts.append(Text(printable(turn.thinking.strip()), style="dim italic"))
    if turn.text.strip():
        # Small models end their lines where they mean to; Markdown would join them.
        parts.append(Markdown(printable(turn.text.strip()).replace("\n", "  \n")))
    if turn.ending in ENDINGS:
        parts.append(Text(f"[{ENDINGS[turn.ending]}]", style="yellow"))
    return [Group(*parts)]


OWNER = ""
_LISTING = "'rkllm-mcp conversations list' shows them"


@dataclass(frozen=True)
class ConversationFilter:
    """Selection of conversations to list."""

    limit: int = 20  # most recent ones
    offset: int = 0  # skipped at the front
    search: str = ""  # text that the title or a turn contains


def list_all(session: Session, wish: ConversationFilter, *, as_json: bool) -> int:
    """Print the conversations, the one that went on last first."""
    from rkllm_mcp.app.preview import open_stored

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            found = await memory.conversations.latest(OWNER, wish.limit, wish.offset, wish.search)
            count = await memory.conversations.count(OWNER, wish.search)
            if as_json:
                write_json({"conversations": list(map(summary_dict, found)), "count": count})
                return EXIT_DONE
            sys.stdout.write(conversation_table(found, session.terminal.columns))
            if not count:
                session.status(
                    "There are no saved conversations." if not wish.search else "No conversation has these words."
                )
            elif len(found) < count:
                session.status(f"{len(found)} of {count} conversations; --limit and --offset show others.")
            return EXIT_DONE

    return run_async(work)


def show(session: Session, name: str, *, as_json: bool) -> int:
    """Print one conversation: laid out on a terminal, Markdown elsewhere."""
    from rkllm_mcp.app.preview import find_conversation, open_stored

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            kept = await find_conversation(memory, OWNER, name)
            if as_json:
                sys.stdout.write(_json([kept]))
            elif wants_color(sys.stdout):
                _lay_out(kept)
            else:
                session.terminal.answer(as_markdown(kept))
            return EXIT_DONE

    return run_async(work)


def export(session: Session, names: Sequence[str], form: Format, target: str | None, *, everything: bool) -> int:
    """Write the conversations with these ids, or with these beginnings of ids, to standard output or to a new file.

    Raises:
        UsageError: nothing, or both, was named; or the file exists or cannot be written.
    """
    from rkllm_mcp.app.preview import find_conversation, open_stored

    _check_choice(names, everything=everything)

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            ids = (
                [one.id for one in await memory.conversations.latest(OWNER, await memory.conversations.count(OWNER))]
                if everything
                else names
            )
            kept = [await find_conversation(memory, OWNER, name) for name in ids]
            text = _json(kept) if form == "json" else "\n---\n\n".join(map(as_markdown, kept))
            if target is None:
                sys.stdout.write(text)
            else:
                path = await anyio.Path(target).expanduser()
                await _write_new(path, text)
                session.status(f"{len(kept)} conversation{'' if len(kept) == 1 else 's'} written to {path}")
            return EXIT_DONE

    return run_async(work)


def delete(session: Session, names: Sequence[str], *, everything: bool, yes: bool) -> int:
    """Forget conversations, and the records of their tool calls.

    Raises:
        UsageError: nothing, or both, was named; or everything without a yes.
    """
    from rkllm_mcp.app.preview import find_conversation, open_stored

    _check_choice(names, everything=everything)
    if everything and not yes:
        raise UsageError("--all deletes every conversation for good; say so with --all --yes")

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            if everything:
                count = await memory.conversations.delete_all(OWNER)
                session.status(f"{count} conversation{'' if count == 1 else 's'} deleted.")
                return EXIT_DONE
            # All are found before the first one goes: a word that was mistyped deletes nothing.
            for kept in [await find_conversation(memory, OWNER, name) for name in names]:
                await memory.conversations.delete(OWNER, kept.id)
                session.status(f"Deleted: {kept.id} '{kept.title}'.")
            return EXIT_DONE

    return run_async(work)


def rename(session: Session, name: str, title: str) -> int:
    """Rename a conversation."""
    from rkllm_mcp.app.preview import find_conversation, open_stored

    if not title.strip():
        raise UsageError("the title is empty; write it behind the id, in quotes")

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            kept = await find_conversation(memory, OWNER, name)
            await memory.conversations.rename(OWNER, kept.id, title)
            session.status(f"Renamed: {kept.id}.")
            return EXIT_DONE

    return run_async(work)


def import_file(session: Session, source: str) -> int:
    """Keep the conversations of a JSON export; one whose id is taken gets another.

    Raises:
        UsageError: the file cannot be read or is no export.
    """
    from rkllm_mcp.app.preview import open_stored

    try:
        text = sys.stdin.buffer.read() if source == "-" else Path(source).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{source} cannot be read ({error.strerror}); name the JSON file of an export") from None
    imported = from_json(text)

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            for kept in imported:
                conversation_id = await memory.conversations.add(OWNER, kept)
                sys.stdout.write(f"{conversation_id}\n")
            session.status(f"{len(imported)} conversation{'' if len(imported) == 1 else 's'} imported.")
            return EXIT_DONE

    return run_async(work)


def _json(kept: Sequence[StoredConversation]) -> str:
    # JSON is UTF-8 whatever the locale says.
    sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return as_json(kept)


def _lay_out(kept: StoredConversation) -> None:
    from rich.console import Console

    Console().print(layout(kept))


async def _write_new(path: anyio.Path, text: str) -> None:
    try:
        # Do not overwrite an existing file.
        async with await path.open("x", encoding="utf-8") as file:
            await file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists; choose another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); choose another name") from None


def _check_choice(names: Sequence[str], *, everything: bool) -> None:
    if bool(names) == everything:
        raise UsageError(f"name one conversation or more, or --all, and not both; {_LISTING}")


app = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="ID", help="Id, or its first characters.")]
_Names = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, or the first characters of ids.")]


@app.command("list")
def list_command(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of conversations.")] = 20,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Number of conversations to skip.")] = 0,
    search: Annotated[str, typer.Option(metavar="TEXT", help="Only conversations that contain this text.")] = "",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
) -> None:
    """List conversations, most recent first."""
    raise typer.Exit(list_all(context.obj, ConversationFilter(limit, offset, search), as_json=as_json))


@app.command("show")
def show_command(
    context: typer.Context,
    name: _Name,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
) -> None:
    """Show one conversation."""
    raise typer.Exit(show(context.obj, name, as_json=as_json))


@app.command("export")
def export_command(
    context: typer.Context,
    names: _Names = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="Select all conversations.")] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="markdown|json", help="markdown to read, json to import again.")
    ] = "markdown",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a new file instead of standard output."),
    ] = None,
) -> None:
    """Export conversations as Markdown or JSON."""
    if form not in ("markdown", "json"):
        raise UsageError(f"there is no format {form!r}; choose markdown or json")
    raise typer.Exit(export(context.obj, names or [], form, output, everything=everything))


@app.command("delete")
def delete_command(
    context: typer.Context,
    names: _Names = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="Select all conversations.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask for confirmation of --all.")] = False,
) -> None:
    """Delete conversations and the records of their tool calls permanently."""
    raise typer.Exit(delete(context.obj, names or [], everything=everything, yes=yes))


@app.command("rename")
def rename_command(
    context: typer.Context,
    name: _Name,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="New title, in quotes.")],
) -> None:
    """Rename a conversation."""
    raise typer.Exit(rename(context.obj, name, title))


@app.command("import")
def import_command(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FILE", help="JSON export to import; - reads standard input.")],
) -> None:
    """Import conversations from a JSON export."""
    raise typer.Exit(import_file(context.obj, source))
