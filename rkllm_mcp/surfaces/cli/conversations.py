"""``rkllm-mcp conversations``: the owner's stored conversations.

A tenant reads theirs over HTTP. No model is loaded and no server started.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rkllm_mcp.app.stored import find_conversation, open_stored
from rkllm_mcp.catalogue import Catalogue
from rkllm_mcp.conversations.exports import as_json, as_markdown, from_json, summary_dict
from rkllm_mcp.errors import UsageError
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.surfaces.chat.markdown import MarkdownDocument
from rkllm_mcp.surfaces.cli.files import read_export, write_new
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, flag, in_loop, option
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.tables import conversation_table
from rkllm_mcp.surfaces.terminal import printable, wants_color
from rkllm_mcp.text import moment


def layout(stored: StoredConversation, texts: Catalogue) -> RenderableType:
    """The conversation, for a console of any width."""
    head = Text(printable(stored.title or stored.id), style="bold")
    when = Text(f"{stored.id}, {moment(stored.created)} – {moment(stored.updated)}\n", style="dim")
    turns: list[RenderableType] = []
    for turn in stored.turns:
        parts: list[RenderableType] = [Text(moment(turn.at), style="dim")]
        if turn.role == "user":
            # Questions are shown as they were typed, without Markdown.
            parts.append(Text(f"❯ {printable(turn.text)}", style="bold"))
        else:
            if turn.thinking.strip():
                parts.append(Text(printable(turn.thinking.strip()), style="dim italic"))
            if turn.text.strip():
                parts.append(MarkdownDocument(printable(turn.text.strip())))
            if ending := texts.table("ending").get(turn.ending):
                parts.append(Text(f"[{ending}]", style="yellow"))
        turns.append(Padding(Group(*parts), (0, 0, 1, 0)))
    return Group(head, when, *turns)


OWNER = ""
_CHOICE = "name one conversation or more, or --all, and not both; 'rkllm-mcp conversations list' shows them"


def _count(conversations: int) -> str:
    return f"{conversations} conversation{'' if conversations == 1 else 's'}"


def _json(conversations: Sequence[StoredConversation]) -> str:
    # JSON is UTF-8 in every locale.
    sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return as_json(conversations)


app = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, argument("Id, or its first characters.", "ID")]
_Names = Annotated[list[str] | None, argument("Ids, or the first characters of ids.", "ID")]
_All = Annotated[bool, flag("Select all conversations.", "--all")]


@command(app, "list")
async def list_command(
    session: Session,
    limit: Annotated[int, option("Maximum number of conversations.", "N", min=1)] = 20,
    offset: Annotated[int, option("Number of conversations to skip.", "N", min=0)] = 0,
    search: Annotated[str, option("Only conversations that contain these words.", "TEXT")] = "",
    as_json: AsJson = False,
) -> None:
    """List conversations, most recent first."""
    async with open_stored(session.config()) as store:
        latest = await store.conversations.latest(OWNER, limit, offset, search)
        count = await store.conversations.count(OWNER, search)
    session.show(list(map(summary_dict, latest)), conversation_table(latest, session.terminal), as_json=as_json)
    if not count and not as_json:
        session.status("No conversation has these words." if search else "There are no saved conversations.")
    elif len(latest) < count and not as_json:
        session.status(f"{len(latest)} of {count} conversations; --limit and --offset show others.")


@command(app, "show")
async def show_command(session: Session, name: _Name, as_json: AsJson = False) -> None:
    """Show one conversation."""
    async with open_stored(session.config()) as store:
        stored = await find_conversation(store, OWNER, name)
    if as_json:
        sys.stdout.write(_json([stored]))
    elif wants_color(sys.stdout):
        Console().print(layout(stored, session.phrases))
    else:
        session.terminal.answer(as_markdown(stored))


@command(app, "export")
async def export_command(
    session: Session,
    names: _Names = None,
    everything: _All = False,
    form: Annotated[str, option("markdown to read, json to import again.", "markdown|json", "--format")] = "markdown",
    output: Annotated[
        str | None, option("Write to a new file instead of standard output.", "FILE", "--output", "-o")
    ] = None,
) -> None:
    """Export conversations as Markdown or JSON."""
    if form not in ("markdown", "json"):
        raise UsageError(f"there is no format {form!r}; choose markdown or json")
    if bool(names) == everything:
        raise UsageError(_CHOICE)
    async with open_stored(session.config()) as store:
        count = await store.conversations.count(OWNER)
        ids = names or [summary.id for summary in await store.conversations.latest(OWNER, count)]
        conversations = [await find_conversation(store, OWNER, name) for name in ids]
    text = _json(conversations) if form == "json" else "\n---\n\n".join(map(as_markdown, conversations))
    if output is None:
        sys.stdout.write(text)
    else:
        write_new(output, text.encode())
        session.status(f"{_count(len(conversations))} written to {output}")


@command(app, "remove")
async def remove_command(
    session: Session,
    names: _Names = None,
    everything: _All = False,
    yes: Annotated[bool, flag("Do not ask for confirmation of --all.", "--yes", "-y")] = False,
) -> None:
    """Delete conversations and the records of their tool calls permanently."""
    if bool(names) == everything:
        raise UsageError(_CHOICE)
    if everything and not yes:
        raise UsageError("--all deletes every conversation for good; say so with --all --yes")
    async with open_stored(session.config()) as store:
        if everything:
            session.status(f"{_count(await store.conversations.delete_all(OWNER))} deleted.")
        # All are found before the first one is deleted: a mistyped id deletes nothing.
        for stored in [await find_conversation(store, OWNER, name) for name in names or ()]:
            await store.conversations.delete(OWNER, stored.id)
            session.status(f"Deleted: {stored.id} '{stored.title}'.")


@command(app, "rename")
async def rename_command(
    session: Session,
    name: _Name,
    title: Annotated[str, argument("New title, in quotes.", "TITLE")],
) -> None:
    """Rename a conversation."""
    if not title.strip():
        raise UsageError("the title is empty; write it behind the id, in quotes")
    async with open_stored(session.config()) as store:
        stored = await find_conversation(store, OWNER, name)
        await store.conversations.change(OWNER, stored.id, {"title": title})
    session.status(f"Renamed: {stored.id}.")


@command(app, "import")
def import_command(
    session: Session,
    source: Annotated[str, argument("JSON export to import; - reads standard input.", "FILE")],
) -> int:
    """Import conversations from a JSON export, also of ChatGPT, Claude, Open WebUI, LibreChat or llama.cpp's page."""
    text = read_export(source)
    imported = from_json(text)

    async def import_all() -> None:
        async with open_stored(session.config()) as store:
            for stored in imported:
                identifier = await store.conversations.add(OWNER, stored)
                sys.stdout.write(printable(f"{stored.title if session.terminal.columns else identifier}\n"))
        session.status(f"{_count(len(imported))} imported.")

    return in_loop(session, import_all)
