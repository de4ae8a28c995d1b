"""A question becomes turns: user text, ``@resources``, server prompts and the auto context tool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Protocol

from rkllm_mcp.agent.tool_set import ToolCaller, outcome
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.events import ResourceRead, Sources
from rkllm_mcp.messages import (
    FilledPrompt,
    Message,
    Picture,
    Resource,
    ResourceContent,
    ToolCall,
    ToolResult,
    ToolSpec,
    as_list,
    as_mapping,
)
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, EventSink
from rkllm_mcp.tasks import run_concurrently

END = "[end of resource]"
LEFT_OUT = "(left out: the resources before it have taken all the room there is)"
# What RFC 3986 lets an address consist of.
_ADDRESS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
_BEHIND_AN_ADDRESS = ".,;:!?)]'"
_MOST_MENTIONS = 1000  # later mentions have no room in any prompt


class ResourceSource(Protocol):
    """Port to the servers' resources."""

    connections: Mapping[str, Any]  # by the names of servers, which a message may have

    async def resources(self, server: str | None = None) -> tuple[Resource, ...]:
        """The resources of a server."""
        ...

    async def read_resource(
        self, reference: str, limit_chars: int = ..., context: CallContext = NO_CONTEXT
    ) -> ResourceContent:
        """Read ``server:uri``; raises ToolboxError when it cannot be read."""
        ...


@dataclass(frozen=True)
class Question:
    """A question, ready for the loop."""

    text: str  # the words of the turn to answer
    context: str = ""  # the model reads it before the words, in the same turn
    recalled: str = ""  # what the person wanted remembered and the question is about; the last part of the context
    preceding: tuple[Message, ...] = ()  # earlier turns that are not in the conversation yet
    foreign: bool = False  # the words are those of a server's prompt
    pictures: tuple[Picture, ...] = ()  # that belong to the words


@dataclass(frozen=True)
class _Mention:
    start: int
    end: int
    reference: str


async def attach(
    text: str, source: ResourceSource | None, limit_chars: int, context: CallContext = NO_CONTEXT
) -> Question:
    """Read the resources that a message mentions; return it with the heading of each in place of its mention.

    Without a ``source`` nothing is read. ``limit_chars`` bounds all resources together; the context's sink receives the
    events of each that was read.

    Raises:
        ToolboxError: a resource cannot be read; the message names it.
    """
    if source is None:
        return Question(text)
    mentions = await _mentions(text, source)
    blocks: dict[str, str] = {}
    remaining = limit_chars
    for mention in mentions:
        if mention.reference in blocks:
            continue
        content = await source.read_resource(mention.reference, max(1, remaining), context)
        blocks[mention.reference] = block_of(mention.reference, content.text if remaining > 0 else LEFT_OUT)
        remaining -= len(content.text)
        context.sink.feed([ResourceRead(content.uri), status_line("resource", uri=content.uri)])
    parts: list[str] = []
    end = 0
    for mention in mentions:
        parts += [text[end : mention.start], f"[resource {mention.reference}]"]
        end = mention.end
    return Question("".join([*parts, text[end:]]), "\n".join(blocks.values()))


def block_of(reference: str, text: str) -> str:
    """A resource between its heading and its end."""
    # The end is a promise of ours; what a server says must not be able to give it.
    return f"[resource {reference}]\n{text.replace('[end of', '[ end of')}\n{END}"


async def _mentions(text: str, source: ResourceSource) -> list[_Mention]:
    """Return the mentions of resources in a text, in order."""
    servers = tuple(source.connections)
    if "@" not in text or not servers:
        return []
    # Not inside a word: user@notes:x is an address of another kind.
    pattern = re.compile(rf"(?<![A-Za-z0-9._%+-])@({'|'.join(map(re.escape, servers))}):(?:<([^<>\n]+)>|(\S+))")
    mentions: list[_Mention] = []
    for match in islice(pattern.finditer(text), _MOST_MENTIONS):
        server, bracketed, run = match.groups()
        uri: str = bracketed
        if not bracketed:
            # The address at the beginning of the run, which goes on to the next white space.
            address = _ADDRESS.match(run)
            uri = address[0].rstrip(_BEHIND_AN_ADDRESS) if address else ""
            if uri != run:
                # Only the server knows whether what follows belongs to it.
                uris = [resource.uri for resource in await source.resources(server) if run.startswith(resource.uri)]
                uri = max(uris, key=len, default=uri)
        if uri:
            end = match.end() if bracketed else match.start(3) + len(uri)
            mentions.append(_Mention(match.start(), end, f"{server}:{uri}"))
    return mentions


_USUAL_NAME = "query"  # the name that most search tools give the argument


@dataclass(frozen=True)
class ContextResult:
    """The result of one ``auto_context_tool``."""

    tool: ToolSpec
    text: str
    passages: tuple[str, ...] = ()  # of a search


def text_argument(tool: ToolSpec) -> str | None:
    """Return the argument for the user's words: the only required text, else ``query``, else the only text."""
    properties = as_mapping(tool.input_schema.get("properties"))
    kinds = {name: as_mapping(schema).get("type") for name, schema in properties.items()}
    texts = [name for name, kind in kinds.items() if kind == "string" or "string" in as_list(kind)]
    required = [name for name in texts if name in tool.input_schema.get("required", ())]
    if len(required) == 1:
        return required[0]
    if _USUAL_NAME in texts:
        return _USUAL_NAME
    return texts[0] if len(texts) == 1 and not required else None


async def gather_context(
    tools: Sequence[ToolSpec], words: str, caller: ToolCaller, context: CallContext
) -> list[ContextResult]:
    """Call every tool with the user's words; return the results of those that succeeded, in the order of ``tools``."""
    results: dict[str, ToolResult] = {}

    async def call_tool(tool: ToolSpec, argument: str) -> None:
        call = ToolCall("", tool.name, {argument: words})
        # It was not chosen for these words, so nothing is to be learnt from it.
        result = await caller.call(
            call,
            replace(
                context, request="", is_automatic=True, announcement=status_line("calling", name=tool.name, call="")
            ),
        )
        results[tool.name] = result
        found = [Sources(result.sources)] if result.sources else []
        context.sink.feed([outcome(replace(result, name=tool.name)), *found])

    arguments = {tool.name: text_argument(tool) for tool in tools}
    for name in [name for name, argument in arguments.items() if argument is None]:
        context.sink.feed([status_line("no_text_taken", name=name)])
    await run_concurrently(
        partial(call_tool, tool, argument) for tool in tools if (argument := arguments[tool.name]) is not None
    )
    texts = ((tool, results[tool.name]) for tool in tools if tool.name in results)
    return [
        ContextResult(tool, result.text, tuple(source["passage"] for source in result.sources or ()))
        for tool, result in texts
        if not result.is_error and result.sources != () and result.text.strip()
    ]


# A prompt that ends with the assistant's turn has begun an answer, which the model takes up.
GO_ON = "Go on."


def question_from_prompt(filled: FilledPrompt, sink: EventSink) -> Question:
    """Return the question that a server's prompt has become, which ``sink`` is told."""
    template = filled.template
    sink.feed([status_line("prompt", name=template.name, server=template.server)])
    if filled.messages[-1].role != "user":
        return Question(GO_ON, preceding=filled.messages)
    return Question(filled.messages[-1].text, preceding=filled.messages[:-1], foreign=True)
