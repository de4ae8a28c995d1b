"""Held answers and calls: a wrong token is corrected at every place, and the rest is as without."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.events import ModelEvent, Text, Thinking, ToolCallDetected, ToolCallFailed, Usage, event_to_dict
from rkllm_mcp.generation import (
    AnswerGrammar,
    FeedTokens,
    ForcedTool,
    GenerationOptions,
    HeldLimits,
    Input,
    ModelOptions,
    RunStats,
    Token,
)
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ControlText
from rkllm_mcp.providers.holding import HOT_TRIES
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from rkllm_mcp.runtime.run import TokenDecoder
from rkllm_mcp.sampling import Sampling, SamplingByPurpose
from rkllm_mcp.toolcalls.schemas import first_violation
from tests.support.demo_model import demo_vocabulary
from tests.support.turn_events import events_of

pytest.importorskip("llguidance")
pytestmark = pytest.mark.anyio

END = "<|im_end|>"
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["guest", "owner", "住人"]},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "is_home": {"type": "boolean"},
    },
    "required": ["name", "kind", "age", "tags", "is_home"],
    "additionalProperties": False,
}
RIGHT = '{"name": "東京 太郎", "kind": "住人", "age": 41, "tags": ["a", "b c"], "is_home": true}'
FORMAT = AnswerGrammar("json", json.dumps(PERSON))
WEATHER = ToolSpec(
    "get_weather",
    "Weather",
    {
        "type": "object",
        "properties": {"location": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["location", "unit"],
        "additionalProperties": False,
    },
)
ALARM = ToolSpec("set_alarm", "Alarm", {"type": "object", "properties": {"hour": {"type": "integer"}}})
CALLED = '{"name": "get_weather", "arguments": {"location": "東京", "unit": "celsius"}}'


def byte_alphabet() -> dict[str, int]:
    """The characters that byte-level tokenizers write bytes as (GPT-2's ``bytes_to_unicode``)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + index): byte for index, byte in enumerate(hidden)}


class StumblingRun:
    """One run: its tokens, each with the text that it completes."""

    expected_prefill = 1

    def __init__(self, engine: Stumbling, ids: Sequence[int], options: GenerationOptions) -> None:
        self._engine, self._ids, self._options = engine, list(ids[: options.max_new_tokens]), options
        self._count = 0
        self._is_over = False

    async def deliver(self, feed: FeedTokens) -> None:
        decoder = TokenDecoder()
        for start in range(0, len(self._ids), self._engine.batch):
            batch = self._ids[start : start + self._engine.batch]
            await anyio.lowlevel.checkpoint()
            if self._is_over:
                return
            self._count += len(batch)
            feed([Token(token_id, decoder.decode(self._engine.bytes_of(token_id))) for token_id in batch])

    def finish_early(self) -> None:
        self._is_over = True

    def stats(self) -> RunStats:
        is_cut = self._count == self._options.max_new_tokens and self._ids[-1] not in self._options.stop_ids
        return RunStats("length" if is_cut else "stop", 1, 1.0, 2.0, self._count, 1.5, expected_tokens=1)


@dataclass
class Stumbling:
    """A model that goes on with ``text`` behind what its prompt has of it, white space aside.

    Args:
        wrong: comes before the token with the number ``place`` of the text, ``times`` times.
        ends: the runtime delivers the token that ends an answer.
    """

    text: str
    wrong: str = ""
    place: int = -1
    times: int = 1
    ends: bool = True
    batch: int = 1  # tokens that come at once
    context_tokens: int = 4096
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    options: list[GenerationOptions] = field(default_factory=list[GenerationOptions])
    expected: list[list[int]] = field(default_factory=list[list[int]])

    async def ready(self) -> None:
        """The model is always loaded."""

    def expect(self, tokens: Sequence[int]) -> None:
        self.expected.append(list(tokens))

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        """Nothing waits."""

    def count_uncached(self, tokens: Sequence[int], owner: str | None = "") -> int:
        return 1

    def bytes_of(self, token_id: int) -> bytes:
        piece = VOCABULARY.piece(token_id) or ""
        if token_id in VOCABULARY.control_ids:
            return b"" if piece == END else piece.encode()
        return bytes(BYTES[character] for character in piece)

    @asynccontextmanager
    async def generation(
        self, prompt: Input | Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[StumblingRun, None]:
        assert isinstance(prompt, Sequence)
        assert options is not None
        self.prompts.append(list(prompt))
        self.options.append(options)
        whole = VOCABULARY.encode([ControlText(self.text + END)])
        written = VOCABULARY.decode(prompt).rpartition("assistant\n")[2]
        rest = self.text[self._end_of(bare(written)) :]
        ids = VOCABULARY.encode([ControlText(rest + END)])
        at = self.place - (len(whole) - len(ids))
        if self.wrong and 0 <= at < len(ids) and self.times > 0:
            self.times -= 1
            ids = [*ids[:at], *VOCABULARY.encode([ControlText(self.wrong)]), *ids[at:]]
        if not self.ends and STOP in ids:
            ids = ids[: ids.index(STOP)]
        yield StumblingRun(self, ids, options)

    def _end_of(self, written: str) -> int:
        """Return the place in the text behind what the prompt ends with."""
        places = {bare(self.text[:end]): end for end in reversed(range(len(self.text) + 1))}
        if written in places:
            return places[written]
        for length in range(len(written), 3, -1):
            known = bare(self.text).find(written[-length:])
            if known >= 0:
                return places[bare(self.text)[: known + length]]
        return len(self.text)

    def start_again(self, place: int) -> None:
        """Make another first answer, wrong at another place."""
        self.place, self.times = place, 1
        self.prompts, self.options = [], []


def bare(text: str) -> str:
    return "".join(text.split())


VOCABULARY = demo_vocabulary()
(STOP,) = VOCABULARY.encode([ControlText(END)])
BYTES = byte_alphabet()


LIMITS = HeldLimits()


def held_model(engine: Stumbling, limits: HeldLimits | None = LIMITS, **form: Any) -> RkllmModel:
    template = TEMPLATES["qwen2.5"]
    sampling = SamplingByPurpose(Sampling(temperature=0), Sampling(temperature=0), Sampling(temperature=0))
    written = replace(ModelForm(VOCABULARY, template, template.tool_form.syntaxes, sampling=sampling), **form)
    return RkllmModel(engine, written, held=limits)


async def respond(
    model: RkllmModel, options: ModelOptions, tools: Sequence[ToolSpec] = ()
) -> tuple[list[ModelEvent], Conversation]:
    conversation = Conversation()
    conversation.add(Message("user", "Hi"))
    async with aclosing(events_of(model, conversation, tools, options)) as events:
        return [event async for event in events], conversation


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def corrections_of(events: Sequence[ModelEvent]) -> int:
    (usage,) = (event for event in events if isinstance(event, Usage))
    return usage.corrections


PERSON_TOKENS = len(VOCABULARY.encode([ControlText(RIGHT)]))
CALL_TEXT = f"<tool_call>\n{CALLED}\n</tool_call>"
CALL_TOKENS = len(VOCABULARY.encode([ControlText(CALL_TEXT)]))
# A token that ends what stands open, text, white space, an end, half a character, a quotation mark.
WRONG = ['"}', "Sure", "\n\n\n", END, "東", "'"]


async def test_a_right_answer_is_one_run_without_a_correction() -> None:
    engine = Stumbling(RIGHT)
    events, _ = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    assert (text_of(events), corrections_of(events), len(engine.prompts)) == (RIGHT, 0, 1)


async def test_what_only_one_way_can_begin_with_is_read_and_not_written_by_the_model() -> None:
    engine = Stumbling(RIGHT)
    _, conversation = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    assert VOCABULARY.decode(engine.prompts[0]).endswith('assistant\n{"name": "')
    assert conversation.messages[-1] == Message("assistant", RIGHT)


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_token_at_any_place_leaves_a_valid_answer(wrong: str, batch: int) -> None:
    engine = Stumbling(RIGHT, wrong, batch=batch)
    model = held_model(engine, HeldLimits(corrections=20, seconds=math.inf))
    for place in range(PERSON_TOKENS):
        engine.start_again(place)
        events, conversation = await respond(model, ModelOptions(grammar=FORMAT))
        assert first_violation(json.loads(text_of(events)), PERSON) is None, (place, text_of(events))
        assert conversation.messages[-1] == Message("assistant", text_of(events))
        # The ids that stay are those of the text, so that the next question finds them.
        assert VOCABULARY.decode(engine.prompts[-1]).rpartition("assistant\n")[2] in text_of(events)
        assert corrections_of(events) <= len(engine.prompts) - 1


@pytest.mark.parametrize("wrong", ['"}', "Sure", END, "'", " the"])
async def test_a_wrong_token_at_any_place_leaves_a_call_that_can_be_made(wrong: str) -> None:
    engine = Stumbling(CALL_TEXT, wrong)
    model = held_model(engine, HeldLimits(corrections=20, seconds=math.inf))
    # Behind the opener and the brace that makes it one.
    for place in range(3, CALL_TOKENS):
        engine.start_again(place)
        events, _ = await respond(model, ModelOptions(), [WEATHER, ALARM])
        calls = [event for event in events if isinstance(event, ToolCallDetected)]
        failures = [event for event in events if isinstance(event, ToolCallFailed)]
        assert len(calls) + len(failures) == 1, place
        for call in calls:
            assert call.name == "get_weather", place
            assert first_violation(dict(call.arguments), WEATHER.input_schema) is None
        # Nobody but the model writes a name or a value, and an end inside one cuts it off.
        is_name = place < 10
        assert calls or is_name or wrong == END, (place, failures)


async def test_a_call_and_free_text_without_a_wrong_token_are_one_run() -> None:
    for text in (f"Let me see.\n{CALL_TEXT}", "It is {warm} today, see [1] and <b>.", CALL_TEXT):
        engine = Stumbling(text)
        free = Stumbling(text)
        events, _ = await respond(held_model(engine), ModelOptions(), [WEATHER, ALARM])
        plain, _ = await respond(held_model(free, None), ModelOptions(), [WEATHER, ALARM])
        assert events == plain
        assert (engine.prompts, len(engine.prompts)) == (free.prompts, 1)


async def test_thinking_is_free_and_the_answer_after_it_is_held() -> None:
    thought = '<think>\nIs it {"a": }? No.\n</think>\n\n'
    engine = Stumbling(thought + RIGHT, "Sure", place=len(VOCABULARY.encode([ControlText(thought)])))
    model = held_model(engine, thinking="auto", think=True)
    events, _ = await respond(model, ModelOptions(grammar=FORMAT))
    assert "".join(event.text for event in events if isinstance(event, Thinking)) == 'Is it {"a": }? No.\n'
    assert (json.loads(text_of(events)), corrections_of(events)) == (json.loads(RIGHT), 1)


async def test_words_after_a_complete_answer_are_left_out_and_end_the_run() -> None:
    engine = Stumbling(RIGHT + "\nI hope this helps.")
    events, conversation = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    assert (text_of(events), corrections_of(events)) == (RIGHT, 0)
    assert conversation.messages[-1].text == RIGHT


async def test_with_tools_an_answer_is_held_once_it_has_begun_as_one_and_a_call_is_still_a_call() -> None:
    options = ModelOptions(grammar=FORMAT)
    engine = Stumbling(CALL_TEXT)
    events, _ = await respond(held_model(engine), options, [WEATHER])
    assert [event.name for event in events if isinstance(event, ToolCallDetected)] == ["get_weather"]
    engine = Stumbling(RIGHT, "Sure", place=4)
    events, _ = await respond(held_model(engine), options, [WEATHER])
    assert first_violation(json.loads(text_of(events)), PERSON) is None


@pytest.mark.parametrize("wrong", ["Sure", END, "```"])
async def test_a_forced_call_is_held_from_its_first_token_on(wrong: str) -> None:
    for place in range(3):
        engine = Stumbling(CALL_TEXT, wrong, place=7 + place)
        options = ModelOptions(tool_choice=ForcedTool("get_weather"))
        events, _ = await respond(held_model(engine), options, [WEATHER, ALARM])
        calls = [event for event in events if isinstance(event, ToolCallDetected)]
        assert [call.name for call in calls] == ["get_weather"] or wrong == END


async def test_a_tool_is_never_chosen_for_the_model() -> None:
    unknown = CALL_TEXT.replace("get_weather", "open_door")
    engine = Stumbling(unknown)
    events, _ = await respond(held_model(engine), ModelOptions(), [WEATHER, ALARM])
    assert not any(isinstance(event, ToolCallDetected) for event in events)
    assert (len(engine.prompts), corrections_of(events)) == (1, 0)
    engine = Stumbling(unknown)
    events, _ = await respond(held_model(engine), ModelOptions(), [WEATHER])
    assert (len(engine.prompts), corrections_of(events)) == (1, 0)


async def test_a_choice_is_asked_for_again_hotter_and_the_answer_goes_on_as_usual() -> None:
    place = len(VOCABULARY.encode([ControlText(RIGHT.partition("41")[0])]))
    engine = Stumbling(RIGHT, "old", place=place)
    events, _ = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    assert (json.loads(text_of(events)), corrections_of(events)) == (json.loads(RIGHT), 1)
    temperatures = [options.sampling.temperature for options in engine.options if options.sampling is not None]
    assert temperatures == [0, 1.0, 0]


async def test_beyond_its_limits_the_answer_goes_on_as_the_model_writes_it() -> None:
    engine = Stumbling("never JSON at all")
    events, _ = await respond(held_model(engine, HeldLimits(corrections=3)), ModelOptions(grammar=FORMAT))
    assert corrections_of(events) == 3
    now = [0.0]

    def clock() -> float:
        now[0] += 2.0
        return now[0]

    engine = Stumbling("never JSON at all")
    events, _ = await respond(held_model(engine, HeldLimits(seconds=3.0, clock=clock)), ModelOptions(grammar=FORMAT))
    assert corrections_of(events) == 2


async def test_nothing_is_held_where_it_is_switched_off() -> None:
    engine = Stumbling(RIGHT, "Sure", place=2)
    events, _ = await respond(held_model(engine, None), ModelOptions(grammar=FORMAT))
    assert "Sure" in text_of(events)
    assert corrections_of(events) == 0
    assert "corrections" not in event_to_dict(events[-1])


async def test_a_run_that_ends_without_its_end_token_is_continued_as_well() -> None:
    place = len(VOCABULARY.encode([ControlText(RIGHT.partition('"age"')[0])]))
    engine = Stumbling(RIGHT, END, place=place, ends=False)
    events, _ = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    assert (json.loads(text_of(events)), corrections_of(events)) == (json.loads(RIGHT), 1)


async def test_the_limit_of_an_answer_counts_what_the_host_wrote() -> None:
    engine = Stumbling(RIGHT)
    _, conversation = await respond(held_model(engine), ModelOptions(grammar=FORMAT, max_new_tokens=8))
    assert len(VOCABULARY.encode([ControlText(conversation.messages[-1].text)])) <= 8


async def test_a_client_that_leaves_during_a_correction_leaves_the_model_ready() -> None:
    engine = Stumbling(RIGHT, "Sure", place=8)
    model = held_model(engine)
    conversation = Conversation()
    conversation.add(Message("user", "Hi"))
    async with aclosing(events_of(model, conversation, (), ModelOptions(grammar=FORMAT))) as events:
        async for _ in events:
            if len(engine.prompts) > 1:
                break
    engine.start_again(-1)
    later, _ = await respond(model, ModelOptions(grammar=FORMAT))
    assert text_of(later) == RIGHT


async def test_regular_expressions_and_choices_are_held() -> None:
    engine = Stumbling("090-1234-5678", "phone", place=0)
    grammar = AnswerGrammar("regex", r"0[0-9]{2}-[0-9]{4}-[0-9]{4}")
    events, _ = await respond(held_model(engine), ModelOptions(grammar=grammar))
    assert text_of(events) == "090-1234-5678"
    engine = Stumbling("東京です")
    events, _ = await respond(held_model(engine), ModelOptions(grammar=AnswerGrammar("choice", '["大阪","東京"]')))
    assert text_of(events) == "東京"


async def test_a_choice_that_stays_wrong_is_made_by_what_the_model_would_go_on_with() -> None:
    place = len(VOCABULARY.encode([ControlText(RIGHT.partition("住人")[0])]))
    engine = Stumbling(RIGHT, "Sure", place=place, times=HOT_TRIES + 1)
    events, _ = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    # The shortest way would be the owner.
    assert (json.loads(text_of(events)), corrections_of(events)) == (json.loads(RIGHT), HOT_TRIES + 2)
    limits = [options.max_new_tokens for options in engine.options]
    assert limits[1 : HOT_TRIES + 2] == [1] * HOT_TRIES + [12]
    # Without a value in it the shortest one is written.
    engine = Stumbling(f"{RIGHT.partition('住人')[0]}no such kind is there")
    events, _ = await respond(held_model(engine), ModelOptions(grammar=FORMAT))
    assert text_of(events).startswith(f"{RIGHT.partition('住人')[0]}guest")


@pytest.mark.parametrize("wrong", WRONG)
async def test_of_a_hundred_tools_the_one_that_the_model_has_named_is_held(wrong: str) -> None:
    tools = [*(replace(ALARM, name=f"set_alarm_{number}") for number in range(100)), WEATHER]
    named = len(VOCABULARY.encode([ControlText(CALL_TEXT.partition(', "arguments"')[0])])) + 1
    made = 0
    for place in range(named, CALL_TOKENS):
        engine = Stumbling(CALL_TEXT, wrong, place=place, context_tokens=16_384)
        events, _ = await respond(held_model(engine), ModelOptions(), tools)
        for event in events:
            if isinstance(event, ToolCallDetected):
                made += 1
                assert first_violation(dict(event.arguments), WEATHER.input_schema) is None
    assert made >= 0.7 * (CALL_TOKENS - named)


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_call_in_drifted_brackets_is_held(wrong: str) -> None:
    text = '[tool_call: get_weather {"location": "東京", "unit": "celsius"}]'
    begun = len(VOCABULARY.encode([ControlText(text.partition('"location"')[0])]))
    corrected = made = 0
    places = range(begun, len(VOCABULARY.encode([ControlText(text)])))
    for place in places:
        events, _ = await respond(held_model(Stumbling(text, wrong, place=place)), ModelOptions(), [WEATHER, ALARM])
        corrected += corrections_of(events) > 0
        made += any(
            isinstance(event, ToolCallDetected) and first_violation(dict(event.arguments), WEATHER.input_schema) is None
            for event in events
        )
    assert made >= 0.7 * len(places)
    assert corrected > 0
