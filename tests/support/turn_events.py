"""Events one by one: of a model's turn as an async generator, and of an answer for a function of one event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import cast

import anyio

from rkllm_mcp.events import Event, ModelEvent
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, ToolSpec
from rkllm_mcp.protocols import ChatModel, EmitEvents


async def events_of(
    model: ChatModel, conversation: Conversation, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
) -> AsyncGenerator[ModelEvent, None]:
    """The events of one turn; it waits while an event is looked at, and leaving early cancels it."""
    send, receive = anyio.create_memory_object_stream[tuple[Event, anyio.Event]](0)

    async def emit(events: Sequence[Event]) -> None:
        for event in events:
            taken = anyio.Event()
            await send.send((event, taken))
            await taken.wait()

    async def respond() -> None:
        with send:
            await model.respond(conversation, tools, options or ModelOptions(), emit)

    turn = asyncio.ensure_future(respond())
    try:
        with receive:
            async for event, taken in receive:
                yield cast("ModelEvent", event)
                taken.set()
        await turn
    finally:
        turn.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await turn


def one_by_one(take: Callable[[Event], Awaitable[None]]) -> EmitEvents:
    """An ``EmitEvents`` that hands its events to ``take`` one by one."""

    async def emit(events: Sequence[Event]) -> None:
        for event in events:
            await take(event)

    return emit
