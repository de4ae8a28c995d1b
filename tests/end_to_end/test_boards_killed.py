"""Every part of three boards with one database is killed in turn while people ask, and no question is lost."""

from __future__ import annotations

from bench.boards_killed import common_queue, killed


def test_a_minute_and_a_half_in_which_every_part_is_killed_loses_no_question_and_no_answer() -> None:
    report = killed(minutes=1.5)
    assert report.tally.findings == [], report.as_json()
    assert set(report.kills) == {"board1", "PostgreSQL", "board2", "HAProxy", "board3"}
    assert report.endings["answered"] >= 20


def test_the_waits_in_a_common_queue_are_computed_from_when_questions_came() -> None:
    works = [(0.0, 1.0, 4.0), (0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (9.0, 0.5, 1.0)]
    assert common_queue(works, 1) == [1.0, 5.5, 7.0, 0.5]
    assert common_queue(works, 2) == [1.0, 1.0, 2.5, 0.5]
