"""What a person wants remembered, in the answers of one assistant.

    question ─▶ does it ask to remember something? ─▶ row ─▶ confirmed, or answered together with the rest
    question ─▶ rows that it is about ─▶ last part of the context in its turn, stored as it was sent

A row comes from the words that a person typed as a question and from nothing else: no result of a tool, document,
picture, server's prompt or imported conversation is read for one. Turns that were sent never change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rkllm_mcp.catalogue import translate
from rkllm_mcp.errors import StoreError, UsageError
from rkllm_mcp.events import MemoriesUsed, RememberedRow
from rkllm_mcp.memory.statements import is_secret, row_text, statement_in
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.records import MOST_ROWS, MemoryRow, recalled_block, recalled_texts, without_recalled
from rkllm_mcp.text import Language, language_of_text, without_files

if TYPE_CHECKING:
    from rkllm_mcp.store.memories import Memories

logger = logging.getLogger(__name__)

# The text about a person, with the rows that are always known, and the rows that are recalled for a question.
MOST_KNOWN_TOKENS = 120
MOST_RECALLED_TOKENS = 60
# Longer questions have material in them.
_MOST_COMPARED_CHARS = 1000


@dataclass(frozen=True)
class Kept:
    """What became of a question that asks to remember something."""

    sentence: str  # for the person
    event: MemoriesUsed | None = None  # None if nothing was stored
    is_all: bool = False  # the question asks for nothing else


async def keep_row(
    memories: Memories, text: str, language: Language, *, source: str = "", is_pinned: bool = False
) -> tuple[MemoryRow, bool]:
    """Store what a person wants remembered; return the row, and False if it was there.

    The id of a proposal keeps it.

    Raises:
        UsageError: it is empty, a secret, or one too many.
        StoreError: it cannot be stored.
    """
    words = _checked(text, language)
    proposed = {row.id for row in await memories.all() if row.state == "proposed"}
    if words in proposed:
        row = await memories.change(words, state="kept", is_pinned=is_pinned or None)
        if row is not None:
            return row, True
    try:
        return await memories.add(words, language_of_text(words), source=source, is_pinned=is_pinned)
    except UsageError:
        raise UsageError(translate("memory.full", language, count=MOST_ROWS)) from None


def _checked(text: str, language: Language) -> str:
    words = row_text(text)
    if not words:
        raise UsageError("there is nothing to remember; write it in a sentence")
    if is_secret(text):
        raise UsageError(translate("memory.secret", language))
    return words


async def change_row(
    memories: Memories,
    row_id: str,
    language: Language,
    *,
    text: str | None = None,
    is_pinned: bool | None = None,
    is_kept: bool = False,
) -> tuple[MemoryRow, MemoryRow] | None:
    """Change a row; return it as it was and as it is, or None if no row has this id.

    Raises:
        UsageError: the new text is empty or a secret.
        StoreError: it cannot be stored.
    """
    words = None if text is None else _checked(text, language)
    before = {row.id: row for row in await memories.all()}.get(row_id)
    row = await memories.change(row_id, text=words, is_pinned=is_pinned, state="kept" if is_kept else None)
    return None if row is None or before is None else (before, row)


async def keep_said(memories: Memories, question: str, conversation: Conversation) -> Kept | None:
    """Keep what a question asks to be remembered; None if it asks nothing of the kind."""
    statement = statement_in(without_files(question)) if without_files(question) == question else None
    if statement is None:
        return None
    language, is_all = language_of_text(question), not statement.rest
    try:
        row, is_new = await keep_row(memories, statement.fact, language, source=conversation.id)
    except UsageError as error:
        return Kept(str(error), is_all=is_all)
    except StoreError as error:
        return Kept(translate("memory.not_stored", language, reason=error.cause), is_all=is_all)
    sentence = translate("memory.kept" if is_new else "memory.known", language, text=row.text)
    return Kept(sentence, event_of([row], is_new=True), is_all)


def event_of(rows: Sequence[MemoryRow], *, is_new: bool = False) -> MemoriesUsed:
    """Return the event that shows rows."""
    shown_rows = [RememberedRow(id=row.id, text=row.text, source=row.source) for row in rows]
    return MemoriesUsed(shown_rows, is_new)


async def recall(
    memories: Memories, question: str, conversation: Conversation, count_tokens: Callable[[str], int]
) -> list[MemoryRow]:
    """Return the rows that a question is probably about and that have room in its turn; none if the store is away."""
    words = without_files(question)[:_MOST_COMPARED_CHARS]
    systems = (message.context for message in conversation.messages if message.role == "system")
    known_lines = next(systems, "").split("\n")
    try:
        memory_rows = await memories.kept()
    except StoreError as error:
        logger.info("nothing is recalled: %s", error)
        return []
    # Without those that the model reads anyway.
    rows = [row for row in memory_rows if f"- {row.text}" not in known_lines and row.text not in words]
    if not rows:
        return []
    # Loaded with the first row: most people have none at first.
    from rkllm_mcp.memory.recall import recalled_rows

    recalled = recalled_rows(words, rows)
    while (
        recalled and count_tokens(f"{recalled_block(recalled, language_of_text(question))}\n\n") > MOST_RECALLED_TOKENS
    ):
        recalled.pop()
    memories.note_used(recalled)
    return recalled


async def forget_erased(memories: Memories, conversation: Conversation) -> None:
    """Remove rows from an open conversation that another board or command has erased since they were sent."""
    sent = [text for message in conversation.messages for text in recalled_texts(message.context)]
    if not (sent or conversation.known_rows):
        return
    try:
        texts = {row.text for row in await memories.kept()}
    except StoreError as error:
        logger.info("erased rows are not looked for: %s", error)
        return
    for text in dict.fromkeys((*sent, *conversation.known_rows)):
        if text not in texts:
            erase_row(conversation, text)
    conversation.known_rows = tuple(text for text in conversation.known_rows if text in texts)


async def know_person(
    memories: Memories, conversation: Conversation, language: Language, count_tokens: Callable[[str], int]
) -> None:
    """Add the rows that are always known to the system message of a conversation, once; those that have no room go."""
    if conversation.knows_person:
        return
    conversation.knows_person = True
    try:
        rows = [row for row in await memories.kept() if row.is_pinned]
    except StoreError as error:
        logger.info("the rows that are always known are left out: %s", error)
        return
    system = conversation.messages[0] if conversation.messages else Message("user")
    if system.role != "system":
        system = Message("system")
        conversation.messages.insert(0, system)
    about = system.context or translate("model.about", language, about="").strip()
    for row in rows:
        longer = f"{about}\n- {row.text}"
        if count_tokens(longer) <= MOST_KNOWN_TOKENS:
            about = longer
            conversation.known_rows += (row.text,)
    if rows and about != system.context and about.partition("\n")[2]:
        conversation.messages[0] = replace(system, context=about)
    elif not (system.text or system.context):
        del conversation.messages[0]


def find_rows(rows: Sequence[MemoryRow], names: Sequence[str]) -> list[MemoryRow]:
    """Return the rows whose ids begin with these names, or whose text is one of them; a UsageError for none."""
    chosen: list[MemoryRow] = []
    for name in names:
        matching = [row for row in rows if name and (row.id.startswith(name) or row.text.casefold() == name.casefold())]
        if len(matching) != 1:
            problem = f"several rows begin with {name!r}" if matching else f"nothing is remembered as {name!r}"
            raise UsageError(f"{problem}; 'rkllm-mcp memory list' shows the ids")
        chosen += matching
    return chosen


def erase_row(conversation: Conversation, text: str) -> None:
    """Remove a row from what an open conversation knows; the model reads the conversation again from there."""
    if not any(text in message.context for message in conversation.messages):
        return
    messages: list[Message] = []
    for message in conversation.messages:
        if message.role == "system":
            lines = [line for line in message.context.split("\n") if line != f"- {text}"]
            # A heading over nothing goes, too.
            context = "\n".join(lines) if len(lines) > 1 else ""
        else:
            context = without_recalled(message.context, text)
        messages.append(replace(message, context=context))
    conversation.messages[:] = messages
