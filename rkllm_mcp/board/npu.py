"""NPU and kernel support: SoC, driver, device nodes, load and clock.

Source: the rknpu driver 0.9.8 (debugfs and DRM nodes), Rockchip's fix_freq scripts for the clocks, rknn-llm issues #287
and #530 for the effects of missing permissions, rknn-toolkit2 #570 for the mainline driver.
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
# 0.8.2 loads a model and then fails every token's matmul (rknn-llm #413, #449); 0.9.2 ran small models.
OLDEST_DRIVER = (0, 9, 0)
# One IOMMU domain; a larger model needs a driver with several.
DOMAIN_BYTES = 4 * 2**30

# debugfs needs root and a mounted /sys/kernel/debug; procfs and the module version exist only in some builds.
_DRIVER_VERSIONS = ("sys/kernel/debug/rknpu/version", "proc/rknpu/version", "sys/module/rknpu/version")
_LOADS = ("sys/kernel/debug/rknpu/load", "proc/rknpu/load")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# The driver prints 0 as blanks ("%2.d"), so digits may be missing.
_CORE_LOAD = re.compile(r"Core(\d+):\s*(\d*)\s*%")
_ONE_LOAD = re.compile(r"NPU load:\s*(\d*)\s*%")
_GOVERNORS_AT_FULL_SPEED = frozenset({"performance", "userspace"})
_VENDOR_KERNEL = "Use the board maker's image with Rockchip's kernel 5.10 or 6.1, which has the rknpu driver."
_UPDATE = "The driver is part of the kernel; update it, or take the board maker's newest image."
_APT = "sudo apt update && sudo apt full-upgrade"
_FULL_SPEED = "Set it to full speed; that lasts until the next start."
_READ_VERSION = "sudo cat /sys/kernel/debug/rknpu/version"
# A node without a suitable group gets one by a persistent udev rule.
_UDEV_RULE = 'SUBSYSTEM=="{subsystem}", KERNEL=="{kernel}", GROUP="render", MODE="0660"'


def soc_of(machine: Machine) -> Soc | None:
    """Return the supported SoC of this machine; None on other machines."""
    compatible = machine.strings("proc/device-tree/compatible")
    return next((SOCS[name] for name in reversed(compatible) if name in SOCS), None)


def check_soc(machine: Machine) -> Iterator[Finding]:
    """Check the SoC."""
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
    """Check the kernel driver of the NPU."""
    version = driver_version(machine)
    if version is not None:
        found = f"rknpu {'.'.join(map(str, version))}"
        if version >= RECOMMENDED_DRIVER:
            yield Finding("npu driver", "ok", found)
        elif version >= OLDEST_DRIVER:
            yield Finding(
                "npu driver", "warn", found, f"0.9.8 or newer is what the runtime is made for. {_UPDATE}", _APT
            )
        else:
            found += ", with which models load but every token fails"
            yield Finding("npu driver", "fail", found, f"0.9.8 or newer is needed. {_UPDATE}", _APT)
    elif npu_node(machine) is not None or machine.exists("sys/module/rknpu"):
        yield Finding("npu driver", "unknown", "rknpu, version not readable", "Only root can read it.", _READ_VERSION)
    elif machine.exists("sys/module/rocket") or machine.glob("dev/accel/accel*"):
        found = "rocket, the mainline kernel's driver, which librkllmrt.so cannot use"
        yield Finding("npu driver", "fail", found, _VENDOR_KERNEL, "uname -r; lsmod | grep -E 'rocket|rknpu'")
    elif machine.is_forbidden("sys/kernel/debug"):
        yield Finding("npu driver", "fail", "no sign of rknpu", f"{_VENDOR_KERNEL} Look again as root.", _READ_VERSION)
    else:
        yield Finding("npu driver", "fail", "none", _VENDOR_KERNEL, "sudo dmesg | grep -i rknpu")


def driver_version(machine: Machine) -> tuple[int, ...] | None:
    """Return the version of the rknpu driver; None if missing or unreadable."""
    found = next((found for name in _DRIVER_VERSIONS if (found := _VERSION.search(machine.text(name) or ""))), None)
    return tuple(int(part) for part in found.groups()) if found else None


def check_domains(machine: Machine, model_bytes: int) -> Iterator[Finding]:
    """Check that the driver can map a model that is larger than one IOMMU domain."""
    if model_bytes <= DOMAIN_BYTES:
        return
    found = f"the model is larger than one domain of {DOMAIN_BYTES // 2**30} GiB"
    version = driver_version(machine)
    if version is None:
        yield Finding("npu memory", "unknown", f"{found}, and the driver's version is not readable", "", _READ_VERSION)
    elif version < RECOMMENDED_DRIVER:
        remedy = f"Take a smaller model, or a driver from 0.9.8 on. {_UPDATE}"
        yield Finding("npu memory", "warn", f"{found}, which older drivers fail to map", remedy, _APT)
    else:
        yield Finding("npu memory", "ok", found)


def npu_node(machine: Machine) -> Path | None:
    """Return the device node of the NPU: a DRM render node, or /dev/rknpu."""
    for render in machine.glob("sys/class/drm/renderD*"):
        uevent = machine.text(f"{machine.inside(render)}/device/uevent") or ""
        if "DRIVER=RKNPU" in uevent or ".npu" in uevent or "npu@" in uevent:
            return machine.path(f"dev/dri/{render.name}")
    return machine.path("dev/rknpu") if machine.exists("dev/rknpu") else None


def check_device(machine: Machine) -> Iterator[Finding]:
    """Check the device node and this user's access to it."""
    node = npu_node(machine)
    if node is None:
        yield Finding("npu device", "fail", "no render node of rknpu and no /dev/rknpu", _VENDOR_KERNEL)
        return
    name = machine.name_of(node)
    if not machine.exists(machine.inside(node)):
        yield Finding("npu device", "fail", f"{name} is not there", "In a container, pass it in.", f"--device {name}")
    elif not machine.can_use(node):
        yield _forbidden(machine, "npu device", node)
    else:
        yield Finding("npu device", "ok", name)
    if node.name == "rknpu":
        yield from _check_heap(machine)


def _check_heap(machine: Machine) -> Iterator[Finding]:
    """Check the DMA heap from which the driver's other build allocates memory; it has separate permissions."""
    heaps = machine.glob("dev/dma_heap/*")
    if not heaps:
        remedy = f"This kind of driver takes memory from it. {_VENDOR_KERNEL}"
        yield Finding("dma heap", "warn", "no /dev/dma_heap", remedy)
    elif not any(machine.can_use(heap) for heap in heaps):
        yield _forbidden(machine, "dma heap", heaps[0])
    else:
        yield Finding("dma heap", "ok", ", ".join(machine.name_of(heap) for heap in heaps if machine.can_use(heap)))


def _forbidden(machine: Machine, what: str, node: Path) -> Finding:
    """Return the finding for a node without access: the group to join, or a rule that assigns one."""
    found = f"{machine.name_of(node)}, which this user may not read and write"
    group = machine.group_of(machine.inside(node))
    if group not in {None, "root"}:
        return Finding(what, "fail", found, f"Join {group} and log in again.", f"sudo usermod -aG {group} $USER")
    kernel = node.name.rstrip("0123456789") + "*" if node.name.startswith("renderD") else node.name
    subsystem = {"renderD*": "drm", "rknpu": "misc"}.get(kernel, "dma_heap")
    rule = _UDEV_RULE.format(subsystem=subsystem, kernel=kernel)
    command = (
        f"echo '{rule}' | sudo tee -a /etc/udev/rules.d/99-rknpu.rules && sudo udevadm control --reload && "
        "sudo udevadm trigger && sudo usermod -aG render $USER"
    )
    return Finding(what, "fail", found, "Give it to the group render, join it and log in again.", command)


def check_load(machine: Machine) -> Iterator[Finding]:
    """Report the load of each NPU core."""
    text = next((text for name in _LOADS if (text := machine.text(name))), None)
    if text is None:
        if npu_node(machine) is not None:
            command = "sudo cat /sys/kernel/debug/rknpu/load"
            yield Finding("npu load", "unknown", "not readable", "Only root can read it.", command)
        return
    loads = _loads(text)
    names = [f"core {core} " for core in range(len(loads))] if len(loads) > 1 or "Core" in text else [""]
    found = ", ".join(f"{name}{load} %" for name, load in zip(names, loads, strict=False))
    yield Finding("npu load", "info" if loads else "unknown", found or text)


def npu_loads(machine: Machine) -> tuple[int, ...] | None:
    """Return the load of each NPU core in percent; None if not readable."""
    text = next((text for name in _LOADS if (text := machine.text(name))), None)
    return (_loads(text) or None) if text is not None else None


def _loads(text: str) -> tuple[int, ...]:
    found = [percent for _, percent in _CORE_LOAD.findall(text)] or _ONE_LOAD.findall(text)
    return tuple(int(percent or 0) for percent in found)


def check_clock(machine: Machine) -> Iterator[Finding]:
    """Check the clock and governor of the NPU."""
    soc = soc_of(machine)
    folders = machine.glob("sys/class/devfreq/*npu*")
    for folder in folders:
        name = machine.inside(folder)
        hertz = machine.number(f"{name}/cur_freq")
        governor = machine.text(f"{name}/governor")
        found = f"{hertz / 1e6:.0f} MHz, governor {governor}" if hertz is not None else f"governor {governor}"
        slow = governor not in _GOVERNORS_AT_FULL_SPEED or (soc and hertz is not None and hertz < soc.npu_hz)
        command = f"echo performance | sudo tee /{name}/governor"
        yield Finding("npu clock", "warn", found, _FULL_SPEED, command) if slow else Finding("npu clock", "ok", found)
    if not folders and (hertz := machine.number("sys/kernel/debug/rknpu/freq")) is not None:
        slow = soc is not None and hertz < soc.npu_hz
        command = f"echo {soc.npu_hz if soc else 0} | sudo tee /sys/kernel/debug/rknpu/freq"
        found = f"{hertz / 1e6:.0f} MHz"
        yield Finding("npu clock", "warn", found, _FULL_SPEED, command) if slow else Finding("npu clock", "ok", found)
