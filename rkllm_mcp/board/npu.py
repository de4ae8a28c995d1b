"""The NPU and what it needs of the kernel: the SoC, the driver, the device nodes, their load and clocks.

Source: the rknpu driver 0.9.8 (debugfs and DRM nodes), Rockchip's fix_freq scripts for the clocks, rknn-llm issues
#287 and #530 for what missing rights look like, rknn-toolkit2 #570 for the mainline driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rkllm_mcp.board.finding import Finding
from rkllm_mcp.board.machine import Machine


@dataclass(frozen=True)
class Soc:
    """A system on chip that the runtime supports.

    Args:
        name: as Rockchip writes it.
        npu_cores: how many cores its NPU has.
        npu_hz: the NPU's highest clock.
    """

    name: str
    npu_cores: int
    npu_hz: int


# Device tree's last word on the SoC -> what it is. RK3582 says that it is an RK3588 (rknn-llm #59).
SOCS = {
    "rockchip,rk3588": Soc("RK3588", 3, 1_000_000_000),
    "rockchip,rk3588s": Soc("RK3588S", 3, 1_000_000_000),
    "rockchip,rk3576": Soc("RK3576", 2, 1_000_000_000),
    "rockchip,rk3562": Soc("RK3562", 1, 1_000_000_000),
    "rockchip,rv1126b": Soc("RV1126B", 1, 950_000_000),
}
RECOMMENDED_DRIVER = (0, 9, 8)

# debugfs wants root and a mounted /sys/kernel/debug; procfs and a module's version are there only in some builds.
_DRIVER_VERSIONS = ("sys/kernel/debug/rknpu/version", "proc/rknpu/version", "sys/module/rknpu/version")
_LOADS = ("sys/kernel/debug/rknpu/load", "proc/rknpu/load")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# The driver prints 0 as blanks ("%2.d"), so digits may be missing.
_CORE_LOAD = re.compile(r"Core(\d+):\s*(\d*)\s*%")
_ONE_LOAD = re.compile(r"NPU load:\s*(\d*)\s*%")
_GOVERNORS_AT_FULL_SPEED = frozenset({"performance", "userspace"})
_VENDOR_KERNEL = "Use the board maker's image with Rockchip's kernel 5.10 or 6.1, which has the rknpu driver."


def soc_of(machine: Machine) -> Soc | None:
    """The supported SoC of this machine; None on any other machine."""
    compatible = machine.strings("proc/device-tree/compatible")
    return next((SOCS[name] for name in reversed(compatible) if name in SOCS), None)


def check_soc(machine: Machine) -> Iterator[Finding]:
    """Which machine this is."""
    soc = soc_of(machine)
    model = (machine.strings("proc/device-tree/model") or ("",))[0]
    if soc is not None:
        yield Finding(
            "soc", "ok", f"{soc.name}, {soc.npu_cores} NPU core{'s' if soc.npu_cores > 1 else ''}{_of(model)}"
        )
        return
    compatible = machine.strings("proc/device-tree/compatible")
    found = f"no supported SoC{_of(model or ', '.join(compatible))}"
    names = ", ".join(soc.name for soc in SOCS.values())
    yield Finding("soc", "fail", found, f"The NPU needs one of {names}; everything works emulated: --runtime emulator.")


def _of(model: str) -> str:
    return f" ({model})" if model else ""


def check_driver(machine: Machine) -> Iterator[Finding]:
    """The kernel's driver for the NPU."""
    version = next((found for name in _DRIVER_VERSIONS if (found := _VERSION.search(machine.text(name) or ""))), None)
    rocket = machine.exists("sys/module/rocket") or bool(machine.glob("dev/accel/accel*"))
    if version is not None:
        numbers = tuple(int(part) for part in version.groups())
        found = f"rknpu {version.group(0)}"
        if numbers >= RECOMMENDED_DRIVER:
            yield Finding("npu driver", "ok", found)
        else:
            yield Finding(
                "npu driver", "warn", found, "Update the kernel: 0.9.8 or newer is what the runtime is made for."
            )
    elif npu_node(machine) is not None or machine.exists("sys/module/rknpu"):
        yield Finding("npu driver", "unknown", "rknpu, version not readable", "Read it with: sudo dmesg | grep rknpu")
    elif rocket:
        found = "rocket, the mainline kernel's driver, which librkllmrt.so cannot use"
        yield Finding("npu driver", "fail", found, _VENDOR_KERNEL)
    elif machine.is_forbidden("sys/kernel/debug"):
        yield Finding("npu driver", "fail", "no sign of rknpu", f"{_VENDOR_KERNEL} Look again with sudo.")
    else:
        yield Finding("npu driver", "fail", "none", _VENDOR_KERNEL)


def npu_node(machine: Machine) -> Path | None:
    """The device node through which the runtime reaches the NPU: a DRM render node, or /dev/rknpu."""
    for render in machine.glob("sys/class/drm/renderD*"):
        uevent = machine.text(f"{machine.inside(render)}/device/uevent") or ""
        if "DRIVER=RKNPU" in uevent or ".npu" in uevent or "npu@" in uevent:
            return machine.path(f"dev/dri/{render.name}")
    return machine.path("dev/rknpu") if machine.exists("dev/rknpu") else None


def check_device(machine: Machine) -> Iterator[Finding]:
    """The device node and this user's right to it."""
    node = npu_node(machine)
    if node is None:
        yield Finding("npu device", "fail", "no render node of rknpu and no /dev/rknpu", _VENDOR_KERNEL)
        return
    name = machine.name_of(node)
    if not machine.exists(machine.inside(node)):
        yield Finding("npu device", "fail", f"{name} is not there", "In a container, pass it in: --device " + name)
    elif not machine.can_use(node):
        remedy = "Join the groups that own it and log in again: sudo usermod -aG render,video $USER"
        yield Finding("npu device", "fail", f"{name}, which this user may not read and write", remedy)
    else:
        yield Finding("npu device", "ok", name)
    if node.name == "rknpu" and not machine.glob("dev/dma_heap/*"):
        yield Finding(
            "dma heap", "warn", "no /dev/dma_heap", "This kind of driver takes memory from it; " + _VENDOR_KERNEL
        )


def check_load(machine: Machine) -> Iterator[Finding]:
    """How busy each core of the NPU is."""
    text = next((text for name in _LOADS if (text := machine.text(name))), None)
    if text is None:
        if npu_node(machine) is not None:
            yield Finding("npu load", "unknown", "not readable", "Read it with: sudo cat /sys/kernel/debug/rknpu/load")
        return
    cores = [f"core {core} {percent or 0} %" for core, percent in _CORE_LOAD.findall(text)]
    if not cores:
        cores = [f"{percent or 0} %" for percent in _ONE_LOAD.findall(text)]
    yield Finding("npu load", "info" if cores else "unknown", ", ".join(cores) or text)


def check_clock(machine: Machine) -> Iterator[Finding]:
    """The NPU's clock and who sets it."""
    soc = soc_of(machine)
    for folder in machine.glob("sys/class/devfreq/*npu*"):
        name = machine.inside(folder)
        hertz = machine.number(f"{name}/cur_freq")
        governor = machine.text(f"{name}/governor")
        found = f"{hertz / 1e6:.0f} MHz, governor {governor}" if hertz is not None else f"governor {governor}"
        slow = governor not in _GOVERNORS_AT_FULL_SPEED or (soc and hertz is not None and hertz < soc.npu_hz)
        remedy = f"For full speed: echo performance | sudo tee /{name}/governor"
        yield Finding("npu clock", "warn", found, remedy) if slow else Finding("npu clock", "ok", found)
