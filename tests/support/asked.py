"""Questions asked the way the application asks them: preparation, then loop, on a scripted model and scripted tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools, open_turn
from rkllm_mcp.agent.question import Question
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.events import Event, ModelEvent, Status
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import CallContext, ChatModel, EventSink
from rkllm_mcp.text import Language
from rkllm_mcp.tools.search import ToolSearch
from tests.support.scripted_model import Round, ScriptedModel
from tests.support.scripted_toolbox import ScriptedToolbox
from tests.support.turn_events import FunctionSink

TOKENS_EACH = 100


def costs(tool: ToolSpec) -> int:
    """Every tool costs the same, and one without its parameters a fifth of that."""
    return TOKENS_EACH if tool.input_schema else TOKENS_EACH // 5


async def answer_question(
    model: ChatModel,
    preparation: TurnPreparation,
    conversation: Conversation,
    request: TurnRequest,
    sink: EventSink,
    settings: LoopSettings | None = None,
    language: Language | None = None,
) -> None:
    """Answer a question as the assistant does, with its ``End`` last."""
    settings, context = settings or LoopSettings(), CallContext(sink=sink, language=language)
    async with open_turn(preparation, conversation, request, context, settings.parallel_tools) as (messages, calls):
        end = await answer_with_tools(model, conversation, messages, calls, request.options, settings, sink)
    sink.feed([end])


@dataclass
class Desk:
    """An assistant with one conversation; ``ask`` returns the events of an answer."""

    toolbox: ScriptedToolbox
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(10_000))
    settings: LoopSettings = field(default_factory=LoopSettings)
    conversation: Conversation = field(default_factory=Conversation)
    model: ScriptedModel = field(default_factory=lambda: ScriptedModel([]))
    language: Language | None = None  # the person's

    async def ask(
        self, words: str, *rounds: Sequence[ModelEvent] | Round, tools: bool = True, forced: str | None = None
    ) -> list[Event]:
        self.model.rounds = [each if isinstance(each, Round) else Round(each) for each in rounds]
        events: list[Event] = []

        @FunctionSink
        def sink(event: Event) -> None:
            events.append(event)

        preparation = TurnPreparation(self.toolbox, ToolSelection(ToolSearch, costs, self.selection))
        options = ModelOptions(tool_choice=ForcedTool(forced) if forced else "auto")
        request = TurnRequest(Question(words), self.toolbox.specs if tools else (), options)
        with anyio.fail_after(60):
            conversation, settings = self.conversation, self.settings
            await answer_question(self.model, preparation, conversation, request, sink, settings, self.language)
        return events

    @property
    def questions(self) -> list[Message]:
        """The turns of the user, as the model reads them."""
        return [message for message in self.conversation.messages if message.role == "user"]

    @property
    def listed(self) -> list[tuple[str, ...]]:
        """The names of the tools in the list, for every round so far."""
        return [names for _, names, _ in self.model.asked]


def statuses(events: Sequence[Event]) -> list[str]:
    """The status lines among ``events``."""
    return [event.text for event in events if isinstance(event, Status)]
