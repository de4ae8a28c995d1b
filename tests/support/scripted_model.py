"""A ``ChatModel`` that plays a script, for tests of the loop: one list of events per round."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel

from rkllm_mcp.events import ModelEvent, Source, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, EventSink, Turn


@dataclass
class Round:
    """One round: events, and how it ends."""

    events: Sequence[ModelEvent]
    error: Exception | None = None
    cut: bool = False
    never_ends: bool = False


@dataclass
class ScriptedModel:
    """Plays ``rounds`` and keeps what it was asked, and the conversations that it was told to forget."""

    rounds: list[Round]
    asked: list[tuple[list[Message], tuple[str, ...], ModelOptions]] = field(
        default_factory=list[tuple[list[Message], tuple[str, ...], ModelOptions]]
    )
    forgotten: list[str] = field(default_factory=list[str])

    def over(self, conversation_id: str) -> None:
        pass

    def forget(self, conversation_id: str) -> None:
        self.forgotten.append(conversation_id)

    def branch(self, conversation_id: str, new_id: str) -> None:
        pass

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn:
        self.asked.append((list(conversation.messages), tuple(tool.name for tool in tools), options))
        played = self.rounds.pop(0)
        text = ""
        calls: list[ToolCall] = []
        failures = tuple(event for event in played.events if isinstance(event, ToolCallFailed))
        try:
            for event in played.events:
                if isinstance(event, ToolCallDetected):
                    event = replace(event, id=conversation.next_call_id())
                    calls.append(ToolCall(event.id, event.name, event.arguments))
                elif isinstance(event, Text):
                    text += event.text
                sink.feed([event])
                await anyio.lowlevel.checkpoint()
            if played.never_ends:
                await anyio.sleep_forever()
            if played.error is not None:
                raise played.error
        finally:
            message = Message("assistant", text, calls=tuple(calls), cut=played.cut)
            conversation.add(message)
        return Turn(message, failures, has_text=bool(text.strip()))


@dataclass
class ScriptedTools:
    """A ``ToolCaller`` with a canned text per tool; a tool without one fails.

    Args:
        texts: what each tool says.
        hanging: these tools never answer.
        error: what a call raises, against the rules of the port.
        progress: each call reports this many steps first.
        sources: the passages that each tool finds.
        answering: tools whose texts answer a question as they are.
    """

    texts: dict[str, str]
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    hanging: frozenset[str] = frozenset()
    error: Exception | None = None
    progress: int = 0
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict[str, tuple[Source, ...]])
    answering: Collection[str] = ()

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        self.calls.append(call)
        context.announce()
        await anyio.lowlevel.checkpoint()
        for step in range(self.progress if context.on_progress else 0):
            assert context.on_progress is not None
            await context.on_progress(float(step), float(self.progress), None)
        if call.name in self.hanging:
            await anyio.sleep_forever()
        if self.error is not None:
            raise self.error
        if call.name not in self.texts:
            return ToolResult(call.id, call.name, "it broke\nbadly", is_error=True)
        text, is_answer = self.texts[call.name], call.name in self.answering
        return ToolResult(call.id, call.name, text, sources=self.sources.get(call.name), is_answer=is_answer)
