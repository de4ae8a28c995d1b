"""A text is spoken sentence by sentence, without what no person wants to hear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rkllm_mcp.speech.sentences import sentences_of

# After the first twenty: passages of the documentation of Node.js, kuroshiro, WanaKana and encoding.js, all MIT.
# The page cuts answers by the same cases: tests/surfaces/web/spoken.test.mjs.
CASES: dict[str, list[str]] = json.loads((Path(__file__).parent / "sentences.json").read_text("utf-8"))


@pytest.mark.parametrize("text", CASES)
def test_a_text_has_its_sentences(text: str) -> None:
    assert list(sentences_of(text)) == CASES[text]


@pytest.mark.parametrize("unit", ["and then we walked, ", "それから歩いて、", "nospaceatall"])
def test_a_long_sentence_is_cut_into_parts_that_hold_all_of_it(unit: str) -> None:
    text = unit * 100
    parts = list(sentences_of(text))
    assert max(map(len, parts)) <= 241
    assert "".join("".join(parts).split()).rstrip(".。,、") == "".join(text.split()).rstrip(".。,、")
