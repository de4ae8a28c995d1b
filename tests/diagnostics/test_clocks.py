"""``rkllm-mcp tune`` on trees of boards: it shows, does, and undoes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.diagnostics.clocks import apply_settings, clock_settings, undo_settings
from rkllm_mcp.errors import UsageError
from tests.support.board_trees import LAPTOP, ORANGE_PI_5, RK3562, plant
from tests.support.outcome import run_here

CPU = "sys/devices/system/cpu/cpufreq"
NPU = "sys/class/devfreq/fdab0000.npu"
# A board whose cores are at different settings: one fixed by hand, one of a slower bin, one left alone.
BOARD = {
    **ORANGE_PI_5,
    f"{CPU}/policy0/scaling_available_frequencies": "408000 1200000 1800000 \n",
    f"{CPU}/policy0/scaling_setspeed": "<unsupported>\n",
    f"{CPU}/policy4/scaling_available_frequencies": "408000 1800000 2256000 \n",
    f"{CPU}/policy4/scaling_governor": "userspace\n",
    f"{CPU}/policy4/scaling_cur_freq": "1800000\n",
    f"{CPU}/policy4/scaling_setspeed": "1800000\n",
    f"{CPU}/policy6/scaling_setspeed": "<unsupported>\n",
    f"{NPU}/available_frequencies": "300000000 700000000 1000000000\n",
    f"{NPU}/userspace/set_freq": "undefined\n",
    "sys/class/devfreq/dmc/userspace/set_freq": "undefined\n",
    "sys/class/devfreq/fb000000.gpu/governor": "simple_ondemand\n",
    "sys/class/devfreq/fb000000.gpu/cur_freq": "300000000\n",
    "sys/class/devfreq/fb000000.gpu/userspace/set_freq": "undefined\n",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "0\n",
    "sys/devices/system/cpu/cpu7/cpuidle/state1/disable": "1\n",
}
SET = {
    "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "1",
    "sys/devices/system/cpu/cpu7/cpuidle/state1/disable": "1",
    f"{CPU}/policy0/scaling_governor": "userspace",
    f"{CPU}/policy0/scaling_setspeed": "1800000",
    f"{CPU}/policy4/scaling_governor": "userspace",
    f"{CPU}/policy4/scaling_setspeed": "2256000",
    f"{CPU}/policy6/scaling_governor": "userspace",
    f"{CPU}/policy6/scaling_setspeed": "2352000",
    f"{NPU}/governor": "userspace",
    f"{NPU}/userspace/set_freq": "1000000000",
    "sys/class/devfreq/fb000000.gpu/governor": "userspace",
    "sys/class/devfreq/fb000000.gpu/userspace/set_freq": "1000000000",
    "sys/class/devfreq/dmc/governor": "userspace",
    "sys/class/devfreq/dmc/userspace/set_freq": "2112000000",
}


def tree_of(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def tune(root: Path, *words: str) -> tuple[int, str, str]:
    done = run_here({**os.environ, "HOME": str(root), "RKLLM_MCP_MACHINE_ROOT": str(root)}, "tune", *words)
    return done.returncode, done.stdout, done.stderr


def test_it_shows_every_file_and_changes_nothing_unless_told_to(tmp_path: Path) -> None:
    before = tree_of(plant(tmp_path, BOARD))
    code, out, err = tune(tmp_path)
    assert (code, err, tree_of(tmp_path)) == (0, "", before)
    lines = out.splitlines()
    assert lines[0].split() == ["FILE", "NOW", "TO", "SET"]
    assert [line.split()[0].removeprefix("/") for line in lines[1 : len(SET) + 1]] == list(SET)
    assert [line.split()[1:] for line in lines[1:5]] == [
        ["0", "1"],
        ["1", "as", "it", "is"],
        ["ondemand", "userspace"],
        ["<unsupported>", "1800000"],
    ]
    assert lines[-1] == "Nothing was changed."


def test_undo_restores_the_earlier_state_also_after_setting_twice(tmp_path: Path) -> None:
    plant(tmp_path, BOARD)
    set_ = (0, "The clocks are set. To go back: rkllm-mcp tune --undo")
    assert [(code, out.splitlines()[-1]) for code, out, _ in (tune(tmp_path, "-y"), tune(tmp_path, "-y"))] == [set_] * 2
    assert {name: (tmp_path / name).read_text().strip() for name in SET} == SET
    assert tune(tmp_path, "--undo") == (0, "The clocks are as they were.\n", "")
    # A clock that a governor chose by itself is its governor's again.
    chosen = {name for name in SET if name.endswith(("set_freq", "setspeed"))} - {f"{CPU}/policy4/scaling_setspeed"}
    now = tree_of(tmp_path)
    assert {name: text for name, text in now.items() if name in BOARD and name not in chosen} == {
        name: text for name, text in BOARD.items() if name not in chosen
    }
    with pytest.raises(UsageError, match="there is nothing to undo: /run/rkllm-mcp/clocks is not there"):
        undo_settings(Machine(tmp_path))


def test_a_board_without_clock_scaling_sets_the_npu_in_its_driver(tmp_path: Path) -> None:
    machine = Machine(plant(tmp_path, {**RK3562, "sys/class/devfreq/dmc/userspace/set_freq": "undefined\n"}))
    direct = tmp_path / "sys/kernel/debug/rknpu/freq"
    assert apply_settings([each for each in clock_settings(machine) if "policy" not in each.file], machine) == []
    assert direct.read_text() == "1000000000\n"
    assert undo_settings(machine) == []
    assert direct.read_text() == "600000000\n"


def test_a_clock_that_cannot_be_set_is_named_and_the_rest_is_done(tmp_path: Path) -> None:
    plant(tmp_path, BOARD)
    (tmp_path / f"{NPU}/userspace/set_freq").unlink()
    code, out, _ = tune(tmp_path, "--yes")
    assert (code, out.splitlines()[-1]) == (
        3,
        f"Could not be set: /{NPU}/userspace/set_freq. The others are; 'rkllm-mcp tune --undo' puts them back.",
    )
    assert (tmp_path / "sys/class/devfreq/dmc/userspace/set_freq").read_text() == "2112000000\n"


def test_another_machine_has_no_clocks_to_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no clocks to set; run it on one"):
        clock_settings(Machine(plant(tmp_path, LAPTOP)))
