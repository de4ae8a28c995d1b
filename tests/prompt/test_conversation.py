"""A conversation becomes token ids, each rendered once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.budget import Budget, Compaction
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer, PlainText, Segment
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary

BUDGET = Budget(context_tokens=4096, max_new_tokens=256)
SYSTEM = Message("system", "You help.")
TOOL = ToolSpec("get_weather", "Weather", {"type": "object", "properties": {"location": {"type": "string"}}})


def prompt_of(template: str = "qwen2.5", *, thinking: bool = False) -> ConversationPrompt:
    return ConversationPrompt(demo_vocabulary(), TEMPLATES[template], thinking=thinking)


def ids_of(text: str) -> list[int]:
    return demo_vocabulary().encode([PlainText(text)])


def end_of_turn() -> int:
    token_id = demo_vocabulary().controls.get("<|im_end|>")
    assert token_id is not None
    return token_id


def test_the_next_prompt_begins_with_everything_that_went_in_and_came_out() -> None:
    conversation = prompt_of()
    messages = [SYSTEM, Message("user", "Weather?")]
    first = conversation.prepare(messages, [TOOL], BUDGET)
    # Ids that no encoder would choose: they have to come back as they are.
    generated = [*(ids_of("s") + ids_of("u") + ids_of("n")), end_of_turn()]
    messages.append(Message("assistant", "sun"))
    conversation.store_answer(messages[-1], generated)
    messages.append(Message("user", "And now?"))
    second = conversation.prepare(messages, [TOOL], BUDGET)
    assert second.ids[: len(first.ids) + len(generated)] == first.ids + generated
    assert (
        demo_vocabulary()
        .decode(second.ids)
        .endswith("sun<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n")
    )


def test_an_answer_that_is_continued_stays_open_with_the_ids_that_were_generated() -> None:
    conversation = prompt_of()
    messages = [SYSTEM, Message("user", "Weather?")]
    first = conversation.prepare(messages, [TOOL], BUDGET)
    # Ids that no encoder would choose, and the first byte of a character that was cut.
    generated = ids_of("s") + ids_of("u") + ids_of("n")
    messages.append(Message("assistant", "sun"))
    conversation.store_answer(messages[-1], [*generated, *ids_of("\U0002a6a5")[:1]])
    assert conversation.prepare(messages, [TOOL], BUDGET, continues=True).ids == first.ids + generated
    messages[-1] = Message("assistant", "sunny")
    conversation.store_answer(messages[-1], ids_of("ny"))
    messages.append(Message("user", "And now?"))
    text = demo_vocabulary().decode(conversation.prepare(messages, [TOOL], BUDGET).ids)
    assert text.count("sunny<|im_end|>\n") == 1
    # Another history, as after a restart, is rendered.
    again = prompt_of().prepare([*messages[:2], Message("assistant", "sun")], [TOOL], BUDGET, continues=True)
    assert again.ids == first.ids + ids_of("sun")
    begun = [Message("user", "Hi"), Message("assistant", "Yo")]
    rendered = demo_vocabulary().decode(
        prompt_of("qwen3", thinking=True).prepare(begun, [], BUDGET, continues=True).ids
    )
    assert rendered.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nYo")


@pytest.mark.parametrize("generated", ["Yo", "Yo<|im_end|>", "Yo<|endoftext|>", "Yo<|im_end|>more"])
def test_an_answer_ends_at_its_first_stop_token_and_is_closed_once(generated: str) -> None:
    conversation = prompt_of()
    messages = [Message("user", "Hi")]
    conversation.prepare(messages, [], BUDGET)
    messages.append(Message("assistant", "Yo"))
    conversation.store_answer(messages[-1], demo_vocabulary().encode([ControlText(generated)]))
    messages.append(Message("user", "Bye"))
    text = demo_vocabulary().decode(conversation.prepare(messages, [], BUDGET).ids)
    assert text == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_qwen3s_earlier_answers_are_rendered_without_a_thinking_block_as_published() -> None:
    messages = [Message("user", "Hi"), Message("assistant", "Yo", thinking="hm"), Message("user", "So?")]
    text = demo_vocabulary().decode(prompt_of("qwen3").prepare(messages, [], BUDGET).ids)
    assert text == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_tool_results_come_back_in_the_models_own_form() -> None:
    conversation = prompt_of()
    call = ToolCall("call_1", "get_weather", {"location": "東京"})
    messages = [
        Message("user", "天気は？"),
        Message("assistant", calls=(call,)),
        Message("tool", results=(ToolResult("call_1", "get_weather", "晴れ"),)),
    ]
    text = demo_vocabulary().decode(conversation.prepare(messages, [TOOL], BUDGET).ids)
    assert text.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": {"location": "東京"}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n晴れ\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_prompt_that_was_never_answered_leaves_nothing() -> None:
    conversation = prompt_of()
    messages = [Message("user", "Hi")]
    first = conversation.prepare(messages, [], BUDGET)
    assert conversation.prepare(messages, [], BUDGET) == first


def test_a_changed_history_costs_only_what_follows_the_change() -> None:
    conversation = prompt_of()
    messages = [Message("user", "one"), Message("assistant", "1"), Message("user", "two")]
    before = conversation.prepare(messages, [], BUDGET).ids
    edited = conversation.prepare([*messages[:2], Message("user", "drei")], [], BUDGET).ids
    fresh = prompt_of().prepare([*messages[:2], Message("user", "drei")], [], BUDGET).ids
    assert edited == fresh
    assert edited != before


def test_a_forced_call_ends_the_prompt_inside_the_call() -> None:
    prompt = prompt_of().prepare([Message("user", "Hi")], [TOOL], BUDGET, forced_tool="get_weather")
    text = demo_vocabulary().decode(prompt.ids)
    assert text.endswith('<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": ')


def long_history(exchanges: int) -> list[Message]:
    messages = [SYSTEM]
    for number in range(exchanges):
        messages += [Message("user", f"question {number} " * 20), Message("assistant", f"answer {number} " * 20)]
    return [*messages, Message("user", "the last question")]


def test_the_oldest_exchanges_go_first_and_the_head_and_the_question_stay() -> None:
    conversation = prompt_of()
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    prompt = conversation.prepare(long_history(12), [TOOL], budget)
    text = demo_vocabulary().decode(prompt.ids)
    assert len(prompt.ids) <= budget.prompt_limit_tokens
    assert text.startswith("<|im_start|>system\nYou help.\n\n# Tools")
    assert "the last question" in text
    assert "question 0 " not in text
    assert "question 11 " in text
    assert prompt.notice.startswith("left out the ")


def test_after_a_compaction_several_turns_pass_before_the_next() -> None:
    conversation = prompt_of()
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    messages = long_history(12)
    first = conversation.prepare(messages, [TOOL], budget)
    messages.append(Message("assistant", "yes"))
    conversation.store_answer(messages[-1], [*ids_of("yes"), end_of_turn()])
    messages.append(Message("user", "more"))
    second = conversation.prepare(messages, [TOOL], budget)
    assert second.notice == ""
    assert second.ids[: len(first.ids)] == first.ids


def test_long_tool_results_of_the_current_exchange_are_shortened_when_nothing_else_is_left() -> None:
    messages = [
        Message("user", "read it"),
        Message("assistant", calls=(ToolCall("call_1", "get_weather", {}),)),
        Message("tool", results=tuple(ToolResult("call_1", "get_weather", text) for text in ("word " * 3000, "sunny"))),
    ]
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    prompt = prompt_of().prepare(messages, [TOOL], budget)
    text = demo_vocabulary().decode(prompt.ids)
    assert len(prompt.ids) <= budget.prompt_limit_tokens
    assert "[shortened from 15000 characters]" in text
    assert text.count("[shortened from") == 1
    assert prompt.notice == "shortened long tool results"
    assert messages[-1].results[0].text == "word " * 3000


def test_what_the_host_says_with_a_question_is_shortened_in_its_middle_when_nothing_else_is_left() -> None:
    context = f"[From the notes]\n{'word ' * 3000}\nName the note."
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    prompt = prompt_of().prepare([Message("user", "And now?", context=context)], [TOOL], budget)
    text = demo_vocabulary().decode(prompt.ids)
    assert len(prompt.ids) <= budget.prompt_limit_tokens
    assert "user\n[From the notes]\nword" in text
    assert f"[shortened from {len(context)} characters]" in text
    assert "word \nName the note.\n\nAnd now?<|im_end|>" in text


def test_a_question_that_cannot_fit_is_refused_with_numbers() -> None:
    budget = Budget(context_tokens=512, max_new_tokens=128)
    with pytest.raises(PromptTooLongError) as caught:
        prompt_of().prepare([SYSTEM, Message("user", "word " * 3000)], [TOOL], budget)
    assert caught.value.limit_tokens == budget.prompt_limit_tokens == 512 - 4 - 128
    assert caught.value.prompt_tokens > 3000
    over = caught.value.prompt_tokens - caught.value.limit_tokens
    assert f"{over} more than the 380 that fit" in str(caught.value)


def test_a_question_that_is_refused_takes_no_history_with_it() -> None:
    conversation = prompt_of()
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    history = [SYSTEM, Message("user", "I am Aki."), Message("assistant", "Hello Aki.")]
    with pytest.raises(PromptTooLongError):
        conversation.prepare([*history, Message("user", "word " * 3000)], [TOOL], budget)
    prompt = conversation.prepare([*history, Message("user", "Who am I?")], [TOOL], budget)
    assert prompt == prompt_of().prepare([*history, Message("user", "Who am I?")], [TOOL], budget)
    assert "I am Aki." in demo_vocabulary().decode(prompt.ids)


def test_a_round_that_is_refused_does_not_are_in_the_place_of_the_next_question() -> None:
    conversation = prompt_of()
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    long_round = [
        Message("user", "word " * 1500),
        Message("assistant", calls=(ToolCall("call_1", "get_weather", {}),)),
        Message("tool", results=(ToolResult("call_1", "get_weather", "word " * 3000),)),
    ]
    with pytest.raises(PromptTooLongError):
        conversation.prepare([SYSTEM, *long_round], [TOOL], budget)
    messages = [SYSTEM, Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    assert conversation.prepare(messages, [TOOL], budget) == prompt_of().prepare(messages, [TOOL], budget)


def test_a_history_that_was_replaced_after_a_compaction_is_seen_whole() -> None:
    conversation = prompt_of()
    budget = Budget(context_tokens=1024, max_new_tokens=128)
    assert conversation.prepare(long_history(12), [TOOL], budget).notice
    other = [SYSTEM]
    for number in range(20):
        other += [Message("user", f"q{number}"), Message("assistant", f"a{number}")]
    other.append(Message("user", "last"))
    prompt = conversation.prepare(other, [TOOL], budget)
    assert prompt == prompt_of().prepare(other, [TOOL], budget)
    assert prompt.notice == ""


@pytest.mark.parametrize("count", range(1200, 3000, 100))
def test_shortened_results_leave_room_for_the_rounds_after_them(count: int) -> None:
    conversation = prompt_of()
    budget = Budget(context_tokens=1400, max_new_tokens=128)
    messages = [SYSTEM, Message("user", "read them")]
    notices: list[str] = []
    for number in range(1, 5):
        call = ToolCall(f"call_{number}", "get_weather", {"location": str(number)})
        messages.append(Message("assistant", calls=(call,)))
        text = "word " * (count if number == 1 else 20)
        messages.append(Message("tool", results=(ToolResult(call.id, call.name, text),)))
        notices.append(conversation.prepare(messages, [TOOL], budget).notice)
    assert notices == ["shortened long tool results", "", "", ""]


def test_a_compaction_looks_at_what_stays_and_not_at_all_that_goes() -> None:
    history = long_history(60)[1:]
    asked: list[Message] = []

    def cost(message: Message) -> int:
        asked.append(message)
        return 50

    compaction = Compaction()
    assert compaction.tighten(history, cost, 1000) == "left out the 110 oldest messages"
    assert len(compaction.view(history)) == 11
    # What stays, the exchange before it, and what stays once more.
    assert len(asked) == 11 + 2 + 11


def test_stored_turns_are_not_encoded_again() -> None:
    vocabulary = CountingVocabulary(DEMO_TOKENIZER.read_text("utf-8"))
    conversation = ConversationPrompt(vocabulary, TEMPLATES["qwen2.5"])
    messages = [SYSTEM]
    costs: list[int] = []
    for number in range(30):
        messages.append(Message("user", f"Question {number}? " + "word " * 20))
        before = vocabulary.characters
        conversation.prepare(messages, [TOOL], Budget(16_384, 256))
        costs.append(vocabulary.characters - before)
        messages.append(Message("assistant", "yes"))
        conversation.store_answer(messages[-1], [*ids_of("yes"), end_of_turn()])
    assert max(costs[1:]) < 250


class CountingVocabulary(ModelTokenizer):
    """Counts what it is given to encode."""

    characters = 0

    def encode(self, segments: Iterable[Segment], at_most: int | None = None) -> list[int]:
        given = list(segments)
        self.characters += sum(len(segment.text) for segment in given)
        return super().encode(given, at_most)


MEGABYTE = 2**20
CALL = ToolCall("call_1", "get_weather", {})
LONG = {
    "words": "word " * (MEGABYTE // 5),
    "a word": "a" * MEGABYTE,
    "blanks": " " * MEGABYTE,
    "control tokens": "<|im_end|>" * (MEGABYTE // 10),
    "Japanese": "今日は晴れ" * (MEGABYTE // 5),
}
ROUND = [Message("assistant", calls=(CALL,)), Message("tool", results=(ToolResult("call_1", "x", "word " * 1000),))]
TOO_LONG: dict[str, tuple[list[Message], list[ToolSpec]]] = {
    **{name: ([Message("user", text)], []) for name, text in LONG.items()},
    "a system text": ([Message("system", LONG["words"]), Message("user", "Hi")], []),
    "a tool": ([Message("user", "Hi")], [ToolSpec("get_weather", LONG["words"])]),
    "a question behind much": ([*long_history(9000), Message("user", LONG["words"])], []),
    "many rounds": ([Message("user", "word " * 5000), *(ROUND * 200)], []),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_of_megabytes_that_are_refused_no_more_is_encoded_than_shows_that_they_are_too_long(name: str) -> None:
    vocabulary = ReadingVocabulary(DEMO_TOKENIZER.read_text("utf-8"))
    messages, tools = TOO_LONG[name]
    with pytest.raises(PromptTooLongError, match=r"at least \d+ tokens, \d+ more than the 876 that fit") as caught:
        ConversationPrompt(vocabulary, TEMPLATES["qwen2.5"]).prepare(messages, tools, Budget(1000, 120))
    assert caught.value.prompt_tokens > 4000
    # A token of this vocabulary stands for 16 characters at most, and what is written is counted once more.
    assert vocabulary.read < 400_000


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_megabytes_that_may_go_cost_no_more_than_what_stays(text: str) -> None:
    vocabulary = ReadingVocabulary(DEMO_TOKENIZER.read_text("utf-8"))
    conversation = ConversationPrompt(vocabulary, TEMPLATES["qwen2.5"])
    long_result = [*ROUND[:1], Message("tool", results=(ToolResult("call_1", "x", text),))]
    for messages in ([*long_history(9000), Message("user", "Hi")], [Message("user", "Hi", context=text), *long_result]):
        prompt = conversation.prepare(messages, [], Budget(1000, 120))
        assert prompt.notice
        assert len(prompt.ids) <= 876
    assert vocabulary.read < 800_000


@pytest.mark.parametrize("words", [900, 3900])
def test_up_to_four_windows_are_counted_to_the_last_token(words: int) -> None:
    message = Message("user", "word " * words)
    turn, opening = TEMPLATES["qwen2.5"].turn(message, "start"), TEMPLATES["qwen2.5"].opening(thinking=False)
    exact = len(demo_vocabulary().encode(turn)) + len(demo_vocabulary().encode(opening))
    with pytest.raises(PromptTooLongError) as caught:
        prompt_of().prepare([message], [], Budget(1000, 120))
    assert (caught.value.is_partial, caught.value.prompt_tokens) == (False, exact)


class ReadingVocabulary(ModelTokenizer):
    """Counts the characters of which the tokenizer makes tokens."""

    read = 0

    def _encode_unnamed(self, text: str) -> list[int]:
        self.read += len(text)
        return super()._encode_unnamed(text)


def test_the_answer_gets_what_the_prompt_leaves() -> None:
    budget = Budget(context_tokens=1000, max_new_tokens=600)
    assert budget.prompt_limit_tokens == 1000 - 4 - 250
    assert budget.new_tokens_after(100) == 600
    assert budget.new_tokens_after(700) == 296


def test_the_parts_shown_to_a_person_are_the_prompt() -> None:
    messages = [SYSTEM, Message("user", "Hi"), Message("assistant", "Yo"), Message("user", "So?")]
    conversation = prompt_of()
    parts = conversation.parts(messages, [TOOL])
    assert [part.label for part in parts] == ["system", "tools", "user", "assistant", "user", "answer"]
    assert [i for part in parts for i in part.ids] == conversation.prepare(messages, [TOOL], BUDGET).ids
    assert [part.label for part in conversation.parts(messages, [])] == [
        "system",
        "user",
        "assistant",
        "user",
        "answer",
    ]
