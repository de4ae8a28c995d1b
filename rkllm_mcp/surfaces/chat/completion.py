"""Completion of a line of the chat with Tab.

    /re            ─▶ /resources, /resource                     commands, at the beginning
    /prompt na     ─▶ the prompts of the servers; then their arguments and the values that the server suggests
    @no            ─▶ @notes:  ─▶ @notes:memo://monday          servers, then their resources and templates
    @no, /file no  ─▶ @notes.txt                                files
    get_           ─▶ get_weather                               tools, anywhere

Servers are asked in the background for at most ``PATIENCE_S``; a server that does not answer suggests nothing. Results
are not cached, because a server's list may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import StoreError, ToolboxError
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.surfaces.chat.files import path_completions
from rkllm_mcp.surfaces.chat.state import SETTINGS
from rkllm_mcp.text import Language

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.chat.remote import ChatHost


# Time limit of a completion; people type on after it, seconds.
PATIENCE_S = 3.0


@dataclass(frozen=True)
class Completions:
    """Completion of lines for one assistant."""

    host: ChatHost
    context: CallContext = NO_CONTEXT  # servers are asked with it
    language: Language = "en"

    async def complete(self, text: str) -> tuple[str, Mapping[str, str]]:
        """Return the last word of ``text`` and its completions with their descriptions, which may be empty."""
        if text.startswith("/") and " " not in text:
            commands = read_catalogue(self.language).table("help.commands")
            return text, _beginning(text, {name: effect for name, (_, effect, *_) in commands.items()})
        if text.startswith("/file "):
            path_text = text.removeprefix("/file ").lstrip()
            return path_text, await anyio.to_thread.run_sync(path_completions, path_text)
        if quoted := re.search(r'(?<!\S)@"([^"]*)$', text):
            paths = await anyio.to_thread.run_sync(path_completions, quoted[1])
            return quoted[0], {_mention(path): "" for path in paths}
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        with anyio.move_on_after(PATIENCE_S):
            try:
                return word, await self._names(text, word)
            except (ToolboxError, StoreError):
                return word, {}
        return word, {}

    async def _names(self, text: str, word: str) -> Mapping[str, str]:
        command, *words = text.split() or [""]
        earlier_words = words if not word else words[:-1]
        if word.startswith("@"):
            paths = await anyio.to_thread.run_sync(path_completions, word[1:])
            references = {f"@{name}": meaning for name, meaning in (await self._references(word[1:])).items()}
            return {**references, **{_mention(path): "" for path in paths}}
        if command == "/resource" and not earlier_words:
            return await self._references(word)
        if command == "/resources" and not earlier_words:
            return _beginning(word, self.host.server_names)
        if command == "/prompt":
            return await self._prompt(word, earlier_words)
        if command in ("/enable", "/disable") and not earlier_words:
            tools = {tool.name: tool.description for tool in await self.host.tools(disabled=command == "/enable")}
            return _beginning(word, {**tools, **{server.name: server.state for server in await self.host.servers()}})
        if command == "/set" and not earlier_words:
            return _beginning(word, tuple(SETTINGS))
        if command == "/model" and not earlier_words:
            return _beginning(word, list(await self.host.models()))
        if command == "/resume" and not earlier_words:
            conversations = await self.host.store.conversations.matching(self.host.tenant, word)
            return {conversation.id: conversation.title for conversation in conversations}
        if command == "/approve":
            if not earlier_words:
                return _beginning(word, ["forget"])
            grants = sorted(await self.host.store.grants.all())
            return _beginning(word, {tool: server for server, tool, _ in grants})
        return _beginning(word, {tool.name: tool.description for tool in await self.host.tools()}) if word else {}

    async def _prompt(self, word: str, earlier_words: Sequence[str]) -> Mapping[str, str]:
        prompts = await self.host.prompts(None, self.context)
        # The short name if it is unique, otherwise with the server.
        short = [prompt.name for prompt in prompts]
        names = {(prompt.name if short.count(prompt.name) == 1 else prompt.reference): prompt for prompt in prompts}
        if not earlier_words:
            return _beginning(word, {name: offered.description for name, offered in names.items()})
        prompt = names.get(earlier_words[0])
        if prompt is None:
            return {}
        values = dict(pair.split("=", 1) for pair in earlier_words[1:] if "=" in pair)
        argument, equals, value = word.partition("=")
        if not equals:
            missing = (missing_argument for missing_argument in prompt.arguments if missing_argument.name not in values)
            return _beginning(
                word, {f"{missing_argument.name}=": missing_argument.description for missing_argument in missing}
            )
        ideas = await self.host.complete(prompt, argument, value, values, self.context)
        return {f'{argument}="{idea}"' if " " in idea else f"{argument}={idea}": "" for idea in ideas}

    async def _references(self, beginning: str) -> Mapping[str, str]:
        """Return each ``server:uri`` that begins with the typed text."""
        server, colon, uri = beginning.partition(":")
        if not colon:
            return _beginning(beginning, [f"{name}:" for name in self.host.server_names])
        if server not in self.host.server_names:
            return {}
        resources, templates = await self.host.readable(server, self.context)
        uris = {resource.uri: resource.description or resource.name for resource in resources}
        for template in templates:
            head, opening, variable_part = template.uri_template.partition("{")
            blank, _, tail = variable_part.partition("}")
            if not opening or "{" in tail:
                continue  # only an address with one blank is completed
            if uri.startswith(head):
                ideas = await self.host.complete(template, blank.lstrip("+#"), uri[len(head) :], {}, self.context)
                addresses = [f"{head}{idea}{tail}" for idea in ideas]
            else:
                addresses = [head]  # the person has not come to the blank yet
            for address in addresses:
                uris.setdefault(address, template.description or template.name)
        return {f"{server}:{name}": meaning for name, meaning in _beginning(uri, uris).items()}


def _beginning(word: str, names: Iterable[str] | Mapping[str, str]) -> Mapping[str, str]:
    """Return the names that begin with the word, with the first line of their descriptions."""
    meanings = cast("Mapping[str, str]", names if isinstance(names, Mapping) else dict.fromkeys(names, ""))
    return {name: text.strip().partition("\n")[0] for name, text in meanings.items() if name.startswith(word)}


def _mention(path: str) -> str:
    """Return a path as a question mentions it."""
    if " " not in path:
        return f"@{path}"
    # A folder is not finished yet.
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'
