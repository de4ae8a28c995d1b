"""An answer may be left, stopped or cut off at any moment: it ends clearly, and the next question works."""

from __future__ import annotations

import random
import re
from contextlib import aclosing
from itertools import product
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.errors import ModelNotFoundError, UsageError
from rkllm_mcp.events import End, Event, Status, Text, ToolFinished, Usage
from rkllm_mcp.messages import Conversation
from tests.support.demo_app import TIME_SERVER, Demo, make_demo, own_processes, reply_of, running
from tests.support.demo_model import DEMO_FOLDER
from tests.support.emulator import EVERY_VERSION
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
QUESTION = "What time is it in London?"


def assert_ready(conversation: Conversation) -> None:
    for message, following in zip(conversation.messages, [*conversation.messages[1:], None], strict=True):
        if message.calls:
            assert following is not None
            assert [result.call_id for result in following.results] == [call.id for call in message.calls]


async def test_no_run_waits_for_the_next_round_of_an_answer_that_ended_in_its_tool(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, [TIME_SERVER])) as app:
        await app.ready()
        for leaves in (True, False):
            conversation = app.new_conversation()
            announced = False
            async with aclosing(app.reply(conversation, QUESTION)) as stream:
                async for event in stream:
                    if isinstance(event, Status) and event.text.startswith("[MCP: Detected"):
                        announced = bool(app.model_host.board.engine.expected_tokens)
                        if leaves:
                            break
                        app.answers.cancel(conversation.id)
            assert announced
            assert not app.model_host.board.engine.expected_tokens


async def test_an_answer_may_be_left_or_stopped_at_any_event_and_its_one_end_says_so(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, [TIME_SERVER])) as app:
        await app.ready()
        whole = await reply_of(app, QUESTION)
        assert any(isinstance(event, ToolFinished) for event in whole)
        for number, how in product(range(len(whole)), ("left", "stopped", "stopped while it is pushed")):
            conversation = app.new_conversation()
            if how == "left":
                async with aclosing(app.reply(conversation, QUESTION)) as stream:
                    for _ in range(number):
                        await anext(stream)
                assert not app.answers.cancel(conversation.id)
            else:
                seen, is_cancelled = await stopped_at(app, conversation, number, pushed="pushed" in how)
                ends = [event for event in seen if isinstance(event, End)]
                assert ends == seen[-1:]
                assert ends[0].reason == ("cancelled" if is_cancelled else "answered")
            assert_ready(conversation)
            assert (await reply_of(app, "Hello", conversation))[-1] == End("answered")


async def stopped_at(app: App, conversation: Conversation, number: int, *, pushed: bool) -> tuple[list[Event], bool]:
    """Return the events of an answer that is cancelled at one of them, and the result of the cancellation."""
    seen: list[Event] = []
    results: list[bool] = []

    def take(event: Event) -> None:
        if len(seen) == number:
            results.append(app.answers.cancel(conversation.id))
        seen.append(event)

    if pushed:
        await app.answer(conversation, QUESTION, FunctionSink(take))
    else:
        async with aclosing(app.reply(conversation, QUESTION)) as stream:
            async for event in stream:
                take(event)
    return seen, results == [True]


async def test_an_answer_that_is_stopped_before_it_began_ends_as_cancelled(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, [])) as app:
        conversation = app.new_conversation()
        ends: list[Event] = []

        async def read() -> None:
            ends.extend(await reply_of(app, "Hello", conversation))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            while not app.answers.cancel(conversation.id):
                await anyio.lowlevel.checkpoint()
        assert ends == [End("cancelled")]
        assert (await reply_of(app, "Hello", conversation))[-1] == End("answered")


async def test_an_answer_whose_reader_stalls_can_be_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, []), RKLLM_EMULATOR_SPEED="") as app:
        stalled = app.new_conversation()
        async with aclosing(app.reply(stalled, "Hello")) as stream:
            await anext(stream)
            assert app.answers.cancel(stalled.id)
            assert (await reply_of(app, "Hello"))[-1] == End("answered")
            rest = [event async for event in stream]
        assert rest[-1] == End("cancelled")


async def test_closing_ends_an_answer_under_way_for_its_reader(tmp_path: Path) -> None:
    seen: list[Event] = []
    has_begun = anyio.Event()

    async def read(app: App) -> None:
        async with aclosing(app.reply(app.new_conversation(), "Hello")) as stream:
            async for event in stream:
                seen.append(event)
                if isinstance(event, Text):
                    has_begun.set()

    async with anyio.create_task_group() as readers, running(make_demo(tmp_path, []), RKLLM_EMULATOR_SPEED="") as app:
        readers.start_soon(read, app)
        await has_begun.wait()
    assert seen[-1] == End("interrupted")
    assert own_processes() == set()
    with pytest.raises(UsageError, match="this assistant is closed"):
        await reply_of(app, "Hello")


async def test_closing_does_not_wait_for_a_reader_who_stalls(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, []), RKLLM_EMULATOR_SPEED="") as app:
        stream = app.reply(app.new_conversation(), "Hello")
        await anext(stream)
    assert [event async for event in stream][-1] == End("interrupted")


async def test_an_answer_that_is_pushed_is_over_when_its_end_comes(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, [TIME_SERVER])) as app:
        conversation = app.new_conversation()
        seen: list[Event] = []
        is_answering: list[bool] = []

        @FunctionSink
        def sink(event: Event) -> None:
            seen.append(event)
            is_answering.append(app.answers.is_making(conversation.id))

        await app.answer(conversation, QUESTION, sink)
        assert is_answering == [True] * (len(is_answering) - 1) + [False]
        assert [event for event in seen if isinstance(event, End)] == seen[-1:] == [End("answered")]
        pulled = await reply_of(app, QUESTION)
        said = ["".join(event.text for event in each if isinstance(event, Text)) for each in (seen, pulled)]
        # The tool tells the time, which goes on between the two.
        pushed_text, pulled_text = (re.sub(r"\d\d:\d\d:\d\d on \d{4}-\d\d-\d\d", "", text) for text in said)
        assert pushed_text == pulled_text != ""


@pytest.mark.parametrize("how", ["cancel", "close", "leave"])
async def test_an_answer_that_is_pushed_ends_with_its_cancellation(tmp_path: Path, how: str) -> None:
    seen: list[Event] = []
    is_over = anyio.Event()
    async with anyio.create_task_group() as callers, running(make_demo(tmp_path, []), RKLLM_EMULATOR_SPEED="") as app:
        conversation = app.new_conversation()
        has_begun = anyio.Event()

        @FunctionSink
        def sink(event: Event) -> None:
            seen.append(event)
            if isinstance(event, Text):
                has_begun.set()

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                await app.answer(conversation, "Hello", sink)
            is_over.set()

        scope = anyio.CancelScope()
        callers.start_soon(ask, scope)
        await has_begun.wait()
        if how == "leave":
            scope.cancel()
        elif how == "cancel":
            assert app.answers.cancel(conversation.id)
        if how != "close":
            await is_over.wait()
            assert not app.answers.is_making(conversation.id)
            assert (await reply_of(app, "こんにちは", conversation))[-1] == End("answered")
    ends = [event for event in seen if isinstance(event, End)]
    reason = "interrupted" if how == "close" else "cancelled"
    assert ends == ([] if how == "leave" else [End(reason)])
    assert own_processes() == set()


@pytest.mark.parametrize("error", [KeyError("mine"), ModelNotFoundError("none", "")])
async def test_an_error_of_the_caller_comes_out_as_it_is(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        async with running(make_demo(tmp_path, [TIME_SERVER])):
            raise error
    assert caught.value is error
    assert own_processes() == set()


async def test_a_tokenizer_that_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "demo"
    folder.mkdir(parents=True)
    for name in ("model.toml", "demo.rkllm"):
        (folder / name).write_bytes((DEMO_FOLDER / name).read_bytes())
    demo = make_demo(tmp_path, [])
    environment = {**demo.environment, "RKLLM_MCP_MODELS": str(tmp_path / "models")}
    whole = (DEMO_FOLDER / "tokenizer.json").read_text("utf-8")
    without = whole.replace("<|im_start|>", "<|im_begin|>")
    for text, complaint in (("{}", "cannot be read"), (without, r"has no token <\|im_start\|>")):
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        with pytest.raises(ModelNotFoundError, match=complaint):
            async with running(Demo(demo.folder, environment)):
                raise AssertionError("it must not open")


async def test_a_model_that_cannot_be_loaded_is_the_end_of_each_answer_and_nothing_else(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [])
    broken = Demo(demo.folder, {**demo.environment, "RKLLM_EMULATOR_FAULTS": "init-fails"})
    async with running(broken) as app:
        for _ in range(2):
            conversation = app.new_conversation()
            before = list(conversation.messages)
            events = await reply_of(app, "Hello", conversation)
            assert isinstance(events[-1], End)
            assert events[-1].reason == "failed"
            assert "model" in str(events[-1].error)
            assert conversation.messages == before


@pytest.mark.parametrize("abi", EVERY_VERSION)
async def test_answers_stopped_in_the_middle_cost_nothing_twice_on_any_runtime(tmp_path: Path, abi: str) -> None:
    demo = make_demo(tmp_path, [TIME_SERVER])
    timed = Demo(demo.folder, {**demo.environment, "RKLLM_EMULATOR_ABI": abi})
    source = random.Random(abi)
    async with running(timed) as app:
        conversation = app.new_conversation()
        usages: list[Usage] = []
        for number in range(24):
            stop_at = source.choice([None, 1, 2, 5, 9])
            seen = 0
            async with aclosing(app.reply(conversation, source.choice([QUESTION, "Hello", "こんにちは"]))) as stream:
                async for event in stream:
                    assert not (isinstance(event, Status) and event.text.startswith("[NPU: prefilled")), number
                    seen += 1
                    if seen == stop_at:
                        app.answers.cancel(conversation.id)
                    if isinstance(event, Usage):
                        usages.append(event)
            assert_ready(conversation)
        # What was prefilled by answers that were stopped is in the cache as well, and in no figure.
        assert sum(usage.prefilled_tokens for usage in usages) <= 1.02 * usages[-1].prompt_tokens
