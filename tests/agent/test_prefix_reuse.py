"""What is read by the NPU once is not read again: forty tools, find_tools, servers that come and go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import anyio
import pytest

from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.question import Question
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.events import Event, Usage
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tool_list import ToolCosts
from rkllm_mcp.providers.rkllm import SLACK_TOKENS, ModelForm, RkllmModel
from rkllm_mcp.tools.search import ToolSearch
from tests.support.asked import answer_question
from tests.support.demo_model import demo_vocabulary
from tests.support.scripted_engine import ScriptedEngine
from tests.support.scripted_toolbox import ScriptedToolbox, takes
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
END = "<|im_end|>"
FORTY = [
    takes(f"{verb}_{thing}", f"{verb.capitalize()} the {thing} of the house.", "home", room="string")
    for verb in ("open", "close", "check", "clean")
    for thing in ("door", "window", "oven", "lamp", "pump", "bell", "radio", "heater", "curtain", "garage")
]
TEMPLATE = TEMPLATES["qwen2.5"]


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>{END}'


@dataclass
class House:
    """An assistant for forty tools on an engine that keeps a KV cache as the runtime does."""

    settings: SelectionSettings = field(default_factory=lambda: SelectionSettings(500))
    conversation: Conversation = field(default_factory=lambda: Conversation(messages=[Message("system", "Help.")]))

    def __post_init__(self) -> None:
        self.engine = ScriptedEngine(demo_vocabulary(), [], context_tokens=8192)
        form = ModelForm(demo_vocabulary(), TEMPLATE, TEMPLATE.tool_form.syntaxes)
        self.model = RkllmModel(self.engine, form)
        self.toolbox = ScriptedToolbox(specs=FORTY, texts={tool.name: f"{tool.name} done" for tool in FORTY})
        self.costs = ToolCosts(demo_vocabulary(), TEMPLATE.tool_form)
        self.used: list[Usage] = []

    async def ask(self, words: str, *answers: str) -> None:
        self.engine.answers[:] = answers
        preparation = TurnPreparation(self.toolbox, ToolSelection(ToolSearch, self.costs.of, self.settings))
        request = TurnRequest(Question(words), self.toolbox.specs)

        @FunctionSink
        def sink(event: Event) -> None:
            if isinstance(event, Usage):
                self.used.append(event)

        with anyio.fail_after(60):
            await answer_question(self.model, preparation, self.conversation, request, sink)
        assert not self.engine.answers

    def assert_every_token_was_read_once(self) -> None:
        prompts = self.engine.prompts
        for before, after in pairwise(prompts):
            assert after[: len(before)] == before
        assert sum(usage.prefilled_tokens for usage in self.used) <= len(prompts[-1])
        for usage, before in zip(self.used[1:], prompts, strict=False):
            assert usage.cached_tokens >= len(before) - SLACK_TOKENS


async def test_the_front_stays_while_find_tools_reaches_the_rest_of_forty_tools() -> None:
    house = House()
    await house.ask("Open the door", call("open_door", '{"room": "hall"}'), f"It is open.{END}")
    await house.ask(
        "And now the curtain, please?",
        call("find_tools", '{"query": "close the curtain"}'),
        call("close_curtain", '{"room": "hall"}'),
        f"It is closed.{END}",
    )
    await house.ask("Clean the oven", call("clean_oven", '{"room": "kitchen"}'), f"It is clean.{END}")
    assert [made.name for made in house.toolbox.calls] == ["open_door", "close_curtain", "clean_oven"]
    assert house.conversation.listed_tools is not None
    assert 2 < len(house.conversation.listed_tools) <= 9
    whole = len(demo_vocabulary().encode(TEMPLATE.head("Help.", FORTY)))
    assert house.used[0].prefilled_tokens < whole / 3
    house.assert_every_token_was_read_once()


async def test_the_front_stays_when_servers_come_and_go_and_change() -> None:
    house = House(SelectionSettings(2000))
    house.toolbox.specs, house.toolbox.standing = FORTY[:5], ["The house is old."]
    await house.ask("Hello", f"Hi.{END}")
    house.toolbox.specs, house.toolbox.standing = FORTY[:8], ["The garden is new.", "The house is old."]
    await house.ask("And now?", f"Hi.{END}")
    house.toolbox.specs, house.toolbox.standing = FORTY[4:6], []
    await house.ask("And then?", f"Hi.{END}")
    house.toolbox.specs = [replace(FORTY[4], description="Lamps everywhere."), FORTY[5]]
    await house.ask("The lamp?", call("open_lamp", '{"room": "hall"}'), f"Done.{END}")
    house.assert_every_token_was_read_once()


async def test_automatic_context_is_read_once_like_everything_else() -> None:
    house = House()
    house.toolbox.automatic, house.toolbox.after = ["check_door"], {"home": "Say which door."}
    for words in ("Is it open?", "And now?", "And now?"):
        await house.ask(words, f"Yes.{END}")
    contexts = [message.context for message in house.conversation.messages if message.role == "user"]
    assert [context.count("check_door done") for context in contexts] == [1, 1, 1]
    house.assert_every_token_was_read_once()


def test_what_each_tool_costs_adds_up_to_what_the_list_costs() -> None:
    house = House()
    alone = sum(map(house.costs.of, FORTY))
    encode = demo_vocabulary().encode
    whole = len(encode(TEMPLATE.tool_form.listing(FORTY))) - len(encode(TEMPLATE.tool_form.listing(FORTY[:1])))
    assert abs(whole - (alone - house.costs.of(FORTY[0]))) <= len(FORTY)
