from __future__ import annotations

import unicodedata

import pytest

from rkllm_base.characters import RADICALS, fold_characters


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("校⻑室は⻄館", "校長室は西館"),
        ("⼭⼝⽀店", "山口支店"),
        ("髙島屋と宮﨑様と廣田商店と渡邊", "高島屋と宮崎様と広田商店と渡辺"),
        ("葛\U000e0100城市", "葛城市"),
        ("再\u200b起\u200b動 Proce\u00addure", "再起動 Procedure"),
        ("斎藤と齋藤は別の斉藤", "斎藤と斎藤は別の斉藤"),
        ("plain text", "plain text"),
    ],
)
def test_characters_in_place_of_others_are_folded(text: str, folded: str) -> None:
    assert fold_characters(text) == folded
    assert fold_characters(folded) == folded


def test_radicals_become_characters_that_are_none_themselves() -> None:
    assert all(len(kanji) == 1 and "CJK RADICAL" not in unicodedata.name(kanji) for kanji in RADICALS.values())
