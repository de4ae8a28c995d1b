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
from rkllm_mcp.surfaces.table import table, wrapped
from rkllm_mcp.surfaces.tools import tool_table, tool_text
from rkllm_mcp.surfaces.transcript import transcript

_Action: TypeAlias = Callable[[ChatState, str], Awaitable[None]]


async def obey(state: ChatState, text: str) -> None:
    """Carry out a line that begins with a slash."""
    name, _, rest = text.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        begun = [command for command in COMMANDS if len(name) > 1 and command.startswith(name)]
        near = begun or difflib.get_close_matches(name, COMMANDS, n=1)
        hint = _hint(state, near[0] if near else None) or state.phrases.no_hint
        state.terminal.error(state.phrases.no_command.format(name=name, hint=hint, commands=" ".join(COMMANDS)))
        return
    try:
        with state.interruptible():
            await command(state, rest.strip())
    except RkllmMcpError as error:
        state.complain(error)


def _hint(state: ChatState, near: str | None) -> str:
    """What may have been meant; empty when nothing is near."""
    return state.phrases.did_you_mean.format(name=near) if near else ""


async def _help(state: ChatState, rest: str) -> None:
    del rest
    said, columns = HELP[state.language], state.terminal.columns
    state.terminal.answer(table((), [said.commands[name] for name in COMMANDS], columns))
    keys = [said.keys] if columns is None else wrapped(said.keys, columns)
    state.terminal.answer("".join(f"{line}\n" for line in keys))


async def _tools(state: ChatState, rest: str) -> None:
    toolbox = state.app.toolbox
    if not rest:
        tools = toolbox.tools()
        state.terminal.answer(tool_table(tools, state.terminal.columns) or f"{state.phrases.no_tools}\n")
        return
    tool = toolbox.resolve(rest)
    if tool is not None:
        state.terminal.answer(tool_text(tool, state.terminal.columns))
        return
    hint = _hint(state, toolbox.suggest(rest)) or state.phrases.tools_lists
    state.terminal.error(state.phrases.no_tool.format(name=rest, hint=hint))


async def _servers(state: ChatState, rest: str) -> None:
    del rest
    phrases, switches = state.phrases, state.app.toolbox.switches
    rows = [
        (
            server.name,
            server.state,
            phrases.tool_count.format(count=server.tool_count),
            server.reason if switches.is_server_on(server.name) else phrases.switched_off.format(name=server.name),
        )
        for server in state.app.toolbox.servers()
    ]
    heading = ("NAME", "STATE", "TOOLS", "REASON")
    state.terminal.answer(table(heading, rows, state.terminal.columns) or f"{phrases.no_servers}\n")


async def _stats(state: ChatState, rest: str) -> None:
    del rest
    state.terminal.answer(table((), state.stats.rows(state.phrases), state.terminal.columns))


async def _clear(state: ChatState, rest: str) -> None:
    del rest
    state.conversation = state.app.new_conversation()
    state.attached.clear()
    state.stats = Stats()
    state.terminal.note(state.phrases.new_conversation)


async def _save(state: ChatState, rest: str) -> None:
    if not rest:
        state.need("/save")
        return
    path = await anyio.Path(rest).expanduser()
    try:
        # Never over a file that is there: a conversation is not worth somebody's document.
        async with await path.open("x", encoding="utf-8") as file:
            await file.write(transcript(state.conversation.messages))
    except FileExistsError:
        state.terminal.error(state.phrases.exists.format(path=path))
    except OSError as error:
        state.terminal.error(state.phrases.not_written.format(path=path, reason=error.strerror))
    else:
        state.terminal.note(state.phrases.saved.format(path=path))


async def _model(state: ChatState, rest: str) -> None:
    del rest
    core, labels = state.app.core, state.phrases.model
    context = state.phrases.tokens.format(count=core.listing.context_tokens)
    rows = [("name", core.name), ("context", context), ("kind", core.description)]
    if core.npu is not None:
        model = core.npu.model
        files = (("file", str(model.file)), ("template", model.card.template))
        rows[1:1] = [("description", model.card.description), *files]
    state.terminal.answer(table((), [(labels[name], value) for name, value in rows if value], state.terminal.columns))


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
