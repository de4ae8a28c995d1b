"""The system text, server instructions, and the context that each turn adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rkllm_mcp.agent.question import ContextResult, Question, gather_context
from rkllm_mcp.agent.tool_set import TWO_STEPS_NOTE, ToolCaller, ToolFinder, ToolSelection, ToolSet
from rkllm_mcp.events import Event
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, EmitEvents

DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful assistant that runs on a small board. Answer briefly. When a tool can give the answer, call it; "
    "never make up what a tool would say."
)
ANSWER_IN_THE_QUESTIONS_LANGUAGE = "Answer in the language of the question."
LANGUAGE_NAMES: Mapping[str, str] = {"ja": "Japanese", "en": "English"}


def system_text(system_prompt: str | None = None, language: str | None = None) -> str:
    """The system text of a conversation.

    Args:
        system_prompt: the owner's words; the project's own when None. Given, they are used as they are.
        language: the language to answer in, as a code (``ja``) or a name; the question's when None.
    """
    if system_prompt is not None and language is None:
        return system_prompt
    wanted = f"Answer in {LANGUAGE_NAMES.get(language, language)}." if language else ANSWER_IN_THE_QUESTIONS_LANGUAGE
    return f"{DEFAULT_SYSTEM_PROMPT if system_prompt is None else system_prompt} {wanted}"


def instruct(conversation: Conversation, instructions: Sequence[str]) -> str:
    """Tell a conversation what it was not told yet: in its system text before its first question, else by the result.

    Args:
        conversation: whose first message, the system text, may grow.
        instructions: what has to be known, in the order of the servers.

    Returns:
        what has to go into the turn that comes next; usually nothing.
    """
    messages = conversation.messages
    said = [message.text if message.role == "system" else message.context for message in messages]
    new = [instruction for instruction in instructions if not any(instruction in text for text in said)]
    if not new or any(message.role != "system" for message in messages):
        return "\n".join(new)
    system = Message("system", "\n\n".join([*(message.text for message in messages), *new]))
    conversation.replace([system])
    return ""


class ResponseInstructions:
    """What has to be said after tools have answered: each server's instruction once.

    Args:
        of_tool: the ``response_instruction`` that belongs to a tool, by its name; empty when there is none.
    """

    def __init__(self, of_tool: Callable[[str], str] = lambda _: "") -> None:
        self._of_tool = of_tool
        self._said: set[str] = set()

    def after(self, tools: Iterable[ToolSpec]) -> list[str]:
        """The instructions of these tools' servers that were not said yet."""
        new: list[str] = []
        for tool in tools:
            instruction = self._of_tool(tool.name)
            if instruction and tool.server not in self._said:
                self._said.add(tool.server)
                new.append(instruction)
        return new


async def unheard(events: Sequence[Event]) -> None:
    """Discard events."""
    del events


class TurnTools(ToolCaller, Protocol):
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
class PreparedTurn:
    """All that one answer begins with.

    Args:
        offer: the tools the model is shown and may call.
        caller: what runs calls.
        context: what the question's turn says before the words; empty when there is nothing.
        instructions: what is said after tools have answered, less what the turn said already.
    """

    offer: ToolSet
    caller: ToolCaller
    context: str
    instructions: ResponseInstructions


@dataclass(frozen=True)
class TurnRequest:
    """What one answer is to do.

    Args:
        asked: the question.
        tools: the tools that the answer may use; none switches them off.
        forced: the name of the tool that the answer begins with.
    """

    asked: Question
    tools: Sequence[ToolSpec]
    forced: str | None = None


class TurnPreparation:
    """Prepares the answers of an assistant.

    Args:
        tools: every server's tools.
        selection: chooses those that a conversation is shown.
    """

    def __init__(self, tools: TurnTools, selection: ToolSelection) -> None:
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
        assignment: TurnRequest,
        context: CallContext = NO_CONTEXT,
        emit: EmitEvents = unheard,
    ) -> PreparedTurn:
        """Settle what the answer needs; the conversation may get a system text and its list of tools.

        Args:
            conversation: without the question.
            assignment: what is asked, and with which tools.
            context: what accompanies calls.
            emit: takes status lines.
        """
        instructions = ResponseInstructions(self._tools.response_instruction)
        if not assignment.tools:
            return PreparedTurn(ToolSet(()), self._tools, assignment.asked.told_with_it, instructions)
        findings = await self._findings(assignment, context, emit)
        news = await self._tell_tools(conversation, assignment)
        told = instruct(conversation, self._standing_instructions())
        asked = instructions.after(finding.tool for finding in findings)
        parts = filter(None, (told, news, assignment.asked.told_with_it, *map(_quoted, findings), *asked))
        offer = self._offer(conversation, assignment)
        return PreparedTurn(offer, self._caller(conversation, assignment), "\n\n".join(parts), instructions)

    def _standing_instructions(self) -> list[str]:
        own = [TWO_STEPS_NOTE] if self._selection.settings.two_steps else []
        return [*self._tools.system_instructions(), *own]

    async def _findings(self, assignment: TurnRequest, context: CallContext, emit: EmitEvents) -> list[ContextResult]:
        allowed = {tool.name for tool in assignment.tools}
        wanted = [tool for tool in self._tools.auto_context_tools() if tool.name in allowed]
        return await gather_context(wanted, assignment.asked.text, self._tools, context, emit) if wanted else []

    async def _tell_tools(self, conversation: Conversation, assignment: TurnRequest) -> str:
        """Settle the list of a new conversation; what a later one has to be told."""
        if conversation.listed_tools:
            return await self._selection.news(conversation, assignment.asked.text, assignment.tools, assignment.forced)
        # A conversation that goes on after a restart is listed what its first question would have been.
        first = next((message.text for message in conversation.messages if message.role == "user"), "")
        request = f"{first}\n{assignment.asked.text}" if first else assignment.asked.text
        conversation.listed_tools = await self._selection.choose(request, assignment.tools, assignment.forced)
        return ""

    def _offer(self, conversation: Conversation, assignment: TurnRequest) -> ToolSet:
        """Everything that may be called: what the conversation knows, as it is now, and the rest."""
        listed, told = conversation.listed_tools or (), conversation.told_tools
        tools = {tool.name: tool for tool in (*told.values(), *assignment.tools)}
        return ToolSet(listed, list(tools.values()), told, two_steps=self._selection.settings.two_steps)

    def _caller(self, conversation: Conversation, assignment: TurnRequest) -> ToolCaller:
        find = self._selection.finder_of(conversation)
        if find is None:
            return self._tools
        return ToolFinder(self._tools, self._selection.search, find, assignment.tools, conversation.told_tools)


def _quoted(finding: ContextResult) -> str:
    # The last line is a promise of ours; what a tool says must not be able to give it.
    text = finding.text.replace("[End of", "[ End of")
    return f"[What {finding.tool.name} says to the following question]\n{text}\n[End of {finding.tool.name}]"
