"""Current readings of the board, for charts and metrics.

Unreadable values are None: the NPU load is in debugfs, which only root can read on most images. Readings are not judged
here; ``npu`` and ``system`` do that.
"""

from __future__ import annotations

from dataclasses import dataclass

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_loads
from rkllm_mcp.board.system import memory_bytes, temperatures


@dataclass(frozen=True)
class Gauges:
    """Readings at one moment."""

    npu_load: tuple[int, ...] | None  # percent per core; None if not readable
    temperature_c: float | None  # hottest sensor, degrees Celsius
    memory_total: int | None  # bytes
    memory_available: int | None  # bytes that programs can still allocate


def read_gauges(machine: Machine | None = None) -> Gauges:
    """Read all values once; takes some milliseconds of file reads."""
    machine = machine or Machine()
    heat = [celsius for _, celsius in temperatures(machine)]
    return Gauges(
        npu_load=npu_loads(machine),
        temperature_c=max(heat, default=None),
        memory_total=memory_bytes(machine, "MemTotal"),
        memory_available=memory_bytes(machine, "MemAvailable"),
    )
