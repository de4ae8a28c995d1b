"""Kept conversations, from within one: ``/conversations``, ``/resume``, ``/rename``, and ``chat --resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkllm_mcp.records import KeptConversation
from rkllm_mcp.surfaces.chat_state import ChatState, Stats
from rkllm_mcp.surfaces.conversations import conversation_table, the_one
from rkllm_mcp.surfaces.conversations_export import moment
from rkllm_mcp.surfaces.render import one_line

if TYPE_CHECKING:
    from rkllm_mcp.app import App

_SHOWN = 20
_SHOWN_CHARS = 300
LATEST = ""


async def kept_conversation(app: App, name: str) -> KeptConversation | None:
    """The conversation whose id begins with ``name``; the latest one, if there is any, for ``LATEST``.

    Raises:
        UsageError: no id, or several, begin so.
        StoreError: what is kept cannot be read.
    """
    conversations = app.memory.conversations
    if name != LATEST:
        return await the_one(app.memory, app.tenant, name)
    newest = await conversations.latest(app.tenant, 1)
    return await conversations.get(app.tenant, newest[0].id) if newest else None


def take_up(state: ChatState, kept: KeptConversation) -> None:
    """Go on with a kept conversation, and show how far it has come."""
    state.conversation = state.app.resume(kept)
    state.attached.clear()
    state.stats = Stats()
    say = state.terminal.note
    phrases = state.phrases
    count, last = len(kept.turns), moment(kept.updated)
    say(phrases.going_on.format(id=kept.id, title=kept.title, count=count, moment=last))
    for turn in kept.turns[-2:]:
        ending = f" [{phrases.cut_short[turn.ending]}]" if turn.ending in phrases.cut_short else ""
        say(f"  {'❯' if turn.role == 'user' else '◆'} {one_line(turn.text, _SHOWN_CHARS)}{ending}")


async def list_conversations(state: ChatState, rest: str) -> None:
    """List the latest conversations, or those that hold some words."""
    found = await state.app.memory.conversations.latest(state.app.tenant, _SHOWN, search=rest)
    state.terminal.answer(conversation_table(found, state.terminal.columns) or f"{state.phrases.none_kept}\n")


async def resume(state: ChatState, rest: str) -> None:
    """Go on with another conversation; this one stays kept."""
    kept = await kept_conversation(state.app, rest) if rest else None
    if kept is None:
        state.need("/resume")
    elif kept.id == state.conversation.id:
        state.terminal.error(state.phrases.already_here)
    else:
        take_up(state, kept)


async def rename(state: ChatState, rest: str) -> None:
    """Give this conversation another title."""
    if not rest:
        state.need("/rename")
    elif await state.app.memory.conversations.rename(state.app.tenant, state.conversation.id, rest):
        state.terminal.note(state.phrases.renamed)
    else:
        state.terminal.error(state.phrases.not_kept_yet)


def farewell(state: ChatState) -> str:
    """How to come back to a conversation that is kept; empty for one that is not."""
    conversation = state.conversation
    if not (conversation.kept_turns and state.app.memory.conversations.is_lasting):
        return ""
    return state.phrases.farewell.format(command=f"rkllm-mcp chat --resume {conversation.id}")
