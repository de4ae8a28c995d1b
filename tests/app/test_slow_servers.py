"""A server that starts slowly, or never, holds back the answers that need it and no others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.errors import ToolboxError
from rkllm_mcp.events import End, Event, Status, Text, ToolFinished, Usage
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation
from tests.support.demo_app import TIME_SERVER, PythonServer, make_demo, running
from tests.support.served import scripted_model

pytestmark = pytest.mark.anyio
PATIENCE_S = 60.0
NO_WAIT = "[agent]\nwait_for_servers_s = 0.05\n"
RULES = """
rule
  user [Ww]ater
  results 0
  call water_plants {"bed":"roses"}

rule
  results 1+
  result ^(.*)$
  say It says: %1

rule
  say Hello there.
"""


@asynccontextmanager
async def assistant(
    folder: Path, *, extra: str = NO_WAIT, wait_s: float = 20.0, one_shot: bool = False
) -> AsyncGenerator[App, None]:
    """An assistant with a clock and a server that is ready when the file ``open`` appears."""
    gated: PythonServer = ("garden", ("-m", "tests.support.mcp_servers.gated", str(folder / "open")), {})
    model = scripted_model(folder / "model", RULES)
    demo = make_demo(folder, (TIME_SERVER, gated), extra=extra)
    text = demo.config.read_text("utf-8").replace('name = "demo"', f'path = "{model}"', 1)
    demo.config.write_text(f"{text}connect_timeout_s = {wait_s}\n", "utf-8")
    async with running(demo, one_shot=one_shot) as app:
        yield app


async def ask(app: App, text: str, conversation: Conversation | None = None, **options: object) -> list[Event]:
    given = AnswerOptions(approvals="grant", **options)  # pyright: ignore[reportArgumentType]
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(app.reply(conversation or app.new_conversation(), text, given)) as stream:
            return [event async for event in stream]


def said(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def lines(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Status) and "garden" in event.text]


async def clock_ready(app: App) -> None:
    with anyio.fail_after(PATIENCE_S):
        await app.toolbox.connections[0].settled()


LATER = "[MCP: Still starting: 'garden'; the tools join the next question]"


async def test_an_answer_goes_on_without_a_server_that_is_not_known_and_says_so_once(tmp_path: Path) -> None:
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        first = await ask(app, "Hello")
        assert (said(first), lines(first)) == ("Hello there.", [LATER])
        assert lines(await ask(app, "Hello")) == []


async def test_the_tools_of_a_late_server_join_the_next_question_behind_the_evaluated_prompt(tmp_path: Path) -> None:
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        conversation = app.new_conversation()
        await ask(app, "Hello", conversation)
        (tmp_path / "open").touch()
        with anyio.fail_after(PATIENCE_S):
            await app.toolbox.connections[1].settled()
        events = await ask(app, "Water the roses", conversation)
        assert "water_plants" in conversation.revealed_tools
        assert [event.text for event in events if isinstance(event, ToolFinished)] == ["watered roses"]
        usages = [event for event in events if isinstance(event, Usage)]
        # Each token is read once: what was read before stands in front, unchanged.
        assert usages[0].prefilled_tokens < usages[0].prompt_tokens / 2
        assert events[-1] == End("answered")


async def remember(tmp_path: Path) -> None:
    """Connect the server once, so that its tools are known from then on."""
    (tmp_path / "open").touch()
    async with assistant(tmp_path) as app:
        with anyio.fail_after(PATIENCE_S):
            await app.toolbox.connected()
    (tmp_path / "open").unlink()


async def test_a_question_that_fits_its_known_tools_waits_for_it(tmp_path: Path) -> None:
    await remember(tmp_path)
    events: list[Event] = []
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(app.reply(app.new_conversation(), "Water the plants in the garden")) as stream:
                async for event in stream:
                    events.append(event)
                    if isinstance(event, Status) and event.text.startswith("[MCP: Waiting for"):
                        (tmp_path / "open").touch()
    assert lines(events)[0] == "[MCP: Waiting for 'garden', which the question may need]"
    assert said(events).startswith("It says: ")


async def test_a_question_that_does_not_fit_its_known_tools_does_not_wait_for_it(tmp_path: Path) -> None:
    await remember(tmp_path)
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        events = await ask(app, "Hello")
    assert (said(events), lines(events)) == ("Hello there.", [LATER])


@pytest.mark.parametrize("name", ["water_plants", "mcp__garden__water_plants"])
async def test_a_forced_tool_is_waited_for(tmp_path: Path, name: str) -> None:
    await remember(tmp_path)
    async with assistant(tmp_path) as app, anyio.create_task_group() as tasks:

        async def open_soon() -> None:
            await clock_ready(app)
            (tmp_path / "open").touch()

        tasks.start_soon(open_soon)
        conversation = app.new_conversation()
        events = await ask(app, "Water the roses", conversation, model=ModelOptions(tool_choice=ForcedTool(name)))
        assert [event.name for event in events if isinstance(event, ToolFinished)] == ["water_plants"]


async def test_a_server_that_ends_while_it_is_waited_for_ends_the_wait(tmp_path: Path) -> None:
    await remember(tmp_path)
    (tmp_path / "open").mkdir()
    async with assistant(tmp_path, wait_s=50.0) as app:
        # A folder in its place: the server is let in, and its connection is stopped from outside.
        (tmp_path / "open").rmdir()
        app.toolbox.connections[1].stop()
        events = await ask(app, "Water the plants in the garden")
    assert events[-1] == End("answered")


async def test_without_a_next_question_it_is_waited_for_and_known_as_broken_from_then_on(tmp_path: Path) -> None:
    async with assistant(tmp_path, wait_s=3.0, one_shot=True) as app:
        await clock_ready(app)
        first = await ask(app, "Hello", waits_for_servers=True)
        assert lines(first) == ["[MCP: Waiting for 'garden', which the question may need]"]
        assert app.toolbox.connections[1].state == "failed"
        await app.store.settled()
    async with assistant(tmp_path, wait_s=30.0, one_shot=True) as app:
        await clock_ready(app)
        again = await ask(app, "Hello", waits_for_servers=True)
    assert lines(again) == ["[MCP: Still starting: 'garden'; this answer goes without the tools]"]


async def test_a_question_that_a_ready_tool_answers_waits_for_no_other_server(tmp_path: Path) -> None:
    async with assistant(tmp_path, one_shot=True) as app:
        await clock_ready(app)
        events = await ask(app, "What is the current time in London?", waits_for_servers=True)
    assert lines(events) == ["[MCP: Still starting: 'garden'; this answer goes without the tools]"]


async def test_the_wait_is_announced_in_japanese_and_can_be_cancelled(tmp_path: Path) -> None:
    await remember(tmp_path)
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        conversation = app.new_conversation()
        events: list[Event] = []
        options = AnswerOptions(language="ja")
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(app.reply(conversation, "Water the plants in the garden", options)) as stream:
                async for event in stream:
                    events.append(event)
                    if lines([event]):
                        app.cancel(conversation.id)
        assert lines(events) == ["[MCP: この質問に必要かもしれない 'garden' の起動を待っています]"]
        assert events[-1] == End("cancelled")
        assert said(await ask(app, "Hello")) == "Hello there."


@pytest.mark.parametrize("name", ["water_plants", "mcp__garden__water_plants"])
async def test_a_tool_of_a_server_that_is_starting_can_be_switched_off(tmp_path: Path, name: str) -> None:
    await remember(tmp_path)
    async with assistant(tmp_path) as app:
        app.toolbox.switch(name, is_on=False)
        (tmp_path / "open").touch()
        with anyio.fail_after(PATIENCE_S):
            await app.toolbox.connected()
        (tool,) = app.toolbox.tools(disabled=True)
        assert (tool.server, tool.wire_name) == ("garden", "water_plants")


async def test_a_tool_of_a_server_that_was_never_connected_is_switched_off_by_its_long_name(tmp_path: Path) -> None:
    async with assistant(tmp_path) as app:
        with pytest.raises(ToolboxError, match="There is no tool 'water_plants'"):
            app.toolbox.switch("water_plants", is_on=False)
        app.toolbox.switch("mcp__garden__water_plants", is_on=False)
        (tmp_path / "open").touch()
        with anyio.fail_after(PATIENCE_S):
            await app.toolbox.connected()
        assert [tool.wire_name for tool in app.toolbox.tools(disabled=True)] == ["water_plants"]
