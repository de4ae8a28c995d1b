"""Figures of a recorded board, and of a machine that shows none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.app.gauges import Gauges, read_gauges
from rkllm_mcp.board.machine import Machine
from tests.support.board_trees import RK3588, plant


def test_a_board_shows_every_figure(tmp_path: Path) -> None:
    gauges = read_gauges(Machine(plant(tmp_path, RK3588)))
    assert gauges.npu_load == (12, 0, 0)
    assert gauges.temperature_c == pytest.approx(47.153)
    assert gauges.memory_total is not None
    assert gauges.memory_available is not None
    assert 0 < gauges.memory_available < gauges.memory_total


def test_a_machine_that_shows_nothing_has_no_figures(tmp_path: Path) -> None:
    assert read_gauges(Machine(tmp_path)) == Gauges(None, None, None, None)
