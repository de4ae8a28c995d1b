"""The script that sets a board's clocks, on recorded trees: it shows, does, and undoes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.board_trees import ORANGE_PI_5, RK3562, plant
from tests.support.shared import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "fix_freq.sh"
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


def script(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "RKLLM_MCP_ROOT": str(root)}
    command = ["sh", str(SCRIPT), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def tree_of(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def test_without_an_option_it_shows_and_changes_nothing(tmp_path: Path) -> None:
    before = tree_of(plant(tmp_path, BOARD))
    done = script(tmp_path)
    assert (done.returncode, done.stderr, tree_of(tmp_path)) == (0, "", before)
    shown = done.stdout.splitlines()
    assert shown[0] == "On this rk3588, --apply would set:"
    assert shown[-1].startswith("Nothing was changed. To do it: sudo ")
    assert [line.removeprefix("/") for line in shown[1:-1:2]] == list(SET)
    assert shown[2:9:2] == ["  0 -> 1", "  is already 1", "  ondemand -> userspace", "  <unsupported> -> 1800000"]


def test_it_sets_the_highest_clocks_the_board_has(tmp_path: Path) -> None:
    done = script(plant(tmp_path, BOARD), "--apply")
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: (tmp_path / name).read_text().strip() for name in SET} == SET


def test_undo_restores_the_earlier_state_also_after_two_applies(tmp_path: Path) -> None:
    plant(tmp_path, BOARD)
    assert [script(tmp_path, "--apply").returncode for _ in range(2)] == [0, 0]
    done = script(tmp_path, "--undo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The clocks are as they were.\n", "")
    # A clock that a governor chose by itself is its governor's again.
    chosen = {name for name in SET if name.endswith(("set_freq", "setspeed"))} - {f"{CPU}/policy4/scaling_setspeed"}
    now = tree_of(tmp_path)
    assert {name: text for name, text in now.items() if name not in chosen} == {
        name: text for name, text in BOARD.items() if name not in chosen
    }
    again = script(tmp_path, "--undo")
    assert (again.returncode, "nothing to undo" in again.stderr) == (1, True)


def test_a_board_without_clock_scaling_sets_the_npu_in_its_driver(tmp_path: Path) -> None:
    plant(tmp_path, {**RK3562, "sys/class/devfreq/dmc/userspace/set_freq": "undefined\n"})
    direct = tmp_path / "sys/kernel/debug/rknpu/freq"
    assert script(tmp_path, "--apply").returncode == 0
    assert direct.read_text() == "1000000000\n"
    assert script(tmp_path, "--undo").returncode == 0
    assert direct.read_text() == "600000000\n"


def test_an_unsettable_clock_is_reported_and_the_rest_is_done(tmp_path: Path) -> None:
    plant(tmp_path, BOARD)
    (tmp_path / f"{NPU}/userspace/set_freq").unlink()
    (tmp_path / f"{NPU}/userspace").rmdir()
    done = script(tmp_path, "--apply")
    assert done.returncode == 1
    assert f"/{NPU}/userspace/set_freq could not be set to 1000000000" in done.stderr
    assert (tmp_path / "sys/class/devfreq/dmc/userspace/set_freq").read_text() == "2112000000\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "this is no RK3588, RK3576, RK3562 or RV1126B; nothing to do"),
        (("--fast",), "there is no option '--fast'; there are --apply and --undo"),
        (("--apply", "--undo"), "one option at most: --apply or --undo"),
    ],
)
def test_an_unsupported_request_is_one_sentence(tmp_path: Path, options: tuple[str, ...], sentence: str) -> None:
    done = script(plant(tmp_path, BOARD) if options else tmp_path, *options)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"fix_freq.sh: {sentence}\n")


def test_help_says_that_nothing_runs_by_itself() -> None:
    done = subprocess.run(["sh", str(SCRIPT), "--help"], capture_output=True, text=True, timeout=120, check=True)
    assert "--undo" in done.stdout
    assert "changes nothing" in done.stdout
