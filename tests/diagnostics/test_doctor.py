from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.diagnostics.doctor import examine, worst
from rkllm_mcp.diagnostics.findings import CheckResult, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.models.rkllm_header import RkllmFile
from tests.support.board_trees import (
    LAPTOP,
    MAINLINE_ROCK_5B,
    ORANGE_PI_5,
    RK3562,
    RK3576,
    RK3588,
    ROCK_5B_OLD,
    cpu_held_at,
    plant,
)

VENDOR_KERNEL = "Install a vendor kernel 6.1 with rknpu 0.9.8; the driver is part of the kernel."
UPGRADE = "sudo apt update && sudo apt full-upgrade && sudo reboot"
LOOK = "uname -r; ls /sys/module | grep -E 'rknpu|rocket'; ls -l /dev/dri /dev/accel"
# What the kernel tells of the NPU, taken away: the driver, its nodes in /sys and in /dev.
NO_VERSION = {"sys/module/rknpu/version": None}
NO_NODES: Mapping[str, str | None] = {
    name: None
    for name in RK3588
    if "card1" in name or "renderD129" in name or name.startswith("sys/kernel/debug/rknpu")
}
REAL = Subjects(
    "/home/u/mcp_config.toml",
    LibraryReport("/usr/lib/librkllmrt.so, version 1.2.3, interface 1.2.3", "ok"),
    ModelReport("qwen3-1.7b", file_bytes=2 * 2**30, context_tokens=4096, cache_bytes_per_token=114688),
    (ServerReport("weather", "python -m weather", command="python", program="/usr/bin/python"),),
)
EMULATED = Subjects(
    "none",
    LibraryReport("the emulated NPU", "ok", emulated=True),
    ModelReport("demo", file_bytes=4096, context_tokens=4096, emulated=True),
)


def found_on(
    root: Path, files: Mapping[str, str | None], subjects: Subjects = REAL, *, usable: bool = True
) -> dict[str, CheckResult]:
    machine = Machine(plant(root, files), can_use=lambda path: usable)
    return {finding.name: finding for finding in examine(machine, subjects)}


def test_a_board_in_order_is_all_right(tmp_path: Path) -> None:
    found = found_on(tmp_path, RK3588)
    assert [(f.name, f.status, f.found) for f in found.values()] == [
        ("soc", "ok", "RK3588, 3 NPU cores (Radxa ROCK 5B)"),
        ("kernel", "ok", "6.1.84-rockchip"),
        ("npu driver", "ok", "rknpu 0.9.8"),
        ("npu device", "ok", "/dev/dri/card1, /dev/dri/renderD129"),
        ("npu load", "info", "core 0 12 %, core 1 0 %, core 2 0 %"),
        ("npu clock", "ok", "1000 MHz, governor userspace"),
        ("cpu governor", "ok", "policy0 performance, policy4 performance"),
        ("memory clock", "ok", "2112 MHz, governor userspace"),
        ("temperature", "ok", "47 °C (npu-thermal)"),
        ("libgomp", "ok", "/usr/lib/aarch64-linux-gnu/libgomp.so.1"),
        ("open files", "ok", "at most 1024, up to 1048576 on request"),
        (
            "memory",
            "ok",
            (
                "12.0 GiB available; the model is 2.0 GiB, its KV cache 0.4 GiB (4096 tokens of 112 KiB), "
                "with buffers 2.9 GiB"
            ),
        ),
        (
            "model size",
            "info",
            (
                "15.5 GiB are enough for models of up to 8B, or 4B that see pictures; "
                "qwen3-1.7b fits now with a context of 88064 tokens"
            ),
        ),
        ("configuration", "info", "/home/u/mcp_config.toml"),
        ("runtime library", "ok", "/usr/lib/librkllmrt.so, version 1.2.3, interface 1.2.3"),
        ("model", "ok", "qwen3-1.7b (2.00 GiB), 4096 tokens of context"),
        ("server weather", "ok", "python -m weather"),
    ]
    assert worst(found.values()) == "ok"


def test_on_a_laptop_the_emulated_npu_works_and_a_real_one_is_missing(tmp_path: Path) -> None:
    emulated = found_on(tmp_path, LAPTOP, EMULATED)
    assert worst(emulated.values()) == "ok"
    assert emulated["npu device"] == CheckResult(
        "npu device", "info", "no card of rknpu in /dev/dri, and no /dev/rknpu", "Not needed by the emulated runtime."
    )
    real = found_on(tmp_path, LAPTOP)
    assert worst(real.values()) == "fail"
    assert real["soc"] == CheckResult(
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
            {"sys/module/rknpu/version": "0.9.7\n"},
            CheckResult(
                "npu driver", "warn", "rknpu 0.9.7; the runtime takes it, and is made for 0.9.8", VENDOR_KERNEL, UPGRADE
            ),
        ),
        (
            {"sys/module/rknpu/version": "0.9.6\n", "etc/armbian-release": ""},
            CheckResult(
                "npu driver",
                "warn",
                "rknpu 0.9.6, older than the 0.9.7 that the runtime asks for: large models and images may fail",
                VENDOR_KERNEL,
                "sudo apt update && sudo apt install linux-image-vendor-rk35xx linux-dtb-vendor-rk35xx && sudo reboot",
            ),
        ),
        (
            NO_VERSION,
            CheckResult(
                "npu driver",
                "unknown",
                "rknpu, version not readable",
                "Only root can read it.",
                "sudo cat /sys/kernel/debug/rknpu/version",
            ),
        ),
        (
            {**NO_VERSION, **NO_NODES, "sys/module/rocket/initstate": "live\n"},
            CheckResult(
                "npu driver",
                "fail",
                "rocket, the driver of the mainline kernel 6.1.84-rockchip, which librkllmrt.so cannot use",
                VENDOR_KERNEL,
                UPGRADE,
            ),
        ),
        (
            {**NO_VERSION, **NO_NODES},
            CheckResult(
                "npu driver",
                "fail",
                "none: the kernel 6.1.84-rockchip has no rknpu, or the NPU is disabled in its device tree",
                f"Enable the NPU's overlay. {VENDOR_KERNEL}",
                LOOK,
            ),
        ),
        (
            NO_NODES,
            CheckResult(
                "npu device",
                "fail",
                "rknpu is loaded, and the kernel made no node for it: no card in /dev/dri, and no /dev/rknpu",
                "A kernel update can do this; read what the driver says, and start the kernel before it.",
                "sudo dmesg | grep -iE 'rknpu|npu0'",
            ),
        ),
        (
            {"dev/dri/card1": None, "dev/dri/renderD129": None, ".dockerenv": ""},
            CheckResult(
                "npu device",
                "fail",
                "/dev/dri/card1 and /dev/dri/renderD129 not in /dev",
                "Pass it into the container.",
                "--device /dev/dri/card1 --device /dev/dri/renderD129",
            ),
        ),
        (
            {"dev/dri/card1": None},
            CheckResult(
                "npu device",
                "fail",
                "/dev/dri/card1 not in /dev",
                "Restart udev, or the board.",
                "sudo udevadm trigger --subsystem-match=drm",
            ),
        ),
        (
            {"dev/rknpu": "-> dri/renderD129"},
            CheckResult(
                "npu device",
                "fail",
                "/dev/rknpu is a link to dri/renderD129, with which the runtime takes the wrong interface and crashes",
                "Remove it and what makes it; the runtime finds the card in /dev/dri by itself.",
                "sudo rm /dev/rknpu; grep -rl rknpu /etc/udev/rules.d",
            ),
        ),
        (
            {"proc/device-tree/compatible": None, "proc/device-tree/model": None},
            CheckResult(
                "soc",
                "fail",
                "the device tree is hidden, as containers do, and the runtime refuses an unknown platform",
                "Start the container with its system paths unmasked; in Kubernetes with procMount: Unmasked.",
                "docker run --security-opt systempaths=unconfined --security-opt apparmor=unconfined …",
            ),
        ),
        (
            {"sys/class/drm/card1/device/iommu_group/type": None},
            CheckResult(
                "iommu",
                "warn",
                "off for the NPU, whose memory then comes from a reserve of 0.0 MiB",
                "Take kernel and device tree of the vendor's image, without overlays that change NPU or memory.",
                "sudo dmesg | grep -iE 'iommu|rknpu'",
            ),
        ),
        ({**NO_NODES, "dev/rknpu": ""}, CheckResult("npu device", "ok", "/dev/rknpu")),
        (
            {**NO_NODES, "dev/rknpu": ""},
            CheckResult(
                "dma heap",
                "warn",
                "no /dev/dma_heap",
                f"This build of the driver takes memory from it. {VENDOR_KERNEL}",
                UPGRADE,
            ),
        ),
        (
            {"sys/kernel/debug/rknpu/load": "NPU load:   %\n"},
            CheckResult("npu load", "info", "0 %"),
        ),
        (
            {"sys/class/devfreq/fdab0000.npu/governor": "rknpu_ondemand\n"},
            CheckResult(
                "npu clock",
                "warn",
                "1000 MHz, governor rknpu_ondemand",
                "Set it to full speed; that lasts until the next start. 'rkllm-mcp tune' sets all clocks.",
                "echo performance | sudo tee /sys/class/devfreq/fdab0000.npu/governor",
            ),
        ),
        (
            {"sys/class/devfreq/dmc/governor": None, "sys/class/devfreq/dmc/cur_freq": None},
            CheckResult(
                "memory clock",
                "warn",
                "no /sys/class/devfreq/dmc",
                "The firmware does not scale the memory clock, and may leave it low; "
                "try the board maker's newest image.",
            ),
        ),
        (
            {"sys/class/thermal/thermal_zone1/temp": "91000\n"},
            CheckResult(
                "temperature",
                "warn",
                "91 °C (npu-thermal)",
                "The chip slows down when it is hot; cool it.",
                "watch cat /sys/class/thermal/thermal_zone*/temp",
            ),
        ),
        (
            {"proc/self/limits": "Max open files            1024                 4096                 files\n"},
            CheckResult(
                "open files",
                "warn",
                "at most 1024, up to 4096 on request",
                "Raise it and log in again; a service has LimitNOFILE=102400 in its unit.",
                "echo '* hard nofile 102400' | sudo tee -a /etc/security/limits.conf",
            ),
        ),
        (
            {"proc/meminfo": "MemTotal:    4194304 kB\nMemAvailable:    1048576 kB\n"},
            CheckResult(
                "memory",
                "fail",
                "1.0 GiB available; the model is 2.0 GiB, its KV cache 0.4 GiB (4096 tokens of 112 KiB), "
                "with buffers 2.9 GiB",
                "End the programs that need most, or set a smaller context_tokens under [model].",
                "ps -eo rss,comm --sort=-rss | head",
            ),
        ),
        (
            {"proc/meminfo": "MemTotal:    2097152 kB\nMemAvailable:    1048576 kB\n"},
            CheckResult(
                "memory",
                "fail",
                "1.0 GiB available; the model is 2.0 GiB, its KV cache 0.4 GiB (4096 tokens of 112 KiB), "
                "with buffers 2.9 GiB",
                "This machine has 2.0 GiB in all; take a smaller model.",
                "rkllm-mcp models list",
            ),
        ),
        (
            {"usr/lib/aarch64-linux-gnu/libgomp.so.1": None},
            CheckResult("libgomp", "fail", "no libgomp.so.1", "Install it.", "sudo apt install libgomp1"),
        ),
    ],
)
def test_a_fault_of_a_board_is_found(tmp_path: Path, changes: Mapping[str, str | None], expected: CheckResult) -> None:
    assert found_on(tmp_path, {**RK3588, **changes})[expected.name] == expected


def test_devices_that_may_not_be_used_name_the_groups_that_own_them(tmp_path: Path) -> None:
    owned = {**RK3588, "etc/group": f"npu-users:x:{os.getgid()}:ada\n"}
    assert found_on(tmp_path, owned, usable=False)["npu device"] == CheckResult(
        "npu device",
        "fail",
        "/dev/dri/card1 (group npu-users), /dev/dri/renderD129 (group npu-users), "
        "which this user may not read and write",
        "Join npu-users and log in again; in a container add the groups by number.",
        "sudo usermod -aG npu-users $USER",
    )


def test_the_card_is_needed_and_the_render_node_alone_is_not_enough(tmp_path: Path) -> None:
    machine = Machine(plant(tmp_path, RK3588), can_use=lambda path: not path.name.startswith("card"))
    device = next(finding for finding in examine(machine, REAL) if finding.name == "npu device")
    assert (device.status, device.found) == (
        "fail",
        "/dev/dri/card1 (group root), which this user may not read and write",
    )
    assert device.command.endswith("sudo usermod -aG video $USER")


@pytest.mark.parametrize(
    ("tree", "name", "groups", "rule"),
    [
        (
            RK3588,
            "npu device",
            "video,render",
            (
                'SUBSYSTEM=="drm", KERNEL=="card*", KERNELS=="*.npu", GROUP="video", MODE="0660"\\n'
                'SUBSYSTEM=="drm", KERNEL=="renderD*", KERNELS=="*.npu", GROUP="render", MODE="0660"'
            ),
        ),
        (RK3562, "npu device", "video", 'SUBSYSTEM=="misc", KERNEL=="rknpu", GROUP="video", MODE="0660"'),
        (RK3562, "dma heap", "video", 'SUBSYSTEM=="dma_heap", GROUP="video", MODE="0660"'),
    ],
)
def test_a_device_of_nobodys_group_is_given_to_one_for_good(
    tmp_path: Path, tree: Mapping[str, str], name: str, groups: str, rule: str
) -> None:
    found = found_on(tmp_path, {**tree, "etc/group": f"root:x:{os.getgid()}:\n"}, usable=False)[name]
    remedy = f"Give it to {groups.replace(',', ' and ')}, join and log in again."
    assert (found.status, found.remedy) == ("fail", remedy)
    assert found.command == (
        f"printf '{rule}\\n' | sudo tee /etc/udev/rules.d/99-rknpu.rules && sudo udevadm control --reload && "
        f"sudo udevadm trigger && sudo usermod -aG {groups} $USER"
    )


def test_a_driver_without_a_file_of_its_version_is_asked_through_its_node(tmp_path: Path) -> None:
    root = plant(tmp_path, {**RK3588, **NO_VERSION})
    machine = Machine(root, drm_version=lambda node: (0, 9, 8) if node.name == "card1" else None)
    assert CheckResult("npu driver", "ok", "rknpu 0.9.8") in examine(machine, REAL)
    assert Machine(root).drm_version(root / "dev/dri/card1") is None


def test_a_node_without_a_drivers_name_is_known_by_its_devices_link(tmp_path: Path) -> None:
    tree = {
        **RK3588,
        **NO_NODES,
        "sys/class/drm/card3/device": "-> ../../../devices/platform/fdab0000.npu",
        "dev/dri/card3": "",
    }
    assert found_on(tmp_path, tree)["npu device"].found == "/dev/dri/card3"


def verdicts(found: Mapping[str, CheckResult]) -> dict[str, str]:
    """What is not right, by name."""
    return {name: finding.status for name, finding in found.items() if finding.status in {"warn", "fail", "unknown"}}


@pytest.mark.parametrize(
    ("tree", "platform", "expected"),
    [
        (ORANGE_PI_5, "RK3588", {"npu clock": "warn", "cpu governor": "warn", "memory clock": "warn"}),
        (ROCK_5B_OLD, "RK3588", {"npu driver": "fail", "npu load": "unknown", "memory clock": "warn"}),
        (
            MAINLINE_ROCK_5B,
            "RK3588",
            {"npu driver": "fail", "npu device": "fail", "cpu governor": "warn", "memory clock": "warn"},
        ),
        (RK3576, "RK3576", {}),
        (RK3562, "RK3562", {"npu driver": "warn", "npu clock": "warn", "cma": "warn", "memory": "fail"}),
        (LAPTOP, "RK3588", {"soc": "fail", "npu driver": "fail", "npu device": "fail"}),
    ],
    ids=["Orange Pi 5", "Rock 5B, driver 0.8.2", "Rock 5B, mainline", "RK3576", "RK3562", "a PC"],
)
def test_a_recorded_machine_is_judged_as_it_is(
    tmp_path: Path, tree: Mapping[str, str], platform: str, expected: Mapping[str, str]
) -> None:
    file = RkllmFile(Path("m.rkllm"), 2 * 2**30, platform, toolkit="1.2.3", context_tokens=4096)
    subjects = replace(REAL, model=replace(REAL.model, file=file))
    assert verdicts(found_on(tmp_path, tree, subjects)) == expected


def test_clocks_below_the_fastest_are_reported_with_their_values(tmp_path: Path) -> None:
    found = found_on(tmp_path, ORANGE_PI_5)
    assert found["npu clock"].found == "300 MHz, governor rknpu_ondemand"
    assert found["cpu governor"].found == (
        "policy0 ondemand 408 MHz, policy4 ondemand 408 MHz, policy6 ondemand 2400 MHz"
    )
    assert found_on(tmp_path / "other", RK3562)["npu clock"] == CheckResult(
        "npu clock",
        "warn",
        "600 MHz",
        "Set it to full speed; that lasts until the next start. 'rkllm-mcp tune' sets all clocks.",
        "echo 1000000000 | sudo tee /sys/kernel/debug/rknpu/freq",
    )


@pytest.mark.parametrize(
    ("changes", "status", "clock"),
    [
        (cpu_held_at(2400000), "ok", " 2400 MHz"),
        (cpu_held_at(2352000), "ok", " 2352 MHz"),  # a step below the fastest
        (cpu_held_at(1200000), "warn", " 1200 MHz"),
        (cpu_held_at(None, setspeed="816000"), "warn", ""),
        (cpu_held_at(None), "ok", ""),
    ],
)
def test_a_clock_set_by_the_owner_is_compared_with_the_fastest(
    tmp_path: Path, changes: Mapping[str, str | None], status: str, clock: str
) -> None:
    governor = found_on(tmp_path, {**RK3588, **changes})["cpu governor"]
    assert (governor.status, governor.found) == (status, f"policy0 performance, policy4 userspace{clock}")


def test_a_driver_with_which_every_token_fails_is_more_than_a_warning(tmp_path: Path) -> None:
    assert found_on(tmp_path, ROCK_5B_OLD)["npu driver"] == CheckResult(
        "npu driver",
        "fail",
        "rknpu 0.8.2, with which models load but every token fails",
        VENDOR_KERNEL,
        UPGRADE,
    )


@pytest.mark.parametrize(
    ("driver", "status", "found"),
    [
        ("0.9.8\n", "ok", "the model is larger than one domain of 4 GiB"),
        (
            "0.9.2\n",
            "warn",
            "the model is larger than one domain of 4 GiB, which older drivers fail to map",
        ),
        (None, "unknown", "the model is larger than one domain of 4 GiB, and the driver's version is not readable"),
    ],
)
def test_a_model_larger_than_a_domain_needs_a_driver_that_has_several(
    tmp_path: Path, driver: str | None, status: str, found: str
) -> None:
    tree = {**RK3588, "sys/module/rknpu/version": driver}
    large = replace(REAL, model=replace(REAL.model, file_bytes=5 * 2**30))
    finding = found_on(tmp_path, tree, large)["npu memory"]
    assert (finding.status, finding.found) == (status, found)


FILE = RkllmFile(
    Path("m.rkllm"), 2 * 2**30, "RK3588", npu_cores=3, toolkit="1.2.3", context_tokens=4096, architecture="qwen2"
)
SAID = "RK3588, toolkit 1.2.3, 3 NPU cores, context up to 4096, qwen2"


@pytest.mark.parametrize(
    ("changes", "runtime", "context_tokens", "expected"),
    [
        ({}, "1.2.3", 4096, CheckResult("model file", "ok", SAID)),
        ({"platform": None, "toolkit": None}, "1.2.0", 4096, None),
        (
            {"platform": "RK3576"},
            "1.2.3",
            4096,
            CheckResult(
                "model file",
                "fail",
                SAID.replace("RK3588", "RK3576") + "; this board is an RK3588",
                "Take a file made for this board: rkllm-mcp models list shows them.",
                "rkllm-mcp models list",
            ),
        ),
        (
            {},
            "1.2.0",
            4096,
            CheckResult(
                "model file",
                "fail",
                f"{SAID}; the runtime is 1.2.0",
                "The runtime refuses models of a newer toolkit; install RKLLM 1.2.3 or newer.",
            ),
        ),
        (
            {},
            "1.3.0",
            8192,
            CheckResult(
                "model file",
                "fail",
                f"{SAID}; 8192 are configured",
                "Set context_tokens under [model] to 4096 or less.",
            ),
        ),
    ],
)
def test_a_model_file_is_held_against_board_runtime_and_configuration(
    tmp_path: Path, changes: Mapping[str, Any], runtime: str, context_tokens: int, expected: CheckResult | None
) -> None:
    model = replace(REAL.model, file=replace(FILE, **changes), context_tokens=context_tokens)
    found = found_on(tmp_path, RK3588, replace(REAL, library=replace(REAL.library, version=runtime), model=model))
    if expected is None:
        assert (found["model file"].status, found["model file"].found[:39]) == (
            "ok",
            "platform not stated, toolkit not stated",
        )
    else:
        assert found["model file"] == expected
    assert ("model end" in found) == (runtime == "1.3.0")


def test_a_file_that_is_not_a_model_is_reported_and_not_fatal(tmp_path: Path) -> None:
    model = replace(REAL.model, file_problem="m.rkllm is a ZIP archive.", file_remedy="Unpack it.")
    found = found_on(tmp_path, RK3588, replace(REAL, model=model))
    assert found["model file"] == CheckResult("model file", "warn", "m.rkllm is a ZIP archive.", "Unpack it.")


@pytest.mark.parametrize(
    ("version", "official", "status", "beginning"),
    [
        ("1.2.3", "1.2.3", "ok", "the published 1.2.3, byte for byte (git blob 0084abc34ab4…)"),
        ("1.3.2", None, "info", "git blob 0084abc34ab4… is not one of the published libraries"),
        ("1.3.0", "1.2.3", "warn", "git blob 0084abc34ab4… is the published 1.2.3, and its own text says 1.3.0"),
    ],
)
def test_a_runtime_is_recognised_by_its_bytes(
    tmp_path: Path, version: str, official: str | None, status: str, beginning: str
) -> None:
    blob = "0084abc34ab43359cfa9fd5d4c92ece34127dbd0"
    library = replace(REAL.library, version=version, git_blob=blob, official_release=official)
    finding = found_on(tmp_path, RK3588, replace(REAL, library=library))["runtime release"]
    assert (finding.status, finding.found[: len(beginning)]) == (status, beginning)


@pytest.mark.parametrize(("version", "emulated"), [("1.3.0", False), ("1.3.1", False), ("1.3.1", True)])
def test_an_undescribed_runtime_is_reported_with_the_known_facts(tmp_path: Path, version: str, emulated: bool) -> None:
    library = replace(REAL.library, version=version, git_blob="0084abc34ab4", emulated=emulated)
    told = found_on(tmp_path, RK3588, replace(REAL, library=library)).get("runtime behaviour")
    assert (told is not None) == (version == "1.3.1" and not emulated)
    if told is not None:
        assert (told.status, told.command) == ("info", "rkllm-mcp doctor --probe")
        assert "known by its header's checksum" in told.found
        assert "one died of SIGBUS with driver 0.9.8" in told.found


def test_another_release_in_the_search_path_of_the_loader_is_reported(tmp_path: Path) -> None:
    others = (("/usr/lib/librkllmrt.so", "1.1.4"), ("/opt/librkllmrt.so", "1.2.3"))
    library = replace(REAL.library, version="1.2.3", others=others)
    assert found_on(tmp_path, RK3588, replace(REAL, library=library))["other libraries"] == CheckResult(
        "other libraries",
        "warn",
        "/usr/lib/librkllmrt.so (1.1.4)",
        "Remove the others, or set 'library' in [runtime].",
        "ldconfig -p | grep rkllmrt",
    )
    same = replace(library, others=others[1:])
    assert "other libraries" not in found_on(tmp_path, RK3588, replace(REAL, library=same))


def test_wrong_models_and_servers_are_reported(tmp_path: Path) -> None:
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
        CheckResult("runtime library", "fail", "librkllmrt.so was not found.", "Install it."),
        CheckResult("model", "fail", "There is no model 'x'.", "There are a, b."),
    ]
    assert [finding for name, finding in found.items() if name.startswith("server ")] == [
        CheckResult(
            "server files",
            "warn",
            "npx is not installed, so the server is skipped",
            "Install Node.js 20 or newer.",
            "sudo apt install nodejs npm",
        ),
        CheckResult("server old", "info", "switched off: gone"),
        CheckResult(
            "server own",
            "warn",
            "mine is not installed, so the server is skipped",
            "Install mine, or correct 'command'.",
        ),
        CheckResult("server far", "ok", "http https://h/mcp"),
        CheckResult(
            "server line",
            "warn",
            "python3 -m x is not installed, so the server is skipped",
            "Write the program alone in 'command' and each of its arguments in 'args'.",
        ),
        CheckResult(
            "server ws",
            "warn",
            "transport 'websocket' is not available in this version, so the server is skipped",
            "Correct it, or set enabled = false.",
        ),
    ]


def test_servers_that_are_switched_off_together_are_not_called_missing(tmp_path: Path) -> None:
    off = Subjects(EMULATED.configuration, EMULATED.library, EMULATED.model, None)
    assert found_on(tmp_path, LAPTOP, off)["servers"] == CheckResult(
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
    assert CheckResult("npu device", "unknown", "could not be checked: RuntimeError: the kernel laughed") in findings
