"""What a recogniser heard is compared with what was said: letters, not marks, and numbers by their value."""

from __future__ import annotations

import pytest

from rkllm_mcp.diagnostics.voice import comparable, edit_distance


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("気温は二十三度です。", "気温は23度です"),
        ("Twenty one degrees, please.", "21 degrees please"),
        ("コーヒーを、２杯。", "コーヒーを2杯"),
        ("It's 3,000 m high!", "Its 3000 m high"),
    ],
)
def test_the_same_words_are_the_same_however_they_are_written(said: str, heard: str) -> None:
    assert comparable(said) == comparable(heard)


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("照明を消して", "正面を消して", 2),
        ("", "abc", 3),
        ("abc", "", 3),
        ("kitten", "sitting", 3),
        ("コーヒー", "コヒ", 2),
        ("晴れ", "晴れ", 0),
    ],
)
def test_errors_are_letters_that_are_wrong_missing_or_too_many(said: str, heard: str, errors: int) -> None:
    assert edit_distance(comparable(said), comparable(heard)) == errors
    assert edit_distance(heard, said) == errors


def test_words_are_compared_as_letters_are() -> None:
    assert edit_distance(["what", "will", "the", "weather", "be"], ["but", "will", "weather", "be"]) == 2
