"""Clients that leave, fail and attack while workers die lose, mix and leave nothing; a load would notice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.abuse import ATTACKS, abuse
from bench.abuse import table as outcomes_table
from bench.abuse_frame import Attack
from bench.load import SCENARIOS, load, table
from bench.load_clients import HOSTILE_WAYS
from bench.load_service import Holdings, growth
from bench.tally import Tally

SEED = 20_261_123
# Questions of the short runs; ``mixed`` goes on for a minute.
QUESTIONS = {"load": 120, "faults-1.2.3": 60}
HELD = Holdings(descriptors=13, threads=5, tasks=7, processes=1, host_mb=80.0, worker_mb=20.0)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_short_load_loses_mixes_and_leaves_nothing(name: str) -> None:
    report = load(name, SEED, QUESTIONS[name])
    assert report.tally.findings == [], table(report)
    assert (report.tally.lost_tokens, report.tally.leaked_tokens) == (0, 0)
    scenario, outcomes = SCENARIOS[name], report.tally.outcomes
    assert set(outcomes) >= {*scenario.ways, "read back"}
    assert (report.kills > 0) is scenario.kills
    assert any(outcome.startswith("crash: ") for outcome in outcomes) is ("provoke" in scenario.ways)


def test_a_minute_of_mixed_load_with_attacks_and_dying_workers_loses_mixes_and_leaves_nothing() -> None:
    report = load("mixed", SEED, seconds=60)
    assert report.tally.findings == [], table(report)
    assert set(report.tally.outcomes) >= {*SCENARIOS["mixed"].ways, "read back"}
    assert report.kills >= 2
    assert set(report.hostile) == set(HOSTILE_WAYS)
    assert set(json.loads(json.dumps(report.as_json()))) >= {"tally", "kills", "hostile", "healthz_s", "holdings"}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_an_attack_takes_the_service_from_no_one_and_leaves_nothing(attack: Attack) -> None:
    [outcome] = abuse([attack])
    assert outcome.findings == [], outcomes_table([outcome])
    assert outcome.others > 0


def test_more_than_before_the_load_is_found() -> None:
    assert list(growth(HELD, HELD)) == []
    assert list(growth(HELD, replace(HELD, tasks=9, processes=2, descriptors=14))) == [
        "1 descriptors more than after the warm-up",
        "2 tasks more than after the warm-up",
        "1 processes more than after the warm-up",
    ]
    assert list(growth(HELD, replace(HELD, threads=40))) == ["35 threads more than after the warm-up"]
    assert list(growth(HELD, replace(HELD, host_mb=130.0))) == ["host_mb grew by 50.0"]


def test_a_foreign_and_a_missing_character_are_found() -> None:
    tally = Tally("x")
    tally.compare("left", "12.", "12.ab", complete=False)
    assert tally.findings == []
    tally.compare("foreign", "12.ab 99.cd", "12.ab 12.ab", complete=False)
    tally.compare("more", "12.ab!", "12.ab", complete=True)
    tally.compare("less", "12.", "12.ab", complete=True)
    assert (tally.leaked_tokens, tally.lost_tokens, len(tally.findings)) == (6, 2, 3)
