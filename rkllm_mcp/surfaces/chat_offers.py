"""What servers offer besides tools, in a conversation: ``/resources``, ``/resource``, ``/prompts``, ``/prompt``."""

from __future__ import annotations

from rkllm_mcp.surfaces.chat_state import ChatState
from rkllm_mcp.surfaces.offers import prompt_table, read_pairs, resource_table, split_words


async def list_resources(state: ChatState, rest: str) -> None:
    """List the resources and templates of every server, or of one."""
    resources, templates = await state.app.toolbox.offerings.readable(rest or None, state.context())
    listing = resource_table(resources, templates, state.terminal.columns)
    state.terminal.answer(listing or f"{state.phrases.no_resources}\n")


async def take_resource(state: ChatState, rest: str) -> None:
    """Show a resource, and have it go with the next question."""
    if not rest:
        state.need("/resource")
        return
    limit_chars = state.app.config.agent.resource_chars
    content = await state.app.toolbox.offerings.read_resource(rest.removeprefix("@"), limit_chars, state.context())
    state.terminal.note(f"[MCP: Fetched resource: {content.uri}]")
    state.terminal.answer(content.text if content.text.endswith("\n") else f"{content.text}\n")
    if content.truncated:
        state.terminal.note(state.phrases.cut.format(count=limit_chars))
    mention = f"@{content.server}:<{content.uri}>"
    if mention not in state.attached:
        state.attached.append(mention)
    state.terminal.note(state.phrases.attached)


async def list_prompts(state: ChatState, rest: str) -> None:
    """List the prompts of every server, or of one."""
    prompts = await state.app.toolbox.offerings.prompts(rest or None, state.context())
    state.terminal.answer(prompt_table(prompts, state.terminal.columns) or f"{state.phrases.no_prompts}\n")


async def fill_prompt(state: ChatState, rest: str) -> None:
    """Fill a server's prompt and have the model answer it."""
    name, *words = split_words(rest) or [""]
    if not name:
        state.need("/prompt")
        return
    await state.answer(state.app.reply_prompt(state.conversation, name, read_pairs(words), state.options))
