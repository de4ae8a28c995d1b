"""Prompt, engine and detector joined into one model."""

from __future__ import annotations

import threading
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import ModelEvent, Prefill, Status, Text, ToolCallDetected, ToolCallFailed, Usage
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.providers.prefill_progress import PrefillProgress
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from rkllm_mcp.tasks import run_costly
from tests.support.demo_model import demo_vocabulary
from tests.support.scripted_engine import Play, ScriptedEngine
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio
LOCATION = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
WEATHER = ToolSpec("get_weather", "Weather", LOCATION)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Tokyo"}}\n</tool_call><|im_end|>'


def model_of(*answers: str | Exception | Play, **engine: int | bool) -> tuple[RkllmModel, ScriptedEngine]:
    scripted = ScriptedEngine(demo_vocabulary(), list(answers), **engine)  # pyright: ignore[reportArgumentType]
    template = TEMPLATES["qwen2.5"]
    return RkllmModel(scripted, ModelForm(demo_vocabulary(), template, template.tool_form.syntaxes)), scripted


def question(text: str = "Hi") -> Conversation:
    conversation = Conversation()
    conversation.add(Message("user", text))
    return conversation


async def respond(
    model: RkllmModel, conversation: Conversation, options: ModelOptions | None = None
) -> list[ModelEvent]:
    async with aclosing(events_of(model, conversation, [WEATHER], options)) as events:
        return [event async for event in events]


def joined(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


async def test_an_answer_streams_and_becomes_a_turn_without_its_stop_token() -> None:
    model, engine = model_of("Hello there.<|im_end|>")
    conversation = question()
    events = await respond(model, conversation)
    assert joined(events) == "Hello there."
    assert conversation.messages[-1] == Message("assistant", "Hello there.")
    assert isinstance(events[-1], Usage)
    assert events[-1].prompt_tokens == events[-1].prefilled_tokens == len(engine.prompts[0])
    assert demo_vocabulary().controls.get("<|im_end|>") in engine.options[0].stop_ids


@pytest.mark.parametrize(("seconds", "is_told"), [(4.0, True), (0.5, False), (None, False)])
async def test_a_long_prefill_is_announced_before_it_begins(seconds: float | None, is_told: bool) -> None:
    scripted = ScriptedEngine(demo_vocabulary(), ["Hello there.<|im_end|>"])
    template = TEMPLATES["qwen2.5"]
    form = ModelForm(demo_vocabulary(), template, template.tool_form.syntaxes)
    events = await respond(RkllmModel(scripted, form, PrefillProgress(lambda _: seconds)), question())
    told = [event for event in events if isinstance(event, Prefill)]
    assert told == ([Prefill(len(scripted.prompts[0]), 4.0)] if is_told else [])
    assert events[0] == told[0] if is_told else joined(events[:1])


async def test_encoding_a_prompt_waits_for_the_work_of_other_requests_and_leaves_it_when_it_is_cancelled() -> None:
    begin, order = threading.Event(), list[str]()
    model, engine = model_of("Hello.<|im_end|>")

    def count() -> None:
        begin.wait(60)
        order.append(f"counted before {len(engine.prompts)} prompts")

    async def ask() -> None:
        await respond(model, question())
        order.append("answered")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_costly, count)
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0):
                await respond(model_of("None.")[0], question("cancelled"))
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            begin.set()
    assert order == ["counted before 0 prompts", "answered"]


async def test_a_runtime_that_prefills_more_than_expected_is_reported() -> None:
    model, engine = model_of("One.<|im_end|>", "Two.<|im_end|>")
    conversation = question()
    await respond(model, conversation)
    engine.forget()
    conversation.add(Message("user", "more"))
    events = await respond(model, conversation)
    total = len(engine.prompts[1])
    (status,) = [event for event in events if isinstance(event, Status)]
    assert status.text.startswith(f"[NPU: prefilled {total} of {total} tokens where ")


async def test_a_run_that_is_left_is_known_by_what_its_prompt_needed_evaluating() -> None:
    model, engine = model_of("Yes.<|im_end|>", "one two three", Play(hangs=True), "never")
    conversation, other = question("word " * 50), question()
    await respond(model, conversation)
    assert conversation.unpaid_tokens == len(engine.prompts[0])
    conversation.add(Message("user", "And now?"))
    async with aclosing(events_of(model, conversation, [WEATHER])) as events:
        assert isinstance(await anext(events), Text)
    assert conversation.unpaid_tokens == engine.prefilled[1] < 20
    conversation.add(Message("user", "word " * 30))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond, model, conversation)
            await engine.hanging.wait()
            # It waits for the engine, and nothing of it is read.
            tasks.start_soon(respond, model, other)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert (conversation.unpaid_tokens, other.unpaid_tokens) == (engine.prefilled[2], 0)
    assert engine.prefilled[2] > 30


async def test_a_prompt_that_does_not_fit_is_refused_before_the_npu_sees_it_and_others_go_on_meanwhile() -> None:
    model, engine = model_of("never", context_tokens=300)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        with pytest.raises(PromptTooLongError, match="at least"):
            await respond(model, question("word " * 100_000))
        tasks.cancel_scope.cancel()
    assert turns > 0
    assert engine.prompts == []


async def test_parts_left_out_to_fit_are_reported() -> None:
    model, _ = model_of("ok<|im_end|>", context_tokens=700)
    conversation = Conversation()
    for _ in range(10):
        conversation.add(Message("user", "word " * 30))
        conversation.add(Message("assistant", "yes"))
    conversation.add(Message("user", "last"))
    events = await respond(model, conversation)
    assert isinstance(events[0], Status)
    assert events[0].text.startswith("[Context: left out the ")
    assert events[0].text.endswith(" to fit 700 tokens]")


async def test_a_forced_call_is_completed_by_the_model() -> None:
    model, _ = model_of('{"location": "Tokyo"}}\n</tool_call><|im_end|>')
    conversation = question()
    events = await respond(model, conversation, ModelOptions(tool_choice=ForcedTool("get_weather")))
    assert [(e.name, e.arguments) for e in events if isinstance(e, ToolCallDetected)] == [
        ("get_weather", {"location": "Tokyo"})
    ]
    assert joined(events) == ""


async def test_a_call_the_token_limit_cut_is_a_failure_with_its_text() -> None:
    model, _ = model_of(CALL)
    conversation = question()
    events = await respond(model, conversation, ModelOptions(max_new_tokens=12))
    (failed,) = [event for event in events if isinstance(event, ToolCallFailed)]
    assert failed.raw.startswith("<tool_call>")
    assert conversation.messages[-1].cut
