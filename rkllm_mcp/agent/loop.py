"""The agent loop: rounds of model and tools until there is an answer.

    model ─▶ text, calls ─▶ tools ─▶ results ─▶ model ─▶ … ─▶ text: the answer

* At most ``max_rounds`` rounds may call tools; then the model must answer in text. A round that only revealed the
parameters of a tool does not count.
* A call that cannot be parsed, or of an unknown tool, is returned to the model as a line that lets it correct the
call. After ``repair_rounds`` rounds in a row without a new result, the model must answer in text.
* A first round of nothing but calls that cannot be made, where no tool has to do with the question, is answered in
words.
* A round that only repeats calls whose results are there is not continued: the model answers from these results as
facts (``agent.facts``), and the repetition is left out of the conversation. So does a first round whose calls the
question does not ask for: the model answers in words. With ``answers_from`` facts come behind every result.
* A text behind a result that only says which tool could be called is no answer: it is left out of the conversation, and
the next round calls that tool. If such a text follows again, the model answers from the results as facts.
* Calls of a client's own tools are returned to the client and end the answer, as does the limit of repairs.
* A failed tool is a result for the model. An exception means that the machine failed: the answer ends as ``failed``.
* However the answer ends, every call in the conversation has a result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from rkllm_mcp.agent.call_check import CallCheck
from rkllm_mcp.agent.facts import (
    call_key,
    calls_with_results,
    facts_conversation,
    facts_of,
    hand_over,
    last_question,
    last_results,
    may_differ,
    words_conversation,
)
from rkllm_mcp.agent.failures import failure_sentence, has_failed
from rkllm_mcp.agent.instructions import ResponseInstructions, TurnPreparation, TurnRequest
from rkllm_mcp.agent.offers import Offer, card_of
from rkllm_mcp.agent.tool_runner import CallRunner, Parallel
from rkllm_mcp.agent.tool_set import ToolCaller, ToolSet
from rkllm_mcp.catalogue import status_line, translate
from rkllm_mcp.errors import GenerationError, PromptTooLongError
from rkllm_mcp.events import End, EndReason, Event, Status, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.tool_list import signature
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, ChatModel, EventSink, Turn
from rkllm_mcp.text import language_of_text, shorten

CALLS_OVER = "no more tools are run for this answer"
CALL_NOTE = "The answer has to be a call of one of the tools. Call one now."
TOGETHER_NOTE = "Call this again together with the others."


# A longer result is read in its card.
_MOST_RESULT_CHARS = 1000
_MOST_SHOWN_CHARS = 300
_FEW_PASSAGES = 2  # so many, if they are short, are shown behind the answer

AnswersFrom: TypeAlias = Literal["conversation", "facts", "sentences"]
"""What an answer after results is made of: the conversation with its tools, or the question and the results alone; a
sentence of an own tool may be the answer itself."""
WithoutTools: TypeAlias = Literal["", "facts", "words", "failure"]
"""How a round is answered instead of being continued: from the results, in words, or by the sentence that says why
calls failed; empty if it is continued."""


@dataclass(frozen=True)
class LoopSettings:
    """Limits of the loop."""

    max_rounds: int = 8  # rounds that may call tools
    repair_rounds: int = 2  # rounds in a row with only failed, unknown or repeated calls before a text answer
    parallel_tools: Parallel = "auto"  # calls of one round that run at the same time
    reveal_rounds: int | None = None  # rounds that reveal parameters and do not count; None: ``max_rounds``
    answers_from: AnswersFrom = "conversation"


@dataclass(frozen=True)
class RoundOutcome:
    """Outcome of a round; without ``results`` the round is the end of the answer."""

    results: tuple[ToolResult, ...] = ()  # returned to the model
    notes: tuple[str, ...] = ()  # follow the results
    revealed: tuple[str, ...] = ()  # tools whose parameters were revealed instead of using their calls
    has_news: bool = False  # True if a call had a new result
    without_tools: WithoutTools = ""  # its calls are not made
    forced: str = ""  # the tool that the next round calls, in place of this round
    begins: str = ""  # the tool whose call the host begins in the next round


class CallHandler(Protocol):
    """Handles the calls of one answer: ``RunCalls`` for the host's tools, ``ReturnCalls`` for a client's.

    Attributes:
        tool_set: the available tools.
        keeps_forced_tool: every round has the forced tool; otherwise the first only.
        shows_with_question: the tools are shown with the question that may need them, instead of a list.
        has_last_round: at a limit, one more round without calls follows; otherwise the answer ends.
    """

    tool_set: ToolSet
    keeps_forced_tool: bool
    has_last_round: bool
    shows_with_question: bool

    def shown(self, event: Event, *, may_call: bool, may_reveal: bool) -> Event | None:
        """Return the event to emit during a round; None for no event."""
        ...

    def known_turn(self, conversation: Conversation, sink: EventSink) -> Turn | None:
        """Add the first turn to the conversation if the host knows its call; None if the model writes it."""
        ...

    async def resolve(self, turn: Turn, *, may_reveal: bool) -> RoundOutcome:
        """Handle the calls and failures of a turn; ``may_reveal`` is False if no round to reveal parameters is left."""
        ...


class RunCalls:
    """Runs the calls on ``tools``, with ``context``; ``instructions`` follow the results.

    Calls of the first round that ``check`` finds unasked are neither shown nor run.
    """

    keeps_forced_tool = False
    has_last_round = True

    def __init__(
        self,
        tools: ToolCaller,
        tool_set: ToolSet,
        context: CallContext = NO_CONTEXT,
        parallel: Parallel = "auto",
        instructions: ResponseInstructions | None = None,
        check: CallCheck | None = None,
        offer: Offer | None = None,
        passages: Sequence[str] = (),
    ) -> None:
        self.tool_set = tool_set
        self.passages = passages
        self.offer = offer
        self.shows_with_question = offer is not None
        self._failed_rounds = 0
        self._request = context.request
        self._known: tuple[str, Mapping[str, Any]] | None = None
        self._check = check
        self._withheld: list[ToolCallDetected] = []
        self._has_forced = self._is_forced = False
        self._sink = context.sink
        self._instructions = instructions or ResponseInstructions()
        self._runner = CallRunner(tools, tool_set, context, parallel)

    def shown(self, event: Event, *, may_call: bool, may_reveal: bool) -> Event | None:
        """Return a call with its server, or as a failure in the last round; a doubtful one is withheld."""
        del may_reveal
        if not isinstance(event, ToolCallDetected):
            return event
        if not may_call:
            return ToolCallFailed(event.raw, CALLS_OVER)
        tool = self.tool_set.tool(event.name)
        event = replace(event, server=tool.server if tool else "")
        is_offered = self.offer is None or self.offer.has(event.name) or self._is_forced
        if self._withheld or not is_offered or self._is_doubtful(event):
            # The calls keep their order.
            self._withheld.append(event)
            return None
        return event

    def known_turn(self, conversation: Conversation, sink: EventSink) -> Turn | None:
        """Return the turn with the call whose arguments the question gives, the first time."""
        known, self._known = self._known, None
        if known is None:
            return None
        name, arguments = known
        event = ToolCallDetected(name, arguments, id=conversation.next_call_id())
        conversation.add(Message("assistant", calls=(ToolCall(event.id, name, arguments),)))
        sink.feed([event])
        return Turn(conversation.messages[-1])

    def _is_doubtful(self, event: ToolCallDetected) -> bool:
        is_first = self._check is not None and not self._runner.finished
        return is_first and self._check is not None and self._check.is_doubtful(event.name, event.arguments)

    async def resolve(self, turn: Turn, *, may_reveal: bool) -> RoundOutcome:
        """Run the calls."""
        del may_reveal
        withheld, self._withheld = self._withheld, []
        is_unasked = bool(withheld) and len(withheld) == len(turn.calls)
        if is_unasked and (self._check is None or await self._check.are_unasked(turn.calls)):
            return RoundOutcome(without_tools="words")
        if withheld:
            self._sink.feed(withheld)
        is_first = not self._runner.finished
        is_failure = bool(turn.failures) and not turn.calls and not turn.has_text
        is_unneeded = self._check is not None and is_first and is_failure and await self._check.fits_none()
        if is_unneeded or (is_failure and self.offer is not None and not self.offer.guesses and not self._is_forced):
            # A correction would only lead to another call.
            return RoundOutcome(without_tools="words")
        count = len(turn.calls)
        if not count and not turn.failures:
            if not turn.has_text:
                self._sink.feed([status_line("silence")])
            return self._described_call(turn)
        if count:
            self._sink.feed([status_line("detected" if count > 1 else "detected_one", count=count)])
        is_repetition = count > 0 and not turn.failures and all(map(self._runner.has_result, turn.calls))
        news_before = self._runner.news
        results = (*await self._runner.run(turn.calls), *_refusals(turn.failures))
        if results and (failure := self._after_failure(turn, results, is_repetition=is_repetition)) is not None:
            return failure
        if is_repetition:
            has_facts = any(not result.is_error for result in self._runner.finished.values())
            return RoundOutcome(without_tools="facts") if has_facts else RoundOutcome(results, without_tools="failure")
        notes = self._instructions.after(self._answering(turn.calls))
        has_news = self._runner.news > news_before
        return RoundOutcome(results, tuple(notes), tuple(self._runner.told), has_news)

    def _after_failure(self, turn: Turn, results: Sequence[ToolResult], *, is_repetition: bool) -> RoundOutcome | None:
        """Return the outcome of a round of nothing but failed calls, where the host offers the tools."""
        has_succeeded = any(not result.is_error for result in self._runner.finished.values())
        if self.offer is None or has_succeeded or not all(map(has_failed, results)):
            return None
        self._failed_rounds += 1
        tried = [call.name for call in turn.calls]
        following = self.offer.after(tried or [self.offer.begins])
        if self._failed_rounds > 1 and not self._runner.finished and not self._is_forced:
            # The host's guess is taken back: the model did not write a call in two rounds.
            return RoundOutcome(without_tools="words")
        if self._failed_rounds > 1 or is_repetition or following is None:
            return RoundOutcome(tuple(results), without_tools="failure")
        language = language_of_text(self._request)
        card = card_of(following.in_language(language))
        other = translate("model.other_tool", language, tool=signature(card))
        is_shown = following.name in tried and self.offer.arguments is None
        notes = () if is_shown else (other,)
        return RoundOutcome(tuple(results), notes, begins=following.name)

    def _described_call(self, turn: Turn) -> RoundOutcome:
        """Return the outcome of a round without calls: its end, unless it describes a call behind a result."""
        called = {result.name for result in self._runner.finished.values()}
        name = self._check.described_call(turn.message.text) if self._check is not None and called else ""
        if name and self._has_forced:
            return RoundOutcome(without_tools="facts")
        if not name or name in called:
            return RoundOutcome()
        self._has_forced = True
        return RoundOutcome(forced=name)

    def _answering(self, calls: Sequence[ToolCall]) -> Iterator[ToolSpec]:
        """Yield the tools of ``calls`` that ran without an error."""
        for call in calls:
            tool = self.tool_set.tool(call.name)
            if tool is not None and call.name not in self._runner.told and not self._runner.finished[call.id].is_error:
                yield tool

    async def ask_in_words(self, conversation: Conversation, options: ModelOptions) -> str:
        """Call the likely tools that take the user's own words, or no values, one by one, until one reads them.

        A call that fails leaves no trace in the conversation: the model writes one with arguments. The text is that of
        a result that answers the question as it is; empty for none.
        """
        if self.offer is None or self.tool_set.two_steps or options.tool_choice != "auto" or options.continues:
            return ""
        for tool in self.offer.asked_in_words():
            arguments = {tool.question_argument: self.offer.words} if tool.question_argument else {}
            call = ToolCall(conversation.next_call_id(), tool.name, arguments)
            self._sink.feed([ToolCallDetected(call.name, arguments, id=call.id, server=tool.server)])
            results = await self._runner.run([call])
            if not any(result.is_error for result in results):
                conversation.add(Message("assistant", calls=(call,)))
                notes = "\n".join(self._instructions.after([tool]))
                conversation.add(Message("tool", notes, results=tuple(results)))
                return results[0].text if results[0].is_answer and not notes else ""
        return ""

    def begun(self, options: ModelOptions) -> ModelOptions:
        """Return the options of the first round, in which the host may begin a call."""
        self._is_forced = options.tool_choice != "auto"
        if self._is_forced or self.offer is None or not self.offer.begins:
            return options
        known = self.offer.arguments
        self._known = None if known is None else (self.offer.begins, known)
        return replace(options, tool_choice=ForcedTool(self.offer.begins, opens_arguments=True))

    def close_open_calls(self, conversation: Conversation, reason: str) -> None:
        """Give every call of the last turn a result: chat templates and services require one."""
        last = conversation.messages[-1] if conversation.messages else None
        if last is not None and last.calls:
            refused = (ToolResult(call.id, call.name, reason, is_error=True) for call in last.calls)
            results = tuple(self._runner.finished.get(result.call_id, result) for result in refused)
            conversation.add(Message("tool", results=results))


class ReturnCalls:
    """Returns the calls to a client that runs its own tools; the first returned call ends the answer.

    With ``must_call``, an answer without a call is returned to the model like a failed call. Without it, a round that
    only repeats calls of the last round is not returned. A call whose parameters
    have to be revealed first is not returned, so the calls of such a tool set are withheld to the end of the round.
    """

    keeps_forced_tool = True
    has_last_round = False
    shows_with_question = False

    def __init__(self, conversation: Conversation, tool_set: ToolSet, sink: EventSink, *, must_call: bool) -> None:
        self.tool_set = tool_set
        self._conversation = conversation
        self._sink = sink
        self._must_call = must_call
        self._withheld: list[ToolCallDetected] = []
        self._with_results = frozenset[str]() if must_call else calls_with_results(conversation, tool_set.tool)

    def shown(self, event: Event, *, may_call: bool, may_reveal: bool) -> Event | None:
        """Return the event, without failed calls and without withheld calls."""
        if isinstance(event, ToolCallDetected) and not may_call:
            return None
        if isinstance(event, ToolCallDetected) and self._is_withheld(event, may_reveal=may_reveal):
            self._withheld.append(event)
            return None
        return None if isinstance(event, ToolCallFailed) else event

    def known_turn(self, conversation: Conversation, sink: EventSink) -> Turn | None:
        """Return None: a program's model writes its calls."""
        del conversation, sink

    async def resolve(self, turn: Turn, *, may_reveal: bool) -> RoundOutcome:
        """Reveal parameters, return the calls, or ask for a correction."""
        withheld, self._withheld = self._withheld, []
        if turn.calls and not turn.failures and all(map(self._is_repeated, turn.calls)):
            self._conversation.calls_made -= len(withheld)
            return RoundOutcome(without_tools="facts")
        if turn.calls:
            parameters = [self.tool_set.parameters_before(call) for call in turn.calls] if may_reveal else []
            if any(parameters):
                # The client never receives these calls, so they must not use up call ids.
                self._conversation.calls_made -= len(withheld)
                revealed = [
                    ToolResult(call.id, call.name, text or TOGETHER_NOTE)
                    for call, text in zip(turn.calls, parameters, strict=True)
                ]
                return RoundOutcome(tuple(revealed), revealed=tuple(result.name for result in revealed))
            if withheld:
                self._sink.feed(withheld)
            return RoundOutcome()
        if turn.failures or not self._must_call:
            return RoundOutcome(_refusals(turn.failures))
        return RoundOutcome((ToolResult("", "tool_call", CALL_NOTE, is_error=True),))

    def _is_withheld(self, call: ToolCallDetected, *, may_reveal: bool) -> bool:
        # The calls keep their order.
        return bool(self._withheld) or (self.tool_set.two_steps and may_reveal) or self._is_repeated(call)

    def _is_repeated(self, call: ToolCall | ToolCallDetected) -> bool:
        return call_key(call.name, call.arguments, self.tool_set.tool(call.name)) in self._with_results


async def run_agent(
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    settings: LoopSettings,
    sink: EventSink,
) -> tuple[EndReason, Turn]:
    """Run rounds until there is an answer; return the reason for its end and its last turn.

    ``conversation`` ends with the message to answer, and the rounds are added to it. A forced tool is that of the first
    round. ``sink`` receives the events, without an ``End``.

    Raises:
        PromptTooLongError: the prompt of a round does not fit.
        GenerationError: a round failed.
    """
    reason: EndReason = "round_limit"
    later = replace(options, continues=False, tool_choice=options.tool_choice if calls.keeps_forced_tool else "auto")
    counter = _RoundCounter(settings)
    while counter.left:
        if settings.answers_from != "conversation" and calls_with_results(conversation, calls.tool_set.tool):
            turn = await _answer_without_tools("facts", model, conversation, calls, later, sink)
            return _end_of(turn), turn
        filtered = _ShownEvents(calls, sink, may_reveal=counter.reveals > 0)
        options = replace(options, others=calls.tool_set.others())
        known = calls.known_turn(conversation, filtered)
        turn = known or await model.respond(conversation, calls.tool_set.listed, options, filtered)
        await sink.drained()
        is_cut = turn.is_cut and not turn.calls
        outcome = RoundOutcome() if is_cut else await calls.resolve(turn, may_reveal=counter.reveals > 0)
        if outcome.without_tools:
            turn = await _answer_instead(outcome, turn, model, conversation, calls, later, sink)
            return _end_of(turn), turn
        if outcome.forced:
            # Left in the conversation, it would be copied into the answer.
            conversation.messages.pop()
            options = replace(later, tool_choice=ForcedTool(outcome.forced))
            continue
        if not outcome.results:
            return _end_of(turn), turn
        is_reveal = counter.count(outcome)
        if counter.is_repair_limit:
            if not calls.has_last_round and later.tool_choice != "auto":
                return "answered", turn
            if not calls.has_last_round:
                conversation.messages.pop()
                turn = await _answer_without_tools("words", model, conversation, calls, later, sink)
                return _end_of(turn), turn
            conversation.add(Message("tool", _translate("model.repair_limit", conversation), results=outcome.results))
            reason = "answered"
            break
        notes = outcome.notes if counter.left else (*outcome.notes, _translate("model.round_limit", conversation))
        conversation.add(Message("tool", "\n".join(notes), results=outcome.results))
        # A single call whose parameters were revealed is made again.
        revealed = ForcedTool(outcome.revealed[0]) if is_reveal and len(turn.calls) == 1 else later.tool_choice
        begun = ForcedTool(outcome.begins, opens_arguments=True) if outcome.begins else revealed
        options = replace(later, tool_choice=begun)
    later = replace(later, others=calls.tool_set.others())
    turn = await model.respond(conversation, calls.tool_set.listed, later, _ShownEvents(calls, sink, may_call=False))
    if not turn.has_text and not turn.is_cut:
        conversation.messages.pop()
        kind = "facts" if facts_of(conversation) else "words"
        turn = await _answer_without_tools(kind, model, conversation, calls, later, sink)
    return "token_limit" if turn.is_cut else reason, turn


async def _answer_instead(
    outcome: RoundOutcome,
    turn: Turn,
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    sink: EventSink,
) -> Turn:
    """Answer in place of continuing a round: by the model without tools, or by the sentence about failed calls."""
    if outcome.without_tools == "failure":
        return _answer_with_failure(conversation, turn, outcome, calls, sink)
    repeating = conversation.messages.pop()
    # The text of a failed call was not shown.
    begun = repeating.text if turn.has_text else ""
    kind = "facts" if outcome.without_tools == "facts" else "words"
    return await _answer_without_tools(kind, model, conversation, calls, options, sink, begun)


async def _answer_without_tools(
    kind: Literal["facts", "words"],
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    sink: EventSink,
    begun: str = "",
) -> Turn:
    """Answer the last question from its results, or in words, behind the text ``begun``.

    Calls are read all the same, so that none is shown as the answer; an answer of nothing else is the results. They
    also follow an answer of the host's own loop that says something else or nothing of them.
    """
    if calls.shows_with_question:
        hand_over(conversation, facts_of(conversation) if kind == "facts" else "")
        asked = conversation
    else:
        asked = facts_conversation(conversation) if kind == "facts" else words_conversation(conversation)
    begun = begun.strip()
    options = replace(options, tool_choice="auto", others=(*calls.tool_set.listed, *calls.tool_set.others()))
    text = ""
    try:
        sink.feed([status_line(kind), *([Text("\n\n")] if begun else [])])
        turn = await model.respond(asked, (), options, _ShownEvents(calls, sink, may_call=False))
        if not turn.has_text and not turn.is_cut:
            facts = shorten(facts_of(conversation), _MOST_RESULT_CHARS)
            key = "answer.only_results" if facts else "answer.no_answer_in_rounds"
            text = _translate(key, conversation, facts=facts)
            sink.feed([Text(text)])
        elif kind == "facts" and calls.has_last_round and (more := _results_behind(turn, conversation)):
            # Not in the conversation, where small models copy its form into their next answers.
            sink.feed([Text(more)])
            await sink.drained()
    finally:
        conversation.unpaid_tokens = asked.unpaid_tokens
        last = asked.messages[-1] if asked.messages[-1].role == "assistant" else Message("assistant")
        if asked is conversation and last is conversation.messages[-1]:
            conversation.messages.pop()
        text = "\n\n".join(filter(None, (begun, text or last.text)))
        conversation.add(replace(last, text=text, calls=()))
    return replace(turn, message=conversation.messages[-1], failures=())


def _answer_with_failure(
    conversation: Conversation, turn: Turn, outcome: RoundOutcome, calls: CallHandler, sink: EventSink
) -> Turn:
    """Answer with the reason why no tool could; the model reads nothing of the failed calls later."""
    results = [*last_results(conversation), *outcome.results]
    conversation.add(Message("tool", results=outcome.results))
    hand_over(conversation, "")
    text = failure_sentence(results, calls.tool_set.tool, language_of_text(last_question(conversation).text))
    sink.feed([Text(text)])
    conversation.add(Message("assistant", text))
    return replace(turn, message=conversation.messages[-1], failures=(), has_text=True)


def _results_behind(turn: Turn, conversation: Conversation) -> str:
    """Return the results to show behind an answer from them that may differ; empty if it does not."""
    answer, facts = turn.message.text.strip(), facts_of(conversation)
    passages = [source["passage"] for result in last_results(conversation) for source in result.sources or ()]
    if passages and answer:
        return _passages_behind(passages, conversation)
    is_data = answer.startswith(("{", "["))
    if is_data or not facts or not may_differ(answer, facts, last_question(conversation).text):
        return ""
    return _translate("answer.result", conversation, facts=shorten(facts, _MOST_SHOWN_CHARS))


def _passages_behind(passages: Sequence[str], conversation: Conversation) -> str:
    """Return the best passages for a person: a small model takes the number of another one."""
    first, *others = passages[:_FEW_PASSAGES]
    is_short = sum(map(len, passages[:_FEW_PASSAGES])) <= _MOST_SHOWN_CHARS
    shown = [first, *others] if is_short else [shorten(first, _MOST_SHOWN_CHARS)]
    return _translate("answer.result", conversation, facts="\n".join(shown))


def _translate(key: str, conversation: Conversation, **values: str) -> str:
    """Return a sentence in the language of the last question."""
    return translate(key, language_of_text(last_question(conversation).text), **values)


class _RoundCounter:
    """Rounds of one answer that are left, and rounds in a row without a new result."""

    def __init__(self, settings: LoopSettings) -> None:
        self.left = settings.max_rounds
        self.reveals = settings.max_rounds if settings.reveal_rounds is None else settings.reveal_rounds
        self._repairs = 0
        self._repair_rounds = settings.repair_rounds

    def count(self, outcome: RoundOutcome) -> bool:
        """Count a round; return True if it only revealed parameters and none of the limited rounds is used up."""
        if outcome.revealed and self.reveals:
            self.reveals -= 1
            return True
        self.left -= 1
        self._repairs = 0 if outcome.has_news else self._repairs + 1
        return False

    @property
    def is_repair_limit(self) -> bool:
        """True after too many rounds in a row without a new result."""
        return self._repairs > self._repair_rounds


def _end_of(turn: Turn) -> EndReason:
    """Return the reason for an end at this turn; a limit that only cut the text after a call does not count."""
    return "token_limit" if turn.is_cut and (turn.failures or not turn.calls) else "answered"


class _ShownEvents:
    """The sink of one round: passes on what the handler of its calls shows."""

    def __init__(self, calls: CallHandler, sink: EventSink, *, may_call: bool = True, may_reveal: bool = False) -> None:
        self._calls = calls
        self._sink = sink
        self._may_call = may_call
        self._may_reveal = may_reveal
        self.drained = sink.drained

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass on the events that are shown."""
        visible: list[Event] = []
        for event in batch:
            # Nearly every event is text, which every handler shows.
            if type(event) is Text:
                visible.append(event)
            elif (
                visible_event := self._calls.shown(event, may_call=self._may_call, may_reveal=self._may_reveal)
            ) is not None:
                visible.append(visible_event)
        if visible:
            self._sink.feed(visible)


async def answer_with_tools(
    model: ChatModel,
    conversation: Conversation,
    question: Sequence[Message],
    calls: RunCalls,
    options: ModelOptions,
    settings: LoopSettings,
    sink: EventSink,
) -> End:
    """Add a question to a conversation, answer it and return the end of the answer; else like ``run_agent``."""
    start = len(conversation.messages)
    conversation.messages.extend(question)
    reason_for_open_calls = "the user stopped the answer before this call was finished"
    try:
        sentence = await calls.ask_in_words(conversation, options)
        if sentence and settings.answers_from == "sentences":
            hand_over(conversation, "")
            conversation.add(Message("assistant", sentence))
            sink.feed([Text(sentence)])
            return End("answered")
        begun = options if _has_results(conversation, start) else calls.begun(options)
        reason, turn = await run_agent(model, conversation, calls, begun, settings, sink)
        if settings.answers_from == "sentences" and turn.has_text and not _has_results(conversation, start):
            # Not in the conversation, where small models copy its form into their next answers.
            sink.feed([Text(_passages_behind(calls.passages, conversation))] if calls.passages else [])
        reason_for_open_calls = CALLS_OVER
        return End(reason, stop_string=turn.stop_string)
    except GenerationError as error:
        if isinstance(error, PromptTooLongError) and not _has_results(conversation, start):
            # A question that does not fit is removed, so that the next one can be answered.
            conversation.replace(conversation.messages[:start])
        reason_for_open_calls = "the answer failed before this call was run"
        return End("failed", str(error), error)
    except Exception:
        reason_for_open_calls = "the answer failed before this call was finished"
        raise
    finally:
        calls.close_open_calls(conversation, reason_for_open_calls)


def _refusals(failures: Sequence[ToolCallFailed]) -> tuple[ToolResult, ...]:
    return tuple(ToolResult("", "tool_call", failure.reason, is_error=True) for failure in failures)


def _has_results(conversation: Conversation, start: int) -> bool:
    return any(message.role == "tool" for message in conversation.messages[start:])


@asynccontextmanager
async def open_turn(
    preparation: TurnPreparation,
    conversation: Conversation,
    request: TurnRequest,
    context: CallContext,
    parallel: Parallel = "auto",
) -> AsyncGenerator[tuple[Sequence[Message], RunCalls], None]:
    """Prepare tools, instructions and context for a question; yield its messages and the handler of its calls.

    With ``options.continues`` the question is already the last user message. If it does not fit, the conversation is
    left unchanged.
    """
    listed_tools, revealed = conversation.listed_tools, dict(conversation.revealed_tools)
    question = request.asked
    context = replace(context, request=question.text, untrusted_texts=conversation.untrusted_texts)
    prepared = await preparation.prepare(conversation, request, context)
    length = len(conversation.messages)
    user = Message(
        "user",
        question.text,
        context=prepared.context,
        foreign=question.foreign,
        pictures=question.pictures,
        cards=prepared.offer.cards if prepared.offer is not None else (),
    )
    if prepared.offer is not None and (line := prepared.offer.line(preparation.language)):
        context.sink.feed([Status(line)])
    messages = [] if request.options.continues else [*question.preceding, user]
    try:
        check = CallCheck(
            conversation,
            prepared.tool_set,
            preparation.fitting,
            preparation.have_common_words,
            accepts_calls=bool(request.options.tool_choice != "auto" or question.preceding or question.foreign),
        )
        yield (
            messages,
            RunCalls(
                prepared.caller,
                prepared.tool_set,
                context,
                parallel,
                prepared.instructions,
                check if prepared.offer is None else None,
                prepared.offer,
                prepared.passages,
            ),
        )
    finally:
        if messages and len(conversation.messages) == length:
            # The question was removed, and with it the tools that its turn described.
            conversation.listed_tools, conversation.revealed_tools = listed_tools, revealed
