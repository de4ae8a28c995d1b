"""A short run of friendly and hostile clients with dying workers finds nothing. The long one is bench/abuse.py."""

from __future__ import annotations

import json

from bench.abuse import CLIENTS, MOST_GROWTH_MB, abuse, table

QUESTIONS = 160
HOSTILE = {"half open", "slow", "huge", "disconnecting", "odd schema", "costly", "wrong key"}


def test_hostile_clients_and_dying_workers_lose_and_mix_nothing() -> None:
    abused = abuse(seed=20_261_122, questions=QUESTIONS)
    assert abused.tally.findings == [], table(abused)
    assert (abused.tally.lost_tokens, abused.tally.leaked_tokens) == (0, 0)
    # Every question was answered in the end, and what was to be survived did happen.
    assert abused.tally.runs == abused.tally.outcomes["answered"] == QUESTIONS
    assert abused.tally.outcomes["read back"] >= CLIENTS // 2
    assert abused.kills >= 2
    assert set(abused.hostile) == HOSTILE
    assert abused.healthz_s
    assert abused.growth_mb < MOST_GROWTH_MB, table(abused)
    report = json.loads(json.dumps(abused.as_json()))
    assert set(report) == {"tally", "kills", "hostile", "healthz", "growth_mb"}
