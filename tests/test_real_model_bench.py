"""The scoring of bench/real_model.py, and a run of its sets on the emulated model."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from bench.real_model import Measurement, Task, figures, judge, read_tasks

NOW = datetime(2026, 11, 26, 14, 25, tzinfo=timezone.utc)
SUM = Task("six", "en", "How much?", ("calculate",), "=25", "25")
TIME = Task("own", "en", "Time?", ("clock",), "paris", "{now:Europe/Paris}")
THANKS = Task("own", "en", "Thanks!")
Case: TypeAlias = "tuple[Task, list[tuple[str, dict[str, str]]], str, int, tuple[bool, bool, bool, bool, int]]"
CASES: dict[str, Case] = {
    "right": (SUM, [("calculate", {"expression": "(158 + 67) / 9"})], "It is 25.", 2, (True, True, True, False, 0)),
    "a wrong sum": (SUM, [("calculate", {"expression": "158 + 67"})], "It is 225.", 2, (True, False, True, False, 0)),
    "no call": (SUM, [], "It is 25.", 1, (False, False, False, False, 0)),
    "another tool": (SUM, [("clock", {})], "25", 3, (False, False, False, False, 1)),
    "markup": (
        SUM,
        [("calculate", {"expression": "25"})],
        '{"name": "x", "arguments": 25}',
        2,
        (True, True, False, False, 0),
    ),
    "a time": (TIME, [("clock", {"timezone": "Paris"})], "It is 3:26 pm in Paris.", 2, (True, True, True, False, 0)),
    "a time in Japanese": (TIME, [("clock", {"timezone": "Paris"})], "15時25分です。", 2, (True, True, True, False, 0)),
    "another time": (TIME, [("clock", {"timezone": "Paris"})], "It is 16:25.", 2, (True, True, False, False, 0)),
    "words": (THANKS, [], "Gladly.", 1, (False, False, True, False, 0)),
    "a call for nothing": (THANKS, [("clock", {})], "It is noon.", 2, (False, False, True, True, 1)),
}


@pytest.mark.parametrize(("task", "calls", "text", "rounds", "expected"), CASES.values(), ids=CASES.keys())
def test_an_answer_is_scored_by_calls_arguments_fact_and_markup(
    task: Task, calls: list[tuple[str, dict[str, str]]], text: str, rounds: int, expected: tuple[bool, ...]
) -> None:
    outcome = judge(task, calls, text, rounds, NOW)
    seen = (outcome.called, outcome.right, outcome.useful, outcome.spurious, outcome.extra_rounds)
    assert seen == expected


def test_the_sets_have_forty_tasks_with_a_tool_and_twenty_without_and_half_of_one_is_kept_back() -> None:
    tasks = read_tasks()
    assert Counter((task.set, bool(task.tools)) for task in tasks) == {
        ("six", True): 40,
        ("six", False): 20,
        ("own", True): 40,
        ("own", False): 20,
    }
    assert Counter(task.kept_back for task in tasks if task.set == "own") == {True: 30, False: 30}
    assert len({task.question for task in tasks}) == len(tasks)


def test_both_sets_run_with_their_servers(tmp_path: Path) -> None:
    """The emulated model answers from a script: that the servers connect and each task is written down counts."""
    out = tmp_path / "outcomes.jsonl"
    tasks = [next(task for task in read_tasks() if task.set == name and not task.tools) for name in ("six", "own")]
    measurement = Measurement("demo", "emulator", out=out)
    anyio.run(measurement.run, tasks)
    again = Measurement("demo", out=out)
    again.read()
    assert [outcome.question for outcome in again.outcomes] == [task.question for task in tasks]
    assert figures(again.outcomes)["answered"] == 2
    assert all(outcome.prefilled > 0 for outcome in again.outcomes)
