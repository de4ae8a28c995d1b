"""``rkllm-mcp memory``: what the owner wants remembered in all conversations.

Nothing but the store is opened; a service that runs uses the changes with its next question.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rkllm_mcp.app.stored import open_stored
from rkllm_mcp.errors import UsageError
from rkllm_mcp.memory.exports import memories_as_text, memories_from_file, row_dict
from rkllm_mcp.memory.person import find_rows, keep_row
from rkllm_mcp.surfaces.cli.files import read_export, write_new
from rkllm_mcp.surfaces.cli.options import AsJson, Yes, argument, command, flag, in_loop, may_proceed, option
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.tables import memory_table
from rkllm_mcp.text import shorten

app = typer.Typer(no_args_is_help=True)


@command(app, "list")
async def list_command(
    session: Session,
    search: Annotated[str, option("Only what contains these words.", "TEXT")] = "",
    as_json: AsJson = False,
) -> None:
    """List what is remembered, the oldest first."""
    async with open_stored(session.config()) as store:
        rows = [row for row in await store.memories.all() if search.casefold() in row.text.casefold()]
    session.show(list(map(row_dict, rows)), memory_table(rows, session.terminal), as_json=as_json)
    if not rows and not as_json:
        session.status("Nothing with these words is remembered." if search else "Nothing is remembered.")


@command(app, "add")
async def add_command(
    session: Session,
    words: Annotated[list[str], argument("What to remember, in a sentence.", "WORDS")],
    always: Annotated[
        bool, flag("Say it at the beginning of every conversation, not only where a question fits.", "--always")
    ] = False,
) -> None:
    """Remember something."""
    async with open_stored(session.config()) as store:
        language = session.language(session.config())
        row, is_new = await keep_row(store.memories, " ".join(words), language, is_pinned=always)
    session.status(f"Remembered: {row.id} '{row.text}'." if is_new else f"That was remembered already: {row.id}.")


@command(app, "remove")
async def remove_command(
    session: Session,
    ids: Annotated[list[str], argument("Ids, or the first characters of ids.", "ID")],
) -> None:
    """Delete what is remembered for good, also where it was recalled in conversations."""
    async with open_stored(session.config()) as store:
        # All are found before the first one is deleted: a mistyped id deletes nothing.
        rows = find_rows(await store.memories.all(), ids)
        await store.memories.remove([row.id for row in rows])
    for row in rows:
        session.status(f"Deleted: {row.id} '{row.text}'.")
    session.status("What you typed yourself stays in its conversation, and older backups keep everything.")


@command(app, "clear")
async def clear_command(session: Session, yes: Yes = False) -> None:
    """Delete all that is remembered for good."""
    if not may_proceed(session, "Remove everything that is remembered?", yes=yes):
        return
    async with open_stored(session.config()) as store:
        count = len(await store.memories.remove(None))
    session.status(f"{count} deleted. Older backups keep everything.")


@command(app, "export")
async def export_command(
    session: Session,
    form: Annotated[str, option("json to import again, markdown to read.", "json|markdown", "--format")] = "json",
    output: Annotated[
        str | None, option("Write to a new file instead of standard output.", "FILE", "--output", "-o")
    ] = None,
) -> None:
    """Export what is remembered, without proposals."""
    if form not in ("json", "markdown"):
        raise UsageError(f"there is no format {form!r}; choose json or markdown")
    async with open_stored(session.config()) as store:
        rows = await store.memories.kept()
    text = memories_as_text(rows, "json" if form == "json" else "markdown")
    if output is None:
        # JSON is UTF-8 in every locale.
        sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        sys.stdout.write(text)
    else:
        write_new(output, text.encode())
        session.status(f"{len(rows)} written to {output}")


@command(app, "import")
def import_command(
    session: Session,
    source: Annotated[str, argument("Export to import; - reads standard input.", "FILE")],
) -> int:
    """Import what 'rkllm-mcp memory export' wrote; what is remembered already stays.

    It also reads the JSON of mem0, the file of the MCP server memory, Claude's memories.json, and a list with a row on
    each line.
    """
    text = read_export(source)
    entries, left_out = memories_from_file(text)

    async def import_all() -> None:
        async with open_stored(session.config()) as store:
            language, count = session.language(session.config()), 0
            for entry in entries:
                _, is_new = await keep_row(store.memories, entry.text, language, is_pinned=entry.always)
                count += is_new
        session.status(f"{count} of {len(entries)} imported; the others were remembered already.")
        if left_out:
            session.status(f"{len(left_out)} left out, too long or secret, the first: {shorten(left_out[0], 60)!r}")

    return in_loop(session, import_all)
