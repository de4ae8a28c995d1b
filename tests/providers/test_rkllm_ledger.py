"""Whatever happens to an answer, the next prompt begins with all that the NPU has evaluated."""

from __future__ import annotations

import random
from contextlib import aclosing

import anyio
import pytest

from rkllm_mcp.errors import RunRejectedError, WorkerDiedError
from rkllm_mcp.events import ModelEvent, Status, Text, ToolCallDetected
from rkllm_mcp.generation import ForcedTool, ModelOptions, common_prefix
from rkllm_mcp.messages import Conversation, Message, ToolResult
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from tests.support.demo_model import demo_vocabulary, demo_vocabulary_with_special
from tests.support.sampled import sampled
from tests.support.scripted_engine import Play, ScriptedEngine
from tests.support.scripted_world import END, ENDINGS, TIME, WEATHER, World, called
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio

# Whether the runtime reports how many tokens it has evaluated, and whether it delivers the token that ended a run.
RUNTIMES = [(reports, delivers_stops) for reports in (True, False) for delivers_stops in (True, False)]

# Every ending in every family, and of four kinds of runtimes one after the other; in one family all four.
LEDGERS = [
    (ending, template, *kind)
    for at, ending in enumerate(ENDINGS)
    for number, template in enumerate(TEMPLATES)
    for kind in (RUNTIMES if template == "qwen2.5" else RUNTIMES[(at + number) % 4 :][:1])
]


@sampled("ending, template, reports, delivers_stops", LEDGERS, every=9, kind=lambda case: case[1])
async def test_the_next_prompt_begins_with_the_tokens_evaluated_after_it(
    ending: str, template: str, reports: bool, delivers_stops: bool
) -> None:
    world = World(template, reports=reports, delivers_stops=delivers_stops)
    conversation = Conversation()
    for question in ("First?", "Second?", "Third?"):
        await world.ask(conversation, question, *ENDINGS[ending], options=ModelOptions(max_new_tokens=120))
        world.assert_ready(conversation)
    await world.ask(conversation, "Last?", f"Bye.{END}")
    world.assert_only_grown(conversation)
    assert world.excesses() == []
    assert sum(world.engine.prefilled) <= len(world.engine.evaluated[-1])


async def test_after_an_answer_from_facts_the_conversation_goes_on_where_it_was() -> None:
    world = World()
    conversation = Conversation()
    await world.ask(
        conversation, "First?", *(f"{called(str(number))}{END}" for number in range(4)), f"It is sunny.{END}"
    )
    *_, last_round, facts = world.engine.prompts
    await world.ask(conversation, "Second?", f"Bye.{END}")
    world.assert_ready(conversation)
    assert common_prefix(facts, last_round) < len(facts) < len(last_round) / 2
    # After it stands the beginning of an answer that was not given.
    assert common_prefix(world.engine.prompts[-1], last_round) >= len(last_round) - 12
    assert conversation.messages[-3].text == "It is sunny."


@pytest.mark.parametrize("ending", ["an answer", "two calls", "a call that cannot be read", "calls up to the limit"])
async def test_the_next_prompt_begins_with_the_evaluated_tokens_at_every_stop_of_an_answer(ending: str) -> None:
    for stop_after in range(1, 30):
        world = World()
        conversation = Conversation()
        await world.ask(conversation, "First?", *ENDINGS[ending], stop_after=stop_after)
        world.assert_ready(conversation)
        await world.ask(conversation, "Second?", f"{called('Tokyo')}{END}", f"Bye.{END}")
        world.assert_ready(conversation)
        world.assert_only_grown(conversation)
        assert world.excesses() == []
        assert conversation.messages[-1].text == "Bye."


@pytest.mark.parametrize("template", TEMPLATES)
async def test_after_an_answer_from_facts_the_next_prompt_has_the_history_without_the_repetition(template: str) -> None:
    world = World(template)
    conversation, decode = Conversation(), world.model.form.tokenizer.decode
    again = f"{called('Tokyo')}{END}"
    await world.ask(conversation, "First?", again, again, f"Fine, 20.{END}")
    world.assert_ready(conversation)
    facts = decode(world.engine.prompts[-1])
    assert "Facts:\nsunny and 20 degrees\n" in facts
    assert "get_weather" not in facts
    await world.ask(conversation, "Second?", f"Bye.{END}")
    last = decode(world.engine.prompts[-1])
    assert (last.count("Tokyo"), last.count("sunny and 20 degrees"), last.count("Fine, 20.")) == (1, 1, 1)
    assert "Facts" not in last
    assert world.excesses() == []


async def test_an_answer_stopped_before_its_first_token_leaves_an_empty_turn() -> None:
    world = World()
    conversation = Conversation()
    world.engine.answers[:] = [Play(hangs=True)]
    with anyio.move_on_after(10) as scope:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await world.ask(conversation, "First?", Play(hangs=True))

            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert conversation.messages == [Message("user", "First?"), Message("assistant")]
    world.runs[conversation.id] = [0]
    await world.ask(conversation, "Second?", f"Yes.{END}")
    world.assert_only_grown(conversation)
    assert world.excesses() == []


async def test_a_forced_call_that_fails_leaves_its_beginning_in_the_turn() -> None:
    world = World()
    conversation = Conversation()
    forced = ModelOptions(tool_choice=ForcedTool("get_weather"))
    await world.ask(conversation, "First?", RunRejectedError("no"), options=forced)
    assert conversation.messages[-1].text.startswith('<tool_call>\n{"name": "get_weather"')
    await world.ask(conversation, "Second?", f"Yes.{END}")
    world.assert_only_grown(conversation)


async def test_a_model_that_would_think_first_does_not_when_a_call_is_forced() -> None:
    vocabulary = demo_vocabulary()
    template = TEMPLATES["qwen3"]
    engine = ScriptedEngine(vocabulary, [f'{{"location": "Tokyo"}}}}\n</tool_call>{END}'])
    form = ModelForm(vocabulary, template, template.tool_form.syntaxes, thinking="open", think=True)
    conversation = Conversation()
    conversation.add(Message("user", "Hi"))
    options = ModelOptions(tool_choice=ForcedTool("get_weather"))
    events = [event async for event in events_of(RkllmModel(engine, form), conversation, [WEATHER], options)]
    assert [event.arguments for event in events if isinstance(event, ToolCallDetected)] == [{"location": "Tokyo"}]
    assert "<think>\n\n</think>\n\n<tool_call>" in vocabulary.decode(engine.prompts[0])


async def test_what_a_model_thought_stays_in_front_of_the_npu_until_turns_are_rendered_again() -> None:
    vocabulary = demo_vocabulary()
    template = TEMPLATES["qwen3"]
    engine = ScriptedEngine(vocabulary, [f"<think>\nhm\n</think>\n\nYes.{END}", f"No.{END}", f"No.{END}"])
    form = ModelForm(vocabulary, template, template.tool_form.syntaxes, thinking="auto", think=True)
    model = RkllmModel(engine, form)
    conversation = Conversation()
    for text, tools in (("One?", [WEATHER]), ("Two?", [WEATHER]), ("Three?", [WEATHER, TIME])):
        conversation.add(Message("user", text))
        async with aclosing(events_of(model, conversation, tools)) as events:
            _ = [event async for event in events]
    assert [message.thinking.strip() for message in conversation.messages[1::2]] == ["hm", "", ""]
    assert "assistant\n<think>\nhm\n</think>\n\nYes.<|im_end|>" in vocabulary.decode(engine.prompts[1])
    assert "assistant\nYes.<|im_end|>\n<|im_start|>user\nTwo?" in vocabulary.decode(engine.prompts[2])


async def test_an_event_without_a_reader_is_in_the_turn_all_the_same() -> None:
    world = World()
    world.engine.answers[:] = [f"See {called('Tokyo')} {called('Osaka')}"]
    conversation = Conversation()
    conversation.add(Message("user", "Hi"))
    async with aclosing(events_of(world.model, conversation, [WEATHER])) as events:
        async for event in events:
            if isinstance(event, ToolCallDetected):
                break
    assert conversation.messages[-1].text.startswith("See")
    assert [call.arguments for call in conversation.messages[-1].calls][:1] == [{"location": "Tokyo"}]


@pytest.mark.parametrize(
    ("ending", "text"),
    [("a turn of its own making", "Fine."), ("a result of its own making", "Ok.")],
)
async def test_what_a_model_makes_up_for_others_to_say_is_not_part_of_its_answer(ending: str, text: str) -> None:
    world = World()
    conversation = Conversation()
    await world.ask(conversation, "First?", *ENDINGS[ending])
    assert conversation.messages[-1] == Message("assistant", text)
    assert "hot" not in "".join(event.text for event in world.events if isinstance(event, Text))


async def test_a_marker_that_a_family_declares_special_is_still_read() -> None:
    vocabulary = demo_vocabulary_with_special("<tool_call>", "</tool_call>")
    template = TEMPLATES["qwen2.5"]
    engine = ScriptedEngine(vocabulary, [f"{called('Tokyo')}{END}"])
    model = RkllmModel(engine, ModelForm(vocabulary, template, template.tool_form.syntaxes))
    conversation = Conversation()
    conversation.add(Message("user", "Hi"))
    events = [event async for event in events_of(model, conversation, [WEATHER])]
    assert [event.arguments for event in events if isinstance(event, ToolCallDetected)] == [{"location": "Tokyo"}]


def random_plays(source: random.Random) -> tuple[str | Exception | Play, ...]:
    return ENDINGS[source.choice(list(ENDINGS))]


@pytest.mark.parametrize("seed", range(12))
async def test_long_mixed_conversations_only_ever_grow(seed: int) -> None:
    source = random.Random(seed)
    world = World(source.choice(list(TEMPLATES)), delivers_stops=source.random() < 0.7, context_tokens=60_000)
    conversations = [Conversation() for _ in range(1 + seed % 3)]
    for number in range(25):
        conversation = source.choice(conversations)
        await world.ask(
            conversation,
            f"Question {number}? {END} <tool_call>" * source.randint(1, 3),
            *random_plays(source),
            options=ModelOptions(
                max_new_tokens=source.choice([3, 60, None]),
                tool_choice=ForcedTool("get_weather") if source.random() < 0.1 else "auto",
            ),
            stop_after=source.choice([None, None, source.randint(1, 12)]),
        )
        world.assert_ready(conversation)
        world.assert_only_grown(conversation)
    assert world.excesses() == []
    if len(conversations) == 1:
        distinct = len(world.engine.evaluated[-1])
        assert sum(world.engine.prefilled) <= 1.02 * distinct


@pytest.mark.parametrize("seed", range(6))
async def test_a_worker_that_dies_costs_one_prefill_of_the_same_ledger(seed: int) -> None:
    source = random.Random(seed)
    world = World(context_tokens=60_000)
    conversation = Conversation()
    deaths = 0
    for number in range(15):
        dies = source.random() < 0.2
        death = Play("It is", WorkerDiedError(-11, "answering"))
        await world.ask(conversation, f"Question {number}?", *((death,) if dies else random_plays(source)))
        deaths += dies
    world.assert_ready(conversation)
    world.assert_only_grown(conversation)
    assert world.excesses() == []
    assert sum(world.engine.prefilled) <= (1 + deaths) * len(world.engine.evaluated[-1])


# The families whose tokens the demo vocabulary has; the others would be spelled out and need a larger window.
@pytest.mark.parametrize("template", ["qwen2.5", "qwen3", "chatml"])
async def test_after_a_compaction_prompts_grow_again(template: str) -> None:
    world = World(template, context_tokens=900)
    conversation = Conversation()
    compactions = 0
    for number in range(40):
        world.events.clear()
        options = ModelOptions(max_new_tokens=60)
        await world.ask(conversation, f"Question {number}?", *ENDINGS["a call"], options=options)
        changed = [e for e in world.events if isinstance(e, Status) and e.text.startswith("[Context: ")]
        if changed:
            compactions += 1
            # Within the answer the compacted history may begin anew; after it everything grows again.
            world.runs[conversation.id] = world.runs[conversation.id][-1:]
        world.assert_only_grown(conversation)
        assert world.excesses() == []
    assert 2 <= compactions <= 10
    assert conversation.messages[0] == Message("user", "Question 0?")


def words(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


async def test_tools_that_come_and_go_change_the_head_and_keep_the_words() -> None:
    world = World()
    conversation = Conversation()
    vocabulary = demo_vocabulary()
    prompts: list[str] = []
    for number, tools in enumerate(([WEATHER], [WEATHER], [], [WEATHER, TIME], [WEATHER, TIME])):
        conversation.add(Message("user", f"Question {number}?"))
        world.engine.answers[:] = [f"Answer {number}.{END}"]
        events = [event async for event in events_of(world.model, conversation, tools)]
        assert words(events) == f"Answer {number}."
        prompts.append(vocabulary.decode(world.engine.prompts[-1]))
    assert [("get_weather" in prompt, "get_time" in prompt) for prompt in prompts] == [
        (True, False),
        (True, False),
        (False, False),
        (True, True),
        (True, True),
    ]
    assert prompts[1].startswith(prompts[0] + "Answer 0.")
    assert prompts[4].startswith(prompts[3] + "Answer 3.")
    assert all(f"Answer {number}." in prompts[4] for number in range(4))


async def test_the_result_of_a_round_is_in_the_history_when_the_next_round_does_not_fit() -> None:
    world = World(context_tokens=520)
    conversation = Conversation()
    call = f"{called('Tokyo ' * 60)}{END}"
    await world.ask(conversation, "First?", call, options=ModelOptions(max_new_tokens=300))
    assert [message.role for message in conversation.messages][:3] == ["user", "assistant", "tool"]
    assert conversation.messages[2].results[0] == ToolResult("call_1", "get_weather", "sunny and 20 degrees")
    await world.ask(conversation, "Second?", f"Yes.{END}")
    assert conversation.messages[-1].text == "Yes."
