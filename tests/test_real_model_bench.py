"""The scoring of bench/real_model.py, the tasks that are kept back, and a run of its sets on the emulated model."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from bench.real_model import FRESH, KEPT_BACK, Measurement, groups, read_tasks
from rkllm_mcp.diagnostics.trial import MadeCall, TrialTask, TrialTurn, figures, judge, matches

KINDS = ["calculator", "clock", "device", "documents", "files", "none", "units", "weather"]
NOW = datetime(2026, 11, 26, 14, 25, tzinfo=timezone.utc)
SUM = TrialTask("six", "six", "en", (TrialTurn("How much?", ("calculate",), "=25", "25"),))
TIME = TrialTask("own", "clock", "en", (TrialTurn("Time?", answer="{now:Europe/Paris}"),))
RAIN = TrialTask("own", "weather", "en", (TrialTurn("Rain?", answer="yes|40", result="osaka"),))
THANKS = TrialTask("own", "none", "en", (TrialTurn("Thanks!", needs_tool=False),))
CLOCK = MadeCall("clock", {"timezone": "Paris"}, "15:25:03 Thursday")
OSAKA = MadeCall("get_weather", {"location": "Osaka"}, "Osaka City: cloudy, chance of rain 40%")
TOKYO = MadeCall("get_weather", {"location": "Tokyo"}, "Tokyo: rain, 80%")
# called, right, useful, spurious, a call shown, an internal text shown
Case: TypeAlias = "tuple[TrialTask, list[MadeCall], str, tuple[bool, bool, bool, bool, bool, bool]]"
CASES: dict[str, Case] = {
    "right": (
        SUM,
        [MadeCall("calculate", {"expression": "(158 + 67) / 9"})],
        "It is 25.",
        (True, True, True, False, False, False),
    ),
    "a wrong sum": (
        SUM,
        [MadeCall("calculate", {"expression": "158 + 67"})],
        "225",
        (True, False, True, False, False, False),
    ),
    "no call": (SUM, [], "It is 25.", (False, False, False, False, False, False)),
    "another tool": (SUM, [MadeCall("clock", {})], "25", (False, False, False, False, False, False)),
    "markup": (
        SUM,
        [MadeCall("calculate", {"expression": "25"})],
        '{"name": "x", "arguments": 25}',
        (True, True, False, False, True, True),
    ),
    "a time": (TIME, [CLOCK], "It is 3:26 pm in Paris.", (True, True, True, False, False, False)),
    "a time in Japanese": (TIME, [CLOCK], "午後3時25分です。", (True, True, True, False, False, False)),
    "another time": (TIME, [CLOCK], "It is 16:25.", (True, True, False, False, False, False)),
    "a guess of another place": (RAIN, [TOKYO], "Yes.", (True, False, False, False, False, False)),
    "the place that was asked for": (RAIN, [OSAKA], "Yes.", (True, True, True, False, False, False)),
    "an exception": (TIME, [], "TypeError: clock() got …", (False, False, False, False, False, True)),
    "the name of a tool": (THANKS, [], "Use list_directory.", (False, False, False, False, False, True)),
    "figures for programs": (THANKS, [], 'Rain.\n{"summary":"Rain."}', (False, False, False, False, False, True)),
    "words": (THANKS, [], "Gladly.", (False, False, True, False, False, False)),
    "a call for nothing": (THANKS, [CLOCK], "It is noon.", (False, False, True, True, False, False)),
}


@pytest.mark.parametrize(("task", "made", "text", "expected"), CASES.values(), ids=CASES.keys())
def test_an_answer_is_scored_by_calls_results_fact_and_what_it_shows(
    task: TrialTask, made: list[MadeCall], text: str, expected: tuple[bool, ...]
) -> None:
    outcome = judge(task, 0, made, text, text, NOW)
    seen = (outcome.called, outcome.right, outcome.useful, outcome.spurious)
    assert (*seen, outcome.call_shown, outcome.internal_shown) == expected


def test_a_later_turn_may_use_the_result_of_an_earlier_one() -> None:
    task = TrialTask("own", "dialogue", "en", (*RAIN.turns, TrialTurn("And how likely?", answer="40", result="osaka")))
    outcome = judge(task, 1, [], "40 %", "40 %", NOW, [OSAKA])
    assert (outcome.called, outcome.right, outcome.useful) == (True, True, True)


def test_a_fact_of_a_passage_is_right_in_a_conversation_without_a_call_unless_its_result_is_asked_for() -> None:
    turns = (TrialTurn("When is the party?", answer="12月12日"), TrialTurn("Rain?", answer="yes", result="osaka"))
    task = TrialTask("own", "dialogue", "en", turns)
    assert judge(task, 0, [], "12月12日です。", "12月12日です。", NOW).useful
    assert not judge(task, 1, [], "Yes.", "Yes.", NOW).useful


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("{now}", "23:25"),
        ("{now:America/New_York}", "It is 9:25 am."),
        ("{time:20:00 Asia/Tokyo Australia/Sydney}", "At 10 pm."),
        ("{date}", "26th of November"),
        ("{date:+10}", "12月6日です"),
        ("{weekday:+1}", "Friday"),
        ("{coming:5}", "2026-11-28"),
        ("{until:12-25}", "あと29日です"),
        ("{month}", "11月"),
        ("{half}", "午後"),
        ("4500", "4,500円"),
        ("2本", "２本"),
    ],
)
def test_a_pattern_is_found_in_the_forms_that_people_write(pattern: str, text: str) -> None:
    assert matches(pattern, text, NOW)
    assert not matches(pattern, "17:01, 3 May, 31", NOW)


@pytest.mark.parametrize(
    ("file", "digest"),
    [
        (KEPT_BACK, "5e8659e4558dcb75a10ed0ebf83a5ada8d8357500d44520175547c342e438047"),
        (FRESH[0], "0367476143a72cee0a94d341d77c419b5562aed7523cd81c74240f223e560c7d"),
        (FRESH[1], "be02d66098fbcc970f0cf10bbce2401197647298b0fc5b1bbee77dc561aaa6c1"),
        (FRESH[2], "8a296fb8f2bd838a2552c4e3a508d2549c24def9e6059a88487f136c190cb187"),
    ],
)
def test_what_is_kept_back_is_what_was_written_before_the_first_run(file: Path, digest: str) -> None:
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest


def test_each_kind_of_tool_has_twenty_tasks_in_each_language_and_half_of_them_are_kept_back() -> None:
    tasks = read_tasks()
    own = [task for task in tasks.values() if task.set == "own"]
    expected = {(kind, language, half): 10 for kind in KINDS for language in ("en", "ja") for half in (True, False)}
    dialogues = {("dialogue", language, half): 2 for language in ("en", "ja") for half in (True, False)}
    assert Counter((task.kind, task.language, task.kept_back) for task in own) == {**expected, **dialogues}
    assert {len(task.turns) for task in own if task.kind == "dialogue"} == {5}
    assert Counter(task.turns[0].needs_tool for task in tasks.values() if task.set == "six") == {True: 40, False: 20}


@pytest.mark.parametrize(
    ("file", "device", "without", "dialogues"),
    [
        (FRESH[0], 4, 4, (2, 2)),
        (FRESH[1], 0, 6, (2, 3)),
        (FRESH[2], 2, 6, (3, 2)),
        (FRESH[3], 2, 6, (3, 2)),
        (FRESH[4], 2, 6, (3, 2)),
        (FRESH[5], 2, 6, (3, 2)),
    ],
)
def test_the_fresh_tasks_are_four_of_most_kinds_in_each_language_and_kept_back(
    file: Path, device: int, without: int, dialogues: tuple[int, int]
) -> None:
    fresh = [task for task in read_tasks([file]).values() if task.set == "own"]
    expected = Counter({(kind, language): 4 for kind in KINDS for language in ("en", "ja")})
    for language, conversations in zip(("en", "ja"), dialogues, strict=True):
        expected[("dialogue", language)] = conversations
        expected[("device", language)] = device
        expected[("none", language)] = without
    assert Counter((task.kind, task.language) for task in fresh) == expected
    assert {len(task.turns) for task in fresh if task.kind == "dialogue"} == {5}
    assert all(task.kept_back for task in fresh)


def test_both_sets_run_with_their_servers(tmp_path: Path) -> None:
    """The emulated model answers from a script: that the servers connect and each task is written down counts."""
    out = tmp_path / "outcomes.jsonl"
    tasks = read_tasks()
    keys = [
        next(key for key, task in tasks.items() if task.set == name and not task.turns[0].needs_tool)
        for name in ("six", "own")
    ]
    keys.append("tuning dialogue en 1")
    measurement = Measurement("demo", "emulator", out=out)
    anyio.run(measurement.run, {key: tasks[key] for key in keys})
    again = Measurement("demo", out=out)
    again.read()
    assert [outcome.key for outcome in again.outcomes] == [
        f"{keys[0]} 0",
        f"{keys[1]} 0",
        *(f"{keys[2]} {n}" for n in range(5)),
    ]
    assert figures(again.outcomes)["answered"] >= 2
    assert [*groups(again.outcomes)] == ["dialogue en", "none en", "six en", "all en", "all"]
    assert all(outcome.prefilled > 0 for outcome in again.outcomes)
