"""A small soak finds nothing, and a soak would find what it looks for. The large one is bench/soak.py."""

from __future__ import annotations

from bench.soak import soak, table
from bench.soak_tally import Budget, Tally, descriptors, processes, resident_mb

RUNS = 200


def test_hundreds_of_answers_with_everything_that_goes_wrong_lose_and_leak_nothing() -> None:
    before = set(descriptors().items())
    tallies = soak(seed=20_261_122, runs=RUNS, seconds=None)
    assert [tally.findings for tally in tallies] == [[]] * 4, table(tallies)
    assert sum(tally.runs for tally in tallies) == RUNS
    assert [(tally.lost_tokens, tally.leaked_tokens) for tally in tallies] == [(0, 0)] * 4
    # What was to be survived did happen.
    assert sum(tally.restarts for tally in tallies) > 3
    outcomes = sum((tally.outcomes for tally in tallies), Tally("all").outcomes)
    assert {"complete", "left", "died", "failed", "answered"} <= set(outcomes)
    assert set(descriptors().items()) - before == set()
    assert processes() == set()


def test_a_character_of_another_answer_is_found() -> None:
    tally = Tally("x")
    tally.compare("case", "12.ab 99.cd", "12.ab 12.ab", complete=False)
    assert (tally.leaked_tokens, tally.lost_tokens) == (5, 0)
    assert tally.findings == ["case: foreign text '12.ab 99.cd' in place of '12.ab'"]


def test_more_than_there_should_be_is_found() -> None:
    tally = Tally("x")
    tally.compare("case", "12.ab!", "12.ab", complete=True)
    assert tally.leaked_tokens == 1


def test_an_answer_that_ended_well_and_is_not_whole_is_found_and_one_that_was_left_is_not() -> None:
    tally = Tally("x")
    tally.compare("case", "12.", "12.ab", complete=False)
    assert tally.findings == []
    tally.compare("case", "12.", "12.ab", complete=True)
    assert (tally.lost_tokens, tally.findings) == (2, ["case: 2 characters are missing behind '12.'"])


def test_a_budget_ends_by_runs_or_by_time() -> None:
    assert [Budget(runs=4).spent(runs) for runs in (0, 1, 4)] == [0.0, 0.25, 1.0]
    assert Budget(seconds=1e-9).spent(0) >= 1
    assert Budget().spent(10**9) == 0.0


def test_memory_of_a_process_is_read_and_of_one_that_is_gone_is_none() -> None:
    assert resident_mb() > 1
    assert resident_mb(2**22 + 1) == 0.0
