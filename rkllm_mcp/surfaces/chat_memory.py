"""What is remembered, in a conversation: ``/enable``, ``/disable``, ``/approve``, ``/history``."""

from __future__ import annotations

from rkllm_mcp.surfaces.chat_state import ChatState
from rkllm_mcp.surfaces.remembered import forget, grant_table, short_call_table, turn

_SHOWN_CALLS = 20


async def switch_on(state: ChatState, rest: str) -> None:
    """Switch a tool or a server on again, for this and every later run."""
    _switch(state, rest, is_on=True)


async def switch_off(state: ChatState, rest: str) -> None:
    """Switch a tool or a server off, for this and every later run."""
    _switch(state, rest, is_on=False)


def _switch(state: ChatState, name: str, *, is_on: bool) -> None:
    if name:
        state.terminal.note(turn(state.app.toolbox, state.app.config, name, is_on=is_on))
    else:
        command = "/enable" if is_on else "/disable"
        state.terminal.error(
            f"{command} needs a tool or a server: {command} get_weather; /tools and /servers list them"
        )


async def approvals(state: ChatState, rest: str) -> None:
    """Show what was allowed or refused for good, or take it back."""
    word, _, name = rest.partition(" ")
    memory = state.app.memory
    if not word:
        listing = grant_table(await memory.grants.all())
        state.terminal.answer(listing or "Nothing is allowed or refused for good; a call that needs a yes asks.\n")
    elif word == "forget" and name.strip():
        for line in await forget(memory, name.strip()):
            state.terminal.note(line)
    else:
        state.terminal.error("/approve shows what is remembered, /approve forget NAME takes it back")


async def history(state: ChatState, rest: str) -> None:
    """Show the latest calls of this conversation."""
    del rest
    calls = await state.app.memory.calls.latest(_SHOWN_CALLS, conversation=state.conversation.id)
    state.terminal.answer(
        short_call_table(calls) or "No calls in this conversation; 'rkllm-mcp tools history' has all.\n"
    )
