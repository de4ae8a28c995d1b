"""What stands around an answer on a terminal: its questions, and a line when nothing happens for long."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.events import EndReason, Event
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.surfaces.chat.forms import FormPrompt
from rkllm_mcp.surfaces.chat.host import LocalHost
from rkllm_mcp.surfaces.chat.render import Answering
from rkllm_mcp.surfaces.terminal import Terminal
from tests.support.demo_app import make_demo, running
from tests.support.feature_demo import DESK, make_features

pytestmark = pytest.mark.anyio
PHRASES = read_catalogue("en")


class Screen(io.StringIO):
    """A terminal to write to."""

    def isatty(self) -> bool:
        return True


class Typist:
    """A person who types these lines."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)

    async def ask(self, prompt: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        return self.lines.pop(0)


@pytest.mark.parametrize("stream", [Screen, io.StringIO])
async def test_a_long_silence_is_explained_once_also_off_a_terminal(
    tmp_path: Path, stream: Callable[[], io.StringIO]
) -> None:
    demo = make_demo(tmp_path, [], speed="prefill 40 decode 1000")
    screen = stream()
    async with running(demo, one_shot=True) as app:
        await app.ready()
        conversation = app.new_conversation()
        answering = Answering(LocalHost(app), Terminal(err=lambda: screen, env={"NO_COLOR": "1"}), silence_s=0.2)
        shown: list[Event] = []
        reason = await answering.follow(conversation.id, app.reply(conversation, "Hello"), shown.append)
    assert reason == "answered"
    (line,) = screen.getvalue().splitlines()
    assert line.startswith("[NPU: reading ")
    assert line.endswith(" tokens …]")


class Absent:
    """Answers nothing, and tells once it was asked."""

    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def ask(self, prompt: str) -> str | None:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


async def test_stopping_the_answer_does_not_report_its_question_as_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = make_features(tmp_path, [DESK])
    screen, absent = Screen(), Absent()
    terminal = Terminal(err=lambda: screen, env={"NO_COLOR": "1"})
    async with running(demo, one_shot=True) as app:
        conversation = app.new_conversation()
        answering = Answering(LocalHost(app), terminal, FormPrompt(terminal, absent.ask, PHRASES))
        stream = app.reply(conversation, "Who am I?", AnswerOptions(approvals="ask"))
        reasons: list[EndReason] = []
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                reasons.append(await answering.follow(conversation.id, stream, lambda _: None))

            tasks.start_soon(follow)
            await absent.asked.wait()
            assert app.answers.cancel(conversation.id)
    assert reasons == ["cancelled"]
    assert "Who are you?" in screen.getvalue()
    assert read_catalogue("en").sentence("answer.too_late") not in screen.getvalue()


async def test_leaving_a_question_stops_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = make_features(tmp_path, [DESK])
    screen = Screen()
    terminal = Terminal(err=lambda: screen, env={"NO_COLOR": "1"})
    async with running(demo, one_shot=True) as app:
        options = AnswerOptions(approvals="ask")
        conversation = app.new_conversation()
        answering = Answering(LocalHost(app), terminal, FormPrompt(terminal, Typist("Ada", None).ask, PHRASES))
        reason = await answering.follow(conversation.id, app.reply(conversation, "Who am I?", options), lambda _: None)
        assert (reason, app.pending.open()) == ("cancelled", ())
        answering = Answering(LocalHost(app), terminal, FormPrompt(terminal, Typist("Ada", "s", "", "y").ask, PHRASES))
        reason = await answering.follow(conversation.id, app.reply(conversation, "Who am I?", options), lambda _: None)
        assert reason == "answered"
        assert '"name":"Ada"' in conversation.messages[-2].results[0].text
