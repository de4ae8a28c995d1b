"""Held answers and calls on the emulated runtime: aborts that come late, runs that end meanwhile, and what follows."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.events import ModelEvent, Text, ToolCallDetected, Usage
from rkllm_mcp.generation import AnswerGrammar, HeldLimits, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ControlText
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.sampling import Sampling, SamplingByPurpose
from rkllm_mcp.toolcalls.schemas import first_violation
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary
from tests.support.emulator import EVERY_VERSION, libraries
from tests.support.turn_events import events_of

pytest.importorskip("llguidance")
pytestmark = pytest.mark.anyio

ROOM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string"},
        "lit": {"type": "boolean"},
        "lamps": {"type": "array", "items": {"enum": ["one", "two"]}},
    },
    "required": ["place", "lit", "lamps"],
    "additionalProperties": False,
}
RIGHT = '{"place": "居間 A", "lit": true, "lamps": ["one", "two"]}'
FORMAT = AnswerGrammar("json", json.dumps(ROOM))
LIGHT = ToolSpec("switch_light", "Light", {**ROOM, "additionalProperties": True})
PLACES = len(demo_vocabulary().encode([ControlText(RIGHT)]))
# A token, how often it comes, and how the abort goes that it brings about. After four times the model is heard.
STUMBLES = [
    ('\\"}', 1, "abort-late 1"),
    ("<|im_end|>", 1, "abort-late 3"),
    ("Well", 1, "abort-late 100"),
    ("\\n", 1, "after-abort nothing"),
    ("'", 1, "after-abort error"),
    ("9", 1, "abort-return -1"),
    ("Well", 5, "abort-late 2"),
]


def script() -> str:
    rules = [
        f"rule\nuser ^{kind} {index}\\.{place}$\n{says}\n"
        f'fault wrong-token "{wrong}" after {place + shift} times {times}\nfault {how}\n'
        for kind, says, shift in (("answer", f"say {RIGHT}", 0), ("call", f"call switch_light {RIGHT}", 12))
        for index, (wrong, times, how) in enumerate(STUMBLES)
        for place in range(PLACES)
    ]
    head = "RKLLM-EMULATOR 1\nvocabulary tokenizer.json\neos <|im_end|>\ncontext 4096\nspeed flat\n"
    return head + "".join(rules) + "rule\nsay Hello there.\n"


@asynccontextmanager
async def board(folder: Path, version: str) -> AsyncGenerator[tuple[RkllmModel, Engine], None]:
    (folder / "tokenizer.json").symlink_to(DEMO_TOKENIZER)
    file = folder / "model.rkllm"
    file.write_text(script(), encoding="utf-8")
    template = TEMPLATES["qwen2.5"]
    cold = SamplingByPurpose(Sampling(temperature=0), Sampling(temperature=0), Sampling(temperature=0))
    form = ModelForm(demo_vocabulary(), template, template.tool_form.syntaxes, sampling=cold)
    async with open_engine(EngineSettings(file, libraries()[version])) as engine:
        with anyio.fail_after(60):
            await engine.ready()
        yield RkllmModel(engine, form, held=HeldLimits(seconds=float("inf"))), engine


async def ask(
    model: RkllmModel, question: str, options: ModelOptions, tools: Sequence[ToolSpec] = ()
) -> tuple[list[ModelEvent], Conversation]:
    conversation = Conversation()
    conversation.add(Message("user", question))
    with anyio.fail_after(60):
        async with aclosing(events_of(model, conversation, tools, options)) as events:
            return [event async for event in events], conversation


@pytest.mark.parametrize("version", EVERY_VERSION)
async def test_every_answer_is_valid_and_every_run_leaves_the_engine_ready(tmp_path: Path, version: str) -> None:
    async with board(tmp_path, version) as (model, engine):
        corrected = 0
        for index in range(len(STUMBLES)):
            for place in range(PLACES):
                events, conversation = await ask(model, f"answer {index}.{place}", ModelOptions(grammar=FORMAT))
                text = "".join(event.text for event in events if isinstance(event, Text))
                assert first_violation(json.loads(text), ROOM) is None, (index, place, text)
                assert conversation.messages[-1] == Message("assistant", text)
                (usage,) = (event for event in events if isinstance(event, Usage))
                corrected += usage.corrections
                # A correction reads what the host wrote, and the token before it.
                prompt = usage.prompt_tokens
                assert usage.prefilled_tokens <= prompt + 16 * max(1, usage.corrections), (index, place)
        assert corrected > PLACES
        events, _ = await ask(model, "Hello?", ModelOptions())
        assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello there."
        assert engine.supervisor.restarts == 0


async def test_calls_are_valid_wherever_a_token_was_wrong(tmp_path: Path) -> None:
    async with board(tmp_path, "1.3.0") as (model, engine):
        made = 0
        for index in range(len(STUMBLES)):
            for place in range(PLACES):
                events, _ = await ask(model, f"call {index}.{place}", ModelOptions(), [LIGHT])
                for event in events:
                    if isinstance(event, ToolCallDetected):
                        made += 1
                        assert first_violation(dict(event.arguments), ROOM) is None
        # All but those that the model ended inside a value, or named otherwise.
        assert made >= 0.8 * len(STUMBLES) * PLACES
        assert engine.supervisor.restarts == 0


async def test_a_client_that_leaves_while_a_late_abort_runs_leaves_the_engine_ready(tmp_path: Path) -> None:
    async with board(tmp_path, "1.3.0") as (model, engine):
        conversation = Conversation()
        conversation.add(Message("user", "answer 2.12"))
        with anyio.fail_after(60):
            async with aclosing(events_of(model, conversation, (), ModelOptions(grammar=FORMAT))) as events:
                async for event in events:
                    if isinstance(event, Text):
                        break
        events, _ = await ask(model, "Hello?", ModelOptions())
        assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello there."
        with anyio.fail_after(60):
            await engine.idle()
        assert engine.supervisor.restarts == 0
