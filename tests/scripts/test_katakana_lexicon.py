"""The list of katakana words is what a dictionary has, without what its words are put together from."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.katakana_lexicon import dictionary_words, is_compound, written

WORDS = {"サービス", "センター", "サービスセンター", "エリア", "サービスエリアセンター", "ビス", "サー"}


@pytest.mark.parametrize("word", ["サービスセンター", "サービスエリアセンター"])
def test_a_word_that_falls_apart_into_others_is_a_compound(word: str) -> None:
    assert is_compound(word, WORDS)


@pytest.mark.parametrize("word", ["サービス", "センター", "エリア", "ビス"])
def test_parts_of_two_letters_make_no_compound(word: str) -> None:
    assert not is_compound(word, WORDS)


def test_the_katakana_words_of_a_dictionary_are_read_whatever_else_it_says_of_them(tmp_path: Path) -> None:
    lines = [
        "サービス,1285,1285,3657,名詞",
        "経費,1,1,1,名詞",
        '"ア,イ",1,1,1,記号',
        "センター,1,1,1,名詞",
        "ア,1,1,1,記号",
    ]
    (tmp_path / "Noun.csv").write_text("\n".join(lines), encoding="euc-jp")
    assert dictionary_words(tmp_path) == {"サービス", "センター"}


def test_the_notice_stands_before_the_words_which_stand_by_their_first_letter() -> None:
    assert written(["サービス", "アジア", "サイト", "アイス"], "One.\n\nTwo.") == (
        "# One.\n#\n# Two.\nアイス アジア\nサイト サービス\n"
    )
