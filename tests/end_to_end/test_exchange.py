"""Two models in turn under mixed load with dying workers lose and mix nothing. The long run is bench/exchange.py."""

from __future__ import annotations

import json

from bench.exchange import exchange, table

QUESTIONS = 120


def test_two_models_in_turn_under_load_with_dying_workers_lose_and_mix_nothing() -> None:
    exchanged = exchange(seed=20_261_122, questions=QUESTIONS)
    tally = exchanged.tally
    assert tally.findings == [], table(exchanged)
    assert (tally.lost_tokens, tally.leaked_tokens) == (0, 0)
    assert tally.runs == tally.outcomes["answered"] == QUESTIONS
    # What was to be survived did happen.
    assert exchanged.loads >= 3
    assert exchanged.kills >= 1
    assert tally.outcomes["read back"] >= 5
    assert set(json.loads(json.dumps(exchanged.as_json()))) == {"tally", "kills", "loads", "longest_s", "healthz"}
