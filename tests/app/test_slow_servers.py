"""A server that starts slowly, or never, holds back the answers that need it and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.errors import ToolboxError
from rkllm_mcp.events import End, Event, Status, Text, ToolFinished, Usage
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation
from tests.support.demo_app import TIME_SERVER, PythonServer, make_demo, running
from tests.support.served import scripted_model, served

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
    demo = make_demo(folder, (TIME_SERVER, gated), path=model, extra=extra)
    with demo.config.open("a", encoding="utf-8") as config:
        config.write(f"connect_timeout_s = {wait_s}\n")
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
        await app.toolbox.connections[0].wait_until_settled()


LATER = "[MCP: Still starting: 'garden'; the tools join the next question]"


async def open_garden(app: App, folder: Path) -> None:
    """Let the late server in, and wait until it is connected."""
    (folder / "open").touch()
    with anyio.fail_after(PATIENCE_S):
        await app.toolbox.wait_until_connected()


async def test_an_answer_goes_on_without_an_unknown_server_whose_tools_join_after_the_evaluated_prompt(
    tmp_path: Path,
) -> None:
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        conversation = app.new_conversation()
        first = await ask(app, "Hello", conversation)
        assert (said(first), lines(first)) == ("Hello there.", [LATER])
        assert lines(await ask(app, "Hello")) == [LATER], "another client has not read the first"
        await open_garden(app, tmp_path)
        events = await ask(app, "Water the roses", conversation)
        assert "water_plants" in conversation.revealed_tools
        assert [event.text for event in events if isinstance(event, ToolFinished)] == ["watered roses"]
        usages = [event for event in events if isinstance(event, Usage)]
        # Each token is read once: what was read before is in front, unchanged.
        assert usages[0].prefilled_tokens < usages[0].prompt_tokens / 2
        assert events[-1] == End("answered")


async def remember(tmp_path: Path) -> None:
    """Connect the server once, so that its tools are known from then on."""
    async with assistant(tmp_path) as app:
        await open_garden(app, tmp_path)
    (tmp_path / "open").unlink()


async def test_a_question_waits_for_a_known_server_if_it_fits_its_tools_and_the_wait_can_be_cancelled(
    tmp_path: Path,
) -> None:
    await remember(tmp_path)
    async with assistant(tmp_path) as app:
        await clock_ready(app)
        other = await ask(app, "Hello")
        assert (said(other), lines(other)) == ("Hello there.", [LATER])

        async def water(act: Callable[[str], object], **options: Any) -> list[Event]:
            """Ask what the server is for, and do something at the line about the wait."""
            events: list[Event] = []
            conversation = app.new_conversation()
            with anyio.fail_after(PATIENCE_S):
                stream = app.reply(conversation, "Water the plants in the garden", AnswerOptions(**options))
                async with aclosing(stream):
                    async for event in stream:
                        events.append(event)
                        if len(lines(events)) == 1 and lines([event]):
                            act(conversation.id)
            return events

        cancelled = await water(app.answers.cancel, language="ja")
        assert lines(cancelled) == ["[MCP: この質問に必要かもしれない 'garden' の起動を待っています]"]
        assert cancelled[-1] == End("cancelled")
        assert said(await ask(app, "Hello")) == "Hello there."
        events = await water(lambda _: (tmp_path / "open").touch())
    assert lines(events)[0] == "[MCP: Waiting for 'garden', which the question may need]"
    assert said(events).startswith("It says: ")


@pytest.mark.parametrize(
    ("name", "is_known"), [("water_plants", True), ("mcp__garden__water_plants", True), ("water_plants", False)]
)
async def test_a_forced_tool_is_waited_for_also_from_a_server_that_may_have_it(
    tmp_path: Path, name: str, is_known: bool
) -> None:
    if is_known:
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


async def test_a_server_that_was_never_ready_is_waited_for_no_longer_than_configured(tmp_path: Path) -> None:
    async with assistant(tmp_path, wait_s=300.0, one_shot=True) as app:
        await clock_ready(app)
        events = await ask(app, "Hello", is_single=True)
    assert lines(events) == ["[MCP: Still starting: 'garden'; this answer goes without their tools]"]


async def test_who_is_not_told_what_is_left_out_gets_every_tool(tmp_path: Path) -> None:
    async with assistant(tmp_path, wait_s=50.0) as app:
        await clock_ready(app)
        assert lines(await ask(app, "Hello")) == [LATER]
        events: list[Event] = []
        options = AnswerOptions(approvals="grant", needs_all_servers=True)
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(app.reply(app.new_conversation(), "Water the roses", options)) as stream:
                async for event in stream:
                    events.append(event)
                    if lines([event]):
                        (tmp_path / "open").touch()
    assert lines(events) == ["[MCP: Waiting for 'garden', which the question may need]"]
    assert [event.name for event in events if isinstance(event, ToolFinished)] == ["water_plants"]


def test_a_program_that_asks_at_once_over_http_gets_an_answer_with_every_tool(tmp_path: Path) -> None:
    gated: PythonServer = ("garden", ("-m", "tests.support.mcp_servers.gated", str(tmp_path / "open")), {})
    body = {"messages": [{"role": "user", "content": "Water the roses"}], "mcp": True, "stream": True}
    model = scripted_model(tmp_path / "model", RULES)
    told: list[dict[str, Any]] = []
    with served(tmp_path / "home", model, (gated,), extra=NO_WAIT) as service:
        address = f"{service.url}/v1/chat/completions"
        with httpx2.stream("POST", address, json={**body, "x_events": True}, timeout=PATIENCE_S) as response:
            for line in response.iter_lines():
                chunk: dict[str, Any] = json.loads(line[5:]) if line.startswith("data: {") else {}
                events: list[dict[str, Any]] = chunk.get("x_events") or []
                told += events
                if any(event.get("about") == "waiting" for event in told):
                    (tmp_path / "open").touch()
    about = [event["about"] for event in told if event["kind"] == "status" and event.get("about")]
    assert ("waiting" in about, "join_later" in about) == (True, False)
    assert [event["name"] for event in told if event["kind"] == "tool_call"] == ["water_plants"]


async def test_a_server_that_is_said_to_be_left_out_is_not_called_though_it_becomes_ready(tmp_path: Path) -> None:
    async with assistant(tmp_path, wait_s=300.0) as app:
        await clock_ready(app)
        events: list[Event] = []
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(app.reply(app.new_conversation(), "Water the plants")) as stream:
                async for event in stream:
                    if isinstance(event, Status) and event.about == "join_later":
                        await open_garden(app, tmp_path)
                    events.append(event)
        later = await ask(app, "Water the plants")
    assert lines(events) == [LATER]
    assert [event for event in events if isinstance(event, ToolFinished)] == []
    assert [event.name for event in later if isinstance(event, ToolFinished)] == ["water_plants"]


async def test_a_tool_of_a_server_that_is_starting_can_be_switched_off_by_either_name(tmp_path: Path) -> None:
    await remember(tmp_path)
    async with assistant(tmp_path) as app:
        for name, is_on in (("mcp__garden__water_plants", False), ("water_plants", True), ("water_plants", False)):
            app.toolbox.switch(name, is_on=is_on)
        await open_garden(app, tmp_path)
        (tool,) = app.toolbox.tools(disabled=True)
        assert (tool.server, tool.wire_name) == ("garden", "water_plants")


async def test_a_tool_of_a_server_that_was_never_connected_is_switched_off_by_its_long_name(tmp_path: Path) -> None:
    async with assistant(tmp_path) as app:
        with pytest.raises(ToolboxError, match="There is no tool 'water_plants'"):
            app.toolbox.switch("water_plants", is_on=False)
        app.toolbox.switch("mcp__garden__water_plants", is_on=False)
        await open_garden(app, tmp_path)
        assert [tool.wire_name for tool in app.toolbox.tools(disabled=True)] == ["water_plants"]
