"""Checks of the board, the runtime library, the model and its file, and the configured servers.

``doctor`` provides the reports; no check starts a program or executes code of a library.

Source: git blob ids of the official libraries; rknn-llm's messages for a model of another SoC or of a newer toolkit;
rknn-llm #534 for models whose answers 1.3.0 does not end; Rockchip's fix_freq scripts (relevant clocks), the demo of
rknn-llm (open files), rknn-llm #62 (``Too many open files``), the library's own dependencies (libgomp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import (
    DOMAIN_BYTES,
    OLDEST_DRIVER,
    RECOMMENDED_DRIVER,
    SOCS,
    describe_load,
    driver_version,
    npu_clocks,
    npu_loads,
    npu_node,
    soc_of,
)
from rkllm_mcp.board.system import (
    CMA_BYTES,
    FULL_SPEED_SHARE,
    HOT_CELSIUS,
    MEMORY_MARGIN,
    OPEN_FILES_WANTED,
    VENDOR_KERNELS,
    gib,
    hottest,
    memory_bytes,
)
from rkllm_mcp.diagnostics.report import CheckResult, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.models.compatibility import platform_of

# Installation of the programs that servers are usually started with: in words, and as a shell command.
_PROGRAMS = {
    "npx": ("Install Node.js 20 or newer.", "sudo apt install nodejs npm"),
    "node": ("Install Node.js 20 or newer.", "sudo apt install nodejs npm"),
    "uvx": ("Install uv.", "pip install uv"),
    "uv": ("Install uv.", "pip install uv"),
    "docker": ("Install Docker.", "sudo apt install docker.io"),
    "python": ('Write command = "${PYTHON}" for the Python that runs rkllm-mcp.', ""),
}
_OR_OFF = "Correct it, or set enabled = false."
_CONVERT = "Take a file made for this board: rkllm-mcp models list shows them."
_BLOB_SHOWN = 12
# Toolkits whose end token 1.3.0 misreads; the host ends such answers by itself.
_ENDLESS_TOOLKITS = ("1.2.2", "1.2.3")
# Releases that were tested against their headers only.
_UNSEEN = {
    "1.3.1": "the interface of 1.3.1 is known by its header's checksum; how it behaves is known from two reports only: "
    "one program runs with it, one died of SIGBUS with driver 0.9.8",
}


def check_library(library: LibraryReport) -> Iterator[CheckResult]:
    """Check the runtime library, its release by its bytes, and other copies of it."""
    yield CheckResult("runtime library", library.status, library.found, library.remedy)
    if library.git_blob and not library.emulated:
        yield _release(library)
        if library.version in _UNSEEN:
            yield CheckResult(
                "runtime behaviour", "info", _UNSEEN[library.version], "The probe shows it.", "rkllm-mcp doctor --probe"
            )
    different = [f"{path} ({version})" for path, version in library.others if version != library.version]
    if different:
        remedy = "Remove the others, or set 'library' in [runtime]."
        yield CheckResult("other libraries", "warn", ", ".join(different), remedy, "ldconfig -p | grep rkllmrt")


def _release(library: LibraryReport) -> CheckResult:
    blob = f"git blob {library.git_blob[:_BLOB_SHOWN]}…"
    if library.official_release is None:
        found = f"{blob} is not one of the published libraries up to 1.3.1"
        return CheckResult("runtime release", "info", found)
    if library.official_release != library.version:
        found = f"{blob} is the published {library.official_release}, and its own text says {library.version or '-'}"
        return CheckResult("runtime release", "warn", found, "Copy librkllmrt.so again from the RKLLM SDK.")
    return CheckResult("runtime release", "ok", f"the published {library.official_release}, byte for byte ({blob})")


def check_model(model: ModelReport) -> Iterator[CheckResult]:
    """Check the configured model."""
    if model.problem:
        yield CheckResult("model", "fail", model.problem, model.remedy)
        return
    kind = "emulated, a script instead of a real model" if model.emulated else f"{model.file_bytes / 2**30:.2f} GiB"
    yield CheckResult("model", "ok", f"{model.name} ({kind}), {model.context_tokens} tokens of context")


def check_model_file(machine: Machine, subjects: Subjects) -> Iterator[CheckResult]:
    """Compare the metadata of the .rkllm file with this board, runtime and configuration."""
    model, file = subjects.model, subjects.model.file
    if model.file_problem:
        yield CheckResult("model file", "warn", model.file_problem, model.file_remedy)
    if file is None:
        return
    facts = [
        file.platform or "platform not stated",
        f"toolkit {file.toolkit}" if file.toolkit else "toolkit not stated",
        *([f"{file.npu_cores} NPU cores"] if file.npu_cores else []),
        *([f"context up to {file.context_tokens}"] if file.context_tokens else []),
        *([file.architecture] if file.architecture else []),
    ]
    found = ", ".join(facts)
    yield _misfit(machine, subjects, found) or CheckResult("model file", "ok", found)
    if subjects.library.version == "1.3.0" and file.toolkit in _ENDLESS_TOOLKITS:
        sentence = f"runtime 1.3.0 does not know the end token of models made by {file.toolkit}"
        yield CheckResult("model end", "info", sentence, "The host ends these answers by itself; no action is needed.")


def _misfit(machine: Machine, subjects: Subjects, found: str) -> CheckResult | None:
    """Return the reason why the file cannot be used here; None if it can."""
    file, library, wanted = subjects.model.file, subjects.library, subjects.model.context_tokens
    if file is None:
        return None
    here = platform_of(machine)
    if file.platform and here and file.platform != here:
        return CheckResult("model file", "fail", f"{found}; this board is an {here}", _CONVERT, "rkllm-mcp models list")
    if file.toolkit and library.version and _numbers(file.toolkit) > _numbers(library.version):
        remedy = f"The runtime refuses models of a newer toolkit; install RKLLM {file.toolkit} or newer."
        return CheckResult("model file", "fail", f"{found}; the runtime is {library.version}", remedy)
    if file.context_tokens and wanted > file.context_tokens:
        remedy = f"Set context_tokens under [model] to {file.context_tokens} or less."
        return CheckResult("model file", "fail", f"{found}; {wanted} are configured", remedy)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return a release as numbers; a beta counts as the release."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def check_servers(servers: tuple[ServerReport, ...] | None) -> Iterator[CheckResult]:
    """Check that each configured server can be started."""
    if servers is None:
        yield CheckResult("servers", "info", "switched off by MCP_ENABLED=false or --no-mcp")
        return
    if not servers:
        yield CheckResult(
            "servers", "info", "none configured", "Add one.", "rkllm-mcp servers add NAME -- COMMAND ARGS"
        )
    for server in servers:
        name = f"server {server.name}"
        if not server.enabled:
            yield CheckResult(name, "info", f"switched off: {server.how}")
        elif server.problem:
            yield CheckResult(name, "warn", f"{server.problem}, so the server is skipped", _OR_OFF)
        elif server.command and server.program is None:
            yield CheckResult(
                name, "warn", f"{server.command} is not installed, so the server is skipped", *_remedy(server)
            )
        else:
            yield CheckResult(name, "ok", server.how)


def _remedy(server: ServerReport) -> tuple[str, str]:
    """Return the remedy for a missing program of a server."""
    if " " in server.command:
        return "Write the program alone in 'command' and each of its arguments in 'args'.", ""
    return _PROGRAMS.get(server.command, (f"Install {server.command}, or correct 'command'.", ""))


_GOVERNORS_AT_FULL_SPEED = frozenset({"performance", "userspace"})
_VENDOR_KERNEL = "Use the board maker's image with Rockchip's kernel 5.10 or 6.1, which has the rknpu driver."
_UPDATE = "The driver is part of the kernel; update it, or take the board maker's newest image."
_APT = "sudo apt update && sudo apt full-upgrade"
_FULL_SPEED = "Set it to full speed; that lasts until the next start."
_READ_VERSION = "sudo cat /sys/kernel/debug/rknpu/version"
# A node without a suitable group gets one by a persistent udev rule.
_UDEV_RULE = 'SUBSYSTEM=="{subsystem}", KERNEL=="{kernel}", GROUP="render", MODE="0660"'


def check_soc(machine: Machine) -> Iterator[CheckResult]:
    """Check the SoC."""
    soc = soc_of(machine)
    model = (machine.strings("proc/device-tree/model") or ("",))[0]
    if soc is not None:
        yield CheckResult(
            "soc", "ok", f"{soc.name}, {soc.npu_cores} NPU core{'s' if soc.npu_cores > 1 else ''}{_of(model)}"
        )
        return
    compatible = machine.strings("proc/device-tree/compatible")
    found = f"no supported SoC{_of(model or ', '.join(compatible))}"
    names = ", ".join(soc.name for soc in SOCS.values())
    yield CheckResult(
        "soc", "fail", found, f"The NPU needs one of {names}; everything works emulated: --runtime emulator."
    )


def _of(model: str) -> str:
    return f" ({model})" if model else ""


def check_driver(machine: Machine) -> Iterator[CheckResult]:
    """Check the kernel driver of the NPU."""
    version = driver_version(machine)
    if version is not None:
        found = f"rknpu {'.'.join(map(str, version))}"
        if version >= RECOMMENDED_DRIVER:
            yield CheckResult("npu driver", "ok", found)
        elif version >= OLDEST_DRIVER:
            yield CheckResult(
                "npu driver", "warn", found, f"0.9.8 or newer is what the runtime is made for. {_UPDATE}", _APT
            )
        else:
            found += ", with which models load but every token fails"
            yield CheckResult("npu driver", "fail", found, f"0.9.8 or newer is needed. {_UPDATE}", _APT)
    elif npu_node(machine) is not None or machine.exists("sys/module/rknpu"):
        yield CheckResult(
            "npu driver", "unknown", "rknpu, version not readable", "Only root can read it.", _READ_VERSION
        )
    elif machine.exists("sys/module/rocket") or machine.glob("dev/accel/accel*"):
        found = "rocket, the mainline kernel's driver, which librkllmrt.so cannot use"
        yield CheckResult("npu driver", "fail", found, _VENDOR_KERNEL, "uname -r; lsmod | grep -E 'rocket|rknpu'")
    elif machine.is_forbidden("sys/kernel/debug"):
        yield CheckResult(
            "npu driver", "fail", "no sign of rknpu", f"{_VENDOR_KERNEL} Look again as root.", _READ_VERSION
        )
    else:
        yield CheckResult("npu driver", "fail", "none", _VENDOR_KERNEL, "sudo dmesg | grep -i rknpu")


def check_domains(machine: Machine, model_bytes: int) -> Iterator[CheckResult]:
    """Check that the driver can map a model that is larger than one IOMMU domain."""
    if model_bytes <= DOMAIN_BYTES:
        return
    found = f"the model is larger than one domain of {DOMAIN_BYTES // 2**30} GiB"
    version = driver_version(machine)
    if version is None:
        yield CheckResult(
            "npu memory", "unknown", f"{found}, and the driver's version is not readable", "", _READ_VERSION
        )
    elif version < RECOMMENDED_DRIVER:
        remedy = f"Take a smaller model, or a driver from 0.9.8 on. {_UPDATE}"
        yield CheckResult("npu memory", "warn", f"{found}, which older drivers fail to map", remedy, _APT)
    else:
        yield CheckResult("npu memory", "ok", found)


def check_device(machine: Machine) -> Iterator[CheckResult]:
    """Check the device node and this user's access to it."""
    node = npu_node(machine)
    if node is None:
        yield CheckResult("npu device", "fail", "no render node of rknpu and no /dev/rknpu", _VENDOR_KERNEL)
        return
    name = machine.name_of(node)
    if not machine.exists(machine.inside(node)):
        yield CheckResult(
            "npu device", "fail", f"{name} is not there", "In a container, pass it in.", f"--device {name}"
        )
    elif not machine.can_use(node):
        yield _forbidden(machine, "npu device", node)
    else:
        yield CheckResult("npu device", "ok", name)
    if node.name == "rknpu":
        yield from _check_heap(machine)


def _check_heap(machine: Machine) -> Iterator[CheckResult]:
    """Check the DMA heap from which the driver's other build allocates memory; it has separate permissions."""
    heaps = machine.glob("dev/dma_heap/*")
    if not heaps:
        remedy = f"This kind of driver takes memory from it. {_VENDOR_KERNEL}"
        yield CheckResult("dma heap", "warn", "no /dev/dma_heap", remedy)
    elif not any(machine.can_use(heap) for heap in heaps):
        yield _forbidden(machine, "dma heap", heaps[0])
    else:
        yield CheckResult("dma heap", "ok", ", ".join(machine.name_of(heap) for heap in heaps if machine.can_use(heap)))


def _forbidden(machine: Machine, what: str, node: Path) -> CheckResult:
    """Return the finding for a node without access: the group to join, or a rule that assigns one."""
    found = f"{machine.name_of(node)}, which this user may not read and write"
    group = machine.group_of(machine.inside(node))
    if group not in {None, "root"}:
        return CheckResult(what, "fail", found, f"Join {group} and log in again.", f"sudo usermod -aG {group} $USER")
    kernel = node.name.rstrip("0123456789") + "*" if node.name.startswith("renderD") else node.name
    subsystem = {"renderD*": "drm", "rknpu": "misc"}.get(kernel, "dma_heap")
    rule = _UDEV_RULE.format(subsystem=subsystem, kernel=kernel)
    command = (
        f"echo '{rule}' | sudo tee -a /etc/udev/rules.d/99-rknpu.rules && sudo udevadm control --reload && "
        "sudo udevadm trigger && sudo usermod -aG render $USER"
    )
    return CheckResult(what, "fail", found, "Give it to the group render, join it and log in again.", command)


def check_load(machine: Machine) -> Iterator[CheckResult]:
    """Report the load of each NPU core."""
    found = describe_load(machine)
    if found:
        yield CheckResult("npu load", "info" if npu_loads(machine) else "unknown", found)
    elif npu_node(machine) is not None:
        command = "sudo cat /sys/kernel/debug/rknpu/load"
        yield CheckResult("npu load", "unknown", "not readable", "Only root can read it.", command)


def check_clock(machine: Machine) -> Iterator[CheckResult]:
    """Check the clock and governor of the NPU."""
    soc = soc_of(machine)
    for clock in npu_clocks(machine):
        is_slow = soc is not None and clock.hertz is not None and clock.hertz < soc.npu_hz
        command = f"echo {soc.npu_hz if soc else 0} | sudo tee /sys/kernel/debug/rknpu/freq"
        if clock.device:
            is_slow = is_slow or clock.governor not in _GOVERNORS_AT_FULL_SPEED
            command = f"echo performance | sudo tee /{clock.device}/governor"
        if is_slow:
            yield CheckResult("npu clock", "warn", str(clock), _FULL_SPEED, command)
        else:
            yield CheckResult("npu clock", "ok", str(clock))


_GOMP = "libgomp.so.1"
_LIBRARY_FOLDERS = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib")


def check_kernel(machine: Machine, *, on_board: bool) -> Iterator[CheckResult]:
    """Check the kernel; the driver is made for the vendor's versions."""
    release = machine.text("proc/sys/kernel/osrelease")
    if not release:
        return
    if release.startswith(VENDOR_KERNELS):
        yield CheckResult("kernel", "ok" if on_board else "info", release)
    else:
        remedy = "Rockchip recommends 5.10.209 or 6.1.84; others need a driver of their own." if on_board else ""
        yield CheckResult("kernel", "info", release, remedy)


def check_governors(machine: Machine) -> Iterator[CheckResult]:
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
        yield CheckResult("cpu governor", "warn", ", ".join(found), remedy, command)
    else:
        yield CheckResult("cpu governor", "ok", ", ".join(found))


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


def check_memory_clock(machine: Machine) -> Iterator[CheckResult]:
    """Check that the memory runs at full speed; it limits decoding."""
    if not machine.exists("sys/class/devfreq/dmc"):
        remedy = (
            "The firmware does not scale the memory clock, and may leave it low; try the board maker's newest image."
        )
        yield CheckResult("memory clock", "warn", "no /sys/class/devfreq/dmc", remedy)
        return
    governor = machine.text("sys/class/devfreq/dmc/governor")
    hertz = machine.number("sys/class/devfreq/dmc/cur_freq")
    found = f"{hertz / 1e6:.0f} MHz, governor {governor}" if hertz is not None else f"governor {governor}"
    slow = governor not in {"performance", "userspace"}
    command = "echo performance | sudo tee /sys/class/devfreq/dmc/governor"
    remedy = "Set it to full speed; that lasts until the next start."
    yield (
        CheckResult("memory clock", "warn", found, remedy, command)
        if slow
        else CheckResult("memory clock", "ok", found)
    )


def check_temperature(machine: Machine) -> Iterator[CheckResult]:
    """Check the hottest sensor of the chip."""
    zone = hottest(machine)
    if zone is None:
        return
    name, celsius = zone
    found = f"{celsius:.0f} °C ({name})"
    if celsius >= HOT_CELSIUS:
        command = "watch cat /sys/class/thermal/thermal_zone*/temp"
        yield CheckResult("temperature", "warn", found, "The chip slows down when it is hot; cool it.", command)
    else:
        yield CheckResult("temperature", "ok", found)


def check_open_files(machine: Machine) -> Iterator[CheckResult]:
    """Check the limit of open files; a model is mapped in thousands of pieces."""
    line = re.search(r"^Max open files\s+(\S+)\s+(\S+)", machine.text("proc/self/limits") or "", re.MULTILINE)
    if line is None:
        yield CheckResult("open files", "unknown", "/proc/self/limits is not readable")
        return
    soft, hard = line.groups()
    found = f"at most {soft}, up to {hard} on request"
    # A process may raise its own limit up to the hard limit, and the runtime's process does so.
    if hard == "unlimited" or int(hard) >= OPEN_FILES_WANTED:
        yield CheckResult("open files", "ok", found)
    else:
        remedy = "Raise it and log in again; a service has LimitNOFILE=102400 in its unit."
        command = "echo '* hard nofile 102400' | sudo tee -a /etc/security/limits.conf"
        yield CheckResult("open files", "warn", found, remedy, command)


def check_memory(machine: Machine, model_bytes: int) -> Iterator[CheckResult]:
    """Check that the model fits into the available memory."""
    available = memory_bytes(machine, "MemAvailable")
    if available is None:
        yield CheckResult("memory", "unknown", "/proc/meminfo does not report the available memory")
        return
    found = f"{gib(available)} available"
    if not model_bytes:
        yield CheckResult("memory", "info", found)
        return
    found = f"{found}, the model is {gib(model_bytes)}"
    total = memory_bytes(machine, "MemTotal") or available
    if available >= model_bytes * MEMORY_MARGIN:
        yield CheckResult("memory", "ok", found)
    elif total < model_bytes * MEMORY_MARGIN:
        remedy = f"This machine has {gib(total)} in all; take a smaller model."
        yield CheckResult("memory", "fail", found, remedy, "rkllm-mcp models list")
    else:
        status = "warn" if available >= model_bytes else "fail"
        yield CheckResult(
            "memory", status, found, "End the programs that need most.", "ps -eo rss,comm --sort=-rss | head"
        )


def check_reserve(machine: Machine) -> Iterator[CheckResult]:
    """Report an unusually large memory reserve for devices."""
    reserve = memory_bytes(machine, "CmaTotal")
    if reserve is not None and reserve > CMA_BYTES:
        remedy = "A reserve of this size can prevent models from loading; remove cma= from the kernel command line."
        yield CheckResult("cma", "warn", f"{gib(reserve)} reserved", remedy, "cat /proc/cmdline")


def check_gomp(machine: Machine) -> Iterator[CheckResult]:
    """Check for libgomp, which librkllmrt.so needs and small systems may lack."""
    patterns = [f"{folder}/{_GOMP}" for folder in _LIBRARY_FOLDERS] + [
        f"{folder}/*/{_GOMP}" for folder in _LIBRARY_FOLDERS
    ]
    places = [place for pattern in patterns for place in machine.glob(pattern)]
    if places:
        yield CheckResult("libgomp", "ok", machine.name_of(places[0]))
    else:
        yield CheckResult("libgomp", "fail", f"no {_GOMP}", "Install it.", "sudo apt install libgomp1")
