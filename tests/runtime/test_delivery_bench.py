"""The benchmark of delivery measures every way and compares them. What it measures is for people, not for a test."""

from __future__ import annotations

import pytest

from bench import delivery
from tests.support.emulator import EVERY_VERSION


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_every_way_is_measured_in_one_run(version: str) -> None:
    rows = delivery.measure(version, ["flat"])

    assert [row.way for row in rows] == ["bare", "socket", "queue", "engine"]
    assert [row.delivery_mean_us is None for row in rows] == [True, False, False, False]
    assert [row.blocked_us is None for row in rows] == [True, True, False, False]
    assert set(delivery.ratios(rows)) == {"blocked_flat_engine_to_queue"}
    assert len(delivery.table(rows).splitlines()) == 5
