"""Checks of what a board shares: its CPU cores, its NPU with other programs, and its memory.

Source: rknn-llm #200 (the library binds its threads to the fast cores), #263 (three of them are enough), #335, #437
(memory of the NPU); reports of others that prefill is up to five times slower without the fast cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rkllm_mcp.board import npu
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_nodes
from rkllm_mcp.board.system import RUNTIME_BYTES, gib, memory_bytes
from rkllm_mcp.diagnostics.findings import CheckResult, ModelReport
from rkllm_mcp.models.compatibility import needed_bytes

_CPU = "sys/devices/system/cpu"
# The library computes on so many cores; the maintainer's own advice takes three.
_FEWEST_CPUS = 3
# Words of a command line, and the program that it is. The first that fits is taken.
_NPU_PROGRAMS: Mapping[str, str] = {
    "frigate": "Frigate",
    "rkllama": "RKLLama",
    "openvoicestream": "OpenVoiceStream",
    "rkllm-api-server": "RKLLM-API-Server",
    "rkllm_server": "Rockchip's rkllm_server",
    "flask_server": "Rockchip's rkllm_server",
    "llm_demo": "Rockchip's llm_demo",
    "rknn_server": "rknn_server",
    "immich_ml": "Immich",
    "orkllm": "oRKLLM",
    "rkllm-mcp": "rkllm-mcp",
    "rkllm_mcp": "rkllm-mcp",
}
_OWN = "rkllm-mcp"
_MEMORY_BUSY_BYTES = 2**29
# What fits into a machine's memory in all, GiB, by the sizes and figures of Rockchip's benchmark and of Qengineering's.
_MODEL_SIZES = (
    (28, "several models of up to 8B at once"),
    (14, "models of up to 8B, or 4B that see pictures"),
    (7, "models of up to 4B, or 2B that see pictures"),
    (3, "models of up to 1.7B"),
    (0, "models of up to 0.6B"),
)


def numbers_of(text: str | None) -> frozenset[int]:
    """Return the numbers of a list as the kernel writes it: ``0-3,6``."""
    parts = re.findall(r"(\d+)(?:-(\d+))?", text or "")
    return frozenset(number for first, last in parts for number in range(int(first), int(last or first) + 1))


def check_cpus(machine: Machine) -> Iterator[CheckResult]:
    """Check that the runtime gets enough CPU cores, the fast ones above all."""
    present, online = (numbers_of(machine.text(f"{_CPU}/{name}")) for name in ("present", "online"))
    if not online:
        return
    # The cores that are faster than others; none if all are alike, or their speeds are not known.
    speeds: dict[int, int] = {}
    for folder in machine.glob(f"{_CPU}/cpu[0-9]*"):
        speed = machine.number(folder / "cpu_capacity") or machine.number(folder / "cpufreq/cpuinfo_max_freq")
        if speed is not None:
            speeds[int(folder.name[3:])] = speed
    # A core that is offline says nothing of its own: its policy names it.
    for policy in machine.glob(f"{_CPU}/cpufreq/policy*"):
        speed = machine.number(policy / "cpuinfo_max_freq")
        for core in numbers_of((machine.text(policy / "related_cpus") or "").replace(" ", ",")):
            if speed is not None:
                speeds.setdefault(core, speed)
    slowest = min(speeds.values(), default=0)
    fast = frozenset(core for core, speed in speeds.items() if speed > slowest)
    line = re.search(r"^Cpus_allowed_list:\s*(\S+)", machine.text("proc/self/status") or "", re.MULTILINE)
    allowed = (numbers_of(line[1]) if line else online) & online
    offline, isolated = present - online, numbers_of(machine.text(f"{_CPU}/isolated"))
    # On a board whose fast cores are gone the rest look alike, so that any missing core counts.
    needed = fast or present
    switch_on = "; ".join(f"echo 1 | sudo tee /{_CPU}/cpu{core}/online" for core in sorted(offline & needed))
    give = "Give them to it: --cpuset-cpus of the container, AllowedCPUs= or CPUAffinity= of the unit, or taskset."
    look = "Switch them on; look for maxcpus= or isolcpus= in the kernel command line, and for a power profile."
    remove = "Remove isolcpus= from the kernel command line."
    slow = "the runtime computes on the fast cores, and prefill was reported up to five times slower without them"
    for missing, problem, remedy, command in (
        (offline & needed, "are offline", look, switch_on),
        ((online - allowed) & needed, "are not for this program", give, ""),
        (isolated & needed, "are isolated", remove, "cat /proc/cmdline"),
    ):
        if missing:
            cores = ", ".join(map(str, sorted(missing)))
            yield CheckResult("cpus", "warn", f"cores {cores} {problem}: {slow}", remedy, command)
            return
    if len(allowed) < _FEWEST_CPUS:
        problem = f"{len(allowed)} of {len(present)} cores for this program; the runtime computes on three and more"
        remedy = "Give it more: --cpus and --cpuset-cpus of the container, AllowedCPUs= or CPUAffinity= of the unit."
        yield CheckResult("cpus", "warn", problem, remedy)
    else:
        known = f", {len(fast)} of them fast ({', '.join(map(str, sorted(fast)))})" if fast else ""
        yield CheckResult("cpus", "ok", f"{len(allowed)} cores{known}")


def check_npu_users(machine: Machine) -> Iterator[CheckResult]:
    """Report programs that use the NPU as well as this one, by name where they are known."""
    nodes = {f"/{node}" for node in npu_nodes(machine)}
    users: dict[str, int] = {}
    for folder in machine.glob("proc/[0-9]*"):
        words = (machine.text(folder / "cmdline") or "").replace("\0", " ").lower()
        name = next((program for word, program in _NPU_PROGRAMS.items() if word in words), "")
        has_node = any(machine.link_of(link) in nodes for link in machine.glob(f"{folder}/fd/*"))
        if not (name or has_node) or name == _OWN:
            continue
        users[name or (machine.text(folder / "comm") or "a program")] = int(folder.name)
    if users:
        names = ", ".join(f"{name} (process {number})" for name, number in sorted(users.items()))
        remedy = "Both get slower, and its memory is not there for the model; end what you do not need."
        yield CheckResult("npu users", "warn", names, remedy)


def check_swap(machine: Machine) -> Iterator[CheckResult]:
    """Report swap and zram: the NPU's buffers stay in memory, so neither makes room for a model."""
    total, free = memory_bytes(machine, "SwapTotal"), memory_bytes(machine, "SwapFree")
    if not total or free is None:
        return
    zram = "zram" in (machine.text("proc/swaps") or "")
    state = f"{gib(total)} of {'zram' if zram else 'swap'}, {gib(total - free)} used"
    remedy = "The model's memory cannot be swapped out; what is used here was pushed out by something else."
    if total - free > _MEMORY_BUSY_BYTES:
        yield CheckResult("swap", "warn", state, remedy, "ps -eo rss,comm --sort=-rss | head")
    else:
        yield CheckResult("swap", "info", state)


def check_model_size(machine: Machine, model: ModelReport) -> Iterator[CheckResult]:
    """Report which models this machine's memory is for, and the longest context of the configured one."""
    total, available = (memory_bytes(machine, name) for name in ("MemTotal", "MemAvailable"))
    if total is None or npu.soc_of(machine) is None:
        return
    state = f"{gib(total)} are enough for {next(text for least, text in _MODEL_SIZES if total >= least * 2**30)}"
    cache = model.cache_bytes_per_token
    if available is not None and model.file_bytes and cache and not model.emulated:
        room = (available - model.file_bytes - RUNTIME_BYTES) // cache // 1024 * 1024
        room = min(room, (model.file and model.file.context_tokens) or room)
        if room > 0 and needed_bytes(model.file_bytes, room, cache) <= available:
            state += f"; {model.name} fits now with a context of {room} tokens"
    yield CheckResult("model size", "info", state)
