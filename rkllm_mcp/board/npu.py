"""The NPU: SoC, driver, device node, load and clock.

Unreadable values are None: the NPU load is in debugfs, which only root can read on most images.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rkllm_mcp.board.machine import Machine


@dataclass(frozen=True)
class Soc:
    """A system on chip that the runtime supports."""

    name: str  # in Rockchip's spelling
    npu_cores: int
    npu_hz: int  # maximum clock of the NPU


# Last compatible string of the device tree -> SoC. An RK3582 identifies itself as RK3588 (rknn-llm #59).
SOCS = {
    "rockchip,rk3588": Soc("RK3588", 3, 1_000_000_000),
    "rockchip,rk3588s": Soc("RK3588S", 3, 1_000_000_000),
    "rockchip,rk3576": Soc("RK3576", 2, 1_000_000_000),
    "rockchip,rk3562": Soc("RK3562", 1, 1_000_000_000),
    "rockchip,rv1126b": Soc("RV1126B", 1, 950_000_000),
}
RECOMMENDED_DRIVER = (0, 9, 8)
# The runtime's own warning; it goes on.
EXPECTED_DRIVER = (0, 9, 7)
# 0.8.2 loads a model and then fails every token's matmul (rknn-llm #413, #449); 0.9.2 ran small models.
OLDEST_DRIVER = (0, 9, 0)
# One IOMMU domain; a larger model needs a driver with several.
DOMAIN_BYTES = 4 * 2**30

# Every user may read the module's version; debugfs needs root and a mounted /sys/kernel/debug, procfs another build.
_DRIVER_VERSIONS = ("sys/module/rknpu/version", "sys/kernel/debug/rknpu/version", "proc/rknpu/version")
# Not the connectors of a display, card1-HDMI-A-1.
_DRM_NODE = re.compile(r"(?:card|renderD)\d+")
# Files that Docker, Podman and Kubernetes put into every container.
CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "run/secrets/kubernetes.io", "var/run/secrets/kubernetes.io")
_LOADS = ("sys/kernel/debug/rknpu/load", "proc/rknpu/load")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# The driver prints 0 as blanks ("%2.d"), so digits may be missing.
_CORE_LOAD = re.compile(r"Core(\d+):\s*(\d*)\s*%")
_ONE_LOAD = re.compile(r"NPU load:\s*(\d*)\s*%")


def soc_of(machine: Machine) -> Soc | None:
    """Return the supported SoC of this machine; None on other machines."""
    compatible = machine.strings("proc/device-tree/compatible")
    return next((SOCS[name] for name in reversed(compatible) if name in SOCS), None)


def driver_version(machine: Machine) -> tuple[int, ...] | None:
    """Return the version of the rknpu driver, from the kernel's files or by asking its DRM node; None if unreadable."""
    match = next((match for name in _DRIVER_VERSIONS if (match := _VERSION.search(machine.text(name) or ""))), None)
    if match is not None:
        return tuple(int(part) for part in match.groups())
    nodes = [node for node in npu_nodes(machine) if node.name != "rknpu"]
    return next((version for node in nodes if (version := machine.drm_version(machine.root / node))), None)


def npu_nodes(machine: Machine) -> tuple[Path, ...]:
    """Return the device nodes of the NPU below the root, present or not: /dev/rknpu, or those of its card in /dev/dri.

    The runtime opens /dev/rknpu if it exists, and else searches all /dev/dri/card* for the driver rknpu, so it needs
    the card in addition to the render node.
    """
    if machine.exists("dev/rknpu"):
        return (Path("dev/rknpu"),)
    return tuple(Path("dev/dri", folder.name) for folder in _drm_folders(machine))


def _drm_folders(machine: Machine) -> list[Path]:
    """Return the folders of the NPU in /sys/class/drm; its numbers depend on the other devices."""
    folders: list[Path] = []
    for folder in machine.glob("sys/class/drm/*"):
        if not _DRM_NODE.fullmatch(folder.name):
            continue
        device = folder / "device"
        uevent = machine.text(device / "uevent") or ""
        is_named = any(mark in uevent for mark in ("DRIVER=RKNPU", ".npu", "npu@"))
        if is_named or (machine.link_of(device) or "").endswith(".npu"):
            folders.append(folder)
    return folders


def has_iommu(machine: Machine) -> bool | None:
    """Return True if the kernel maps the NPU's memory through an IOMMU; None if its device is not visible."""
    devices = [folder / "device" for folder in _drm_folders(machine)]
    devices += machine.glob("sys/devices/platform/*.npu")
    return any(machine.exists(device / "iommu_group") for device in devices) if devices else None


def describe_load(machine: Machine) -> str:
    """Return the load of each core as text, or the driver's own text if it has another form; empty if unreadable."""
    text, loads = read_loads(machine)
    names = [f"core {core} " for core in range(len(loads))] if len(loads) > 1 or "Core" in text else [""]
    return ", ".join(f"{name}{load} %" for name, load in zip(names, loads, strict=False)) or text


def read_loads(machine: Machine) -> tuple[str, tuple[int, ...]]:
    """Return the driver's text about the load, and that of each core in percent; empty if it is unreadable."""
    text = next((text for name in _LOADS if (text := machine.text(name))), "")
    percentages = [percent for _, percent in _CORE_LOAD.findall(text)] or _ONE_LOAD.findall(text)
    return text, tuple(int(percent or 0) for percent in percentages)


@dataclass(frozen=True)
class NpuClock:
    """Clock of the NPU: a devfreq device with a governor, or a fixed frequency in debugfs."""

    device: str  # path of the devfreq folder; empty for debugfs
    hertz: int | None
    governor: str | None = None

    def __str__(self) -> str:
        if not self.device and self.hertz is not None:
            return f"{self.hertz / 1e6:.0f} MHz"
        clock = f"{self.hertz / 1e6:.0f} MHz, " if self.hertz is not None else ""
        return f"{clock}governor {self.governor}"


def npu_clocks(machine: Machine) -> list[NpuClock]:
    """Return the clocks of the NPU; none if they are unreadable."""
    names = [str(folder) for folder in machine.glob("sys/class/devfreq/*npu*")]
    if names:
        return [NpuClock(name, machine.number(f"{name}/cur_freq"), machine.text(f"{name}/governor")) for name in names]
    hertz = machine.number("sys/kernel/debug/rknpu/freq")
    return [] if hertz is None else [NpuClock("", hertz)]
