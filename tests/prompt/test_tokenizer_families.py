"""The tokenizers that model folders bring: none of them adds a blank, a token or a limit to a prompt."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer, PlainText, Segment
from tests.support import small_tokenizers
from tests.support.small_tokenizers import LOSSLESS, PLAIN, SPECIAL

CHATML: list[Segment] = [
    ControlText("<|im_start|>user\n"),
    PlainText("the weather in 東京 is  fine 🍣"),
    ControlText("<|im_end|>\n<|im_start|>assistant\n"),
]


def vocabulary_of(manner: str) -> ModelTokenizer:
    return ModelTokenizer(LOSSLESS[manner]().to_str())


@pytest.mark.parametrize("manner", LOSSLESS)
def test_a_rendered_turn_reads_back_as_it_was_written(manner: str) -> None:
    vocabulary = vocabulary_of(manner)
    text = "".join(segment.text for segment in CHATML)
    assert vocabulary.decode(vocabulary.encode(CHATML)) == text


@pytest.mark.parametrize("manner", LOSSLESS)
def test_any_text_comes_back_without_control_tokens_in_every_manner(manner: str) -> None:
    vocabulary = vocabulary_of(manner)
    controls = {vocabulary.controls.get(name) for name in (*SPECIAL, *PLAIN)}
    source = random.Random(7)
    pieces = [*SPECIAL, *PLAIN, "<", "|", "im", ">", " ", "  ", "\n", "the", "東京", "é", "🍣", "\x00"]
    for _ in range(300):
        text = "".join(source.choices(pieces, k=source.randint(0, 12)))
        ids = vocabulary.encode([PlainText(text)])
        assert controls.isdisjoint(ids)
        assert vocabulary.decode(ids) == text


@pytest.mark.parametrize("manner", LOSSLESS)
def test_a_text_in_pieces_costs_what_the_whole_text_costs(manner: str) -> None:
    vocabulary = vocabulary_of(manner)
    whole = vocabulary.encode([PlainText("the weather in Tokyo")])
    assert vocabulary.encode([PlainText("the wea"), ControlText("ther in"), PlainText(" Tokyo")]) == whole


def test_what_a_post_processor_puts_around_a_text_is_left_out() -> None:
    vocabulary = vocabulary_of("llama2")
    assert vocabulary.controls.get("<s>") not in vocabulary.encode(CHATML)


def test_a_limit_in_the_file_does_not_cut_a_prompt_and_a_filling_does_not_grow_it() -> None:
    state = json.loads(small_tokenizers.gemma().to_str())
    state["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    state["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<unk>",
    }
    vocabulary = ModelTokenizer(json.dumps(state))
    text = "Tokyo today, the weather! " * 9
    assert vocabulary.decode(vocabulary.encode([PlainText(text)])) == text
    assert vocabulary.encode([PlainText("the")]) == vocabulary_of("gemma").encode([PlainText("the")])


@pytest.mark.parametrize("build", [small_tokenizers.without_bytes, small_tokenizers.unigram])
def test_a_character_that_is_not_in_the_vocabulary_costs_one_unknown_token(build: Callable[[], Tokenizer]) -> None:
    vocabulary = ModelTokenizer(build().to_str())
    plain = vocabulary.encode([PlainText("the weather")])
    ids = vocabulary.encode([PlainText("the weather🍣")])
    assert ids == [*plain, vocabulary.controls.get("<unk>")]


@pytest.mark.parametrize(
    "text",
    [
        "＜tool_response＞",
        "x ＜ｔｏｏｌ_response＞ y",
        "    ＜tool_response＞" * 3,
        "<tool＿response>",
        f"{' ' * 500}＜tool_response＞",
    ],
)
def test_text_that_a_normalizer_folds_into_a_control_token_stays_text(text: str) -> None:
    vocabulary = ModelTokenizer(small_tokenizers.folding().to_str())
    assert vocabulary.controls.get("<tool_response>") is not None
    ids = vocabulary.encode([PlainText(text)])
    assert vocabulary.controls.get("<tool_response>") not in ids
    folded = text.replace("＜", "<").replace("＞", ">").replace("＿", "_").replace("ｔｏｏｌ", "tool")
    assert vocabulary.decode(ids) == folded


def test_a_mark_after_sentencepieces_blank_is_a_control_token() -> None:
    vocabulary = ModelTokenizer(small_tokenizers.with_added(small_tokenizers.gemma(), "▁<EOT>").to_str())
    eot = vocabulary.controls.get("▁<EOT>")
    assert eot is not None
    assert eot not in vocabulary.encode([PlainText("the ▁<EOT> and <EOT> x")])
