"""The clocks of a board at their highest, and back: ``rkllm-mcp tune``.

The clocks are those of Rockchip's fix_freq scripts (RKLLM SDK 1.3.0); where the board's own highest is lower, that is
taken. What was there before is saved below /run, so that a restart of the board undoes and forgets it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import soc_of
from rkllm_mcp.errors import UsageError

SAVED = "run/rkllm-mcp/clocks"
_USERSPACE = "userspace"


@dataclass(frozen=True)
class _Clocks:
    """The highest clocks of a chip."""

    npu_hz: int
    cpu_khz: Mapping[int, int]  # by the number of the policy
    memory_hz: int
    gpu_hz: int | None = None


_RK3588 = _Clocks(1_000_000_000, {0: 1_800_000, 4: 2_352_000, 6: 2_352_000}, 2_112_000_000, 1_000_000_000)
_CHIPS: Mapping[str, _Clocks] = {
    "RK3588S": _RK3588,
    "RK3588": _RK3588,
    "RK3576": _Clocks(1_000_000_000, {0: 2_208_000, 4: 2_304_000}, 2_112_000_000, 950_000_000),
    "RK3562": _Clocks(1_000_000_000, {0: 2_016_000}, 2_112_000_000),
    "RV1126B": _Clocks(950_000_000, {0: 1_608_000}, 1_332_000_000),
}


@dataclass(frozen=True)
class Setting:
    """A file of the kernel, and what is written to it."""

    file: str  # below the root, without a leading slash
    value: str
    now: str | None  # its content; None if it cannot be read
    saved: str | None  # what undoes it; None if it needs no undoing


def lacks_root(machine: Machine | None = None) -> bool:
    """Return True if this user cannot set the clocks: they are the machine's own, and the user is not root."""
    return (machine or Machine()).root == Path("/") and os.geteuid() != 0


def clock_settings(machine: Machine | None = None) -> list[Setting]:
    """Return what puts this board to its highest clocks, in the order of writing.

    Raises:
        UsageError: the clocks of this chip are not known.
    """
    machine = machine or Machine()
    soc = soc_of(machine)
    if soc is None:
        raise UsageError("this is not an RK3588, RK3576, RK3562 or RV1126B: there are no clocks to set; run it on one")
    clocks = _CHIPS[soc.name]
    settings: list[Setting] = []
    for path in machine.glob("sys/devices/system/cpu/cpu[0-9]*/cpuidle/state1/disable"):
        now = machine.text(path)
        settings.append(Setting(str(path), "1", now, now))
    for number, kilohertz in clocks.cpu_khz.items():
        policy = f"sys/devices/system/cpu/cpufreq/policy{number}"
        names = ("scaling_governor", "scaling_setspeed", "scaling_available_frequencies", "scaling_cur_freq")
        settings += _governed(machine, policy, names, kilohertz)
    npus = machine.glob("sys/class/devfreq/*.npu")
    for folder in npus:
        settings += _governed(machine, str(folder), _DEVFREQ, clocks.npu_hz)
    direct = "sys/kernel/debug/rknpu/freq"
    if not npus and machine.exists(direct):
        now = machine.text(direct)
        settings.append(Setting(direct, str(clocks.npu_hz), now, now))
    if clocks.gpu_hz is not None:
        for folder in machine.glob("sys/class/devfreq/*.gpu"):
            settings += _governed(machine, str(folder), _DEVFREQ, clocks.gpu_hz)
    return [*settings, *_governed(machine, "sys/class/devfreq/dmc", _DEVFREQ, clocks.memory_hz)]


# The files of a device with a governor: the governor, its clock, the clocks that it has, and the present one.
_DEVFREQ = ("governor", "userspace/set_freq", "available_frequencies", "cur_freq")


def _governed(machine: Machine, folder: str, names: tuple[str, str, str, str], limit: int) -> list[Setting]:
    """Return the settings for the highest clock up to ``limit``, and ``limit`` itself where no clocks are listed.

    The clock is restored only where it was fixed before.
    """
    governor, file, listed, present = (f"{folder}/{name}" for name in names)
    if not machine.exists(governor):
        return []
    frequencies = [int(text) for text in (machine.text(listed) or "").split() if text.isdecimal()]
    highest = max((clock for clock in frequencies if clock <= limit), default=limit)
    before = machine.text(governor)
    fixed = machine.text(present) if before == _USERSPACE else None
    return [Setting(governor, _USERSPACE, before, before), Setting(file, str(highest), machine.text(file), fixed)]


def apply_settings(settings: Sequence[Setting], machine: Machine | None = None) -> list[str]:
    """Save what was there before, write every setting, and return the files that could not be written.

    A second call keeps what the first one saved, which would be our own clocks otherwise.
    """
    machine = machine or Machine()
    saved = machine.root / SAVED
    if not saved.exists():
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(
            json.dumps([[setting.file, setting.saved] for setting in settings if setting.saved is not None]), "utf-8"
        )
    return [setting.file for setting in settings if not _is_written(machine, setting.file, setting.value)]


def undo_settings(machine: Machine | None = None) -> list[str]:
    """Write back what was saved, and return the files that could not be written; nothing is forgotten then.

    Raises:
        UsageError: nothing was saved.
    """
    machine = machine or Machine()
    saved = machine.root / SAVED
    try:
        lines: list[tuple[str, str]] = [(file, value) for file, value in json.loads(saved.read_text("utf-8"))]
    except (OSError, ValueError):
        remedy = "the clocks are the board's own, or were set by something else"
        raise UsageError(f"there is nothing to undo: /{SAVED} is not there; {remedy}") from None
    # Backwards: a clock can be set only while its governor still is ``userspace``.
    failed = [file for file, value in reversed(lines) if not _is_written(machine, file, value)]
    if not failed:
        with suppress(OSError):
            Path(saved).unlink()
    return failed


def _is_written(machine: Machine, file: str, value: str) -> bool:
    try:
        with (machine.root / file).open("r+", encoding="utf-8") as opened:
            opened.truncate(0)
            opened.write(f"{value}\n")
    except OSError:
        return False
    return True
