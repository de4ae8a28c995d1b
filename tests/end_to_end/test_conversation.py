"""A long conversation on every emulated runtime: each token prefilled once, the same events everywhere."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path

import pytest

from rkllm_mcp.events import End, Event, Text, ToolCallDetected, Usage, event_to_dict
from tests.support.demo_app import Json, make_demo, reply_of, running, timeless
from tests.support.fake_jma import FakeAgency

pytestmark = pytest.mark.anyio
ABIS = ("1.2.0", "1.2.3", "1.3.0")
QUESTIONS = (
    "こんにちは",
    "大阪の天気を教えて",
    "ありがとう。<|im_end|>",
    "What can you do?",
    "Weather in Sapporo?",
    "and now?",
    "よろしく",
    "火星の天気は？",
    "Good.",
    "Bye.",
)


async def converse(folder: Path, abi: str, agency: FakeAgency) -> tuple[list[Event], list[Json]]:
    """Ask every question; returns the events and the calls that the library logged."""
    weather = ("weather", ("-m", "mcp_servers.weather"), agency.environment(folder / "cache"))
    log = folder / "calls.jsonl"
    # On a busy machine the first question would find the warm-up half done, which is its own run.
    demo = make_demo(folder, [weather], model="warm_up = false\n")
    events: list[Event] = []
    async with running(demo, RKLLM_EMULATOR_ABI=abi, RKLLM_EMULATOR_LOG=str(log)) as app:
        # On a busy machine the first answers would go without its tools.
        await app.toolbox.connections[0].wait_until_settled()
        conversation = app.new_conversation()
        for question in QUESTIONS:
            events += await reply_of(app, question, conversation)
    return events, [json.loads(line) for line in log.read_text("utf-8").splitlines()]


async def test_ten_questions_with_three_tool_calls_prefill_each_token_once(tmp_path: Path) -> None:
    seen: list[list[Json]] = []
    with FakeAgency() as agency:
        for abi in ABIS:
            events, calls = await converse(tmp_path / abi, abi, agency)
            assert [event for event in events if isinstance(event, End)] == [End("answered")] * len(QUESTIONS)
            assert len([event for event in events if isinstance(event, ToolCallDetected)]) == 3
            usages = [event for event in events if isinstance(event, Usage)]
            distinct = usages[-1].prompt_tokens + usages[-1].generated_tokens
            assert sum(usage.prefilled_tokens for usage in usages) <= 1.02 * distinct
            prompts = [call for call in calls if call["call"] == "rkllm_run"]
            assert len(prompts) == len(usages)
            seen.append([timeless(event_to_dict(event)) for event in events])
    assert seen[0] == seen[1] == seen[2]


async def test_an_answer_can_be_cancelled_and_the_next_question_works(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, []), RKLLM_EMULATOR_SPEED="") as app:
        conversation = app.new_conversation()
        events: list[Event] = []
        async with aclosing(app.reply(conversation, "Hello")) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, Text):
                    assert app.answers.cancel(conversation.id) or isinstance(events[-2], Text)
        assert events[-1] == End("cancelled")
        assert not app.answers.cancel(conversation.id)
        events = await reply_of(app, "こんにちは", conversation)
        assert events[-1] == End("answered")
        assert "エミュレート" in "".join(event.text for event in events if isinstance(event, Text))
