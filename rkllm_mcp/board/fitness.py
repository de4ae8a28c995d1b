"""Compatibility of a model with this machine, by platform and memory.

Driver, runtime and clocks are checked by the doctor. The required memory is a published measurement if available, else
the file size and a margin.
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
# Memory for the system and the assistant.
_SYSTEM_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Need:
    """Requirements of a model."""

    platform: str | None = None  # SoC of its file; None if unknown
    memory_bytes: int = 0  # memory at run time; 0 if unknown
    any_machine: bool = False  # runs everywhere, as a script for the emulated runtime


@dataclass(frozen=True)
class Fitness:
    """Result of a compatibility check."""

    verdict: Verdict  # ``tight`` if other programs must be stopped first
    reason: str = ""  # a few words


def needed_bytes(file_bytes: int) -> int:
    """Estimate the memory of a model without published measurement from its file size."""
    return int(file_bytes * MEMORY_MARGIN)


def platform_of(machine: Machine) -> str | None:
    """Return the platform of this machine's NPU, as files name it; None without a supported NPU."""
    soc = soc_of(machine)
    return _SAME_CHIP.get(soc.name, soc.name) if soc else None


def fitness(machine: Machine, need: Need) -> Fitness:
    """Compare the requirements of a model with this machine."""
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
