"""The checks of cores, other NPU programs, swap and model sizes, on trees of boards.

The capacities are those of the RK3588's device tree (A55 530, A76 1024), the clocks those of a published ``lscpu`` of
an Orange Pi 5.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.diagnostics import checks
from rkllm_mcp.diagnostics.findings import CheckResult, ModelReport
from rkllm_mcp.diagnostics.machine_checks import check_cpus, check_model_size, check_npu_users, check_swap, numbers_of
from tests.support.board_trees import MAINLINE_ROCK_5B, ORANGE_PI_5, RK3562, RK3588, plant

CPU = "sys/devices/system/cpu"
CORES = {
    f"{CPU}/present": "0-7\n",
    f"{CPU}/online": "0-7\n",
    f"{CPU}/isolated": "\n",
    "proc/self/status": "Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n",
    **{f"{CPU}/cpu{core}/cpu_capacity": "530\n" if core < 4 else "1024\n" for core in range(8)},
}
SLOW = "the runtime computes on the fast cores, and prefill was reported up to five times slower without them"


def found(root: Path, files: dict[str, str | None]) -> list[tuple[str, str]]:
    return [(each.status, each.found) for each in check_cpus(Machine(plant(root, {**RK3588, **CORES, **files})))]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("ok", "8 cores, 4 of them fast (4, 5, 6, 7)")),
        # A core that is offline has no capacity and no clock; its policy is gone with the last of its cores.
        (
            {f"{CPU}/online": "0-3\n", **{f"{CPU}/cpu{core}/cpu_capacity": None for core in range(4, 8)}},
            ("warn", f"cores 4, 5, 6, 7 are offline: {SLOW}"),
        ),
        ({f"{CPU}/online": "0-5\n"}, ("warn", f"cores 6, 7 are offline: {SLOW}")),
        (
            {"proc/self/status": "Cpus_allowed_list:\t0-3\n"},
            ("warn", f"cores 4, 5, 6, 7 are not for this program: {SLOW}"),
        ),
        ({f"{CPU}/isolated": "6-7\n"}, ("warn", f"cores 6, 7 are isolated: {SLOW}")),
        # Slow cores may be missing.
        ({f"{CPU}/online": "4-7\n"}, ("ok", "4 cores, 4 of them fast (4, 5, 6, 7)")),
        ({f"{CPU}/online": None}, None),
    ],
)
def test_the_fast_cores_are_missed(
    tmp_path: Path, files: dict[str, str | None], expected: tuple[str, str] | None
) -> None:
    assert found(tmp_path, files) == ([expected] if expected else [])


def test_the_cores_that_are_offline_are_named_with_the_command_for_each(tmp_path: Path) -> None:
    (result,) = check_cpus(Machine(plant(tmp_path, {**RK3588, **CORES, f"{CPU}/online": "0-5\n"})))
    assert result.command == (
        "echo 1 | sudo tee /sys/devices/system/cpu/cpu6/online; echo 1 | sudo tee /sys/devices/system/cpu/cpu7/online"
    )


def test_clocks_tell_the_fast_cores_where_no_capacity_does(tmp_path: Path) -> None:
    clocks = {f"{CPU}/cpu{core}/cpufreq/cpuinfo_max_freq": f"{1800000 if core < 4 else 2400000}\n" for core in range(8)}
    files = {**{name: None for name in CORES if name.endswith("capacity")}, **clocks}
    assert found(tmp_path, files) == [("ok", "8 cores, 4 of them fast (4, 5, 6, 7)")]


def test_two_cores_are_too_few_for_the_runtime(tmp_path: Path) -> None:
    two = {f"{CPU}/present": "0-1\n", f"{CPU}/online": "0-1\n", "proc/self/status": "Cpus_allowed_list:\t0-1\n"}
    results = [*check_cpus(Machine(plant(tmp_path, {**RK3562, **two})))]
    assert [(each.status, each.found) for each in results] == [
        ("warn", "2 of 2 cores for this program; the runtime computes on three and more")
    ]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3\0-u\0-m\0frigate\0", "Frigate"),
        ("/opt/rkllama/env/bin/python\0/usr/local/bin/rkllama_server\0--port\08080\0", "RKLLama"),
        ("python3\0flask_server.py\0--rkllm_model_path\0a.rkllm\0", "Rockchip's rkllm_server"),
        ("/usr/bin/rknn_server\0", "rknn_server"),
        ("./llm_demo\0qwen.rkllm\0002048\0", "Rockchip's llm_demo"),
        ("/opt/OpenVoiceStream/bin/openvoicestream\0", "OpenVoiceStream"),
    ],
)
def test_another_program_on_the_npu_is_named(tmp_path: Path, command: str, name: str) -> None:
    ours = {"proc/41/cmdline": "python3\0-m\0rkllm_mcp\0serve\0", "proc/41/fd/7": "-> /dev/dri/card1"}
    files = {**RK3588, **ours, "proc/77/cmdline": command, "proc/77/comm": "x\n", "proc/9/cmdline": "bash\0"}
    results = [*check_npu_users(Machine(plant(tmp_path, files)))]
    assert [(each.status, each.found) for each in results] == [("warn", f"{name} (process 77)")]


def test_a_program_without_a_known_name_is_found_by_its_open_node(tmp_path: Path) -> None:
    files = {**RK3588, "proc/8/cmdline": "cam\0", "proc/8/comm": "cam\n", "proc/8/fd/3": "-> /dev/dri/renderD129"}
    assert [each.found for each in check_npu_users(Machine(plant(tmp_path, files)))] == ["cam (process 8)"]
    assert [*check_npu_users(Machine(plant(tmp_path / "idle", {**RK3588})))] == []


@pytest.mark.parametrize(
    ("meminfo", "swaps", "expected"),
    [
        ("SwapTotal: 0 kB\nSwapFree: 0 kB\n", "", None),
        (
            "SwapTotal: 4064424 kB\nSwapFree: 4064424 kB\n",
            "/dev/zram0 partition 4064424 0 5\n",
            ("info", "3.9 GiB of zram, 0.0 MiB used"),
        ),
        (
            "SwapTotal: 2097148 kB\nSwapFree: 1048572 kB\n",
            "/swapfile file 2097148 1048576 -2\n",
            ("warn", "2.0 GiB of swap, 1.0 GiB used"),
        ),
    ],
)
def test_swap_is_said_to_make_no_room(
    tmp_path: Path, meminfo: str, swaps: str, expected: tuple[str, str] | None
) -> None:
    machine = Machine(plant(tmp_path, {"proc/meminfo": meminfo, "proc/swaps": f"Filename Type Size\n{swaps}"}))
    assert [(each.status, each.found) for each in check_swap(machine)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("kib", "text"),
    [
        (32_612_636, "31.1 GiB are enough for several models of up to 8B at once"),
        (16_212_636, "15.5 GiB are enough for models of up to 8B, or 4B that see pictures"),
        (8_128_852, "7.8 GiB are enough for models of up to 4B, or 2B that see pictures"),
        (3_900_000, "3.7 GiB are enough for models of up to 1.7B"),
        (2_020_000, "1.9 GiB are enough for models of up to 0.6B"),
    ],
)
def test_a_memory_is_enough_for_models_of_a_size(tmp_path: Path, kib: int, text: str) -> None:
    machine = Machine(plant(tmp_path, {**ORANGE_PI_5, "proc/meminfo": f"MemTotal: {kib} kB\nMemAvailable: {kib} kB\n"}))
    model = ModelReport("qwen3-0.6b", file_bytes=2**29, cache_bytes_per_token=114_688)
    (result,) = check_model_size(machine, ModelReport("qwen3-0.6b"))
    assert (result.status, result.found) == ("info", text)
    (result,) = check_model_size(machine, model)
    room = (kib * 1024 - 2**29 - 2**29) // 114_688 // 1024 * 1024
    assert result.found == f"{text}; qwen3-0.6b fits now with a context of {room} tokens"


def test_a_mainline_kernel_with_the_vendors_driver_is_told_from_one_without(tmp_path: Path) -> None:
    built = {"sys/module/rknpu/version": "0.9.8\n", "var/lib/dkms/rknpu/0.9.8/source/dkms.conf": ""}
    (result,) = checks.check_kernel(Machine(plant(tmp_path / "with", {**MAINLINE_ROCK_5B, **built})))
    assert result == CheckResult(
        "kernel",
        "info",
        "6.18.2, not the vendor's, with the vendor's driver built by DKMS",
        "Reported to work with librkllmrt.so 1.2 and 1.3; build the driver again after a kernel update.",
    )
    (result,) = checks.check_kernel(Machine(plant(tmp_path / "without", {**MAINLINE_ROCK_5B})))
    assert result.found == "6.18.2"


def test_lists_of_the_kernel_are_read() -> None:
    assert [sorted(numbers_of(text)) for text in ("0-3,6", "7\n", "", None)] == [[0, 1, 2, 3, 6], [7], [], []]
