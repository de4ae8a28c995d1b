"""The calls of a round, until their results: run here for the host's tools, returned to a client for its own.

turn ─▶ RunCalls ─▶ CallRunner ─▶ tools ─▶ results ─▶ RoundOutcome
turn ─▶ ReturnCalls ─▶ the client, or a correction for the model
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

from rkllm_mcp.agent.call_check import CallCheck
from rkllm_mcp.agent.facts import calls_with_results
from rkllm_mcp.agent.offers import IS_LIKELY, Offer, card_of
from rkllm_mcp.agent.repairs import known_arguments, required_arguments, usable_arguments
from rkllm_mcp.agent.tool_set import ToolCaller, ToolSet, outcome
from rkllm_mcp.catalogue import status_line, translate
from rkllm_mcp.events import Event, Sources, ToolCallDetected, ToolCallFailed, ToolFinished, ToolProgress
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.tool_list import signature
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, EventSink, Turn
from rkllm_mcp.tasks import run_concurrently
from rkllm_mcp.text import language_of_text

CALLS_OVER = "no more tools are run for this answer"
CALL_NOTE = "The answer has to be a call of one of the tools. Call one now."
TOGETHER_NOTE = "Call this again together with the others."
# Before the result of a call that was made before, for the model.
REPEATED = "(Called before with the same arguments; this is the same result.)\n"
# A person or the owner has decided; the model passes that on in its own words.
_DECIDED = frozenset({"deny", "never", "refused", "off", "stopped"})

Parallel: TypeAlias = bool | Literal["auto"]
"""Calls of one round that run at the same time: read-only tools (auto), all (True), none (False)."""
WithoutTools: TypeAlias = Literal["", "facts", "words", "failure"]
"""How a round is answered instead of being continued: from the results, in words, or by the sentence that says why
calls failed; empty if it is continued."""


@dataclass(frozen=True)
class RoundOutcome:
    """Outcome of a round; without ``results`` the round is the end of the answer."""

    results: tuple[ToolResult, ...] = ()  # returned to the model
    notes: tuple[str, ...] = ()  # follow the results
    has_news: bool = False  # True if a call had a new result
    without_tools: WithoutTools = ""  # its calls are not made
    begins: ForcedTool | None = None  # the tool whose call the host begins in the next round


@dataclass(eq=False)
class ResponseInstructions:
    """Instructions that follow tool results, each server's once.

    ``of_tool`` returns the ``response_instruction`` for a tool's name, or an empty text.
    """

    of_tool: Callable[[str], str] = lambda _: ""
    _sent: set[str] = field(default_factory=set[str], init=False)

    def after(self, tools: Iterable[ToolSpec]) -> list[str]:
        """Return the instructions of these tools' servers that were not returned before."""
        new: list[str] = []
        for tool in tools:
            instruction = self.of_tool(tool.name)
            if instruction and tool.server not in self._sent:
                self._sent.add(tool.server)
                new.append(instruction)
        return new


def has_failed(result: ToolResult) -> bool:
    """Return True if a call failed by itself; False if it was refused."""
    return result.is_error and result.ruling not in _DECIDED


@dataclass(eq=False)
class CallRunner:
    """Runs the calls of one answer on ``tools``, with ``context``; ``tool_set`` holds the available tools.

    * Read-only tools run at the same time. Any other call waits for those before it, and those after it wait for it;
      the configuration can choose all or none instead.
    * A repeated call with the same arguments returns the first result, also a failure: a tool that timed out would most
      likely take its whole time limit again. After a tool that may have changed something, reading again is a new call.
    * A result is stored before its event is emitted, so that a cancelled answer does not lose it.
    """

    tools: ToolCaller
    tool_set: ToolSet
    context: CallContext
    parallel: Parallel
    finished: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult], init=False)  # by call id
    news: int = field(default=0, init=False)  # number of new results
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult], init=False)  # by tool and arguments

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of a round and return their results in the order of the calls."""
        # Of calls that follow each other, those that may run at the same time.
        batches: list[list[ToolCall]] = []
        was_safe = False
        for call in calls:
            tool = self.tool_set.by_name.get(call.name)
            only_reads = tool is not None and tool.read_only is True
            is_safe = self.parallel if isinstance(self.parallel, bool) else only_reads
            if was_safe and is_safe:
                batches[-1].append(call)
            else:
                batches.append([call])
            was_safe = is_safe
        for batch in batches:
            different: dict[str, ToolCall] = {}
            for call in batch:
                different.setdefault(self.tool_set.key(call.name, call.arguments), call)
            await run_concurrently(partial(self._run_call, call) for call in different.values())
            # Repeated calls: their results are available now.
            for call in batch:
                if call.id not in self.finished:
                    await self._run_call(call)
        return [self.finished[call.id] for call in calls]

    async def _run_call(self, call: ToolCall) -> None:
        if (earlier := self.results.get(self.tool_set.key(call.name, call.arguments))) is not None:
            text = f"{REPEATED}{earlier.text}"
            result = self.finished[call.id] = replace(earlier, call_id=call.id, text=text, seconds=0.0, sources=None)
        else:
            result = await self._run_tool(call)
        self.context.sink.feed([finished_event(result), *([Sources(result.sources)] if result.sources else [])])

    async def _run_tool(self, call: ToolCall) -> ToolResult:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            self.context.sink.feed([ToolProgress(call.id, progress, total, message)])
            # A server may send progress faster than any reader takes it.
            await self.context.sink.drain()

        context = replace(
            self.context, on_progress=on_progress, announcement=status_line("calling", name=call.name, call=call.id)
        )
        tool = self.tool_set.by_name.get(call.name)
        call = replace(call, arguments=usable_arguments(call.arguments, tool))
        result = await self.tools.call(call, context)
        if has_failed(result) and tool is not None and tool.read_only:
            needed = required_arguments(call.arguments, tool, self.context.request)
            if needed != call.arguments:
                again = await self.tools.call(replace(call, arguments=needed), context)
                result = result if again.is_error else again
        self.finished[call.id] = result
        if tool is not None or not result.is_error:
            if tool is not None and tool.read_only is not True and not result.is_error:
                # Earlier readings may be out of date now.
                for key, earlier in list(self.results.items()):
                    reader = self.tool_set.by_name.get(earlier.name)
                    if reader is not None and reader.read_only:
                        del self.results[key]
            self.results[self.tool_set.key(call.name, call.arguments)] = result
            self.news += 1
        self.context.sink.feed([outcome(result, call.id)])
        return result


def finished_event(result: ToolResult) -> ToolFinished:
    """Return the event of a call that has ended."""
    seconds, ruling = round(result.seconds, 3), "" if result.ruling == "free" else result.ruling
    return ToolFinished(result.call_id, result.name, result.is_error, result.shown, seconds, result.truncated, ruling)


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
        self._check = check
        self._withheld: list[ToolCallDetected] = []
        self._is_forced = False
        self._sink = context.sink
        self._instructions = instructions or ResponseInstructions()
        self._runner = CallRunner(tools, tool_set, context, parallel)

    def shown(self, event: Event, *, may_call: bool) -> Event | None:
        """Return a call with its server, or as a failure in the last round; a doubtful one is withheld."""
        if not isinstance(event, ToolCallDetected):
            return event
        if not may_call:
            return ToolCallFailed(event.raw, CALLS_OVER)
        tool = self.tool_set.by_name.get(event.name)
        event = replace(event, server=tool.server if tool else "")
        is_offered = self.offer is None or any(guess.tool.name == event.name for guess in self.offer.guesses)
        is_offered = is_offered or self._is_forced
        # Only the calls before the first result can be doubtful.
        check = None if self._runner.finished else self._check
        if self._withheld or not is_offered or (check is not None and check.is_doubtful(event.name, event.arguments)):
            # The calls keep their order.
            self._withheld.append(event)
            return None
        return event

    async def resolve(self, turn: Turn) -> RoundOutcome:
        """Run the calls."""
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
            return RoundOutcome()
        if count:
            self._sink.feed([status_line("detected" if count > 1 else "detected_one", count=count)])
        # Running the same calls again would bring nothing new.
        keys = {self.tool_set.key(call.name, call.arguments) for call in turn.calls}
        is_repetition = count > 0 and not turn.failures and keys <= self._runner.results.keys()
        news_before = self._runner.news
        refusals = (ToolResult("", "tool_call", failure.reason, is_error=True) for failure in turn.failures)
        results = (*await self._runner.run(turn.calls), *refusals)
        has_facts = any(not result.is_error for result in self._runner.finished.values())
        if results and self.offer is not None and not has_facts and all(map(has_failed, results)):
            # Nothing but failed calls, where the host offers the tools.
            self._failed_rounds += 1
            tried = [call.name for call in turn.calls]
            following = self.offer.after(tried or [self.offer.begins])
            if self._failed_rounds > 1 and not self._runner.finished and not self._is_forced:
                # The host's guess is taken back: the model did not write a call in two rounds.
                return RoundOutcome(without_tools="words")
            if self._failed_rounds > 1 or is_repetition or following is None:
                return RoundOutcome(results, without_tools="failure")
            language = language_of_text(self._request)
            card = card_of(following.in_language(language))
            other = translate("model.other_tool", language, tool=signature(card))
            is_shown = following.name in tried
            begins = ForcedTool(following.name, opens_arguments=True)
            return RoundOutcome(results, () if is_shown else (other,), begins=begins)
        if is_repetition:
            return RoundOutcome(without_tools="facts") if has_facts else RoundOutcome(results, without_tools="failure")
        tools_of_calls = ((self.tool_set.by_name.get(call.name), call.id) for call in turn.calls)
        notes = self._instructions.after(
            tool for tool, call_id in tools_of_calls if tool is not None and not self._runner.finished[call_id].is_error
        )
        has_news = self._runner.news > news_before
        return RoundOutcome(results, tuple(notes), has_news=has_news)

    async def call_known(self, conversation: Conversation, options: ModelOptions) -> str:
        """Make the likely calls whose arguments the question gives, one by one, until one succeeds.

        A call that fails or finds nothing leaves no trace in the conversation: the model writes one. The text is that
        of a result that answers the question as it is; empty for none.
        """
        if self.offer is None or options.tool_choice != "auto" or options.continues:
            return ""
        words = self.offer.words
        for guess in self.offer.guesses if self.offer.begins else ():
            tool = guess.tool
            if guess.probability < IS_LIKELY or tool.read_only is not True:
                continue
            if tool.question_argument:
                arguments = {tool.question_argument: words}
            else:
                arguments = known_arguments(tool, words, guess.known, takes_more=guess.takes_more)
            if arguments is None:
                continue
            call = ToolCall(conversation.next_call_id(), tool.name, arguments)
            self._sink.feed([ToolCallDetected(call.name, arguments, id=call.id, server=tool.server)])
            results = await self._runner.run([call])
            if not any(result.is_error or result.sources == () for result in results):
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
        self._with_results = frozenset[str]() if must_call else calls_with_results(conversation, tool_set)

    def shown(self, event: Event, *, may_call: bool) -> Event | None:
        """Return the event, without failed calls and without withheld calls."""
        if isinstance(event, ToolCallDetected):
            if not may_call:
                return None
            # After a withheld call the others are withheld, too, so that the calls keep their order.
            is_repeated = self.tool_set.key(event.name, event.arguments) in self._with_results
            if self._withheld or self.tool_set.revealed is not None or is_repeated:
                self._withheld.append(event)
                return None
        return None if isinstance(event, ToolCallFailed) else event

    async def resolve(self, turn: Turn) -> RoundOutcome:
        """Reveal parameters, return the calls, or ask for a correction."""
        withheld, self._withheld = self._withheld, []
        keys = {self.tool_set.key(call.name, call.arguments) for call in turn.calls}
        if keys and not turn.failures and keys <= self._with_results:
            self._conversation.calls_made -= len(withheld)
            return RoundOutcome(without_tools="facts")
        if turn.calls:
            parameters = [self.tool_set.parameters_before(call) for call in turn.calls]
            if any(parameters):
                # The client never receives these calls, so they must not use up call ids.
                self._conversation.calls_made -= len(withheld)
                revealed = [
                    ToolResult(call.id, call.name, text or TOGETHER_NOTE)
                    for call, text in zip(turn.calls, parameters, strict=True)
                ]
                # A single call is made again.
                begins = ForcedTool(revealed[0].name) if len(revealed) == 1 else None
                return RoundOutcome(tuple(revealed), has_news=True, begins=begins)
            if withheld:
                self._sink.feed(withheld)
            return RoundOutcome()
        if turn.failures or not self._must_call:
            refusals = (ToolResult("", "tool_call", failure.reason, is_error=True) for failure in turn.failures)
            return RoundOutcome(tuple(refusals))
        return RoundOutcome((ToolResult("", "tool_call", CALL_NOTE, is_error=True),))


CallHandler: TypeAlias = RunCalls | ReturnCalls
"""Handles the calls of one answer.

Its ``shown`` returns the event to emit during a round, None for no event; ``resolve`` handles the calls and failures of
a turn.

Attributes:
    tool_set: the available tools.
    keeps_forced_tool: every round has the forced tool; otherwise the first only.
    shows_with_question: the tools are shown with the question that may need them, instead of a list.
    has_last_round: at a limit, one more round without calls follows; otherwise the answer ends.
"""
