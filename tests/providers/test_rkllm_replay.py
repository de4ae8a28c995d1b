"""An answer of which nobody saw anything is made once more when the runtime dies; any other ends and says why."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import ModelLoadError, WorkerDiedError
from rkllm_mcp.events import ModelEvent, Status, Text, Usage
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import PlainText
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.settings import EngineSettings
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary
from tests.support.emulator import EVERY_VERSION, VERSIONS, libraries
from tests.support.scripted_engine import Play
from tests.support.scripted_world import END, WEATHER, World, called
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio

AGAIN = "[NPU: the runtime died (SIGSEGV) and was restarted; the question is asked again]"
SCRIPT = "RKLLM-EMULATOR 1\nvocabulary tokenizer.json\neos <|im_end|>\ncontext 4096\nspeed flat\n{head}\n{rules}\n"
ECHO = "rule\nuser (.+)\nsay You said: $1."


def died(tokens: int = 0) -> WorkerDiedError:
    return WorkerDiedError(-11, "answering", tokens_delivered=tokens)


def words_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def lines_of(events: list[ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Status)]


@pytest.mark.parametrize("shown", ["", "<tool_call>\n", "<"])
async def test_nothing_was_seen_so_the_same_prompt_is_run_again(shown: str) -> None:
    world = World()
    conversation = Conversation()
    await world.ask(conversation, "Weather?", Play(shown, died()), f"{called('Tokyo')}{END}", f"Sunny.{END}")
    assert world.engine.prompts[0] == world.engine.prompts[1]
    assert [line.text for line in world.excesses()] == [AGAIN]
    assert conversation.messages[-1] == Message("assistant", "Sunny.")
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    world.assert_ready(conversation)


async def test_a_prompt_that_kills_the_runtime_twice_is_given_up_with_the_reason() -> None:
    world = World()
    conversation = Conversation()
    await world.ask(conversation, "Hi?", Play("", died()), Play("", died()))
    assert [line.text for line in world.excesses()] == [AGAIN]
    assert "was killed by SIGSEGV" in str(world.events[-1])
    await world.ask(conversation, "And?", f"Yes.{END}")
    assert conversation.messages[-1].text == "Yes."


async def test_a_hung_runtime_is_reported_as_ended() -> None:
    world = World()
    hung = WorkerDiedError(-9, "answering", cause="the first token did not come within 60 s")
    await world.ask(Conversation(), "Hi?", Play("", hung), f"Yes.{END}")
    (line,) = world.excesses()
    assert line.text == (
        "[NPU: the runtime was ended because the first token did not come within 60 s, and was restarted; "
        "the question is asked again]"
    )


@dataclass
class Board:
    """A model on an engine whose script can be exchanged: the next worker plays the new one."""

    folder: Path
    engine: Engine
    model: RkllmModel

    def play(self, rules: str, head: str = "") -> None:
        (self.folder / "model.rkllm").write_text(SCRIPT.format(head=head, rules=rules), encoding="utf-8")

    async def ask(self, conversation: Conversation, text: str) -> list[ModelEvent]:
        conversation.add(Message("user", text))
        with anyio.fail_after(60):
            async with aclosing(events_of(self.model, conversation, [WEATHER])) as events:
                return [event async for event in events]


@asynccontextmanager
async def board(folder: Path, version: str, rules: str) -> AsyncGenerator[Board, None]:
    (folder / "tokenizer.json").symlink_to(DEMO_TOKENIZER)
    file = folder / "model.rkllm"
    file.write_text(SCRIPT.format(head="", rules=rules), encoding="utf-8")
    template = TEMPLATES["qwen2.5"]
    form = ModelForm(demo_vocabulary(), template, template.tool_form.syntaxes)
    settings = EngineSettings(file, libraries()[version], reload_pauses_s=(0.0, 0.0))
    async with open_engine(settings) as engine:
        with anyio.fail_after(60):
            await engine.ready()
        yield Board(folder, engine, RkllmModel(engine, form))


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    ("said", "after", "replayed"),
    [("You", 0, True), ("<tool_call>\\n{", 2, True), ("You see, it is", 1, False), ("You see, it is", 3, False)],
    ids=["in prefill", "held back", "first token", "middle"],
)
async def test_a_crash_in_every_phase_costs_at_most_the_answer_under_way(
    tmp_path: Path, version: str, said: str, after: int, *, replayed: bool
) -> None:
    crash = f"rule\nuser Hi\nsay {said}\nfault crash SIGSEGV after {after}\n{ECHO}"
    async with board(tmp_path, version, crash) as opened:
        conversation = Conversation()
        opened.play(ECHO)
        if replayed:
            events = await opened.ask(conversation, "Hi")
            assert (lines_of(events), words_of(events)) == ([AGAIN], "You said: Hi.")
            assert isinstance(events[-1], Usage)
        else:
            with pytest.raises(WorkerDiedError, match="was killed by SIGSEGV while answering"):
                await opened.ask(conversation, "Hi")
            assert said.startswith(conversation.messages[-1].text or "nothing")
        following = await opened.ask(conversation, "And now")
        assert (lines_of(following), words_of(following)) == ([], "You said: And now.")
        assert opened.engine.supervisor.restarts == 1
    assert [message.role for message in conversation.messages] == ["user", "assistant"] * 2


@pytest.mark.parametrize("version", EVERY_VERSION)
async def test_a_crash_after_the_last_token_is_nobodys_loss(tmp_path: Path, version: str) -> None:
    tokens = len(demo_vocabulary().encode([PlainText("You said: Hi.")])) + 1
    async with board(tmp_path, version, f"{ECHO}\nfault ignore-eos\nfault crash SIGSEGV after {tokens}") as opened:
        conversation = Conversation()
        opened.play(ECHO)
        events = await opened.ask(conversation, "Hi")
        assert (lines_of(events), words_of(events)) == ([], "You said: Hi.")
        assert words_of(await opened.ask(conversation, "And")) == "You said: And."
        assert opened.engine.supervisor.restarts == 1


async def test_a_runtime_that_does_not_come_back_is_given_up_with_the_reason(tmp_path: Path) -> None:
    async with board(tmp_path, VERSIONS[-1], f"{ECHO}\nfault crash SIGSEGV after 0") as opened:
        opened.play(ECHO, "fault crash SIGILL at init")
        conversation = Conversation()
        for text in ("Hi", "And"):
            with pytest.raises(ModelLoadError, match="was killed by SIGILL while loading the model"):
                await opened.ask(conversation, text)
