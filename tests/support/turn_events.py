"""Events one by one: of a model's turn as an async generator, and of an answer for a function of one event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import cast

from rkllm_mcp.app.answer import EventQueue
from rkllm_mcp.events import Event, ModelEvent
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, ToolSpec
from rkllm_mcp.protocols import ChatModel


async def events_of(
    model: ChatModel, conversation: Conversation, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
) -> AsyncGenerator[ModelEvent, None]:
    """The events of one turn; leaving early cancels it."""
    queue = EventQueue()

    async def respond() -> None:
        try:
            await model.respond(conversation, tools, options or ModelOptions(), queue)
        finally:
            queue.close()

    turn = asyncio.ensure_future(respond())
    try:
        while events := await queue.next_events():
            for event in events:
                yield cast("ModelEvent", event)
        await turn
    finally:
        turn.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await turn


class FunctionSink:
    """An ``EventSink`` that hands its events to a function one by one."""

    def __init__(self, take: Callable[[Event], object]) -> None:
        self._take = take

    def feed(self, batch: Sequence[Event]) -> None:
        for event in batch:
            self._take(event)

    async def drain(self) -> None:
        await asyncio.sleep(0)
