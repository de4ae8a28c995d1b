"""The commands of a conversation: ``/help`` and its relatives, one table of them.

A command prints and returns; only ``/prompt`` has the model answer. What fails is a sentence, and the conversation goes
on.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import anyio

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.surfaces.chat_conversations import list_conversations, rename, resume
from rkllm_mcp.surfaces.chat_help import HELP
from rkllm_mcp.surfaces.chat_memory import approvals, history, switch_off, switch_on
from rkllm_mcp.surfaces.chat_offers import fill_prompt, list_prompts, list_resources, take_resource
from rkllm_mcp.surfaces.chat_state import ChatState, Stats
from rkllm_mcp.surfaces.table import table
from rkllm_mcp.surfaces.tools import tool_table, tool_text
from rkllm_mcp.surfaces.transcript import transcript

_Action: TypeAlias = Callable[[ChatState, str], Awaitable[None]]


async def obey(state: ChatState, text: str) -> None:
    """Carry out a line that begins with a slash."""
    name, _, rest = text.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        state.terminal.error(f"There is no {name}{hint} The commands are {' '.join(COMMANDS)}")
        return
    try:
        with state.interruptible():
            await command(state, rest.strip())
    except RkllmMcpError as error:
        state.terminal.error(f"Error: {error}")


async def _help(state: ChatState, rest: str) -> None:
    del rest
    from rkllm_mcp.inspection import asking_language

    said = HELP[asking_language(state.app.config)]
    state.terminal.answer(table((), [said.commands[name] for name in COMMANDS]))
    state.terminal.answer(said.keys)


async def _tools(state: ChatState, rest: str) -> None:
    toolbox = state.app.toolbox
    if not rest:
        tools = toolbox.tools()
        state.terminal.answer(tool_table(tools) or "No tools; /servers says why.\n")
        return
    tool = toolbox.resolve(rest)
    if tool is not None:
        state.terminal.answer(tool_text(tool))
        return
    near = toolbox.suggest(rest)
    state.terminal.error(f"There is no tool {rest!r}; {f'did you mean {near!r}?' if near else '/tools lists them'}")


async def _servers(state: ChatState, rest: str) -> None:
    del rest
    switches = state.app.toolbox.switches
    rows = [
        (
            server.name,
            server.state,
            f"{server.tool_count} tools",
            server.reason if switches.is_server_on(server.name) else f"switched off; /enable {server.name}",
        )
        for server in state.app.toolbox.servers()
    ]
    state.terminal.answer(table(("NAME", "STATE", "TOOLS", "REASON"), rows) or "No servers are configured.\n")


async def _stats(state: ChatState, rest: str) -> None:
    del rest
    state.terminal.answer(table((), state.stats.rows()))


async def _clear(state: ChatState, rest: str) -> None:
    del rest
    state.conversation = state.app.new_conversation()
    state.attached.clear()
    state.stats = Stats()
    state.terminal.note("A new conversation begins.")


async def _save(state: ChatState, rest: str) -> None:
    if not rest:
        state.terminal.error("/save needs a file: /save answer.md")
        return
    path = await anyio.Path(rest).expanduser()
    try:
        # Never over a file that is there: a conversation is not worth somebody's document.
        async with await path.open("x", encoding="utf-8") as file:
            await file.write(transcript(state.conversation.messages))
    except FileExistsError:
        state.terminal.error(f"{path} exists; choose another name")
    except OSError as error:
        state.terminal.error(f"{path} cannot be written ({error.strerror}); choose another name")
    else:
        state.terminal.note(f"Saved to {path}")


async def _model(state: ChatState, rest: str) -> None:
    del rest
    core = state.app.core
    rows = [("name", core.name), ("context", f"{core.listing.context_tokens} tokens"), ("kind", core.description)]
    if core.npu is not None:
        model = core.npu.model
        files = (("file", str(model.file)), ("template", model.card.template))
        rows[1:1] = [("description", model.card.description), *files]
    state.terminal.answer(table((), rows))


async def _quit(state: ChatState, rest: str) -> None:
    del rest
    state.is_over = True


COMMANDS: Mapping[str, _Action] = {
    "/help": _help,
    "/tools": _tools,
    "/servers": _servers,
    "/resources": list_resources,
    "/resource": take_resource,
    "/prompts": list_prompts,
    "/prompt": fill_prompt,
    "/enable": switch_on,
    "/disable": switch_off,
    "/approve": approvals,
    "/history": history,
    "/conversations": list_conversations,
    "/resume": resume,
    "/rename": rename,
    "/stats": _stats,
    "/model": _model,
    "/clear": _clear,
    "/save": _save,
    "/quit": _quit,
}
