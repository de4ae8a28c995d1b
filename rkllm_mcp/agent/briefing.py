"""What goes before the model answers: the tools of the answer, and what the question's turn says beside the words.

    servers' instructions ─┐
    news about tools ──────┼─▶ the turn's context ─▶ the user's words ─▶ model
    auto_context_tools ────┘

Rule: what the first question settles (system text, list of tools) stays for the whole conversation, because it stands
at the front of the KV cache; everything later is added behind what was said. Nothing is settled before all of it is
known, so a question that is stopped here leaves the conversation as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rkllm_mcp.agent.asking import Asked
from rkllm_mcp.agent.auto_context import Finding, gather_context
from rkllm_mcp.agent.finding import Finder, ToolCaller
from rkllm_mcp.agent.instructions import ResponseInstructions, instruct
from rkllm_mcp.agent.offer import TWO_STEPS_NOTE, Offer
from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.agent.selection import Selection
from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.events import Event
from rkllm_mcp.messages import Conversation, ToolSpec


async def unheard(event: Event) -> None:
    """Take an event that nobody wants to see."""
    del event


class Tools(ToolCaller, Protocol):
    """What the agent needs of a toolbox."""

    def system_instructions(self) -> Sequence[str]:
        """The ``system_instruction`` of every server that is there."""
        ...

    def response_instruction(self, name: str) -> str:
        """The ``response_instruction`` that belongs to a tool; empty when there is none."""
        ...

    def auto_context_tools(self) -> Sequence[ToolSpec]:
        """The tools to call with every question."""
        ...


@dataclass(frozen=True)
class Brief:
    """All that one answer begins with.

    Args:
        offer: the tools the model is shown and may call.
        caller: what runs calls.
        context: what the question's turn says before the words; empty when there is nothing.
        instructions: what is said after tools have answered, less what the turn said already.
    """

    offer: Offer
    caller: ToolCaller
    context: str
    instructions: ResponseInstructions


@dataclass(frozen=True)
class Assignment:
    """What one answer is to do.

    Args:
        asked: the question.
        tools: the tools that the answer may use; none switches them off.
        forced: the name of the tool that the answer begins with.
    """

    asked: Asked
    tools: Sequence[ToolSpec]
    forced: str | None = None


class Briefing:
    """Prepares the answers of an assistant.

    Args:
        tools: every server's tools.
        selection: chooses those that a conversation is shown.
    """

    def __init__(self, tools: Tools, selection: Selection) -> None:
        self._tools = tools
        self._selection = selection

    def beginnings(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, ...]]:
        """Write the system text that a new conversation would get, and tell what its list of tools begins with."""
        if not tools:
            return [()]
        instruct(conversation, self._standing_instructions())
        return self._selection.beginnings(tools)

    async def prepare(
        self,
        conversation: Conversation,
        assignment: Assignment,
        context: CallContext = NO_CONTEXT,
        emit: Emit = unheard,
    ) -> Brief:
        """Settle what the answer needs; the conversation may get a system text and its list of tools.

        Args:
            conversation: without the question.
            assignment: what is asked, and with which tools.
            context: what accompanies calls.
            emit: takes status lines.
        """
        instructions = ResponseInstructions(self._tools.response_instruction)
        if not assignment.tools:
            return Brief(Offer(()), self._tools, assignment.asked.told_with_it, instructions)
        findings = await self._findings(assignment, context, emit)
        news = await self._tell_tools(conversation, assignment)
        told = instruct(conversation, self._standing_instructions())
        asked = instructions.after(finding.tool for finding in findings)
        parts = filter(None, (told, news, assignment.asked.told_with_it, *map(_quoted, findings), *asked))
        offer = self._offer(conversation, assignment)
        return Brief(offer, self._caller(conversation, assignment), "\n\n".join(parts), instructions)

    def _standing_instructions(self) -> list[str]:
        own = [TWO_STEPS_NOTE] if self._selection.settings.two_steps else []
        return [*self._tools.system_instructions(), *own]

    async def _findings(self, assignment: Assignment, context: CallContext, emit: Emit) -> list[Finding]:
        allowed = {tool.name for tool in assignment.tools}
        wanted = [tool for tool in self._tools.auto_context_tools() if tool.name in allowed]
        return await gather_context(wanted, assignment.asked.text, self._tools, context, emit) if wanted else []

    async def _tell_tools(self, conversation: Conversation, assignment: Assignment) -> str:
        """Settle the list of a new conversation; what a later one has to be told."""
        if conversation.listed_tools:
            return await self._selection.news(conversation, assignment.asked.text, assignment.tools, assignment.forced)
        # A conversation that goes on after a restart is listed what its first question would have been.
        first = next((message.text for message in conversation.messages if message.role == "user"), "")
        request = f"{first}\n{assignment.asked.text}" if first else assignment.asked.text
        conversation.listed_tools = await self._selection.choose(request, assignment.tools, assignment.forced)
        return ""

    def _offer(self, conversation: Conversation, assignment: Assignment) -> Offer:
        """Everything that may be called: what the conversation knows, as it is now, and the rest."""
        listed, told = conversation.listed_tools or (), conversation.told_tools
        tools = {tool.name: tool for tool in (*told.values(), *assignment.tools)}
        return Offer(listed, list(tools.values()), told, two_steps=self._selection.settings.two_steps)

    def _caller(self, conversation: Conversation, assignment: Assignment) -> ToolCaller:
        find = self._selection.finder_of(conversation)
        if find is None:
            return self._tools
        return Finder(self._tools, self._selection.search, find, assignment.tools, conversation.told_tools)


def _quoted(finding: Finding) -> str:
    # The last line is a promise of ours; what a tool says must not be able to give it.
    text = finding.text.replace("[End of", "[ End of")
    return f"[What {finding.tool.name} says to the following question]\n{text}\n[End of {finding.tool.name}]"
