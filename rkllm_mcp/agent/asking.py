"""What a person asks becomes turns for the model: words with the resources they name, or a server's prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rkllm_mcp.agent.attachments import ResourceSource, attach
from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.events import Status
from rkllm_mcp.messages import Message
from rkllm_mcp.offers import FilledPrompt

# A prompt that ends with the assistant's turn has begun an answer, which the model takes up.
GO_ON = "Go on."


class PromptSource(Protocol):
    """What prompts need of the servers."""

    async def fill_prompt(
        self, reference: str, arguments: Mapping[str, str], context: CallContext = NO_CONTEXT
    ) -> FilledPrompt:
        """Fill a prompt; raises ToolboxError when it cannot be had."""
        ...


@dataclass(frozen=True)
class Asked:
    """A question, ready for the loop.

    Args:
        text: the words of the turn to answer.
        told_with_it: what the model reads before the words, in the same turn.
        preceding: turns that come before it and were not said yet.
    """

    text: str
    told_with_it: str = ""
    preceding: tuple[Message, ...] = ()


async def ask_in_words(text: str, source: ResourceSource, limit_chars: int, emit: Emit, context: CallContext) -> Asked:
    """The question of a person's words, with the resources they name as ``@server:uri``; see ``attachments.attach``."""
    attached = await attach(text, source, limit_chars, emit, context)
    return Asked(attached.text, attached.context)


async def ask_by_prompt(
    reference: str, arguments: Mapping[str, str], source: PromptSource, emit: Emit, context: CallContext
) -> Asked:
    """The question that a server's prompt makes of ``arguments``.

    Raises:
        ToolboxError: there is no such prompt, an argument is missing or unknown, or the server refuses.
    """
    filled = await source.fill_prompt(reference, arguments, context)
    template = filled.template
    await emit(Status(f"[MCP: Using prompt template '{template.name}' from server '{template.server}']"))
    if filled.messages[-1].role != "user":
        return Asked(GO_ON, preceding=filled.messages)
    return Asked(filled.messages[-1].text, preceding=filled.messages[:-1])
