"""The rest of the board: temperature and memory, and the limits that the checks compare with.

Source: the demo of rknn-llm and rknn-llm #62 (``Too many open files``).
"""

from __future__ import annotations

import re

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import describe_load, driver_version, npu_clocks, npu_nodes

# The demo raises the limit to 102400; loading maps some thousands of buffers.
OPEN_FILES_WANTED = 16384
# With the vendor's trip points cores slow down from about 85 degrees on.
HOT_CELSIUS = 85.0
# A manually set clock is often one step below the maximum, and the actual clock deviates slightly from its step.
FULL_SPEED_SHARE = 0.9
# KV cache, runtime and host in addition to the weights; a fifth of the weights for the published models of 1 to 4 GB.
MEMORY_MARGIN = 1.2
# Buffers of the runtime and memory of this program, in addition to weights and KV cache: our choice.
RUNTIME_BYTES = 2**29
# The kernels of Rockchip's SDK (guide 1.3.0, 2.4: 5.10.209 or 6.1.84).
VENDOR_KERNELS = ("5.10.", "6.1.")
# A CMA reserve larger than the image's default broke the NPU's memory domains (rknn-llm #437).
CMA_BYTES = 2**30


def hottest(machine: Machine) -> tuple[str, float] | None:
    """Return the name and the temperature of the hottest sensor, degrees Celsius; None without sensors."""
    zones: list[tuple[str, float]] = []
    for zone in machine.glob("sys/class/thermal/thermal_zone*"):
        millidegrees = machine.number(zone / "temp")
        if millidegrees is not None:
            zones.append((machine.text(zone / "type") or zone.name, millidegrees / 1000))
    return max(zones, key=lambda zone: (zone[1], zone[0]), default=None)


def memory_bytes(machine: Machine, field: str) -> int | None:
    """Return a field of /proc/meminfo, such as ``MemAvailable``; None if missing."""
    line = re.search(rf"^{field}:\s+(\d+) kB", machine.text("proc/meminfo") or "", re.MULTILINE)
    return int(line.group(1)) * 1024 if line else None


def gib(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**27 else f"{count / 2**20:.1f} MiB"


def device_state() -> list[tuple[str, str]]:
    """Return the board's current readings by name, for the ``device`` tool and ``board_status``."""
    machine = Machine()
    load = describe_load(machine) or ("not readable" if npu_nodes(machine) else "")
    zone, available = hottest(machine), memory_bytes(machine, "MemAvailable")
    model, driver = machine.text("proc/device-tree/model"), driver_version(machine)
    total = memory_bytes(machine, "MemTotal")
    unreadable = "/proc/meminfo does not report the available memory"
    return [
        *([("board", model)] if model else []),
        *([("npu driver", ".".join(map(str, driver)))] if driver else []),
        *([("npu load", load)] if load else []),
        *(("npu clock", str(clock)) for clock in npu_clocks(machine)),
        *([("temperature", f"{zone[1]:.0f} °C ({zone[0]})")] if zone else []),
        *([("memory total", gib(total))] if total else []),
        ("memory", unreadable if available is None else f"{gib(available)} available"),
    ]
