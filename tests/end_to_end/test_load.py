"""A short load of 64 clients finds nothing, and a load would find what it looks for. The long one is bench/load.py."""

from __future__ import annotations

import json
from dataclasses import replace

from bench.load import Spread, growth, load, spread, table
from bench.load_service import Holdings

QUESTIONS = 180
WAYS = {
    "chat",
    "program's tool",
    "execute plain",
    "execute tool",
    "ollama",
    "left",
    "hung up",
    "read back",
    "refused for now",
}
HELD = Holdings(descriptors=13, threads=5, tasks=7, processes=1, host_mb=80.0, worker_mb=20.0)


def test_clients_that_leave_when_they_like_lose_mix_and_leak_nothing() -> None:
    loaded = load(seed=20_261_123, questions=QUESTIONS)
    assert loaded.tally.findings == [], table(loaded)
    assert (loaded.tally.lost_tokens, loaded.tally.leaked_tokens) == (0, 0)
    assert loaded.tally.runs == QUESTIONS
    # What was to be survived did happen.
    assert set(loaded.tally.outcomes) >= WAYS
    # Whether the word to stop an answer comes before its end is the machine's affair.
    assert {"cancelled", "over before it was cancelled"} & set(loaded.tally.outcomes)
    assert 0 < loaded.waited_s.least <= loaded.waited_s.median <= loaded.waited_s.most
    assert loaded.answers.least <= loaded.answers.median <= loaded.answers.most
    report = json.loads(json.dumps(loaded.as_json()))
    assert report["tally"]["outcomes"] == dict(loaded.tally.outcomes)
    assert set(report) == {"tally", "answers", "waited_s", "before", "after"}


def test_what_a_service_holds_more_than_before_is_found() -> None:
    assert list(growth(HELD, HELD)) == []
    assert list(growth(HELD, replace(HELD, descriptors=14))) == ["1 descriptors more than after the warm-up"]
    assert list(growth(HELD, replace(HELD, tasks=9, processes=2))) == [
        "2 tasks more than after the warm-up",
        "1 processes more than after the warm-up",
    ]
    assert list(growth(HELD, replace(HELD, threads=40))) == ["35 threads more than after the warm-up"]
    assert list(growth(HELD, replace(HELD, host_mb=130.0))) == ["host_mb grew by 50.0"]
    assert list(growth(HELD, replace(HELD, host_mb=60.0, descriptors=12))) == []


def test_the_spread_of_values_is_their_least_middle_and_most() -> None:
    assert spread([3, 1, 2, 10]) == Spread(1, 2.5, 10)
    assert spread([]) == Spread(0, 0, 0)
