"""Checks of the board, the runtime library, the model and its file, and the configured servers.

``doctor`` provides the reports; no check itself starts a program or executes code of a library.

Source: git blob ids of the official libraries; rknn-llm's messages for a model of another SoC or of a newer toolkit;
rknn-llm #534 for models whose answers 1.3.0 does not end; Rockchip's fix_freq scripts (relevant clocks), the demo of
rknn-llm (open files), rknn-llm #62 (``Too many open files``), the library's own dependencies (libgomp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rkllm_mcp.board import npu, system
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_clocks, npu_nodes
from rkllm_mcp.board.system import gib, memory_bytes
from rkllm_mcp.diagnostics.findings import CheckResult, CheckStatus, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.errors import LibraryNotFoundError, ModelFileError
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.models.compatibility import check_pair, needed_bytes, platform_of
from rkllm_mcp.models.rkllm_header import RkllmFile
from rkllm_mcp.models.rknn_header import read_rknn_file
from rkllm_mcp.runtime.abi import NEWEST_VERSION
from rkllm_mcp.runtime.vision.library import find_encoder_library, library_version

# Installation of the programs that servers are usually started with: in words, and as a shell command.
_PROGRAMS = {
    "npx": ("Install Node.js 20 or newer.", "sudo apt install nodejs npm"),
    "node": ("Install Node.js 20 or newer.", "sudo apt install nodejs npm"),
    "uvx": ("Install uv.", "pipx install uv"),
    "uv": ("Install uv.", "pipx install uv"),
    "docker": ("Install Docker.", "sudo apt install docker.io"),
    "python": ("Write the whole path of a Python, such as /usr/bin/python3, in command.", ""),
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
    yield CheckResult("runtime library", library.status, library.found, library.remedy, library.command)
    if library.git_blob and not library.emulated:
        status: CheckStatus = "ok"
        blob, remedy = f"git blob {library.git_blob[:_BLOB_SHOWN]}…", ""
        release = f"the published {library.official_release}, byte for byte ({blob})"
        if library.official_release is None:
            status, release = "info", f"{blob} is not one of the published libraries up to {NEWEST_VERSION}"
        elif library.official_release != library.version:
            status, version = "warn", library.version or "-"
            release = f"{blob} is the published {library.official_release}, and its own text says {version}"
            remedy = "Copy librkllmrt.so again from the RKLLM SDK."
        yield CheckResult("runtime release", status, release, remedy)
        if library.version in _UNSEEN:
            behaviour = _UNSEEN[library.version]
            yield CheckResult("runtime behaviour", "info", behaviour, "The probe shows it.", "rkllm-mcp doctor --probe")
    different = [f"{path} ({version})" for path, version in library.others if version != library.version]
    if different:
        remedy = "Remove the others, or set 'library' in [runtime]."
        yield CheckResult("other libraries", "warn", ", ".join(different), remedy, "ldconfig -p | grep rkllmrt")


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
    facts_text, here, library = ", ".join(facts), platform_of(machine), subjects.library
    if file.platform and here and file.platform != here:
        problem = f"{facts_text}; this board is an {here}"
        yield CheckResult("model file", "fail", problem, _CONVERT, "rkllm-mcp models list")
    elif file.toolkit and library.version and _numbers(file.toolkit) > _numbers(library.version):
        remedy = f"The runtime refuses models of a newer toolkit; install RKLLM {file.toolkit} or newer."
        yield CheckResult("model file", "fail", f"{facts_text}; the runtime is {library.version}", remedy)
    elif file.context_tokens and model.context_tokens > file.context_tokens:
        remedy = f"Set context_tokens under [model] to {file.context_tokens} or less."
        yield CheckResult("model file", "fail", f"{facts_text}; {model.context_tokens} are configured", remedy)
    else:
        yield CheckResult("model file", "ok", facts_text)
    if subjects.library.version == "1.3.0" and file.toolkit in _ENDLESS_TOOLKITS:
        sentence = f"runtime 1.3.0 does not know the end token of models made by {file.toolkit}"
        yield CheckResult("model end", "info", sentence, "The host ends these answers by itself; no action is needed.")


def _numbers(version: str) -> tuple[int, ...]:
    """Return a release as numbers; a beta counts as the release."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def check_encoder(machine: Machine, model: ModelFolder, file: RkllmFile | None) -> Iterator[CheckResult]:
    """Check the vision encoder of a model that has one, its library, and the package that reads pictures."""
    if model.encoder is None:
        return
    name = "vision encoder"
    try:
        encoder = read_rknn_file(model.encoder)
        if file is not None:
            check_pair(encoder, file)
    except ModelFileError as error:
        yield CheckResult(name, "fail", error.message, error.remedy)
        return
    facts = [
        encoder.path.name,
        encoder.platform or "platform not stated",
        *([f"toolkit {encoder.toolkit}"] if encoder.toolkit else []),
        *([f"{encoder.input_size[1]} x {encoder.input_size[0]} pixels"] if encoder.input_size else []),
        *([f"{encoder.tokens} tokens a picture"] if encoder.tokens else []),
    ]
    facts_text, here = ", ".join(facts), platform_of(machine)
    if encoder.platform and here and encoder.platform != here:
        remedy = "Take the encoder that was exported for this board."
        yield CheckResult(name, "fail", f"{facts_text}; this board is an {here}", remedy)
    else:
        yield CheckResult(name, "ok", facts_text)
    if encoder.emulated:
        return
    name = "vision library"
    try:
        path = find_encoder_library(encoder.path)
    except LibraryNotFoundError as error:
        yield CheckResult(name, "fail", error.message, error.remedy)
        return
    version = library_version(path)
    if version is None:
        yield CheckResult(name, "fail", f"{path} names no release", "Copy librknnrt.so again.")
    elif encoder.toolkit and _numbers(encoder.toolkit) > _numbers(version):
        problem = f"{path} ({version}), older than the toolkit {encoder.toolkit} of the encoder"
        remedy = "It may refuse the file; put a newer librknnrt.so beside the encoder."
        yield CheckResult(name, "warn", problem, remedy)
    else:
        yield CheckResult(name, "ok", f"{path} ({version})")


def check_servers(servers: tuple[ServerReport, ...] | None) -> Iterator[CheckResult]:
    """Check that each configured server can be started."""
    if servers is None:
        yield CheckResult("servers", "info", "switched off by MCP_ENABLED=false or --no-mcp")
        return
    if not servers:
        command = "rkllm-mcp servers add NAME -- COMMAND ARGS"
        yield CheckResult("servers", "info", "none configured", "Add one.", command)
    for server in servers:
        name = f"server {server.name}"
        if not server.enabled:
            yield CheckResult(name, "info", f"switched off: {server.how}")
        elif server.problem:
            yield CheckResult(name, "warn", f"{server.problem}, so the server is skipped", _OR_OFF)
        elif server.command and server.program is None:
            problem = f"{server.command} is not installed, so the server is skipped"
            remedy = _PROGRAMS.get(server.command, (f"Install {server.command}, or correct 'command'.", ""))
            if " " in server.command:
                remedy = "Write the program alone in 'command' and each of its arguments in 'args'.", ""
            yield CheckResult(name, "warn", problem, *remedy)
        elif (state := server.state) is None:
            yield CheckResult(name, "ok", server.how)
        elif state.state == "ready":
            tools = f"{state.tool_count} {'tool' if state.tool_count == 1 else 'tools'}"
            yield CheckResult(name, "ok", f"{server.how}: {tools} after {state.connect_seconds:.1f} s")
        elif state.state == "waiting":
            yield CheckResult(name, "info", f"{server.how}: {state.reason or 'waits for its first use'}")
        else:
            outcome = f"{server.how}: {state.reason}".rstrip(".") + ", so the server is skipped"
            yield CheckResult(name, "warn", outcome, _OR_OFF, f"rkllm-mcp servers test {server.name}")


_GOVERNORS_AT_FULL_SPEED = frozenset({"performance", "userspace"})
_VENDOR_KERNEL = "Install a vendor kernel 6.1 with rknpu 0.9.8; the driver is part of the kernel."
_FULL_SPEED = "Set it to full speed; that lasts until the next start. 'rkllm-mcp tune' sets all clocks."
_LOOK = "uname -r; ls /sys/module | grep -E 'rknpu|rocket'; ls -l /dev/dri /dev/accel"
_UNMASK = "--security-opt systempaths=unconfined --security-opt apparmor=unconfined"
# The groups of Debian's udev rules: card* is of video, renderD* of render.
_GROUPS = {"card": "video", "renderD": "render"}
# Nodes without a suitable group get one by a persistent udev rule.
_UDEV_RULES = {
    "card": 'SUBSYSTEM=="drm", KERNEL=="card*", KERNELS=="*.npu", GROUP="video", MODE="0660"',
    "renderD": 'SUBSYSTEM=="drm", KERNEL=="renderD*", KERNELS=="*.npu", GROUP="render", MODE="0660"',
    "rknpu": 'SUBSYSTEM=="misc", KERNEL=="rknpu", GROUP="video", MODE="0660"',
    "dma_heap": 'SUBSYSTEM=="dma_heap", GROUP="video", MODE="0660"',
}


def _install_kernel(machine: Machine) -> str:
    if machine.exists("etc/armbian-release"):
        return "sudo apt update && sudo apt install linux-image-vendor-rk35xx linux-dtb-vendor-rk35xx && sudo reboot"
    return "sudo apt update && sudo apt full-upgrade && sudo reboot"


def check_soc(machine: Machine) -> Iterator[CheckResult]:
    """Check the SoC."""
    soc = npu.soc_of(machine)
    model = (machine.strings("proc/device-tree/model") or ("",))[0]
    if soc is not None:
        cores = f"{soc.npu_cores} NPU core{'s' if soc.npu_cores > 1 else ''}"
        yield CheckResult("soc", "ok", f"{soc.name}, {cores}{f' ({model})' if model else ''}")
        return
    compatible = machine.strings("proc/device-tree/compatible")
    if not compatible and (machine.link_of("proc/device-tree") or npu_nodes(machine) or npu.driver_version(machine)):
        problem = "the device tree is hidden, as containers do, and the runtime refuses an unknown platform"
        remedy = "Start the container with its system paths unmasked; in Kubernetes with procMount: Unmasked."
        yield CheckResult("soc", "fail", problem, remedy, f"docker run {_UNMASK} …")
        return
    board = model or ", ".join(compatible)
    problem = f"no supported SoC ({board})" if board else "no supported SoC"
    names = ", ".join(soc.name for soc in npu.SOCS.values())
    remedy = f"The NPU needs one of {names}; everything works emulated: --runtime emulator."
    yield CheckResult("soc", "fail", problem, remedy)


def check_driver(machine: Machine) -> Iterator[CheckResult]:
    """Check the kernel driver of the NPU."""
    version, kernel = npu.driver_version(machine), machine.text("proc/sys/kernel/osrelease") or "running here"
    install = _install_kernel(machine)
    if version is not None:
        driver = f"rknpu {'.'.join(map(str, version))}"
        if version >= npu.RECOMMENDED_DRIVER:
            yield CheckResult("npu driver", "ok", driver)
        elif version >= npu.EXPECTED_DRIVER:
            driver += "; the runtime takes it, and is made for 0.9.8"
            yield CheckResult("npu driver", "warn", driver, _VENDOR_KERNEL, install)
        elif version >= npu.OLDEST_DRIVER:
            driver += ", older than the 0.9.7 that the runtime asks for: large models and images may fail"
            yield CheckResult("npu driver", "warn", driver, _VENDOR_KERNEL, install)
        else:
            driver += ", with which models load but every token fails"
            yield CheckResult("npu driver", "fail", driver, _VENDOR_KERNEL, install)
    elif npu_nodes(machine) or machine.exists("sys/module/rknpu"):
        command = "sudo cat /sys/kernel/debug/rknpu/version"
        yield CheckResult("npu driver", "unknown", "rknpu, version not readable", "Only root can read it.", command)
    elif machine.exists("sys/module/rocket") or machine.glob("dev/accel/accel*"):
        driver = f"rocket, the driver of the mainline kernel {kernel}, which librkllmrt.so cannot use"
        yield CheckResult("npu driver", "fail", driver, _VENDOR_KERNEL, install)
    else:
        driver = f"none: the kernel {kernel} has no rknpu, or the NPU is disabled in its device tree"
        yield CheckResult("npu driver", "fail", driver, f"Enable the NPU's overlay. {_VENDOR_KERNEL}", _LOOK)


def check_device(machine: Machine) -> Iterator[CheckResult]:
    """Check the device nodes and this user's access to them."""
    nodes = npu_nodes(machine)
    target = machine.link_of("dev/rknpu")
    missing = [f"/{node}" for node in nodes if not machine.exists(node)]
    if target is not None:
        problem = f"/dev/rknpu is a link to {target}, with which the runtime takes the wrong interface and crashes"
        remedy = "Remove it and what makes it; the runtime finds the card in /dev/dri by itself."
        yield CheckResult("npu device", "fail", problem, remedy, "sudo rm /dev/rknpu; grep -rl rknpu /etc/udev/rules.d")
    elif not nodes and machine.exists("sys/module/rknpu"):
        problem = "rknpu is loaded, and the kernel made no node for it: no card in /dev/dri, and no /dev/rknpu"
        remedy = "A kernel update can do this; read what the driver says, and start the kernel before it."
        yield CheckResult("npu device", "fail", problem, remedy, "sudo dmesg | grep -iE 'rknpu|npu0'")
    elif not nodes:
        problem = "no card of rknpu in /dev/dri, and no /dev/rknpu"
        yield CheckResult("npu device", "fail", problem, _VENDOR_KERNEL, _LOOK)
    elif missing:
        problem = f"{' and '.join(missing)} not in /dev"
        options = " ".join(f"--device {name}" for name in missing)
        is_container = any(machine.exists(mark) for mark in npu.CONTAINER_MARKS)
        remedy = "Pass it into the container." if is_container else "Restart udev, or the board."
        command = options if is_container else "sudo udevadm trigger --subsystem-match=drm"
        yield CheckResult("npu device", "fail", problem, remedy, command)
    else:
        yield _access(machine, "npu device", nodes)
    if [node.name for node in nodes] == ["rknpu"] and target is None:
        heaps = machine.glob("dev/dma_heap/*")
        if heaps:
            usable = tuple(heap for heap in heaps if machine.can_use(machine.root / heap))
            yield _access(machine, "dma heap", usable or heaps[:1])
        else:
            remedy = f"This build of the driver takes memory from it. {_VENDOR_KERNEL}"
            yield CheckResult("dma heap", "warn", "no /dev/dma_heap", remedy, _install_kernel(machine))


def _access(machine: Machine, what: str, nodes: Sequence[Path]) -> CheckResult:
    """Return the finding for nodes that exist: the groups to join, or rules that give the nodes to groups."""
    names = {node: f"/{node}" for node in nodes}
    closed = [node for node in nodes if not machine.can_use(machine.root / node)]
    if not closed:
        return CheckResult(what, "ok", ", ".join(names.values()))
    groups = {node: machine.group_of(node) or "root" for node in closed}
    owned = ", ".join(f"{names[node]} (group {group})" for node, group in groups.items())
    problem = f"{owned}, which this user may not read and write"
    # The runtime goes over the cards; the render node alone is not an obstacle that is known.
    status = "fail" if any(not node.name.startswith("renderD") for node in closed) else "warn"
    if "root" not in groups.values():
        joined = ",".join(dict.fromkeys(groups.values()))
        remedy = f"Join {joined.replace(',', ' and ')} and log in again; in a container add the groups by number."
        return CheckResult(what, status, problem, remedy, f"sudo usermod -aG {joined} $USER")
    kinds = ["dma_heap" if what == "dma heap" else node.name.rstrip("0123456789") for node in closed]
    rules = r"\n".join(_UDEV_RULES[kind] for kind in kinds)
    joined = ",".join(dict.fromkeys(_GROUPS.get(kind, "video") for kind in kinds))
    command = (
        f"printf '{rules}\\n' | sudo tee /etc/udev/rules.d/99-rknpu.rules && sudo udevadm control --reload && "
        f"sudo udevadm trigger && sudo usermod -aG {joined} $USER"
    )
    remedy = f"Give it to {joined.replace(',', ' and ')}, join and log in again."
    return CheckResult(what, status, problem, remedy, command)


def check_load(machine: Machine) -> Iterator[CheckResult]:
    """Report the load of each NPU core."""
    load = npu.describe_load(machine)
    if load:
        yield CheckResult("npu load", "info" if npu.read_loads(machine)[1] else "unknown", load)
    elif npu_nodes(machine):
        command = "sudo cat /sys/kernel/debug/rknpu/load"
        yield CheckResult("npu load", "unknown", "not readable", "Only root can read it.", command)


def _check_result(name: str, is_right: bool, observed: str, remedy: str, command: str) -> CheckResult:
    """Return the finding of a check that warns with a remedy unless it is passed."""
    return CheckResult(name, "ok", observed) if is_right else CheckResult(name, "warn", observed, remedy, command)


_GOMP = "libgomp.so.1"
_LIBRARY_FOLDERS = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib")


def check_kernel(machine: Machine) -> Iterator[CheckResult]:
    """Check the kernel; the driver is made for the vendor's versions."""
    release, on_board = machine.text("proc/sys/kernel/osrelease"), npu.soc_of(machine) is not None
    if not release:
        return
    if release.startswith(system.VENDOR_KERNELS):
        yield CheckResult("kernel", "ok" if on_board else "info", release)
    elif on_board and (npu.driver_version(machine) or ()) >= npu.RECOMMENDED_DRIVER:
        # An out-of-tree build of the vendor's driver (kiln, rknpu-module).
        remedy = "Reported to work with librkllmrt.so 1.2 and 1.3; build the driver again after a kernel update."
        built = "built by DKMS" if machine.glob("var/lib/dkms/rknpu*") else "built for it"
        yield CheckResult("kernel", "info", f"{release}, not the vendor's, with the vendor's driver {built}", remedy)
    else:
        remedy = "Rockchip recommends 5.10.209 or 6.1.84; others need a driver of their own." if on_board else ""
        yield CheckResult("kernel", "info", release, remedy)


def check_clocks(machine: Machine) -> Iterator[CheckResult]:
    """Check that the NPU, the CPU cores, which sample, and the memory, which limits decoding, run at full speed."""
    soc = npu.soc_of(machine)
    for clock in npu_clocks(machine):
        is_slow = soc is not None and clock.hertz is not None and clock.hertz < soc.npu_hz
        command = f"echo {soc.npu_hz if soc else 0} | sudo tee /sys/kernel/debug/rknpu/freq"
        if clock.device:
            is_slow = is_slow or clock.governor not in _GOVERNORS_AT_FULL_SPEED
            command = f"echo performance | sudo tee /{clock.device}/governor"
        yield _check_result("npu clock", not is_slow, str(clock), _FULL_SPEED, command)
    governors: list[str] = []
    is_slow = False
    for policy in machine.glob("sys/devices/system/cpu/cpufreq/policy*"):
        governor = machine.text(policy / "scaling_governor") or "unknown"
        kilohertz = machine.number(policy / "scaling_cur_freq")
        governors.append(f"{policy.name} {governor}" + (f" {kilohertz // 1000} MHz" if kilohertz is not None else ""))
        is_slow = is_slow or governor not in _GOVERNORS_AT_FULL_SPEED
        if governor == "userspace":
            # Its clock may have been set well below the maximum.
            chosen = machine.number(policy / "scaling_setspeed") if kilohertz is None else kilohertz
            fastest = machine.number(policy / "cpuinfo_max_freq")
            if fastest is not None and chosen is not None:
                is_slow = is_slow or chosen < fastest * system.FULL_SPEED_SHARE
    if governors:
        remedy = "Set them to full speed; that lasts until the next start. 'rkllm-mcp tune' sets all clocks."
        command = "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
        yield _check_result("cpu governor", not is_slow, ", ".join(governors), remedy, command)
    if machine.exists("sys/class/devfreq/dmc"):
        governor = machine.text("sys/class/devfreq/dmc/governor")
        hertz = machine.number("sys/class/devfreq/dmc/cur_freq")
        frequency = f"{hertz / 1e6:.0f} MHz, governor {governor}" if hertz is not None else f"governor {governor}"
        command = "echo performance | sudo tee /sys/class/devfreq/dmc/governor"
        is_fast = governor in _GOVERNORS_AT_FULL_SPEED
        yield _check_result("memory clock", is_fast, frequency, _FULL_SPEED, command)
    else:
        remedy = (
            "The firmware does not scale the memory clock, and may leave it low; try the board maker's newest image."
        )
        yield CheckResult("memory clock", "warn", "no /sys/class/devfreq/dmc", remedy)


def check_temperature(machine: Machine) -> Iterator[CheckResult]:
    """Check the hottest sensor of the chip."""
    zone = system.hottest(machine)
    if zone is None:
        return
    name, celsius = zone
    remedy, command = "The chip slows down when it is hot; cool it.", "watch cat /sys/class/thermal/thermal_zone*/temp"
    yield _check_result("temperature", celsius < system.HOT_CELSIUS, f"{celsius:.0f} °C ({name})", remedy, command)


def check_open_files(machine: Machine) -> Iterator[CheckResult]:
    """Check the limit of open files; a model is mapped in thousands of pieces."""
    line = re.search(r"^Max open files\s+(\S+)\s+(\S+)", machine.text("proc/self/limits") or "", re.MULTILINE)
    if line is None:
        yield CheckResult("open files", "unknown", "/proc/self/limits is not readable")
        return
    soft, hard = line.groups()
    limit = f"at most {soft}, up to {hard} on request"
    # A process may raise its own limit up to the hard limit, and the runtime's process does so.
    is_enough = hard == "unlimited" or int(hard) >= system.OPEN_FILES_WANTED
    remedy = "Raise it and log in again; a service has LimitNOFILE=102400 in its unit."
    command = "echo '* hard nofile 102400' | sudo tee -a /etc/security/limits.conf"
    yield _check_result("open files", is_enough, limit, remedy, command)


def check_memory(machine: Machine, model: ModelReport) -> Iterator[CheckResult]:
    """Check that the model fits into the available memory, with the KV cache of its context window."""
    available = memory_bytes(machine, "MemAvailable")
    if available is None:
        yield CheckResult("memory", "unknown", "/proc/meminfo does not report the available memory")
        return
    memory = f"{gib(available)} available"
    if not model.file_bytes or model.emulated:
        yield CheckResult("memory", "info", memory)
        return
    cache = model.context_tokens * (model.cache_bytes_per_token or 0)
    needed = needed_bytes(model.file_bytes, model.context_tokens, model.cache_bytes_per_token)
    memory += f"; the model is {gib(model.file_bytes)}"
    if cache:
        token_size = f"{(model.cache_bytes_per_token or 0) / 1024:g} KiB"
        memory += (
            f", its KV cache {gib(cache)} ({model.context_tokens} tokens of {token_size}), with buffers {gib(needed)}"
        )
    total = memory_bytes(machine, "MemTotal") or available
    if available >= needed:
        yield CheckResult("memory", "ok", memory)
    elif total < needed and total >= needed - cache:
        remedy = f"This machine has {gib(total)} in all; set a smaller context_tokens under [model]."
        yield CheckResult("memory", "fail", memory, remedy)
    elif total < needed:
        remedy = f"This machine has {gib(total)} in all; take a smaller model."
        yield CheckResult("memory", "fail", memory, remedy, "rkllm-mcp models list")
    else:
        status = "warn" if available >= model.file_bytes + cache else "fail"
        remedy = "End the programs that need most, or set a smaller context_tokens under [model]."
        yield CheckResult("memory", status, memory, remedy, "ps -eo rss,comm --sort=-rss | head")


def check_npu_memory(machine: Machine, model_bytes: int) -> Iterator[CheckResult]:
    """Check that the driver can map the model, and where the NPU's memory comes from.

    That is an IOMMU, of which a large model needs several domains, or else a reserve; a large one is in its way.
    """
    if model_bytes > npu.DOMAIN_BYTES:
        problem = f"the model is larger than one domain of {npu.DOMAIN_BYTES // 2**30} GiB"
        version = npu.driver_version(machine)
        if version is None:
            yield CheckResult("npu memory", "unknown", f"{problem}, and the driver's version is not readable")
        elif version < npu.RECOMMENDED_DRIVER:
            remedy, command = f"Take a smaller model. {_VENDOR_KERNEL}", _install_kernel(machine)
            yield CheckResult("npu memory", "warn", f"{problem}, which older drivers fail to map", remedy, command)
        else:
            yield CheckResult("npu memory", "ok", problem)
    reserve = memory_bytes(machine, "CmaTotal")
    if npu.has_iommu(machine) is False:
        state = f"off for the NPU, whose memory then comes from a reserve of {gib(reserve or 0)}"
        remedy = "Take kernel and device tree of the vendor's image, without overlays that change NPU or memory."
        yield CheckResult("iommu", "warn", state, remedy, "sudo dmesg | grep -iE 'iommu|rknpu'")
    if reserve is not None and reserve > system.CMA_BYTES:
        remedy = "A reserve of this size can prevent models from loading; remove cma= from the kernel command line."
        yield CheckResult("cma", "warn", f"{gib(reserve)} reserved", remedy, "cat /proc/cmdline")


def check_gomp(machine: Machine) -> Iterator[CheckResult]:
    """Check for libgomp, which librkllmrt.so needs and small systems may lack."""
    patterns = [f"{folder}/{between}{_GOMP}" for between in ("", "*/") for folder in _LIBRARY_FOLDERS]
    path = next((path for pattern in patterns for path in machine.glob(pattern)), None)
    if path is not None:
        yield CheckResult("libgomp", "ok", f"/{path}")
    else:
        yield CheckResult("libgomp", "fail", f"no {_GOMP}", "Install it.", "sudo apt install libgomp1")
