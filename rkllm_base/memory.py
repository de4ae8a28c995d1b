"""Memory that this process may still take."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that is left to this process without swapping, bytes; None if the kernel does not report it.

    It is the least of what the machine has (MemAvailable) and what each of the process's control groups (cgroup v2)
    leaves. ``root`` is the folder of ``/proc`` and ``/sys``.
    """
    limits: list[int] = []
    with suppress(OSError, ValueError, IndexError, KeyError):
        table = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text("ascii").splitlines())
        limits.append(int(table["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
        top = root / "sys/fs/cgroup"
        group = top / next(line[3:] for line in lines if line.startswith("0::")).strip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):
                limit = int((folder / "memory.max").read_text("ascii"))
                limits.append(max(0, limit - int((folder / "memory.current").read_text("ascii"))))
            if folder == top:
                break
    return min(limits, default=None)
