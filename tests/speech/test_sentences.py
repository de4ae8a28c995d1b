"""A text is spoken sentence by sentence, without what no person wants to hear."""

from __future__ import annotations

import pytest

from rkllm_mcp.speech.sentences import sentences_of

CASES = {
    "It is 3.14 m long. Dr. Smith said yes!": ["It is 3.14 m long.", "Dr. Smith said yes!"],
    "Costs rose by 2.5 %, i.e. a lot. Why? Nobody knows.": ["Costs rose by 2.5 %, i.e. a lot.", "Why? Nobody knows."],
    "東京の天気は晴れです。最高気温は23.5℃です！": ["東京の天気は晴れです。最高気温は23.5℃です！"],
    "明日の東京の天気は晴れでしょう。最高気温は二十三度の見込みです。傘は要りません。": [
        "明日の東京の天気は晴れでしょう。",
        "最高気温は二十三度の見込みです。",
        "傘は要りません。",
    ],
    "「傘は要りますか？」と聞かれました。はい。": ["「傘は要りますか？」と聞かれました。", "はい。"],
    "# Title of it\n\nSome **bold** and *slanted* `code` words.": ["Title of it, Some bold and slanted code words."],
    "Look at [the docs](https://example.com/a?b=c) first, please.": ["Look at the docs first, please."],
    "See https://example.com/x for more about the board.": ["See for more about the board."],
    "Run this now:\n```sh\nrm -rf /tmp/x\n```\nThen wait a while.": ["Run this now:", "Then wait a while."],
    "Before it.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAnd after the table.": ["Before it. And after the table."],
    "- milk\n- eggs\n- bread and butter": ["milk, eggs, bread and butter."],
    "1. りんご\n2. みかん\n3. 大きなすいかをひとつ": ["りんご、みかん、大きなすいかをひとつ。"],
    "Great! 🎉👍🏽 It works as it should.": ["Great! It works as it should."],
    "> quoted words are read as well": ["quoted words are read as well."],
    "The sum is $$\\frac{1}{2}$$ of that amount.": ["The sum is of that amount."],
    "![a cat](cat.png) A cat is sitting there.": ["A cat is sitting there."],
    "```python\nprint(1)\n```": [],
    "---\n***\n": [],
    "…": [],
    "OK": ["OK."],
}


@pytest.mark.parametrize("text", CASES)
def test_a_text_has_its_sentences(text: str) -> None:
    assert list(sentences_of(text)) == CASES[text]


@pytest.mark.parametrize("unit", ["and then we walked, ", "それから歩いて、", "nospaceatall"])
def test_a_long_sentence_is_cut_into_parts_that_hold_all_of_it(unit: str) -> None:
    text = unit * 100
    parts = list(sentences_of(text))
    assert max(map(len, parts)) <= 241
    assert "".join("".join(parts).split()).rstrip(".。,、") == "".join(text.split()).rstrip(".。,、")
