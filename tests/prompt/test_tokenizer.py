"""Foreign text never becomes a control token, and ids are those of the family's published rendering."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer

from rkllm_mcp.prompt.tokenizer import PIECE_CHARS, ControlText, ModelTokenizer, PlainText, pieces_of
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary

CONTROLS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>", "<think>")


def control_ids(vocabulary: ModelTokenizer) -> set[int]:
    ids = {vocabulary.controls.get(name) for name in CONTROLS}
    assert None not in ids
    return {i for i in ids if i is not None}


def test_text_of_a_user_and_a_template_together_cannot_form_a_control_token() -> None:
    vocabulary = demo_vocabulary()
    ids = vocabulary.encode([ControlText("<|im_"), PlainText("end|>"), PlainText("<tool"), PlainText("_call>")])
    assert control_ids(vocabulary).isdisjoint(ids)
    assert vocabulary.decode(ids) == "<|im_end|><tool_call>"


def test_ids_of_a_template_are_those_of_the_tokenizers_library() -> None:
    vocabulary = demo_vocabulary()
    reference = Tokenizer.from_str(DEMO_TOKENIZER.read_text("utf-8"))
    text = "<|im_start|>user\n東京の天気を教えて。What's up?\n\n  x<|im_end|>\n<|im_start|>assistant\n"
    whole = reference.encode(text, add_special_tokens=False).ids
    assert vocabulary.encode([ControlText(text)]) == whole
    parts = [
        ControlText("<|im_start|>user\n"),
        PlainText("東京の天気を教えて。What's up?\n\n  x"),
        ControlText("<|im_end|>\n<|im_start|>assistant\n"),
    ]
    assert vocabulary.encode(parts) == whole


def test_any_text_comes_back_as_it_was_and_without_control_tokens() -> None:
    vocabulary = demo_vocabulary()
    controls = control_ids(vocabulary)
    random_source = random.Random(20261121)
    pieces = [*CONTROLS, "<", "|", "im", "_end|", ">", "日本", "é", "\n", " ", "\x00", "🍣", "\ufeff", "tool_call>"]
    for _ in range(2000):
        text = "".join(random_source.choices(pieces, k=random_source.randint(0, 12)))
        ids = vocabulary.encode([PlainText(text)])
        assert controls.isdisjoint(ids)
        assert vocabulary.decode(ids) == text


def test_half_a_surrogate_pair_is_replaced_and_does_not_raise() -> None:
    vocabulary = demo_vocabulary()
    assert vocabulary.decode(vocabulary.encode([PlainText("a\ud83cb")])) == "a?b"


def test_a_file_that_is_not_a_tokenizer_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"not a tokenizer\.json"):
        ModelTokenizer("{}")


def test_a_long_text_has_the_tokens_of_its_parts_and_no_control_tokens_either() -> None:
    vocabulary = demo_vocabulary()
    line = f"日本 is far away {CONTROLS[0]}\n"
    ids = vocabulary.encode([PlainText(line * 1000)])
    assert ids == vocabulary.encode([PlainText(line)]) * 1000
    assert control_ids(vocabulary).isdisjoint(ids)


@pytest.mark.parametrize("text", ["word " * 20_000, "日本" * 20_000, CONTROLS[0] * 5000, "a" * 50_000])
def test_of_a_text_with_more_tokens_than_are_wanted_a_beginning_is_enough_and_any_other_is_whole(text: str) -> None:
    vocabulary = demo_vocabulary()
    segments = [ControlText("<|im_start|>user\n"), PlainText(text), ControlText("<|im_end|>\n")]
    whole = vocabulary.encode(segments)
    assert vocabulary.encode(segments, len(whole)) == whole
    beginning = vocabulary.encode(segments, 100)
    assert 100 < len(beginning) < len(whole)
    # Its last tokens may be those of a word that was cut.
    assert beginning[:90] == whole[:90]


@pytest.mark.parametrize("between", [" ", "\n", ", ", "。", "、"])
def test_long_text_is_encoded_in_pieces_whose_ids_are_those_of_the_whole(between: str) -> None:
    tokenizer = ModelTokenizer(DEMO_TOKENIZER.read_text("utf-8"))
    text = between.join(["Was man nicht", "in the house", "日本語の文章", "don't 12 km/h"] * 4000)
    pieces = list(pieces_of(text))
    assert ("".join(pieces), max(map(len, pieces)) <= PIECE_CHARS, len(pieces) > 2) == (text, True, True)
    whole = Tokenizer.from_str(DEMO_TOKENIZER.read_text("utf-8")).encode(text, add_special_tokens=False).ids
    assert tokenizer.encode([PlainText(text)]) == whole


def test_text_without_a_place_to_cut_is_cut_anywhere_and_nothing_of_it_is_lost() -> None:
    tokenizer = ModelTokenizer(DEMO_TOKENIZER.read_text("utf-8"))
    for text in ("a" * 100_000, " " * 100_000, "7" * 70_000, "\U0001f600" * 40_000):
        assert tokenizer.decode(tokenizer.encode([PlainText(text)])) == text
