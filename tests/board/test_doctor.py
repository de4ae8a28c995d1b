from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rkllm_mcp.board.doctor import examine, worst
from rkllm_mcp.board.finding import Finding, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.board.machine import Machine
from tests.board.trees import LAPTOP, RK3588, plant

VENDOR_KERNEL = "Use the board maker's image with Rockchip's kernel 5.10 or 6.1, which has the rknpu driver."
REAL = Subjects(
    "/home/u/mcp_config.toml",
    LibraryReport("/usr/lib/librkllmrt.so, version 1.2.3, interface 1.2.3", "ok"),
    ModelReport("qwen3-1.7b", file_bytes=2 * 2**30, context_tokens=4096),
    (ServerReport("weather", "python -m weather", command="python", program="/usr/bin/python"),),
)
EMULATED = Subjects(
    "none",
    LibraryReport("the emulated NPU", "ok", emulated=True),
    ModelReport("demo", file_bytes=4096, context_tokens=4096, emulated=True),
)


def found_on(
    root: Path, files: Mapping[str, str | None], subjects: Subjects = REAL, *, usable: bool = True
) -> dict[str, Finding]:
    machine = Machine(plant(root, files), can_use=lambda path: usable)
    return {finding.name: finding for finding in examine(machine, subjects)}


def test_a_board_in_order_is_all_right(tmp_path: Path) -> None:
    found = found_on(tmp_path, RK3588)
    assert [(f.name, f.status, f.found) for f in found.values()] == [
        ("soc", "ok", "RK3588, 3 NPU cores (Radxa ROCK 5B)"),
        ("kernel", "info", "6.1.84-rockchip"),
        ("npu driver", "ok", "rknpu 0.9.8"),
        ("npu device", "ok", "/dev/dri/renderD129"),
        ("npu load", "info", "core 0 12 %, core 1 0 %, core 2 0 %"),
        ("npu clock", "ok", "1000 MHz, governor userspace"),
        ("cpu governor", "ok", "policy0 performance, policy4 performance"),
        ("memory clock", "ok", "2112 MHz, governor userspace"),
        ("temperature", "ok", "47 °C (npu-thermal)"),
        ("libgomp", "ok", "/usr/lib/aarch64-linux-gnu/libgomp.so.1"),
        ("open files", "ok", "at most 1024, up to 1048576 on request"),
        ("memory", "ok", "12.0 GiB available, the model is 2.0 GiB"),
        ("configuration", "info", "/home/u/mcp_config.toml"),
        ("runtime library", "ok", "/usr/lib/librkllmrt.so, version 1.2.3, interface 1.2.3"),
        ("model", "ok", "qwen3-1.7b (2.00 GiB), 4096 tokens of context"),
        ("server weather", "ok", "python -m weather"),
    ]
    assert worst(found.values()) == "ok"


def test_on_a_laptop_the_emulated_npu_works_and_a_real_one_is_missing(tmp_path: Path) -> None:
    emulated = found_on(tmp_path, LAPTOP, EMULATED)
    assert worst(emulated.values()) == "ok"
    assert emulated["npu device"] == Finding(
        "npu device", "info", "no render node of rknpu and no /dev/rknpu", "Not needed by the emulated runtime."
    )
    real = found_on(tmp_path, LAPTOP)
    assert worst(real.values()) == "fail"
    assert real["soc"] == Finding(
        "soc",
        "fail",
        "no supported SoC",
        "The NPU needs one of RK3588, RK3588S, RK3576, RK3562, RV1126B; everything works emulated: --runtime emulator.",
    )
    assert "cpu governor" not in real


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"sys/kernel/debug/rknpu/version": None, "sys/module/rknpu/version": "0.9.6\n"},
            Finding(
                "npu driver",
                "warn",
                "rknpu 0.9.6",
                "Update the kernel: 0.9.8 or newer is what the runtime is made for.",
            ),
        ),
        (
            {"sys/kernel/debug/rknpu/version": None},
            Finding("npu driver", "unknown", "rknpu, version not readable", "Read it with: sudo dmesg | grep rknpu"),
        ),
        (
            {
                "sys/kernel/debug/rknpu/version": None,
                "sys/class/drm/renderD129/device/uevent": "DRIVER=rocket\n",
                "sys/module/rocket/initstate": "live\n",
            },
            Finding(
                "npu driver",
                "fail",
                "rocket, the mainline kernel's driver, which librkllmrt.so cannot use",
                VENDOR_KERNEL,
            ),
        ),
        (
            {"dev/dri/renderD129": None},
            Finding(
                "npu device",
                "fail",
                "/dev/dri/renderD129 is not there",
                "In a container, pass it in: --device /dev/dri/renderD129",
            ),
        ),
        (
            {"sys/class/drm/renderD129/device/uevent": None, "dev/rknpu": ""},
            Finding("npu device", "ok", "/dev/rknpu"),
        ),
        (
            {"sys/class/drm/renderD129/device/uevent": None, "dev/rknpu": ""},
            Finding(
                "dma heap", "warn", "no /dev/dma_heap", f"This kind of driver takes memory from it; {VENDOR_KERNEL}"
            ),
        ),
        (
            {"sys/kernel/debug/rknpu/load": "NPU load:   %\n"},
            Finding("npu load", "info", "0 %"),
        ),
        (
            {"sys/class/devfreq/fdab0000.npu/governor": "rknpu_ondemand\n"},
            Finding(
                "npu clock",
                "warn",
                "1000 MHz, governor rknpu_ondemand",
                "For full speed: echo performance | sudo tee /sys/class/devfreq/fdab0000.npu/governor",
            ),
        ),
        (
            {"sys/class/devfreq/dmc/governor": None, "sys/class/devfreq/dmc/cur_freq": None},
            Finding(
                "memory clock",
                "warn",
                "no /sys/class/devfreq/dmc",
                "The firmware does not scale the memory clock, and may leave it low; "
                "try the board maker's newest image.",
            ),
        ),
        (
            {"sys/class/thermal/thermal_zone1/temp": "91000\n"},
            Finding("temperature", "warn", "91 °C (npu-thermal)", "The chip slows down when it is hot; cool it."),
        ),
        (
            {"proc/self/limits": "Max open files            1024                 4096                 files\n"},
            Finding(
                "open files",
                "warn",
                "at most 1024, up to 4096 on request",
                "Raise it: 'LimitNOFILE=102400' in the service, or nofile in /etc/security/limits.conf.",
            ),
        ),
        (
            {"proc/meminfo": "MemAvailable:    1048576 kB\n"},
            Finding(
                "memory",
                "fail",
                "1.0 GiB available, the model is 2.0 GiB",
                "End other programs, or take a smaller model.",
            ),
        ),
        (
            {"usr/lib/aarch64-linux-gnu/libgomp.so.1": None},
            Finding("libgomp", "fail", "no libgomp.so.1", "Install it: sudo apt install libgomp1"),
        ),
    ],
)
def test_what_is_wrong_with_a_board_is_found(
    tmp_path: Path, changes: Mapping[str, str | None], expected: Finding
) -> None:
    assert found_on(tmp_path, {**RK3588, **changes})[expected.name] == expected


def test_a_device_that_may_not_be_used_says_how_to_get_the_right(tmp_path: Path) -> None:
    assert found_on(tmp_path, RK3588, usable=False)["npu device"] == Finding(
        "npu device",
        "fail",
        "/dev/dri/renderD129, which this user may not read and write",
        "Join the groups that own it and log in again: sudo usermod -aG render,video $USER",
    )


def test_models_and_servers_that_are_not_right_are_told(tmp_path: Path) -> None:
    subjects = Subjects(
        "none",
        LibraryReport("librkllmrt.so was not found.", "fail", "Install it."),
        ModelReport("", "There is no model 'x'.", "There are a, b."),
        (
            ServerReport("files", "npx -y files", command="npx"),
            ServerReport("old", "gone", enabled=False, command="gone"),
            ServerReport("own", "mine", command="mine"),
            ServerReport("far", "http https://h/mcp"),
            ServerReport("line", "python3 -m x", command="python3 -m x"),
            ServerReport("ws", "websocket ws://h", problem="transport 'websocket' is not available in this version"),
        ),
    )
    found = found_on(tmp_path, RK3588, subjects)
    assert [found[name] for name in ("runtime library", "model")] == [
        Finding("runtime library", "fail", "librkllmrt.so was not found.", "Install it."),
        Finding("model", "fail", "There is no model 'x'.", "There are a, b."),
    ]
    assert [finding for name, finding in found.items() if name.startswith("server ")] == [
        Finding(
            "server files", "warn", "npx is not installed, so the server is skipped", "Install Node.js 20 or newer."
        ),
        Finding("server old", "info", "switched off: gone"),
        Finding(
            "server own",
            "warn",
            "mine is not installed, so the server is skipped",
            "Install mine, or correct 'command'.",
        ),
        Finding("server far", "ok", "http https://h/mcp"),
        Finding(
            "server line",
            "warn",
            "python3 -m x is not installed, so the server is skipped",
            "Write the program alone in 'command' and each of its arguments in 'args'.",
        ),
        Finding(
            "server ws",
            "warn",
            "transport 'websocket' is not available in this version, so the server is skipped",
            "Set enabled = false.",
        ),
    ]


def test_servers_that_are_switched_off_together_are_not_called_missing(tmp_path: Path) -> None:
    off = Subjects(EMULATED.configuration, EMULATED.library, EMULATED.model, None)
    assert found_on(tmp_path, LAPTOP, off)["servers"] == Finding(
        "servers", "info", "switched off by MCP_ENABLED=false or --no-mcp"
    )


def test_no_machine_is_too_strange_for_a_check_up(tmp_path: Path) -> None:
    strange = dict.fromkeys(RK3588, "\x00\x7f ÿ not what it should be %%% -1")
    found = found_on(tmp_path, strange)
    assert {finding.status for finding in found.values()} <= {"ok", "warn", "fail", "unknown", "info"}
    assert len(examine(Machine(tmp_path / "nothing"), REAL)) > 5


def test_a_check_that_breaks_becomes_a_finding(tmp_path: Path) -> None:
    def broken(path: Path) -> bool:
        raise RuntimeError("the kernel laughed")

    findings = examine(Machine(plant(tmp_path, RK3588), can_use=broken), REAL)
    assert Finding("npu device", "unknown", "could not be looked at: RuntimeError: the kernel laughed") in findings
