"""Every family's answers are read, also where the markers of its calls are special tokens."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from rkllm_mcp.events import ModelEvent, Text, Thinking, ToolCallDetected
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from tests.support.family_vocabulary import family_vocabulary
from tests.support.scripted_engine import ScriptedEngine
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio
WEATHER = ToolSpec("get_weather", "Weather", {"type": "object", "properties": {"place": {"type": "string"}}})
CALL = ToolCall("call_1", "get_weather", {"place": "Tokyo"})

every_family = pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)


def model_of(template: ChatTemplate, *answers: str, thinking: bool = False) -> tuple[RkllmModel, ScriptedEngine]:
    vocabulary = family_vocabulary(template)
    engine = ScriptedEngine(vocabulary, list(answers), context_tokens=65536)
    syntaxes = template.tool_form.syntaxes
    mode = ("open" if template.open_thinking else "auto") if thinking else "off"
    return RkllmModel(engine, ModelForm(vocabulary, template, syntaxes, mode, think=thinking)), engine


async def respond(model: RkllmModel, conversation: Conversation) -> list[ModelEvent]:
    async with aclosing(events_of(model, conversation, [WEATHER])) as events:
        return [event async for event in events]


def joined(events: list[ModelEvent], kind: type[Text] | type[Thinking]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


@every_family
async def test_a_round_with_a_tool_is_read_and_costs_only_its_new_tokens(template: ChatTemplate) -> None:
    written = "".join(segment.text for segment in template.tool_form.calls([CALL]))
    end_of_call = template.end_of_turn if template.calls_end_turn is None else template.stop[0]
    model, engine = model_of(template, written + end_of_call, f"Sunny.{template.end_of_turn}")
    conversation = Conversation()
    conversation.add(Message("system", "You help."))
    conversation.add(Message("user", "天気は？"))
    events = await respond(model, conversation)
    calls = [event for event in events if isinstance(event, ToolCallDetected)]
    assert [(call.name, call.arguments) for call in calls] == [("get_weather", {"place": "Tokyo"})]
    assert joined(events, Text).strip() == ""
    conversation.add(Message("tool", results=(ToolResult("call_1", "get_weather", "晴れ"),)))
    events = await respond(model, conversation)
    assert joined(events, Text) == "Sunny."
    # The stop token was sampled and never evaluated, and so may be the last token of the answer.
    sent = engine.prompts[0]
    assert engine.prompts[1][: len(sent)] == sent
    assert engine.prefilled[1] <= len(engine.prompts[1]) - len(sent)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("qwen3", "<think>\nWell.\n</think>\n\nSunny."),
        ("qwen3.5", "Well.\n</think>\n\nSunny."),
        ("smollm3", "<think>\nWell.\n</think>\nSunny."),
        ("deepseek-r1", "Well.\n</think>\n\nSunny."),
        ("gemma4", "<|channel>thought\nWell.<channel|>Sunny."),
    ],
)
async def test_thinking_is_separated_from_the_answer(name: str, answer: str) -> None:
    template = TEMPLATES[name]
    model, _ = model_of(template, answer + template.end_of_turn, thinking=True)
    conversation = Conversation()
    conversation.add(Message("user", "Weather?"))
    events = await respond(model, conversation)
    assert (joined(events, Thinking).strip(), joined(events, Text)) == ("Well.", "Sunny.")
