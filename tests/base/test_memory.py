"""The memory that is left to a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_base.memory import available_bytes

PLENTY = "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable:   8000000 kB\nBuffers: 2 kB\n"


@pytest.mark.parametrize(
    ("table", "groups", "expected"),
    [
        (PLENTY, {}, 8_192_000_000),
        ("MemTotal: 1 kB\nMemAvailable: soon\n", {}, None),
        (None, {}, None),
        (PLENTY, {"a": ("max", 5), "a/b": ("4000000000", "1000000000")}, 3_000_000_000),
        (PLENTY, {"a": ("3500000000", "500000000"), "a/b": ("max", 7)}, 3_000_000_000),
        (PLENTY, {"a": ("5", "7")}, 0),
        (None, {"a/b": ("4000", "1000")}, 3000),
    ],
)
def test_available_memory_is_what_the_machine_and_the_control_groups_leave(
    tmp_path: Path, table: str | None, groups: dict[str, tuple[object, object]], expected: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    if table is not None:
        (tmp_path / "proc/meminfo").write_text(table, "ascii")
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n", "ascii")
    for name, (limit, current) in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n", "ascii")
        (folder / "memory.current").write_text(f"{current}\n", "ascii")
    assert available_bytes(tmp_path) == expected


def test_this_machine_says_what_it_has_left() -> None:
    assert available_bytes()
