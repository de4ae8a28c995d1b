"""Rounds of one answer: their limits, their outcome, and who handles their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from rkllm_mcp.agent.tool_runner import Parallel
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.events import EndReason, Event, Text
from rkllm_mcp.generation import ForcedTool
from rkllm_mcp.messages import ToolResult, ToolSpec
from rkllm_mcp.protocols import EventSink, Turn

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
    answers_from: AnswersFrom = "conversation"


@dataclass(frozen=True)
class RoundOutcome:
    """Outcome of a round; without ``results`` the round is the end of the answer."""

    results: tuple[ToolResult, ...] = ()  # returned to the model
    notes: tuple[str, ...] = ()  # follow the results
    has_news: bool = False  # True if a call had a new result
    without_tools: WithoutTools = ""  # its calls are not made
    begins: ForcedTool | None = None  # the tool whose call the host begins in the next round


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

    def shown(self, event: Event, *, may_call: bool) -> Event | None:
        """Return the event to emit during a round; None for no event."""
        ...

    async def resolve(self, turn: Turn) -> RoundOutcome:
        """Handle the calls and failures of a turn."""
        ...


class ResponseInstructions:
    """Instructions that follow tool results, each server's once.

    ``of_tool`` returns the ``response_instruction`` for a tool's name, or an empty text.
    """

    def __init__(self, of_tool: Callable[[str], str] = lambda _: "") -> None:
        self._of_tool = of_tool
        self._sent: set[str] = set()

    def after(self, tools: Iterable[ToolSpec]) -> list[str]:
        """Return the instructions of these tools' servers that were not returned before."""
        new: list[str] = []
        for tool in tools:
            instruction = self._of_tool(tool.name)
            if instruction and tool.server not in self._sent:
                self._sent.add(tool.server)
                new.append(instruction)
        return new


class RoundCounter:
    """Rounds of one answer that are left, and rounds in a row without a new result."""

    def __init__(self, settings: LoopSettings) -> None:
        self.left = settings.max_rounds
        self._repairs = 0
        self._repair_rounds = settings.repair_rounds

    def count(self, outcome: RoundOutcome) -> None:
        """Count a round."""
        self.left -= 1
        self._repairs = 0 if outcome.has_news else self._repairs + 1

    @property
    def is_repair_limit(self) -> bool:
        """True after too many rounds in a row without a new result."""
        return self._repairs > self._repair_rounds


def end_of(turn: Turn) -> EndReason:
    """Return the reason for an end at this turn; a limit that only cut the text after a call does not count."""
    return "token_limit" if turn.is_cut and (turn.failures or not turn.calls) else "answered"


class ShownEvents:
    """The sink of one round: passes on what the handler of its calls shows."""

    def __init__(self, calls: CallHandler, sink: EventSink, *, may_call: bool = True) -> None:
        self._calls = calls
        self._sink = sink
        self._may_call = may_call
        self.drain = sink.drain

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass on the events that are shown."""
        visible: list[Event] = []
        for event in batch:
            # Nearly every event is text, which every handler shows.
            if type(event) is Text:
                visible.append(event)
            elif (visible_event := self._calls.shown(event, may_call=self._may_call)) is not None:
                visible.append(visible_event)
        if visible:
            self._sink.feed(visible)
