"""What one request may wish for: an end, a call, thinking, sampling; and a conversation that goes on in two ways."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from rkllm_mcp.events import ModelEvent, Text, Thinking, ToolCallDetected, ToolCallFailed, Usage
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ControlText
from rkllm_mcp.providers import rkllm
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from rkllm_mcp.sampling import Sampling, SamplingByPurpose, SamplingOverrides
from rkllm_mcp.toolcalls.detector import Detector
from tests.support.demo_model import demo_vocabulary
from tests.support.scripted_engine import ScriptedEngine
from tests.support.scripted_world import END, TIME, WEATHER, called
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio


class Asked:
    """A model of a family on a scripted engine."""

    def __init__(self, *answers: str, template: str = "qwen3", sampling: SamplingByPurpose | None = None) -> None:
        self.engine = ScriptedEngine(demo_vocabulary(), list(answers))
        form = TEMPLATES[template]
        thinking = "auto" if form.no_thinking or form.open_thinking else "off"
        written = ModelForm(demo_vocabulary(), form, form.tool_form.syntaxes, thinking, sampling=sampling)
        self.model = RkllmModel(self.engine, written)

    async def respond(self, conversation: Conversation | None = None, **wishes: object) -> list[ModelEvent]:
        conversation = conversation or question()
        options = ModelOptions(**wishes)  # pyright: ignore[reportArgumentType]
        async with aclosing(events_of(self.model, conversation, [WEATHER, TIME], options)) as events:
            return [event async for event in events]

    def prompt(self, index: int = -1) -> str:
        return demo_vocabulary().decode(self.engine.prompts[index])


def question(text: str = "Hi") -> Conversation:
    return Conversation(messages=[Message("user", text)])


def words(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def calls(events: list[ModelEvent]) -> list[tuple[str, dict[str, object]]]:
    return [(event.name, dict(event.arguments)) for event in events if isinstance(event, ToolCallDetected)]


async def test_a_stop_text_ends_the_run_and_its_figures_come() -> None:
    asked = Asked(f"one two STOP three four{END}", f"Five.{END}")
    conversation = question()
    events = await asked.respond(conversation, stop=("STOP",))
    assert words(events) == "one two "
    usage = events[-1]
    assert isinstance(usage, Usage)
    assert 0 < usage.generated_tokens < 8
    assert conversation.messages[-1] == Message("assistant", "one two ")
    conversation.add(Message("user", "On"))
    await asked.respond(conversation)
    evaluated = asked.engine.evaluated[0]
    assert asked.engine.prompts[1][: len(evaluated)] == evaluated


async def test_a_stop_text_at_the_limit_is_not_a_cut() -> None:
    asked = Asked("one two")
    conversation = question()
    limit = len(demo_vocabulary().encode([ControlText("one two")]))
    await asked.respond(conversation, stop=("two",), max_new_tokens=limit)
    assert not conversation.messages[-1].cut


async def test_a_single_call_ends_the_answer() -> None:
    asked = Asked(f"{called('Oslo')}\n{called('Rome')}{END}")
    conversation = question()
    events = await asked.respond(conversation, single_call=True)
    assert calls(events) == [("get_weather", {"location": "Oslo"})]
    assert [call.arguments for call in conversation.messages[-1].calls] == [{"location": "Oslo"}]
    assert isinstance(events[-1], Usage)


async def test_any_tool_has_the_model_name_one() -> None:
    asked = Asked(f'get_time", "arguments": {{}}}}\n</tool_call>{END}')
    events = await asked.respond(tool_choice="required")
    assert calls(events) == [("get_time", {})]
    assert asked.prompt().endswith('<tool_call>\n{"name": "')


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_family_begins_a_call_of_any_tool_as_it_writes_one(name: str) -> None:
    form = TEMPLATES[name].tool_form
    tool = ToolSpec("look_up", "x", {"type": "object", "properties": {"key": {"type": "string"}}})
    call = ToolCall("", "look_up", {"key": "value"})
    whole = "".join(segment.text for segment in form.calls([call]))
    begun = "".join(segment.text for segment in form.call_beginning(None))
    assert begun
    assert whole.startswith(begun)
    detector = Detector([tool], form.syntaxes)
    events = [*detector.feed(begun), *detector.feed(whole[len(begun) :]), *detector.finish()]
    assert [(event.name, event.arguments) for event in events if isinstance(event, ToolCallDetected)] == [
        ("look_up", {"key": "value"})
    ]


async def test_without_calls_everything_is_words_though_the_tools_stay_in_front() -> None:
    asked = Asked(f"{called('Oslo')}{END}", f"{called('Oslo')}{END}")
    events = await asked.respond(tool_choice="none")
    assert not calls(events)
    assert not [event for event in events if isinstance(event, ToolCallFailed)]
    assert "get_weather" in words(events)
    await asked.respond()
    assert asked.engine.prompts[0] == asked.engine.prompts[1]


async def test_thinking_is_switched_for_one_answer() -> None:
    thought = f"<think>\nHm.\n</think>\n\nYes.{END}"
    asked = Asked(thought, f"Yes.{END}", f"Yes.{END}")
    conversation = question()
    events = await asked.respond(conversation, thinking=True)
    assert "".join(event.text for event in events if isinstance(event, Thinking)) == "Hm.\n"
    assert not asked.prompt().endswith("</think>\n\n")
    for wish in (False, None):
        conversation.add(Message("user", "On"))
        await asked.respond(conversation, thinking=wish)
        assert asked.prompt().endswith("<think>\n\n</think>\n\n")
        assert asked.engine.prefilled[-1] < 30


async def test_a_head_that_says_whether_to_think_is_written_anew() -> None:
    asked = Asked(f"Yes.{END}", f"Yes.{END}", template="smollm3")
    conversation = question()
    await asked.respond(conversation, thinking=True)
    assert "Reasoning Mode: /think" in asked.prompt()
    conversation.add(Message("user", "On"))
    await asked.respond(conversation, thinking=False)
    assert "Reasoning Mode: /no_think" in asked.prompt()
    assert "Yes." in asked.prompt()


async def test_a_model_that_never_thinks_is_not_asked_to() -> None:
    asked = Asked(f"Yes.{END}", f"Yes.{END}", template="qwen2.5")
    await asked.respond(thinking=True)
    await asked.respond()
    assert asked.engine.prompts[0] == asked.engine.prompts[1]


async def test_sampling_is_changed_for_one_answer() -> None:
    asked = Asked(f"Yes.{END}", f"Yes.{END}")
    await asked.respond(sampling=SamplingOverrides(temperature=0.1))
    await asked.respond()
    assert [options.sampling for options in asked.engine.options] == [Sampling(temperature=0.1), None]


async def test_a_branch_goes_on_with_the_very_tokens_and_leaves_the_other_alone() -> None:
    asked = Asked(f"<think>\nHm.\n</think>\n\nYes.{END}", f"Left.{END}", f"Right.{END}", f"Lost.{END}")
    first = question()
    await asked.respond(first, thinking=True)
    second = Conversation(messages=list(first.messages))
    asked.model.branch(first.id, second.id)
    for conversation, text in ((first, "Left?"), (second, "Right?")):
        conversation.add(Message("user", text))
        await asked.respond(conversation)
        assert "Hm." in asked.prompt()
    assert "Left" not in asked.prompt()
    # Of a conversation that is not known nothing is kept, and the messages are read.
    third = Conversation(messages=list(second.messages))
    asked.model.branch("nobody", third.id)
    third.add(Message("user", "On"))
    await asked.respond(third)
    assert "Hm." not in asked.prompt()
    assert "Right." in asked.prompt()


async def test_a_branch_of_a_conversation_that_answers_just_now_begins_before_that() -> None:
    asked = Asked(f"Yes.{END}", f"One.{END}", f"Two.{END}")
    first = question()
    await asked.respond(first)
    second = Conversation(messages=list(first.messages))
    first.add(Message("user", "Left?"))
    async with aclosing(events_of(asked.model, first, [WEATHER, TIME])) as events:
        await anext(events)
        asked.model.branch(first.id, second.id)
    second.add(Message("user", "Right?"))
    await asked.respond(second)
    assert "Left" not in asked.prompt()
    assert asked.prompt().count("Yes.") == 1


async def test_the_conversations_used_last_keep_their_tokens_and_an_earlier_one_is_rendered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rkllm, "LEDGERS_KEPT", 2)
    # A thought is in the tokens alone.
    asked = Asked(*[f"<think>\nhm\n</think>\n\nYes.{END}"] * 4, *[f"No.{END}"] * 3)
    first, second, third = (question(f"q{number}") for number in range(3))
    for conversation in (first, second, first, third):
        conversation.add(Message("user", "On"))
        await asked.respond(conversation, thinking=True)
    for conversation, is_stored in ((first, True), (third, True), (second, False)):
        conversation.add(Message("user", "On"))
        await asked.respond(conversation)
        assert ("<think>\nhm" in asked.prompt()) == is_stored
