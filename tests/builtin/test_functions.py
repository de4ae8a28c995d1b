"""The tools that come with the host say the right thing, and say what is wrong."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkllm_mcp.builtin.calculator import calculate
from rkllm_mcp.builtin.clock import clock as clock_at
from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.builtin.units import convert_units

SUMS = [
    ("(1980 + 420) * 1.1", "2640"),
    ("0.1 + 0.2", "0.3"),
    ("2 ** 100", "1267650600228229401496703205376"),
    ("2^10", "1024"),
    ("-7 // 2", "-4"),
    ("7 % 3", "1"),
    ("10 / 4", "2.5"),
    ("1e3", "1000"),
    ("２×３÷４", "1.5"),
    ("1,234 * 2", "2468"),
    ("15% of 200", "30"),
    ("200 * 15%", "30"),
    ("sqrt(16) + abs(-3)", "7"),
    ("√(2)", "1.4142135623731"),
    ("max(1, 234, 5)", "234"),
    ("round(2.71828, 2)", "2.72"),
    ("factorial(5)", "120"),
    ("sin(pi / 2)", "1"),
    ("SQRT(9)", "3"),
    ("1 + 1 =", "2"),
]


@pytest.mark.parametrize(("expression", "value"), SUMS)
def test_an_expression_has_its_value(expression: str, value: str) -> None:
    assert calculate(expression) == value


NOT_SUMS = [
    ("", "is not an expression"),
    ("1 +", "is not an expression"),
    ("1 / 0", "division by zero"),
    ("9 ** 9 ** 9", "too large"),
    ("2 ** 99999999", "too large"),
    ("1e308 * 10", "too large"),
    ("exp(1000)", "too large"),
    ("factorial(1000000)", "from 0 to 400"),
    ("sqrt(-1)", "It has no value"),
    ("(-1) ** 0.5", "not a real number"),
    ("1 if 2 else 3", "cannot be calculated"),
    ("x + 1", "The name 'x' cannot be calculated"),
    ("__import__('os')", "cannot be calculated"),
    ("eval(1)", "Unknown function 'eval'"),
    ("(1).real", "cannot be calculated"),
    ("'a' * 3", "cannot be calculated"),
    ("True + 1", "cannot be calculated"),
    ("1 << 5", "operator"),
    ("1, 2", "cannot be calculated"),
    ("round(1, x=2)", "cannot be calculated"),
    ("abs()", "It has no value"),
    ("(" * 300 + "1" + ")" * 300, "is not an expression|too deeply"),
    ("-" * 300 + "1", "too deeply"),
    ("1" * 1001, "longer than 1000"),
]


@pytest.mark.parametrize(("expression", "reason"), NOT_SUMS)
def test_an_expression_without_a_value_is_reported(expression: str, reason: str) -> None:
    with pytest.raises(LocalToolError, match=reason):
        calculate(expression)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789.+-*/%^(), eEpisqrtx", max_size=40))
def test_no_expression_does_anything_but_have_a_value_or_a_reason(expression: str) -> None:
    try:
        assert calculate(expression)
    except LocalToolError as error:
        assert str(error)


QUANTITIES = [
    (5, "km", "m", "5 km = 5000 m"),
    (1, "マイル", "キロメートル", "1 マイル = 1.609344 キロメートル"),
    (100, "℃", "℉", "100 ℃ = 212 ℉"),
    (98.6, "f", "摂氏", "98.6 f = 37 摂氏"),
    (0, "K", "C", "0 K = -273.15 C"),
    (1, "坪", "m2", "1 坪 = 3.305785 m2"),
    (1, "升", "l", "1 升 = 1.803907 l"),
    (1, "GB", "MB", "1 GB = 1000 MB"),
    (8, "Mb", "MB", "8 Mb = 1 MB"),
    (1, "MW", "mW", "1 MW = 1000000000 mW"),
    (1, "ＫＷｈ", "kJ", "1 ＫＷｈ = 3600 kJ"),
    (36, "km/h", "m/s", "36 km/h = 10 m/s"),
    (1, "week", "時間", "1 week = 168 時間"),
]


@pytest.mark.parametrize(("value", "source", "target", "line"), QUANTITIES)
def test_a_quantity_is_the_same_in_another_unit(value: float, source: str, target: str, line: str) -> None:
    assert convert_units(value, source, target) == line


@pytest.mark.parametrize(
    ("value", "source", "target", "reason"),
    [
        (1, "parsec", "m", "The unit 'parsec' is not known"),
        (1, "kg", "m", "kg is a unit of mass and m is a unit of length"),
        (float("nan"), "m", "km", "finite"),
    ],
)
def test_units_that_do_not_go_together_are_refused(value: float, source: str, target: str, reason: str) -> None:
    with pytest.raises(LocalToolError, match=reason):
        convert_units(value, source, target)


NOON = datetime(2026, 11, 21, 12, 0, 5, tzinfo=timezone(timedelta(hours=9), "JST"))
clock = partial(clock_at, lambda: NOON)


@pytest.mark.parametrize("word", ["", " ", "now", "NOW", "今", "現在", "ｎｏｗ", "current time"])
def test_words_for_the_present_are_the_present(word: str) -> None:
    assert clock(timezone="Europe/London", time=word) == clock(timezone="Europe/London")


@pytest.mark.parametrize("arguments", [{"time": "soon"}, {"timezone": "Atlantis"}, {"time": "99:99"}])
def test_an_error_names_no_value_that_could_be_taken_for_the_answer(arguments: dict[str, str]) -> None:
    with pytest.raises(LocalToolError) as caught:
        clock(**arguments)
    (given,) = arguments.values()
    assert not re.search(r"\d|Asia/", str(caught.value).replace(given, ""))


TIMES: list[tuple[dict[str, str], str]] = [
    ({}, "2026-11-21 12:00:05 Saturday (JST, UTC+09:00) / 2026年(令和8年)11月21日(土曜日) 12時00分05秒"),
    ({"timezone": "東京"}, "2026-11-21 12:00:05 Saturday (Asia/Tokyo, JST, UTC+09:00)"),
    ({"timezone": "日本時間"}, "(Asia/Tokyo, JST, UTC+09:00)"),
    ({"timezone": "ニューヨーク"}, "2026-11-20 22:00:05 Friday (America/New_York, EST, UTC-05:00)"),
    ({"timezone": "paris"}, "04:00:05 Saturday (Europe/Paris, CET, UTC+01:00)"),
    ({"timezone": "utc"}, "03:00:05 Saturday (utc, UTC, UTC+00:00)"),
    ({"timezone": "+05:30"}, "08:30:05 Saturday (+05:30, UTC+05:30)"),
    ({"timezone": "UTC-3"}, "00:00:05 Saturday (UTC-3, UTC-03:00)"),
    ({"time": "9:00", "timezone": "London"}, "2026-11-21 00:00:00 Saturday (Europe/London, GMT, UTC+00:00)"),
    ({"time": "９：００", "from_timezone": "London"}, "2026-11-21 18:00:00 Saturday"),
    ({"time": "1989-01-08T00:00", "from_timezone": "JST"}, "1989年(平成元年)1月8日(日曜日)"),
    ({"time": "1989/01/07"}, "1989年(昭和64年)1月7日(土曜日)"),
    ({"time": "1900-01-01"}, "1900年1月1日(月曜日)"),
    ({"time": "2026-07-01T00:00:00Z", "timezone": "Europe/Berlin"}, "02:00:00 Wednesday (Europe/Berlin, CEST"),
]


@pytest.mark.parametrize(("arguments", "part"), TIMES)
def test_a_moment_is_written_for_machines_and_for_readers_of_japanese(arguments: dict[str, str], part: str) -> None:
    assert part in clock(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"timezone": "Atlantis"}, {"time": "noonish"}, {"time": "25:00"}, {"timezone": "../x"}, {"timezone": "+24:00"}],
)
def test_an_unknown_time_or_place_is_reported(arguments: dict[str, str]) -> None:
    with pytest.raises(LocalToolError, match=r"is not known|is not a time"):
        clock(**arguments)
