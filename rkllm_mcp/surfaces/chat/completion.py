"""Completion of a line of the chat with Tab.

    /re            ─▶ /resources, /resource                     commands, at the beginning
    /prompt na     ─▶ the prompts of the servers; then their arguments and the values that the server suggests
    @no            ─▶ @notes:  ─▶ @notes:memo://monday          servers, then their resources and templates
    get_           ─▶ get_weather                               tools, anywhere

Servers are asked in the background for at most ``PATIENCE_S``; a server that does not answer suggests nothing. Results
are not cached, because a server's list may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.errors import StoreError, ToolboxError
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.surfaces.chat.commands import COMMANDS

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import Assistant
    from rkllm_mcp.messages import PromptTemplate, ResourceTemplate


# Time limit of a completion; people type on after it, seconds.
PATIENCE_S = 3.0


class Completions:
    """Completion of lines for one assistant; servers are asked with ``context``."""

    def __init__(self, app: Assistant, context: CallContext = NO_CONTEXT) -> None:
        self._app = app
        self._context = context

    async def complete(self, text: str) -> tuple[str, list[str]]:
        """Return the last word of ``text`` and its completions."""
        if text.startswith("/") and " " not in text:
            return text, _beginning(text, COMMANDS)
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        with anyio.move_on_after(PATIENCE_S):
            try:
                return word, await self._names(text, word)
            except (ToolboxError, StoreError):
                return word, []
        return word, []

    async def _names(self, text: str, word: str) -> list[str]:
        toolbox = self._app.toolbox
        command, *words = text.split() or [""]
        given = words if not word else words[:-1]
        if word.startswith("@"):
            return [f"@{reference}" for reference in await self._references(word[1:])]
        if command == "/resource" and not given:
            return await self._references(word)
        if command == "/resources" and not given:
            return _beginning(word, toolbox.offerings.server_names())
        if command == "/prompt":
            return await self._prompt(word, given)
        if command in ("/enable", "/disable") and not given:
            names = [tool.name for tool in toolbox.tools(disabled=command == "/enable")]
            return _beginning(word, [*names, *(server.name for server in toolbox.servers())])
        if command == "/resume" and not given:
            kept = await self._app.store.conversations.matching(self._app.tenant, word)
            return [conversation.id for conversation in kept]
        if command == "/approve":
            return await self._approvals(word, given)
        return _beginning(word, [tool.name for tool in toolbox.tools()]) if word else []

    async def _prompt(self, word: str, given: Sequence[str]) -> list[str]:
        prompts = await self._app.toolbox.offerings.prompts(context=self._context)
        names = prompt_names(prompts)
        if not given:
            return _beginning(word, names)
        prompt = names.get(given[0])
        if prompt is None:
            return []
        values = dict(pair.split("=", 1) for pair in given[1:] if "=" in pair)
        argument, equals, value = word.partition("=")
        if not equals:
            left = [f"{each.name}=" for each in prompt.arguments if each.name not in values]
            return _beginning(word, left)
        offerings, reference = self._app.toolbox.offerings, prompt.reference
        ideas = await offerings.complete_prompt(reference, argument, value, values, self._context)
        return [f"{argument}={_quoted(idea)}" for idea in ideas]

    async def _approvals(self, word: str, given: Sequence[str]) -> list[str]:
        if not given:
            return _beginning(word, ["forget"])
        remembered = await self._app.store.grants.all()
        return _beginning(word, sorted({tool for _, tool, _ in remembered}))

    async def _references(self, begun: str) -> list[str]:
        """Return each ``server:uri`` that begins with the typed text."""
        offerings = self._app.toolbox.offerings
        server, colon, uri = begun.partition(":")
        if not colon:
            return _beginning(begun, [f"{name}:" for name in offerings.server_names()])
        if server not in offerings.server_names():
            return []
        uris = [resource.uri for resource in await offerings.resources(server, self._context)]
        for template in await offerings.templates(server, self._context):
            uris += await self._from_template(template, uri)
        return [f"{server}:{name}" for name in _beginning(uri, dict.fromkeys(uris))]

    async def _from_template(self, template: ResourceTemplate, uri: str) -> list[str]:
        """Complete the address of a template with one blank."""
        head, opening, rest = template.uri_template.partition("{")
        blank, _, tail = rest.partition("}")
        if not opening or "{" in tail:
            return []
        if not uri.startswith(head):
            # The person has not come to the blank yet.
            return [head] if head.startswith(uri) else []
        name, typed = blank.lstrip("+#"), uri[len(head) :]
        ideas = await self._app.toolbox.offerings.complete_resource(
            template.server, template.uri_template, name, typed, None, self._context
        )
        return [f"{head}{idea}{tail}" for idea in ideas]


def prompt_names(prompts: Iterable[PromptTemplate]) -> Mapping[str, PromptTemplate]:
    """Return prompts by name: the short name if it is unique, otherwise with the server."""
    prompts = tuple(prompts)
    names = [prompt.name for prompt in prompts]
    return {(prompt.name if names.count(prompt.name) == 1 else prompt.reference): prompt for prompt in prompts}


def _beginning(word: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(word)]


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value
