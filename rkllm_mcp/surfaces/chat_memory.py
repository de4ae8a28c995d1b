"""What is remembered, in a conversation: ``/enable``, ``/disable``, ``/approve``, ``/history``."""

from __future__ import annotations

from rkllm_mcp.surfaces.chat_state import ChatState
from rkllm_mcp.surfaces.remembered import forget, grant_table, meant_by, short_call_table, turn

_SHOWN_CALLS = 20


async def switch_on(state: ChatState, rest: str) -> None:
    """Switch a tool or a server on again, for this and every later run."""
    _switch(state, rest, is_on=True)


async def switch_off(state: ChatState, rest: str) -> None:
    """Switch a tool or a server off, for this and every later run."""
    _switch(state, rest, is_on=False)


def _switch(state: ChatState, name: str, *, is_on: bool) -> None:
    if name:
        state.terminal.note(turn(state.app.toolbox, state.app.config, name, state.phrases, is_on=is_on))
    else:
        state.need("/enable" if is_on else "/disable")


async def approvals(state: ChatState, rest: str) -> None:
    """Show what was allowed or refused for good or for this conversation, or take it back."""
    word, _, name = rest.partition(" ")
    if not word:
        for_good = [(grant.kind, server, tool) for server, tool, grant in await state.app.memory.grants.all()]
        for_now = [("conversation", *each) for each in state.app.toolbox.conversation_grants.of(state.conversation.id)]
        listing = grant_table([*for_good, *for_now], state.terminal.columns)
        state.terminal.answer(listing or f"{state.phrases.nothing_said}\n")
    elif word == "forget" and name.strip():
        await _forget(state, name.strip())
    else:
        state.need("/approve")


async def _forget(state: ChatState, name: str) -> None:
    held = state.app.toolbox.conversation_grants
    for_now = meant_by(name, held.of(state.conversation.id))
    for server, tool in for_now:
        held.forget(state.conversation.id, server, tool)
        state.terminal.note(state.phrases.forgotten_here.format(tool=tool, server=server))
    for_good = [(server, tool) for server, tool, _ in await state.app.memory.grants.all()]
    if meant_by(name, for_good) or not for_now:
        for line in await forget(state.app.memory, name, state.phrases):
            state.terminal.note(line)


async def history(state: ChatState, rest: str) -> None:
    """Show the latest calls of this conversation."""
    del rest
    calls = await state.app.memory.calls.latest(_SHOWN_CALLS, conversation=state.conversation.id)
    state.terminal.answer(short_call_table(calls, state.terminal.columns) or f"{state.phrases.no_calls}\n")
