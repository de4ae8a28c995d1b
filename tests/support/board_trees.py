"""Folders that look like ``/`` of a machine, as far as the check-up reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 1048576              files
"""
MEMINFO = "MemTotal:       16212636 kB\nMemFree:          851200 kB\nMemAvailable:   12582912 kB\n"

RK3588: Mapping[str, str] = {
    "proc/device-tree/compatible": "radxa,rock-5b\0rockchip,rk3588\0",
    "proc/device-tree/model": "Radxa ROCK 5B\0",
    "proc/sys/kernel/osrelease": "6.1.84-rockchip\n",
    "proc/self/limits": LIMITS,
    "proc/meminfo": MEMINFO,
    "sys/module/rknpu/version": "0.9.8\n",
    "sys/kernel/debug/rknpu/load": "NPU load:  Core0: 12%, Core1:   %, Core2:   %,\n",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=panthor\nOF_FULLNAME=/gpu@fb000000\n",
    "sys/class/drm/card0-HDMI-A-1/status": "connected\n",
    "sys/class/drm/card1/device/uevent": "DRIVER=RKNPU\nOF_FULLNAME=/npu@fdab0000\n",
    "sys/class/drm/card1/device/iommu_group/type": "DMA\n",
    "sys/class/drm/renderD129/device/uevent": "DRIVER=RKNPU\nOF_FULLNAME=/npu@fdab0000\n",
    "dev/dri/renderD128": "",
    "dev/dri/card1": "",
    "dev/dri/renderD129": "",
    "sys/class/devfreq/fdab0000.npu/cur_freq": "1000000000\n",
    "sys/class/devfreq/fdab0000.npu/governor": "userspace\n",
    "sys/class/devfreq/dmc/cur_freq": "2112000000\n",
    "sys/class/devfreq/dmc/governor": "userspace\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpufreq/policy4/scaling_governor": "performance\n",
    "sys/class/thermal/thermal_zone0/type": "soc-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "45307\n",
    "sys/class/thermal/thermal_zone1/type": "npu-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "47153\n",
    "usr/lib/aarch64-linux-gnu/libgomp.so.1": "",
}
LAPTOP: Mapping[str, str] = {
    "proc/sys/kernel/osrelease": "6.8.0-generic\n",
    "proc/self/limits": LIMITS,
    "proc/meminfo": MEMINFO,
    "sys/class/drm/renderD128/device/uevent": "DRIVER=i915\n",
    "dev/dri/renderD128": "",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "usr/lib/x86_64-linux-gnu/libgomp.so.1": "",
}


def _cpus(**policies: tuple[str, int]) -> dict[str, str]:
    """Governor and kHz of each policy."""
    base = "sys/devices/system/cpu/cpufreq"
    return {
        f"{base}/{policy}/{name}": f"{text}\n"
        for policy, (governor, kilohertz) in policies.items()
        for name, text in (("scaling_governor", governor), ("scaling_cur_freq", kilohertz))
    }


def cpu_held_at(kilohertz: int | None, *, setspeed: str = "<unsupported>") -> dict[str, str | None]:
    """A policy of the fast cores with the governor ``userspace``; None where the present clock is not told."""
    base = "sys/devices/system/cpu/cpufreq/policy4"
    return {
        f"{base}/scaling_governor": "userspace\n",
        f"{base}/scaling_cur_freq": None if kilohertz is None else f"{kilohertz}\n",
        f"{base}/scaling_setspeed": f"{setspeed}\n",
        f"{base}/cpuinfo_max_freq": "2400000\n",
    }


def _devfreq(name: str, hertz: int, governor: str) -> dict[str, str]:
    base = f"sys/class/devfreq/{name}"
    return {f"{base}/cur_freq": f"{hertz}\n", f"{base}/governor": f"{governor}\n"}


# The boards below follow what their kernels and drivers are documented to show; none was at hand.
_BOARD: Mapping[str, str] = {
    "proc/self/limits": LIMITS,
    "usr/lib/aarch64-linux-gnu/libgomp.so.1": "",
    "sys/class/thermal/thermal_zone0/type": "soc-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "38846\n",
}
_RENDER: Mapping[str, str] = {
    "sys/class/drm/card1/device/uevent": "DRIVER=RKNPU\nOF_FULLNAME=/npu@fdab0000\n",
    "sys/class/drm/card1/device/iommu_group/type": "DMA\n",
    "dev/dri/card1": "",
    "sys/class/drm/renderD129/device/uevent": "DRIVER=RKNPU\nOF_FULLNAME=/npu@fdab0000\n",
    "dev/dri/renderD129": "",
}
ORANGE_PI_5: Mapping[str, str] = {
    **_BOARD,
    **_RENDER,
    **_cpus(policy0=("ondemand", 408000), policy4=("ondemand", 408000), policy6=("ondemand", 2400000)),
    **_devfreq("fdab0000.npu", 300000000, "rknpu_ondemand"),
    **_devfreq("dmc", 534000000, "dmc_ondemand"),
    "proc/device-tree/compatible": "rockchip,rk3588s-orangepi-5\0rockchip,rk3588\0",
    "proc/device-tree/model": "Orange Pi 5\0",
    "proc/sys/kernel/osrelease": "6.1.43-rockchip-rk3588\n",
    "proc/meminfo": "MemTotal:        8128852 kB\nMemAvailable:    6893120 kB\nCmaTotal:          65536 kB\n",
    "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.8\n",
    "sys/kernel/debug/rknpu/load": "NPU load:  Core0:   %, Core1:   %, Core2:   %,\n",
}
ROCK_5B_OLD: Mapping[str, str] = {
    **_BOARD,
    **_RENDER,
    **_cpus(policy0=("performance", 1800000), policy4=("performance", 2256000), policy6=("performance", 2304000)),
    **_devfreq("fdab0000.npu", 1000000000, "userspace"),
    "proc/device-tree/compatible": "radxa,rock-5b\0rockchip,rk3588\0",
    "proc/device-tree/model": "Radxa ROCK 5B\0",
    "proc/sys/kernel/osrelease": "5.10.110-34-rockchip\n",
    "proc/meminfo": MEMINFO,
    "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.8.2\n",
}
MAINLINE_ROCK_5B: Mapping[str, str] = {
    **_BOARD,
    **_cpus(policy0=("schedutil", 1800000), policy4=("schedutil", 2256000), policy6=("schedutil", 2304000)),
    "proc/device-tree/compatible": "radxa,rock-5b\0rockchip,rk3588\0",
    "proc/sys/kernel/osrelease": "6.18.2\n",
    "proc/meminfo": MEMINFO,
    "sys/module/rocket/initstate": "live\n",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=panthor\nOF_FULLNAME=/gpu@fb000000\n",
    "dev/dri/renderD128": "",
    "dev/accel/accel0": "",
}
RK3576: Mapping[str, str] = {
    **_BOARD,
    **_cpus(policy0=("userspace", 2208000), policy4=("userspace", 2304000)),
    **_devfreq("27700000.npu", 1000000000, "userspace"),
    **_devfreq("dmc", 2112000000, "userspace"),
    "proc/device-tree/compatible": "armsom,sige5\0rockchip,rk3576\0",
    "proc/sys/kernel/osrelease": "6.1.84\n",
    "proc/meminfo": MEMINFO,
    "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.8\n",
    "sys/kernel/debug/rknpu/load": "NPU load:  Core0:  7%, Core1:   %,\n",
    "sys/class/drm/card0/device/uevent": "OF_FULLNAME=/npu@27700000\nOF_COMPATIBLE_0=rockchip,rk3576-rknpu\n",
    "sys/class/drm/card0/device/iommu_group/type": "DMA\n",
    "dev/dri/card0": "",
    "sys/class/drm/renderD129/device/uevent": "OF_FULLNAME=/npu@27700000\nOF_COMPATIBLE_0=rockchip,rk3576-rknpu\n",
    "dev/dri/renderD129": "",
}
# The build of the driver without DRM: its own node, memory from a heap, its state in debugfs alone.
RK3562: Mapping[str, str] = {
    **_BOARD,
    **_cpus(policy0=("userspace", 2016000)),
    **_devfreq("dmc", 2112000000, "userspace"),
    "proc/device-tree/compatible": "rockchip,rk3562-evb2-ddr4-v10\0rockchip,rk3562\0",
    "proc/sys/kernel/osrelease": "5.10.209\n",
    "proc/meminfo": "MemTotal:        2020000 kB\nMemAvailable:    1600000 kB\nCmaTotal:        2097152 kB\n",
    "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.7\n",
    "sys/kernel/debug/rknpu/load": "NPU load:   %\n",
    "sys/kernel/debug/rknpu/freq": "600000000\n",
    "dev/rknpu": "",
    "dev/dma_heap/system": "",
}


def plant(root: Path, files: Mapping[str, str | None]) -> Path:
    """Write the files under ``root``; what is None is not there, and ``-> TARGET`` is a symbolic link."""
    for name, text in files.items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                (root / name).symlink_to(text[3:])
            else:
                (root / name).write_text(text)
    return root
