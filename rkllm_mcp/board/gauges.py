"""How the board is at this moment, as figures: for charts and metrics.

What cannot be read is None: the load of the NPU stands in debugfs, which only root may read on most images. It knows
where the kernel writes each figure, and judges none; ``npu`` and ``system`` do that.
"""

from __future__ import annotations

from dataclasses import dataclass

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_loads
from rkllm_mcp.board.system import memory_bytes, temperatures


@dataclass(frozen=True)
class Gauges:
    """Figures of one moment.

    Args:
        npu_load: of each core, percent; None where it may not be read.
        temperature_c: of the hottest sensor, degrees Celsius.
        memory_total: bytes.
        memory_available: bytes that programs can still take.
    """

    npu_load: tuple[int, ...] | None
    temperature_c: float | None
    memory_total: int | None
    memory_available: int | None


def read_gauges(machine: Machine | None = None) -> Gauges:
    """Look at everything once; takes some milliseconds of file reads.

    Args:
        machine: where; this machine by default.
    """
    machine = machine or Machine()
    heat = [celsius for _, celsius in temperatures(machine)]
    return Gauges(
        npu_load=npu_loads(machine),
        temperature_c=max(heat, default=None),
        memory_total=memory_bytes(machine, "MemTotal"),
        memory_available=memory_bytes(machine, "MemAvailable"),
    )
