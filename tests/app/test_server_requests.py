"""The whole assistant with a server that has more than tools: resources, prompts, and a question to the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from rkllm_mcp.app.assistant import PromptQuestion
from rkllm_mcp.events import End, Event, ResourceRead, Status
from rkllm_mcp.messages import Message, ToolCall
from rkllm_mcp.protocols import CallContext, FixedApprover
from tests.app.test_remote_models import words_of
from tests.support.demo_app import PythonServer, make_demo, reply_of, running

pytestmark = pytest.mark.anyio
ASKING: PythonServer = ("memos", ("-m", "tests.support.mcp_servers.asking"), {})


async def all_of(stream: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(stream) as events:
        return [event async for event in events]


async def test_a_resource_in_a_message_is_read_by_the_model(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, (ASKING,))) as app:
        conversation = app.new_conversation()
        events = await reply_of(app, "What is in @memos:memo://monday?", conversation)
        assert ResourceRead("memo://monday") in events
        assert Status("[MCP: Fetched resource: memo://monday]") in events
        assert events[-1] == End("answered")
        (question,) = [message for message in conversation.messages if message.role == "user"]
        assert question.text == "What is in [resource memos:memo://monday]?"
        assert "[resource memos:memo://monday]\nBuy milk.\n[end of resource]" in question.context


async def test_a_resource_that_cannot_be_read_ends_the_question_before_the_model_runs(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, (ASKING,))) as app:
        conversation = app.new_conversation()
        before = list(conversation.messages)
        events = await reply_of(app, "What is in @memos:memo://never?", conversation)
        (end,) = [event for event in events if isinstance(event, End)]
        assert end.reason == "failed"
        assert end.error is not None
        assert end.error.startswith("resource 'memo://never' of server 'memos' could not be read: ")
        assert conversation.messages == before
        assert words_of(await reply_of(app, "Hello", conversation)).startswith("This is the emulated model")


async def test_a_prompt_of_a_server_is_answered_as_a_conversation(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, (ASKING,))) as app:
        conversation = app.new_conversation()
        events = await all_of(app.reply(conversation, PromptQuestion("code_review", {"language": "rust"})))
        assert Status("[MCP: Using prompt template 'code_review' from server 'memos']") in events
        assert events[-1] == End("answered")
        turns = [message for message in conversation.messages if message.role != "system"]
        assert turns[:2] == [
            Message("user", "Here are the rules.\n\n[resource memo://rules]\nNo globals."),
            Message("assistant", "I have read them."),
        ]
        assert [turn.foreign for turn in turns[:4]] == [True, True, True, False]
        assert (turns[2].text, turns[3].role) == ("Review this rust code.", "assistant")
        (end,) = await all_of(app.reply(conversation, PromptQuestion("code_review")))
        assert end == End("failed", "prompt 'code_review' needs language; add language=…")


async def test_a_server_asks_the_model_on_the_npu_within_the_configured_length(tmp_path: Path) -> None:
    call = ToolCall("call_1", "ask_model", {"question": "Hello"})
    async with running(
        make_demo(tmp_path, (ASKING,), extra='[security]\napprove = "dangerous"\n[agent]\nsampling_tokens = 6\n')
    ) as app:
        await app.ready()
        refused = await app.toolbox.call(call, CallContext(conversation_id="c"))
        assert refused.text == "The call failed: the owner of this assistant did not allow it (code -1)."
        result = await app.toolbox.call(call, CallContext(asker=FixedApprover("once"), conversation_id="c"))
        assert (result.text, result.is_error) == ("demo says This is the emulated model (maxTokens)", False)
