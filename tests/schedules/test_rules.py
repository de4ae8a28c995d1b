"""Rules of time in zones with gaps and folds, and their words."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkllm_mcp.errors import UsageError
from rkllm_mcp.schedules.rules import WEEKDAYS, Rule, describe_rule, moments, read_rule, read_zone
from rkllm_mcp.schedules.sentences import read_sentence

SENTENCES = json.loads(Path(__file__).with_name("sentences.json").read_text("utf-8"))


def at(zone: str, wall: str) -> float:
    """The Unix time of a wall time, which is neither in a gap nor doubled."""
    return datetime.fromisoformat(wall).replace(tzinfo=read_zone(zone)).timestamp()


def walls(rule: str, zone: str, after: str, count: int) -> list[str]:
    """The next moments after a wall time, with their offsets from UTC."""
    found = islice(moments(read_rule(rule), read_zone(zone), at(zone, after)), count)
    return [datetime.fromtimestamp(moment, read_zone(zone)).isoformat(" ", "minutes") for moment in found]


@pytest.mark.parametrize(
    ("rule", "zone", "after", "expected"),
    [
        # Tokyo has no clock changes.
        ("daily 07:30", "Asia/Tokyo", "2026-11-29 10:00", ["2026-11-30 07:30+09:00", "2026-12-01 07:30+09:00"]),
        ("weekdays 07:30", "Asia/Tokyo", "2026-11-27 07:30", ["2026-11-30 07:30+09:00", "2026-12-01 07:30+09:00"]),
        ("weekly mon,thu 09:00", "Asia/Tokyo", "2026-11-30 09:00", ["2026-12-03 09:00+09:00"]),
        ("monthly 31 09:00", "Asia/Tokyo", "2027-01-31 10:00", ["2027-02-28 09:00+09:00", "2027-03-31 09:00+09:00"]),
        ("every 2d 08:00 2026-11-28", "Asia/Tokyo", "2026-11-29 10:00", ["2026-11-30 08:00+09:00"]),
        ("once 2026-12-24 18:00", "Asia/Tokyo", "2026-11-29 10:00", ["2026-12-24 18:00+09:00"]),
        ("once 2026-11-24 18:00", "Asia/Tokyo", "2026-11-29 10:00", []),
        # Berlin, 29 March 2026: 02:00 becomes 03:00. What is in the gap runs at its end, other days as usual.
        ("daily 02:30", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"]),
        ("daily 02:00", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 03:00+02:00", "2026-03-30 02:00+02:00"]),
        ("daily 03:00", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 03:00+02:00", "2026-03-30 03:00+02:00"]),
        # 25 October 2026: 02:30 comes twice and counts once, the first time.
        ("daily 02:30", "Europe/Berlin", "2026-10-24 12:00", ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"]),
        ("daily 07:30", "Europe/Berlin", "2026-10-24 12:00", ["2026-10-25 07:30+01:00", "2026-10-26 07:30+01:00"]),
        # Vancouver, 8 March and 1 November 2026.
        ("daily 02:15", "America/Vancouver", "2026-03-07 12:00", ["2026-03-08 03:00-07:00", "2026-03-09 02:15-07:00"]),
        # Lord Howe moves its clocks by half an hour: 4 October 2026, 02:00 becomes 02:30.
        ("daily 02:10", "Australia/Lord_Howe", "2026-10-03 12:00", ["2026-10-04 02:30+11:00"]),
        # 5 April 2026: 02:00 becomes 01:30, so 01:45 comes twice.
        ("daily 01:45", "Australia/LHI", "2026-04-04 12:00", ["2026-04-05 01:45+11:00", "2026-04-06 01:45+10:30"]),
        # Samoa had no 30 December 2011: what was due then ran when the 31st began.
        ("daily 07:30", "Pacific/Apia", "2011-12-28 12:00", ["2011-12-29 07:30-10:00", "2011-12-31 00:00+14:00"]),
    ],
)  # fmt: skip
def test_a_rule_follows_the_clocks_of_its_zone(rule: str, zone: str, after: str, expected: list[str]) -> None:
    assert walls(rule, zone, after, len(expected) or 1) == expected


def test_minutes_are_counted_from_the_moment_before() -> None:
    zone = read_zone("Europe/Berlin")
    assert list(islice(moments(read_rule("every 30m"), zone, 10_000.0, previous=9_000.0), 3)) == [
        10_800,
        12_600,
        14_400,
    ]
    # After a long sleep only the coming ones, in the old rhythm.
    assert next(moments(read_rule("every 30m"), zone, 100_000.0, previous=9_000.0)) == 100_800


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Vancouver", "Australia/Lord_Howe", "Asia/Tokyo"])
@given(
    after=st.integers(1_760_000_000, 1_900_000_000),
    rule=st.one_of(
        st.builds("daily {:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)),
        st.builds("weekly {} 02:{:02}".format, st.sampled_from(WEEKDAYS), st.integers(0, 59)),
        st.builds("monthly {} 01:30".format, st.integers(1, 31)),
        st.builds("every {}d 02:30 2026-01-01".format, st.integers(1, 40)),
    ),
)
def test_moments_come_in_order_and_a_jump_of_a_day_changes_none(zone: str, after: int, rule: str) -> None:
    known, where = read_rule(rule), read_zone(zone)
    found = list(islice(moments(known, where, after), 4))
    assert found == sorted(set(found))
    assert found[0] > after
    # A clock that was a day behind finds the same moments from there on.
    earlier = [moment for moment in islice(moments(known, where, after - 86_400), 8) if moment > after]
    assert earlier[:2] == found[: len(earlier[:2])]


@pytest.mark.parametrize(
    "text",
    [
        *("once 2026-12-01 15:00", "daily 07:30", "weekdays 00:00", "weekly mon,thu 09:00", "monthly 31 23:59"),
        *("every 30m", "every 2h", "every 90m", "every 2d 07:30", "every 2d 07:30 2026-12-01"),
    ],
)
def test_a_rule_is_written_as_it_is_read(text: str) -> None:
    assert str(read_rule(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "daily",
        "daily 25:00",
        "every 0m",
        "weekly foo 09:00",
        "monthly 32 09:00",
        "once 2026-13-01 09:00",
        "* * * * *",
    ],
)
def test_what_is_not_a_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no rule of time; write one such as .*weekdays 07:30"):
        read_rule(text)


def test_an_unknown_zone_is_refused() -> None:
    for name in ("Mars/Olympus", "../../etc/passwd", ""):
        with pytest.raises(UsageError, match="there is no time zone"):
            read_zone(name)


def test_rules_are_said_in_both_languages() -> None:
    rules = [
        "weekdays 07:30",
        "weekly mon,thu 09:00",
        "monthly 31 18:00",
        "every 1h",
        "every 90m",
        "once 2026-11-30 15:05",
    ]
    said = [(describe_rule(read_rule(rule), "en"), describe_rule(read_rule(rule), "ja")) for rule in rules]
    assert said == [
        ("every weekday (Monday to Friday) at 7:30", "平日(月〜金)の7:30"),
        ("every Mon, Thu at 9:00", "毎週月・木曜日の9:00"),
        ("on the last day of every month at 18:00", "毎月末日の18:00"),
        ("every hour", "1時間ごと"),
        ("every 90 minutes", "90分ごと"),
        ("once, on Mon 2026-11-30 at 15:05", "2026-11-30(月) 15:05に1回"),
    ]


@pytest.mark.parametrize(("sentence", "expected"), [*SENTENCES["tuned"], *SENTENCES["held_out"]])
def test_a_sentence_is_a_schedule_or_none(sentence: str, expected: list[str] | None) -> None:
    said = read_sentence(sentence, datetime.fromisoformat(SENTENCES["now"]))
    found = None if said is None else [str(said.rule), said.prompt, "remind" if said.is_reminder else "ask"]
    assert found == expected


def test_an_hour_without_am_or_pm_is_the_next_one_that_comes() -> None:
    def rule_at(hour: int) -> Rule | None:
        said = read_sentence("remind me at 3 to call", datetime(2026, 11, 29, hour, 30, tzinfo=timezone.utc))
        return said.rule if said else None

    assert [str(rule_at(hour)) for hour in (1, 10, 16)] == [
        *("once 2026-11-29 03:00", "once 2026-11-29 15:00", "once 2026-11-30 03:00"),
    ]


@settings(max_examples=20)
@given(st.text(max_size=100))
def test_no_text_breaks_the_reader(text: str) -> None:
    read_sentence(text, datetime(2026, 11, 29, 10, tzinfo=timezone.utc))
    read_sentence(f"毎朝{text}時に", datetime(2026, 11, 29, 10, tzinfo=timezone.utc))
    read_sentence(f"every {text} at {text}", datetime(2026, 11, 29, 10, tzinfo=timezone.utc))
