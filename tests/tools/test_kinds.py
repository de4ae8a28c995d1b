"""Statements, and tools that take words of any kind."""

from __future__ import annotations

import pytest

from rkllm_mcp.builtin.function import definitions
from rkllm_mcp.tools.kinds import files_in, is_statement, kinds_in, takes_words


@pytest.mark.parametrize(
    "text",
    [
        "i love tokyo",
        "you're cool!",
        "thanks for today!",
        "今日はありがとう",
        "時間がたつのは早いですね",
        "東京タワーが好きです",
    ],
)
def test_a_statement_asks_for_nothing(text: str) -> None:
    assert is_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "东京",
            "weather tokyo",
            "what's on in tokyo, who's there",
            "i want to know the time in paris",
            "my train leaves when?",
            "what time is it",
        ),
        *(
            "今何時ですか",
            "東京の天気が知りたいです",
            "温度を見て",
            "明日の天気教えてね",
            "東京の天気",
            "会議はいつでしたか",
        ),
    ],
)
def test_a_question_and_a_wish_are_not_statements(text: str) -> None:
    assert not is_statement(text)


@pytest.mark.parametrize("text", ["what does 'file' mean", '"weather" in german?', "「時計」の英語は？"])
def test_quoted_words_are_spoken_about(text: str) -> None:
    assert is_statement(text)


def test_thanks_say_something_in_their_second_part() -> None:
    assert is_statement("thx for your time, that was everything")
    assert not is_statement("thx, what time is it")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What does notes.txt say?", ["notes.txt"]),
        ("List the directory /home/user.", ["/home/user"]),
        ("Which files are in the folder docs?", ["docs"]),
        ("Show me what's inside the reports folder.", ["reports"]),
        ("docsフォルダには何がありますか", ["docs"]),
        ("what is in my folder", []),
        ("9 km/h or 5 m/s", []),
    ],
)
def test_files_and_folders_are_named_by_their_form(text: str, names: list[str]) -> None:
    assert files_in(text) == names


@pytest.mark.parametrize(
    "text", ["time in LA", "NYCは今何時", "Asia/Tokyoの時刻", "大阪は？", "Is it cold in Kushiro?"]
)
def test_a_place_is_known_by_its_name_its_initials_or_its_form(text: str) -> None:
    assert "place" in kinds_in(text)


@pytest.mark.parametrize("text", ["how many days till christmas", "in May", "at 3 PM"])
def test_days_and_times_are_no_places(text: str) -> None:
    assert "place" not in kinds_in(text)


def test_a_number_of_hours_is_not_a_time_of_day() -> None:
    assert kinds_in("2.5時間は何分") == {"number", "quantity"}
    assert "time" in kinds_in("日本の9時はパリで何時")


def test_a_search_takes_words_and_a_clock_does_not() -> None:
    assert [name for name in ("clock", "search_files", "calculator") if takes_words(definitions()[name])] == [
        "search_files"
    ]
