"""A model's platform and memory, beside this machine's, become a verdict: does it run here.

The verdict is about the chip and the memory alone; driver, runtime and clocks are the doctor's. Memory is what others
measured where they did, else the file's size and a margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import soc_of
from rkllm_mcp.board.system import MEMORY_MARGIN, gib, memory_bytes

Verdict = Literal["yes", "tight", "no", "unknown"]

# The same silicon in another package; its files are made for the RK3588 (device trees name both).
_SAME_CHIP = {"RK3588S": "RK3588"}
# What the system and the assistant need beside the model.
_SYSTEM_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Need:
    """What a model needs.

    Args:
        platform: the SoC its file is for; None when nobody says.
        memory_bytes: its memory while it runs; 0 when nobody says.
        any_machine: it runs everywhere, as a script for the emulated runtime does.
    """

    platform: str | None = None
    memory_bytes: int = 0
    any_machine: bool = False


@dataclass(frozen=True)
class Fitness:
    """Whether a model runs here.

    Args:
        verdict: ``tight`` when other programs have to end first.
        reason: why, in a few words.
    """

    verdict: Verdict
    reason: str = ""


def needed_bytes(file_bytes: int) -> int:
    """The memory of a model that nobody has measured, by its file's size."""
    return int(file_bytes * MEMORY_MARGIN)


def platform_of(machine: Machine) -> str | None:
    """The platform that files for this machine's NPU name; None where there is no supported NPU."""
    soc = soc_of(machine)
    return _SAME_CHIP.get(soc.name, soc.name) if soc else None


def fitness(machine: Machine, need: Need) -> Fitness:
    """Compare what a model needs with what this machine has."""
    if need.any_machine:
        return Fitness("yes")
    here = platform_of(machine)
    if here is None:
        return Fitness("no", "no NPU here")
    if need.platform is not None and need.platform != here:
        return Fitness("no", f"for {need.platform}")
    available, total = memory_bytes(machine, "MemAvailable"), memory_bytes(machine, "MemTotal")
    if not need.memory_bytes or available is None:
        return Fitness("unknown", "memory not known")
    if need.memory_bytes <= available:
        return Fitness("yes")
    short = f"needs {gib(need.memory_bytes)}, {gib(available)} available"
    return Fitness("tight" if need.memory_bytes + _SYSTEM_BYTES <= (total or 0) else "no", short)
