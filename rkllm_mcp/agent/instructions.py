"""Instructions of the host and of servers, and the context that each turn adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rkllm_base.own_words import asks_on, with_earlier_words
from rkllm_mcp.agent.facts import last_question
from rkllm_mcp.agent.handlers import ResponseInstructions
from rkllm_mcp.agent.offers import NO_OFFER, Offer, offer_of, offer_of_all
from rkllm_mcp.agent.question import Question, gather_context
from rkllm_mcp.agent.tool_set import ToolCaller, ToolFinder, ToolSelection, ToolSet
from rkllm_mcp.catalogue import translate
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.text import LANGUAGES, Language, language_of_text


def instruct(conversation: Conversation, instructions: Sequence[str]) -> str:
    """Add new instructions to the system text of a conversation without a question yet.

    Returns:
        The instructions that have to go into the next turn instead; usually none.
    """
    messages = conversation.messages
    earlier_texts = [message.text if message.role == "system" else message.context for message in messages]
    new = [instruction for instruction in instructions if not any(instruction in text for text in earlier_texts)]
    if not new or any(message.role != "system" for message in messages):
        return "\n".join(new)
    person = next((message.context for message in messages), "")
    system = Message(
        "system", "\n\n".join([*(message.text for message in messages if message.text), *new]), context=person
    )
    conversation.messages[:] = [system]
    return ""


class TurnTools(ToolCaller, Protocol):
    """The part of a toolbox that the agent uses."""

    def system_instructions(self) -> Sequence[str]:
        """Return the ``system_instruction`` of every connected server."""
        ...

    def response_instruction(self, name: str) -> str:
        """Return the ``response_instruction`` for a tool, or an empty text."""
        ...

    async def shares_in_data(self, question: str) -> Mapping[str, float]:
        """Return by tool which part of a question's own words its data has, from 0 to 1, of tools that have data."""
        ...

    def auto_context_tools(self) -> Sequence[ToolSpec]:
        """Return the tools to call with every question."""
        ...


@dataclass(frozen=True)
class PreparedTurn:
    """Everything that an answer needs before its first round."""

    tool_set: ToolSet  # listed and callable tools
    caller: ToolCaller
    context: str  # precedes the question in its turn; may be empty
    instructions: ResponseInstructions  # without those that the turn contains already
    offer: Offer | None = None  # the tools that the question is shown with; None where they are listed
    passages: tuple[str, ...] = ()  # in the context, the best first


@dataclass(frozen=True)
class TurnRequest:
    """A question and the tools for its answer."""

    asked: Question
    tools: Sequence[ToolSpec]  # empty switches tools off
    # of the responses; a forced tool is that of the first one
    options: ModelOptions = field(default_factory=ModelOptions)


@dataclass(eq=False)
class TurnPreparation:
    """Prepares the answers of an assistant; ``selection`` chooses the listed tools of a conversation.

    ``language`` is that of its instructions.
    """

    tools: TurnTools
    selection: ToolSelection
    language: Language = "en"

    def beginnings(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, ...]]:
        """Write the system text of a new conversation and return the possible beginnings of its tool list."""
        if not tools:
            return [()]
        instruct(conversation, self.tools.system_instructions())
        return self.selection.beginnings(tools)

    def have_common_words(self, text: str, values: str) -> bool:
        """Return True if two texts have a word in common that one of them writes in Japanese."""
        return self.selection.search.have_common_words(text, values)

    async def prepare(
        self,
        conversation: Conversation,
        request: TurnRequest,
        context: CallContext = NO_CONTEXT,
    ) -> PreparedTurn:
        """Prepare one answer; the conversation may get a system text and its tool list.

        ``conversation`` does not contain the question yet; the context's sink receives status lines.
        """
        instructions = ResponseInstructions(self.tools.response_instruction)
        if not request.tools:
            offer = NO_OFFER if self.selection.settings.with_question else None
            context_text = "\n\n".join(filter(None, (request.asked.context, request.asked.recalled)))
            return PreparedTurn(ToolSet(()), self.tools, context_text, instructions, offer)
        parts: list[str] = []
        passages: tuple[str, ...] = ()
        offer = NO_OFFER if self.selection.settings.with_question else None
        if not request.options.continues:
            earlier_questions = [
                message.text for message in conversation.messages if message.role == "user" and not message.foreign
            ]
            search, asked = self.selection.search, request.asked.text
            before, followed, answers = self._earlier(conversation) if offer is not None else ("", "", [])
            continued = search.continue_question(before, asked)
            if not continued and (continued := search.continue_value(answers, asked)):
                followed = ""
            words = continued or with_earlier_words(request.asked.text, earlier_questions)
            allowed = {tool.name for tool in request.tools}
            context_tools = [tool for tool in self.tools.auto_context_tools() if tool.name in allowed]
            findings = await gather_context(context_tools, words, self.tools, context) if context_tools else []
            if context_tools and not findings and offer is not None and not search.is_statement(asked):
                last = last_question(conversation)
                marks = (translate("model.found", language).split("\n")[0] for language in LANGUAGES)
                if not last.foreign and any(mark in last.context for mark in marks):
                    # It may ask more about what was found for the question before.
                    words_with_last = f"{earlier_questions[-1]}\n{asked}"
                    findings = await gather_context(context_tools, words_with_last, self.tools, context)
            passages = tuple(passage for finding in findings for passage in finding.passages)
            news = await self._tell_tools(conversation, request)
            if offer is not None:
                searched = [tool.name for tool in context_tools]
                offer = await self._offer(
                    request, words, followed, searched, has_findings=bool(findings), is_whole=bool(continued)
                )
                language = language_of_text(asked)
                offer = replace(offer, language=language, words=continued or asked)
            standing = instruct(conversation, self.tools.system_instructions())
            server_instructions = instructions.after(finding.tool for finding in findings)
            # The last line marks the end of a tool's text, which must not be able to contain it.
            beginning, end = translate("model.found", language_of_text(asked)).split("\n")
            escaped = end.replace("[", "[ ")
            quotes = [f"{beginning}\n{finding.text.replace(end, escaped)}\n{end}" for finding in findings]
            parts = [
                standing,
                news,
                request.asked.context,
                *quotes,
                *server_instructions,
                request.asked.recalled,
            ]
        elif not conversation.listed_tools:
            # The prompt stays as it is; after a restart the conversation gets its tool list again.
            await self._tell_tools(conversation, request)
        # Callable are those that the conversation knows, in their current form, and the others.
        tools = {tool.name: tool for tool in (*conversation.revealed_tools.values(), *request.tools)}
        tool_set = ToolSet(conversation.listed_tools or (), list(tools.values()))
        caller: ToolCaller = self.tools
        if (find := self.selection.finder_of(conversation)) is not None:
            caller = ToolFinder(caller, self.selection.search, find, request.tools, conversation.revealed_tools)
        return PreparedTurn(tool_set, caller, "\n\n".join(filter(None, parts)), instructions, offer, passages)

    def _earlier(self, conversation: Conversation) -> tuple[str, str, list[str]]:
        """Return the last question with a call, with what it left out, the tool of that call, and all answers."""
        question = tool = asked = ""
        answers: list[str] = []
        for message in conversation.messages:
            if message.role == "user" and not message.foreign:
                asked = message.text
            elif message.calls:
                if asked:
                    question = self.selection.search.continue_question(question, asked) or asked
                tool, asked = message.calls[-1].name, ""
            elif message.role == "assistant" and message.text.strip():
                answers.append(message.text)
        return question, tool, answers

    async def _offer(
        self,
        request: TurnRequest,
        words: str,
        before: str,
        searched: Sequence[str],
        *,
        has_findings: bool,
        is_whole: bool,
    ) -> Offer:
        """Return the offer for a question; ``before`` is the tool of the question that it may continue.

        ``searched`` names the tools that were called with its words already, with or without findings; ``is_whole`` is
        True if the words of the question were completed by a value.
        """
        tools, choice, text = request.tools, request.options.tool_choice, request.asked.text
        if request.options.forced_tool is not None:
            return offer_of_all([tool for tool in tools if tool.name == request.options.forced_tool])
        if choice == "none":
            return NO_OFFER
        search = self.selection.search
        followed = ""
        if words != text:
            # It is about what was asked before, if it asks at all.
            if not is_whole and not asks_on(text) and not search.kinds(text):
                return NO_OFFER
            followed = before
        # Those on demand are found with find_tools, which there is only in a list.
        offered = [tool for tool in tools if not (tool.name in searched or tool.on_demand or tool.is_helper)]
        evidence = await search.evidence(words, offered, await self.tools.shares_in_data(words))
        if choice == "required":
            ranked = sorted(evidence, key=lambda candidate: -candidate.words)
            return offer_of_all([candidate.tool for candidate in ranked])
        offer = offer_of(evidence, followed)
        if followed and words.endswith(f"\n{text}"):
            # It only looks like a follow-up if its own words and values ask for another tool.
            alone = offer_of(await search.evidence(text, offered, await self.tools.shares_in_data(text)))
            offer = alone if alone.begins not in {"", followed} and alone.guesses[0].has_value else offer
        # With passages in its turn a question is answered from them, unless it has a value for a tool.
        best = offer.guesses[0] if offer.begins else None
        return offer if not has_findings or (best is not None and best.has_value) else NO_OFFER

    async def _tell_tools(self, conversation: Conversation, request: TurnRequest) -> str:
        """Choose the tool list of a new conversation; return the tools that a later turn has to describe."""
        forced = request.options.forced_tool
        if conversation.listed_tools:
            return await self.selection.news(conversation, request.asked.text, request.tools, forced)
        # A conversation restored after a restart gets the tool list of its first question.
        first = next((message.text for message in conversation.messages if message.role == "user"), "")
        query = f"{first}\n{request.asked.text}" if first else request.asked.text
        conversation.listed_tools = await self.selection.choose(query, request.tools, forced)
        return ""
