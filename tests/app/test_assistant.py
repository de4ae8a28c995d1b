"""The composition root: what starts, who may speak when, and that nothing is left behind."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.errors import ModelNotFoundError, UsageError
from rkllm_mcp.events import End, Status
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from tests.support.demo_app import make_demo, open_descriptors, own_processes, reply_of, running
from tests.support.emulator import EVERY_VERSION

pytestmark = pytest.mark.anyio


async def test_a_server_that_is_starting_is_announced_once(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, ())) as app:
        assert app.starting() == (Status("[NPU: Loading model 'demo']"),)
        assert app.starting() == ()
        events = await reply_of(app, "Hello")
        assert not [event for event in events if isinstance(event, Status)]


async def test_a_conversation_has_one_answer_at_a_time(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, ()), RKLLM_EMULATOR_SPEED="") as app:
        conversation = app.new_conversation()
        async with aclosing(app.reply(conversation, "Hello")) as stream:
            async for _ in stream:
                with pytest.raises(UsageError, match="an answer under way"):
                    await reply_of(app, "And?", conversation)
                break
        assert (await reply_of(app, "こんにちは", conversation))[-1] == End("answered")


async def test_the_system_text_is_the_configurations_or_the_callers(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, (), extra='[agent]\nsystem_prompt = "You are a cat."\n')) as app:
        assert [message.text for message in app.new_conversation().messages] == ["You are a cat."]
        assert [message.text for message in app.new_conversation("You are a dog.").messages] == ["You are a dog."]
        assert app.new_conversation("").messages == []


async def test_a_tool_that_is_not_there_cannot_be_forced(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, ())) as app:
        events = await reply_of(app, "Hi", options=AnswerOptions(ModelOptions(tool_choice=ForcedTool("fly"))))
        assert events[-1] == End("failed", "there is no tool 'fly'; see 'rkllm-mcp tools list'")
        options = AnswerOptions(ModelOptions(tool_choice=ForcedTool("fly")), tools=False)
        events = await reply_of(app, "Hi", options=options)
        assert events[-1].kind == "end"
        assert "switched off" in str(events[-1])


async def test_a_long_conversation_goes_on_when_the_window_is_full(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, (), model="context_tokens = 1024\n")) as app:
        conversation = app.new_conversation()
        notices = 0
        for number in range(14):
            events = await reply_of(app, f"Tell me about number {number}. " * 5, conversation)
            assert events[-1] == End("answered")
            notices += sum(isinstance(e, Status) and e.text.startswith("[Context: ") for e in events)
        assert len(conversation.messages) == 1 + 2 * 14
        assert 1 <= notices < 7


@pytest.mark.parametrize("abi", EVERY_VERSION)
async def test_a_limit_of_tokens_ends_the_answer_and_says_so(tmp_path: Path, abi: str) -> None:
    async with running(make_demo(tmp_path, ()), RKLLM_EMULATOR_ABI=abi) as app:
        conversation = app.new_conversation()
        events = await reply_of(app, "Hello", conversation, AnswerOptions(ModelOptions(max_new_tokens=5)))
        assert events[-1] == End("token_limit")
        assert (await reply_of(app, "Hello", conversation))[-1] == End("answered")


async def test_a_missing_model_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [])
    demo.config.write_text('[model]\nname = "llama-9000"\n', encoding="utf-8")
    with pytest.raises(ModelNotFoundError, match="llama-9000"):
        async with open_app(load_config(demo.config)):
            raise AssertionError("it must not open")


async def test_closing_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(2):
        async with running(make_demo(tmp_path, ())) as app:
            await app.ready()
            assert own_processes()
        assert own_processes() == set()
    assert open_descriptors() == before
