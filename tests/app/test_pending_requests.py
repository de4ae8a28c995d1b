"""Questions on the streams of answers: several at a time, left open, answered late, and asked by a server that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.events import Approval, Elicitation, End, Event, ToolFinished
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext, Decision, ElicitationAnswer
from tests.support.demo_app import NO_VARIABLES, TIME_SERVER, PythonServer, descendants, make_demo, running

pytestmark = pytest.mark.anyio
QUESTION = "What time is it in London?"
ASK = AnswerOptions(approvals="ask")
ASKING: PythonServer = ("asking", ("-m", "tests.support.mcp_servers.asking", "legacy"), NO_VARIABLES)


@asynccontextmanager
async def demo_app(folder: Path, *servers: PythonServer) -> AsyncGenerator[App]:
    demo = make_demo(folder, servers, extra='[security]\napprove = "always"\n')
    async with running(demo, RKLLM_MCP_STATE=str(folder / "state")) as app:
        await app.ready()
        yield app


def results(events: list[Event]) -> list[bool]:
    return [event.is_error for event in events if isinstance(event, ToolFinished)]


async def test_two_conversations_ask_at_once_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    answers: dict[str, list[Event]] = {}
    both = anyio.Event()

    async def ask(app: App, decision: Decision) -> None:
        events = answers[decision] = []
        async with aclosing(app.reply(app.new_conversation(), QUESTION, ASK)) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, Approval):
                    if len(app.pending.open()) == 2:
                        both.set()
                    await both.wait()
                    assert app.pending.respond(event.id, decision)
                    assert not app.pending.respond(event.id, "always")

    async with demo_app(tmp_path, TIME_SERVER) as app:
        async with anyio.create_task_group() as people:
            people.start_soon(ask, app, "once")
            people.start_soon(ask, app, "deny")
        assert app.pending.open() == ()
    assert {decision: results(events) for decision, events in answers.items()} == {"once": [False], "deny": [True]}


async def test_an_answer_may_be_left_or_stopped_while_its_question_is_open(tmp_path: Path) -> None:
    async with demo_app(tmp_path, TIME_SERVER) as app:
        for stops in (False, True):
            conversation = app.new_conversation()
            asked = ""
            async with aclosing(app.reply(conversation, QUESTION, ASK)) as stream:
                async for event in stream:
                    if isinstance(event, Approval):
                        asked = event.id
                        if not stops:
                            break
                        assert app.answers.cancel(conversation.id)
            await app.pending.wait_until_settled(asked)
            assert (asked != "", app.pending.open(), app.pending.respond(asked, "once")) == (True, (), False)
            async with aclosing(app.reply(conversation, "Hello", ASK)) as stream:
                assert [event async for event in stream][-1] == End("answered")
        # A call that nobody allowed was not made, and is on record as stopped.
        assert [call.ruling for call in await app.store.calls.latest(5)] == ["stopped", "stopped"]


@dataclass
class Killer:
    """Answers yes to everything, once the server that asks is dead."""

    async def approve(self, question: Approval) -> Decision:
        if question.name.startswith("sampling:"):
            self.kill()
        return "once"

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        self.kill()
        return ElicitationAnswer("accept", {"name": "Ann", "size": "s"})

    def kill(self) -> None:
        for pid in descendants(os.getpid()):
            if b"mcp_servers.asking" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("tool", "arguments"), [("ask_model", {"question": "Hello"}), ("ask_owner", {})])
async def test_a_server_that_dies_while_it_asks_costs_its_call_and_serves_the_next(
    tmp_path: Path, tool: str, arguments: dict[str, str]
) -> None:
    async with demo_app(tmp_path, ASKING) as app:
        context = CallContext(asker=Killer(), conversation_id="c")
        result = await app.toolbox.call(ToolCall("call_1", tool, arguments), context)
        assert result.is_error
        assert result.text.startswith("The connection to server 'asking' was lost during the call: it was killed")
        async with aclosing(app.reply(app.new_conversation(), "Hello", ASK)) as stream:
            assert [event async for event in stream][-1] == End("answered")
        assert (await app.toolbox.offerings.read_resource("asking:memo://monday")).text == "Buy milk."
