"""Checks of the rest of the board: clocks, temperature, limits, and memory for the model.

Source: Rockchip's fix_freq scripts (relevant clocks), the demo of rknn-llm (open files), rknn-llm #62 (``Too many open
files``), the library's own dependencies (libgomp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rkllm_mcp.board.finding import Finding
from rkllm_mcp.board.machine import Machine

# The demo raises the limit to 102400; loading maps some thousands of buffers.
OPEN_FILES_WANTED = 16384
# With the vendor's trip points cores slow down from about 85 degrees on.
HOT_CELSIUS = 85.0
# A manually set clock is often one step below the maximum, and the actual clock deviates slightly from its step.
FULL_SPEED_SHARE = 0.9
# KV cache, runtime and host in addition to the weights; a fifth of the weights for the published models of 1 to 4 GB.
MEMORY_MARGIN = 1.2
# The kernels of Rockchip's SDK (guide 1.3.0, 2.4: 5.10.209 or 6.1.84).
VENDOR_KERNELS = ("5.10.", "6.1.")
# A CMA reserve larger than the image's default broke the NPU's memory domains (rknn-llm #437).
CMA_BYTES = 2**30

_GOMP = "libgomp.so.1"
_LIBRARY_FOLDERS = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib")


def check_kernel(machine: Machine, *, on_board: bool) -> Iterator[Finding]:
    """Check the kernel; the driver is made for the vendor's versions."""
    release = machine.text("proc/sys/kernel/osrelease")
    if not release:
        return
    if release.startswith(VENDOR_KERNELS):
        yield Finding("kernel", "ok" if on_board else "info", release)
    else:
        remedy = "Rockchip recommends 5.10.209 or 6.1.84; others need a driver of their own." if on_board else ""
        yield Finding("kernel", "info", release, remedy)


def check_governors(machine: Machine) -> Iterator[Finding]:
    """Check that the CPU cores run at full speed; sampling runs on them."""
    found: list[str] = []
    is_slow = False
    for policy in machine.glob("sys/devices/system/cpu/cpufreq/policy*"):
        governor = machine.text(f"{machine.inside(policy)}/scaling_governor") or "unknown"
        kilohertz = machine.number(f"{machine.inside(policy)}/scaling_cur_freq")
        found.append(f"{policy.name} {governor}" + (f" {kilohertz // 1000} MHz" if kilohertz is not None else ""))
        is_slow = is_slow or governor not in {"performance", "userspace"} or _is_throttled(machine, policy, governor)
    if not found:
        return
    command = "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
    if is_slow:
        remedy = "Set them to full speed; that lasts until the next start."
        yield Finding("cpu governor", "warn", ", ".join(found), remedy, command)
    else:
        yield Finding("cpu governor", "ok", ", ".join(found))


def _is_throttled(machine: Machine, policy: Path, governor: str) -> bool:
    """Return True if the clock was set well below the maximum."""
    name = machine.inside(policy)
    fastest = machine.number(f"{name}/cpuinfo_max_freq")
    chosen = machine.number(f"{name}/scaling_cur_freq")
    if chosen is None:
        chosen = machine.number(f"{name}/scaling_setspeed")
    if governor != "userspace" or fastest is None or chosen is None:
        return False
    return chosen < fastest * FULL_SPEED_SHARE


def check_memory_clock(machine: Machine) -> Iterator[Finding]:
    """Check that the memory runs at full speed; it limits decoding."""
    if not machine.exists("sys/class/devfreq/dmc"):
        remedy = (
            "The firmware does not scale the memory clock, and may leave it low; try the board maker's newest image."
        )
        yield Finding("memory clock", "warn", "no /sys/class/devfreq/dmc", remedy)
        return
    governor = machine.text("sys/class/devfreq/dmc/governor")
    hertz = machine.number("sys/class/devfreq/dmc/cur_freq")
    found = f"{hertz / 1e6:.0f} MHz, governor {governor}" if hertz is not None else f"governor {governor}"
    slow = governor not in {"performance", "userspace"}
    command = "echo performance | sudo tee /sys/class/devfreq/dmc/governor"
    remedy = "Set it to full speed; that lasts until the next start."
    yield Finding("memory clock", "warn", found, remedy, command) if slow else Finding("memory clock", "ok", found)


def check_temperature(machine: Machine) -> Iterator[Finding]:
    """Check the hottest sensor of the chip."""
    zones = temperatures(machine)
    if not zones:
        return
    name, celsius = max(zones, key=lambda zone: (zone[1], zone[0]))
    found = f"{celsius:.0f} °C ({name})"
    if celsius >= HOT_CELSIUS:
        command = "watch cat /sys/class/thermal/thermal_zone*/temp"
        yield Finding("temperature", "warn", found, "The chip slows down when it is hot; cool it.", command)
    else:
        yield Finding("temperature", "ok", found)


def temperatures(machine: Machine) -> list[tuple[str, float]]:
    """Return every sensor by name, degrees Celsius."""
    zones: list[tuple[str, float]] = []
    for zone in machine.glob("sys/class/thermal/thermal_zone*"):
        millidegrees = machine.number(f"{machine.inside(zone)}/temp")
        if millidegrees is not None:
            zones.append((machine.text(f"{machine.inside(zone)}/type") or zone.name, millidegrees / 1000))
    return zones


def check_open_files(machine: Machine) -> Iterator[Finding]:
    """Check the limit of open files; a model is mapped in thousands of pieces."""
    line = re.search(r"^Max open files\s+(\S+)\s+(\S+)", machine.text("proc/self/limits") or "", re.MULTILINE)
    if line is None:
        yield Finding("open files", "unknown", "/proc/self/limits is not readable")
        return
    soft, hard = line.groups()
    found = f"at most {soft}, up to {hard} on request"
    # A process may raise its own limit up to the hard limit, and the runtime's process does so.
    if hard == "unlimited" or int(hard) >= OPEN_FILES_WANTED:
        yield Finding("open files", "ok", found)
    else:
        remedy = "Raise it and log in again; a service has LimitNOFILE=102400 in its unit."
        command = "echo '* hard nofile 102400' | sudo tee -a /etc/security/limits.conf"
        yield Finding("open files", "warn", found, remedy, command)


def check_memory(machine: Machine, model_bytes: int) -> Iterator[Finding]:
    """Check that the model fits into the available memory."""
    available = memory_bytes(machine, "MemAvailable")
    if available is None:
        yield Finding("memory", "unknown", "/proc/meminfo does not report the available memory")
        return
    found = f"{gib(available)} available"
    if not model_bytes:
        yield Finding("memory", "info", found)
        return
    found = f"{found}, the model is {gib(model_bytes)}"
    total = memory_bytes(machine, "MemTotal") or available
    if available >= model_bytes * MEMORY_MARGIN:
        yield Finding("memory", "ok", found)
    elif total < model_bytes * MEMORY_MARGIN:
        remedy = f"This machine has {gib(total)} in all; take a smaller model."
        yield Finding("memory", "fail", found, remedy, "rkllm-mcp models list")
    else:
        status = "warn" if available >= model_bytes else "fail"
        yield Finding("memory", status, found, "End the programs that need most.", "ps -eo rss,comm --sort=-rss | head")


def check_reserve(machine: Machine) -> Iterator[Finding]:
    """Report an unusually large memory reserve for devices."""
    reserve = memory_bytes(machine, "CmaTotal")
    if reserve is not None and reserve > CMA_BYTES:
        remedy = "A reserve of this size can prevent models from loading; remove cma= from the kernel command line."
        yield Finding("cma", "warn", f"{gib(reserve)} reserved", remedy, "cat /proc/cmdline")


def memory_bytes(machine: Machine, field: str) -> int | None:
    """Return a field of /proc/meminfo, such as ``MemAvailable``; None if missing."""
    line = re.search(rf"^{field}:\s+(\d+) kB", machine.text("proc/meminfo") or "", re.MULTILINE)
    return int(line.group(1)) * 1024 if line else None


def check_gomp(machine: Machine) -> Iterator[Finding]:
    """Check for libgomp, which librkllmrt.so needs and small systems may lack."""
    patterns = [f"{folder}/{_GOMP}" for folder in _LIBRARY_FOLDERS] + [
        f"{folder}/*/{_GOMP}" for folder in _LIBRARY_FOLDERS
    ]
    places = [place for pattern in patterns for place in machine.glob(pattern)]
    if places:
        yield Finding("libgomp", "ok", machine.name_of(places[0]))
    else:
        yield Finding("libgomp", "fail", f"no {_GOMP}", "Install it.", "sudo apt install libgomp1")


def gib(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**27 else f"{count / 2**20:.1f} MiB"
