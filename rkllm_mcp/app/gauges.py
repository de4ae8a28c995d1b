"""Readings of the board at one moment, and the devices of its NPU, for interfaces that do not know the board."""

from __future__ import annotations

from dataclasses import dataclass

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_nodes, read_loads
from rkllm_mcp.board.system import hottest, memory_bytes


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
    zone = hottest(machine)
    return Gauges(
        npu_load=read_loads(machine)[1] or None,
        temperature_c=zone[1] if zone else None,
        memory_total=memory_bytes(machine, "MemTotal"),
        memory_available=memory_bytes(machine, "MemAvailable"),
    )


def npu_devices() -> tuple[str, ...]:
    """Return the device nodes that the runtime opens, as path patterns; empty without an NPU.

    Source: rknpu's Kconfig; a build with DRM has a card and a render node, one without has /dev/rknpu, both use heaps.
    """
    machine = Machine()
    nodes = npu_nodes(machine)
    return tuple(f"/{path}" for path in (*nodes, *(machine.glob("dev/dma_heap/*") if nodes else ())))
