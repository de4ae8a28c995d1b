from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.system import RUNTIME_BYTES
from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.compatibility import Fitness, check_pair, fitness, needed_bytes, platform_of
from rkllm_mcp.models.rkllm_header import RkllmFile
from rkllm_mcp.models.rknn_header import RknnFile
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


def test_memory_is_the_file_a_full_context_and_what_the_runtime_takes() -> None:
    assert needed_bytes(1000, 4096, 28672) == 1000 + 4096 * 28672 + RUNTIME_BYTES
    assert needed_bytes(0, 4096, 28672) == 0


@pytest.mark.parametrize(("encoder", "model"), [("RK3588", None), (None, "RK3588"), ("RK3576", "RK3576")])
def test_an_encoder_fits_a_model_of_whose_chip_nothing_else_is_known(encoder: str | None, model: str | None) -> None:
    check_pair(RknnFile(Path("a.rknn"), 1, encoder), RkllmFile(Path("b.rkllm"), 1, model))


def test_an_encoder_for_another_chip_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"a\.rknn is for the RK3576, and b\.rkllm for the RK3588"):
        check_pair(RknnFile(Path("a.rknn"), 1, "RK3576"), RkllmFile(Path("b.rkllm"), 1, "RK3588"))
