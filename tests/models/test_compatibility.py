from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.models.compatibility import Fitness, fitness, needed_bytes, platform_of
from tests.support.board_trees import LAPTOP, RK3588, plant

GIB = 2**30


@pytest.mark.parametrize(
    ("platform", "needed", "expected"),
    [
        ("RK3588", 2 * GIB, Fitness("yes")),
        (None, 2 * GIB, Fitness("yes")),
        ("RK3588", 13 * GIB, Fitness("tight", "needs 13.0 GiB, 12.0 GiB available")),
        # 15.5 GiB in all: nothing would be left to the system.
        ("RK3588", 15 * GIB, Fitness("no", "needs 15.0 GiB, 12.0 GiB available")),
        ("RK3588", 16 * GIB, Fitness("no", "needs 16.0 GiB, 12.0 GiB available")),
        ("RK3576", 1 * GIB, Fitness("no", "for RK3576")),
        ("RK3588", 0, Fitness("unknown", "memory not known")),
    ],
)
def test_a_model_fits_a_board_by_chip_and_memory(
    tmp_path: Path, platform: str | None, needed: int, expected: Fitness
) -> None:
    assert fitness(Machine(plant(tmp_path, RK3588)), platform, needed) == expected


def test_without_an_npu_only_the_emulator_runs(tmp_path: Path) -> None:
    machine = Machine(plant(tmp_path, LAPTOP))
    assert fitness(machine, "RK3588", GIB) == Fitness("no", "no NPU here")
    for anywhere in (machine, Machine(plant(tmp_path / "board", RK3588))):
        assert fitness(anywhere, None, 0, any_machine=True) == Fitness("yes")


@pytest.mark.parametrize(
    ("compatible", "platform"),
    [("radxa,x\0rockchip,rk3588s\0", "RK3588"), ("a\0rockchip,rk3576\0", "RK3576"), ("x\0", None)],
)
def test_a_board_takes_the_files_of_its_chip(tmp_path: Path, compatible: str, platform: str | None) -> None:
    assert platform_of(Machine(plant(tmp_path, {"proc/device-tree/compatible": compatible}))) == platform


def test_unmeasured_memory_is_the_file_size_and_a_margin() -> None:
    assert needed_bytes(1000) == 1200
