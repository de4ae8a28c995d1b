"""A run that costs more than its ledger says is told; nothing else is."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.events import Usage
from rkllm_mcp.messages import Conversation, Message
from tests.support.scripted_world import END, ENDINGS, WEATHER, World, called
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio


async def answers_at_once(world: World, *conversations: Conversation) -> None:
    async def one(conversation: Conversation) -> None:
        async with aclosing(events_of(world.model, conversation, [WEATHER])) as events:
            async for event in events:
                world.events.append(event)
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for conversation in conversations:
            group.start_soon(one, conversation)


async def test_answers_that_wait_for_each_other_raise_no_alarm_and_hide_none() -> None:
    world = World(reports=False)
    conversations = [Conversation() for _ in range(3)]
    for _ in range(3):
        world.engine.answers[:] = [f"Answer.{END}"] * 3
        for conversation in conversations:
            conversation.add(Message("user", "Hi?"))
        await answers_at_once(world, *conversations)
    assert world.excesses() == []
    usages = [event for event in world.events if isinstance(event, Usage)]
    # Without a runtime that counts, the expectation is the count; what is shared with the run before is not paid.
    assert sorted(usage.prefilled_tokens for usage in usages) == sorted(world.engine.prefilled)


async def test_a_cache_that_is_lost_while_answers_wait_is_still_noticed() -> None:
    world = World()
    first, second = Conversation(), Conversation()
    world.engine.answers[:] = [f"Answer.{END}"] * 3
    first.add(Message("user", "Hi?"))
    await answers_at_once(world, first)
    world.engine.forget()
    for conversation in (first, second):
        conversation.add(Message("user", "And?"))
    await answers_at_once(world, first, second)
    assert len(world.excesses()) == 1


@pytest.mark.parametrize(("overhead_tokens", "alarms"), [(1, 0), (2, 0), (3, 1), (40, 1)])
async def test_a_token_more_or_less_raises_no_alarm(overhead_tokens: int, alarms: int) -> None:
    world = World(overhead_tokens=overhead_tokens)
    conversation = Conversation()
    for question in ("First?", "Second?"):
        await world.ask(conversation, question, f"Yes.{END}")
    assert len(world.excesses()) == alarms


async def test_a_cache_lost_in_a_failed_run_is_not_reported() -> None:
    world = World()
    conversation = Conversation()
    await world.ask(conversation, "First?", *ENDINGS["a run that fails in the middle"])
    world.engine.forget()
    await world.ask(conversation, "Second?", f"Yes.{END}")
    assert world.excesses() == []


async def test_an_answer_that_calls_a_tool_announces_the_run_that_brings_the_result() -> None:
    world = World()
    conversation = Conversation()
    await world.ask(conversation, "Weather?", f"{called('Tokyo')}{END}", f"Sunny.{END}")
    (expected,) = world.engine.expected
    assert expected[:-1] == world.engine.evaluated[0]
    assert world.engine.prompts[1][: len(expected) - 1] == expected[:-1]


async def test_an_announced_run_is_withdrawn_when_its_own_answer_is_over() -> None:
    world = World()
    conversation = Conversation()
    await world.ask(conversation, "Weather?", f"{called('Tokyo')}{END}", f"Sunny.{END}")
    world.model.over("another")
    assert world.engine.cancelled == []
    for _ in range(2):
        world.model.over(conversation.id)
        assert world.engine.cancelled == world.engine.expected
