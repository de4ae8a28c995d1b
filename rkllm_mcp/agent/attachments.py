"""``@server:uri`` in a message becomes what the resource holds, beside the user's words.

    Compare @notes:memo://monday with @notes:memo://tuesday.
    ─▶ words:   Compare [resource notes:memo://monday] with [resource notes:memo://tuesday].
       context: [resource notes:memo://monday] …  [end of resource] [resource notes:memo://tuesday] …

Rules: an ``@`` that no server's name follows is left as it is; ``@server:<uri>`` takes any address, without brackets
one ends at white space, and before what is no part of it: punctuation at the end, or text that follows without a space,
as Japanese does. All resources of a message share one size. One that cannot be read ends the answer before the model
runs: an answer without what was asked about would be made up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.events import ResourceRead, Status
from rkllm_mcp.offers import Resource, ResourceContent

END = "[end of resource]"
LEFT_OUT = "(left out: the resources before it have taken all the room there is)"
# What RFC 3986 lets an address consist of.
_ADDRESS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
_BEHIND_AN_ADDRESS = ".,;:!?)]'"
# What is mentioned behind so many has no room in any prompt.
_MOST_MENTIONS = 1000


class ResourceSource(Protocol):
    """What attachments need of the servers."""

    def server_names(self) -> tuple[str, ...]:
        """The servers that a message may name."""
        ...

    async def resources(self, server: str | None = None) -> tuple[Resource, ...]:
        """The resources of a server."""
        ...

    async def read_resource(
        self, reference: str, limit_chars: int = ..., context: CallContext = NO_CONTEXT
    ) -> ResourceContent:
        """Read ``server:uri``; raises ToolboxError when it cannot be read."""
        ...


@dataclass(frozen=True)
class Attached:
    """A message with its resources.

    Args:
        text: the user's words, each mention as the heading of its resource.
        context: the resources, for the model to read before the words; empty when there are none.
        references: what was read, as ``server:uri``.
    """

    text: str
    context: str = ""
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Mention:
    start: int
    end: int
    reference: str


async def attach(
    text: str, source: ResourceSource, limit_chars: int, emit: Emit, context: CallContext = NO_CONTEXT
) -> Attached:
    """Read what a message mentions.

    Args:
        text: the user's words.
        source: whose resources they are.
        limit_chars: how much of all resources together goes in, characters.
        emit: is told of each resource that was read.
        context: the circumstances, for a server that asks meanwhile.

    Raises:
        ToolboxError: one cannot be read; the sentence names it.
    """
    mentions = await _mentions(text, source)
    contents: dict[str, ResourceContent] = {}
    left = limit_chars
    for mention in mentions:
        if mention.reference in contents:
            continue
        content = await source.read_resource(mention.reference, max(1, left), context)
        contents[mention.reference] = content
        left -= len(content.text) if left > 0 else 0
        await emit(ResourceRead(content.uri))
        await emit(Status(f"[MCP: Fetched resource: {content.uri}]"))
    if not mentions:
        return Attached(text)
    return Attached(_with_headings(text, mentions), _blocks(contents, limit_chars), tuple(contents))


def block_of(reference: str, text: str) -> str:
    """A resource between its heading and its end."""
    # The end is a promise of ours; what a server says must not be able to give it.
    return f"{_heading(reference)}\n{text.replace('[end of', '[ end of')}\n{END}"


def _heading(reference: str) -> str:
    return f"[resource {reference}]"


def _blocks(contents: dict[str, ResourceContent], limit_chars: int) -> str:
    blocks: list[str] = []
    left = limit_chars
    for reference, content in contents.items():
        blocks.append(block_of(reference, content.text if left > 0 else LEFT_OUT))
        left -= len(content.text)
    return "\n".join(blocks)


def _with_headings(text: str, mentions: Sequence[_Mention]) -> str:
    parts: list[str] = []
    end = 0
    for mention in mentions:
        parts += [text[end : mention.start], _heading(mention.reference)]
        end = mention.end
    return "".join([*parts, text[end:]])


async def _mentions(text: str, source: ResourceSource) -> list[_Mention]:
    servers = sorted(source.server_names(), key=len, reverse=True)
    if "@" not in text or not servers:
        return []
    # Not inside a word: user@notes:x is an address of another kind.
    pattern = re.compile(rf"(?<![A-Za-z0-9._%+-])@({'|'.join(map(re.escape, servers))}):(?:<([^<>\n]+)>|(\S+))")
    found: list[_Mention] = []
    for match in islice(pattern.finditer(text), _MOST_MENTIONS):
        server, bracketed, run = match.groups()
        uri = bracketed or await _address(run, server, source)
        if uri:
            end = match.end() if bracketed else match.start(3) + len(uri)
            found.append(_Mention(match.start(), end, f"{server}:{uri}"))
    return found


async def _address(run: str, server: str, source: ResourceSource) -> str:
    """The address at the beginning of ``run``, which goes on to the next white space."""
    match = _ADDRESS.match(run)
    plain = match[0].rstrip(_BEHIND_AN_ADDRESS) if match else ""
    if plain == run:
        return plain
    # Only the server knows whether what follows belongs to it.
    listed = [resource.uri for resource in await source.resources(server) if run.startswith(resource.uri)]
    return max(listed, key=len, default=plain)
