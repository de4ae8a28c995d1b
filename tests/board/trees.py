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
    "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.8\n",
    "sys/kernel/debug/rknpu/load": "NPU load:  Core0: 12%, Core1:   %, Core2:   %,\n",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=panthor\nOF_FULLNAME=/gpu@fb000000\n",
    "sys/class/drm/renderD129/device/uevent": "DRIVER=RKNPU\nOF_FULLNAME=/npu@fdab0000\n",
    "dev/dri/renderD128": "",
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


def plant(root: Path, files: Mapping[str, str | None]) -> Path:
    """Write the files under ``root``; what is None is not there."""
    for name, text in files.items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return root
