from __future__ import annotations

import pytest

from rkllm_mcp.surfaces.terminal import table, width, wrap

HEADING = ("NAME", "SERVER", "DESCRIPTION")
ROWS = [
    ("get_weather", "weather", "東京などの「天気」を調べます。"),
    ("add", "", "Adds two numbers and says what they come to."),
]


def test_columns_are_aligned_and_wide_characters_count_as_two() -> None:
    assert table(("NAME", "WHAT"), [("東京", "a\nb"), ("x\x1b[2J", "")]) == "NAME  WHAT\n東京  a b\nx\n"


def test_a_name_cannot_turn_the_direction_of_writing() -> None:
    assert table(("NAME",), [("in\u202efdp.exe\u202c\u2067x\u2069",)]) == "NAME\ninfdp.exex\n"


def test_without_rows_no_table_is_printed() -> None:
    assert table(("NAME",), []) == ""


def test_without_a_terminal_every_row_is_one_line_of_any_length() -> None:
    assert table((), [("a", "b " * 500)]).count("\n") == 1


def test_a_last_column_that_does_not_fit_goes_on_below_itself() -> None:
    assert table(HEADING, ROWS, 50) == (
        "NAME         SERVER   DESCRIPTION\n"
        "get_weather  weather  東京などの「天気」を調べま\n"
        "                      す。\n"
        "add                   Adds two numbers and says\n"
        "                      what they come to.\n"
    )


def test_on_a_narrow_screen_every_row_is_a_paragraph() -> None:
    assert table(HEADING, ROWS, 36) == (
        "get_weather\n"
        "  SERVER weather\n"
        "  DESCRIPTION 東京などの「天気」を調\n"
        "  べます。\n"
        "add\n"
        "  DESCRIPTION Adds two numbers and\n"
        "  says what they come to.\n"
    )
    assert table(("NAME", "STATE", "TOOLS", "REASON"), [("desk", "ready", "2 tools", "because of " * 9)], 32) == (
        "desk\n"
        "  STATE ready  TOOLS 2 tools\n"
        "  REASON because of because of\n"
        "  because of because of because\n"
        "  of because of because of\n"
        "  because of because of\n"
    )


def test_rows_without_a_heading_are_paragraphs_of_their_cells() -> None:
    rows = [("/conversations [文字列]", "保存された会話、またはその文字列を含むもの")]
    assert table((), rows, 40) == ("/conversations [文字列]\n  保存された会話、またはその文字列を含む\n  もの\n")


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 20, 40, 79])
def test_nothing_is_lost_and_no_line_is_wider_than_the_screen(columns: int) -> None:
    shown = table((), ROWS, columns)
    assert [char for char in shown if not char.isspace()] == [
        char for row in ROWS for cell in row for char in cell if not char.isspace()
    ]
    # A wide character needs two columns even where there is one, and what follows a name begins two further.
    assert max(map(width, shown.split("\n"))) <= max(columns, 4)


def test_lines_break_between_words_and_between_wide_characters_but_not_before_a_full_stop() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("これは「天気」です。", 8) == ["これは", "「天気」", "です。"]
    assert wrap("long/words/are/cut", 8) == ["long/wor", "ds/are/c", "ut"]
    assert wrap("", 8) == [""]


def test_a_sign_that_is_drawn_as_an_emoji_takes_two_columns() -> None:
    signs = ("⚠\ufe0f", "1\ufe0f\u20e3", "⚠", "✅\ufe0f", "a\ufe0fb", "\ufe0f")
    assert [width(text) for text in signs] == [2, 2, 1, 2, 3, 0]
    assert max(map(width, wrap("⚠\ufe0f ok ✔\ufe0f done ❤\ufe0f " * 9, 12))) <= 12


def test_what_takes_no_column_counts_as_none() -> None:
    assert [width(text) for text in ("e\u0301", "\u200b", "☔", "ｱ", "東")] == [1, 0, 2, 1, 2]
