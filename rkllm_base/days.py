"""Days in words -> dates: tomorrow, in 10 days, 3週間後, next Saturday, 4 July 1999, クリスマス."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import TypeAlias

from rkllm_base.numbers import with_digits

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WEEKDAYS_JA = "月火水木金土日"
_MONTH = "|".join(rf"{month[:3]}(?:{month[3:]})?" for month in _MONTHS)
_MONTH_NUMBERS = {month[:3]: number for number, month in enumerate(_MONTHS, 1)}
_UNIT = r"(day|week|month|year)s?"
_COUNT = r"(\d+|an?)"
_UNITS_JA = {
    "日": "day",
    "週": "week",
    "か月": "month",
    "ヶ月": "month",
    "カ月": "month",
    "ヵ月": "month",
    "年": "year",
}
_UNIT_JA = "|".join(_UNITS_JA)
_DAYS_OF = {"day": 1, "week": 7}


def days_in(text: str, today: date) -> list[date]:
    """Return the days that a text names, seen from ``today``, in the order of the text."""
    return [day for _, _, day in day_spans(text, today)]


def day_spans(text: str, today: date) -> list[tuple[int, int, date]]:
    """Return the days that a text names with their beginning and end in the text with its numbers in digits."""
    plain = with_digits(text).lower().replace("’", "'")
    spans: list[tuple[int, int, date]] = []
    for pattern, read in _patterns():
        for match in re.finditer(pattern, plain):
            if any(match.start() < end and start < match.end() for start, end, _ in spans):
                continue
            try:
                day = read(match, today)
            except (ValueError, OverflowError):
                continue  # a 31st of February
            spans.append((match.start(), match.end(), day))
    return sorted(spans)


def without_days(text: str) -> str:
    """Return a text, with its numbers in digits, without the days that it names."""
    plain = with_digits(text).lower().replace("’", "'")
    for pattern, _ in _patterns():
        plain = re.sub(pattern, " ", plain)
    return plain


def _move(today: date, words: str, unit: str, direction: int = 1) -> date:
    """Return the day so many units later, or earlier: "2" weeks, "a" week."""
    count = direction * (int(words) if words.isdigit() else 1)
    if unit in _DAYS_OF:
        return today + timedelta(days=count * _DAYS_OF[unit])
    months = today.year * 12 + today.month - 1 + count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    # Of a shorter month the last day.
    return date(year, month + 1, min(today.day, monthrange(year, month + 1)[1]))


def _of_year(today: date, month: int, day: int, year: str | None) -> date:
    """Return a day of the named year, or the next one of its kind."""
    if year:
        return date(int(year), month, day)
    day_of_year = date(today.year, month, day)
    return day_of_year if day_of_year >= today else day_of_year.replace(year=today.year + 1)


_Reader: TypeAlias = Callable[[re.Match[str], date], date]
# Patterns of days with their readers, the more exact first; a coming weekday is never today.
_COUNTED_DAYS: tuple[tuple[str, _Reader], ...] = (
    (r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})", lambda m, _: date(int(m[1]), int(m[2]), int(m[3]))),
    (r"(?:(\d{4})年の?)?(\d{1,2})月(\d{1,2})日", lambda m, today: _of_year(today, int(m[2]), int(m[3]), m[1])),
    (
        rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({_MONTH})\b\.?(?:,? (\d{{4}}))?",
        lambda m, today: _of_year(today, _MONTH_NUMBERS[m[2][:3]], int(m[1]), m[3]),
    ),
    (
        rf"\b({_MONTH})\b\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (\d{{4}}))?",
        lambda m, today: _of_year(today, _MONTH_NUMBERS[m[1][:3]], int(m[2]), m[3]),
    ),
    (
        rf"\b{_COUNT} {_UNIT} (?:from (?:now|today)|later|hence|ahead)|\bin (\d+) {_UNIT}\b",
        lambda m, today: _move(today, m[1] or m[3], m[2] or m[4]),
    ),
    (rf"\b{_COUNT} {_UNIT} (?:ago|before today)", lambda m, today: _move(today, m[1], m[2], -1)),
    (rf"(\d+)({_UNIT_JA})間?[後先]", lambda m, today: _move(today, m[1], _UNITS_JA[m[2]])),
    (rf"(\d+)({_UNIT_JA})間?前", lambda m, today: _move(today, m[1], _UNITS_JA[m[2]], -1)),
    (
        rf"来週の?([{_WEEKDAYS_JA}])曜",
        lambda m, today: today + timedelta(days=7 - today.weekday() + _WEEKDAYS_JA.index(m[1])),
    ),
    (
        rf"(?:今度|次|今週|この次)の?([{_WEEKDAYS_JA}])曜",
        lambda m, today: today + timedelta(days=(_WEEKDAYS_JA.index(m[1]) - today.weekday() - 1) % 7 + 1),
    ),
    (
        rf"\b(?:next|this|coming|this coming|on|until|till) ({'|'.join(_WEEKDAYS)})\b",
        lambda m, today: today + timedelta(days=(_WEEKDAYS.index(m[1]) - today.weekday() - 1) % 7 + 1),
    ),
)


@cache
def _patterns() -> tuple[tuple[str, _Reader], ...]:
    """Return patterns of days with their readers; those with a name come last, the longest names first."""
    rows = [row.split("\t") for row in Path(__file__).with_name("days.tsv").read_text("utf-8").splitlines()]
    names = [(name, day) for day, every in rows for name in every.split(",")]
    named: list[tuple[str, _Reader]] = []
    for name, day in sorted(names, key=lambda entry: -len(entry[0])):
        pattern = (
            rf"\b{re.escape(name)}(?:,? (?:in )?(\d{{4}}))?\b" if name.isascii() else rf"(?:(\d{{4}})年の?)?{name}"
        )
        named.append((pattern, _reader(day)))
    return (*_COUNTED_DAYS, *named)


def _reader(day: str) -> _Reader:
    if re.fullmatch(r"-?\d", day):
        return lambda _, today: today + timedelta(days=int(day))
    month, number = map(int, day.split("-"))
    return lambda match, today: _of_year(today, month, number, match[1])
