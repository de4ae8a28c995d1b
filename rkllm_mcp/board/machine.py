"""The files in which Linux describes a machine, read under an injectable root without exceptions.

Missing, forbidden and malformed files all read as None, so that a diagnosis never fails on them. Values are not judged
here.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Files under /sys and /proc are short; a longer one is not a valid one.
_MOST_BYTES = 65536
# Names a folder with the files of another machine, to try commands without a board.
ROOT_VARIABLE = "RKLLM_MCP_MACHINE_ROOT"


# DRM_IOCTL_VERSION of drm.h, and the struct that it fills: three numbers, then name, date and description as length
# and pointer each.
_DRM_VERSION = 0xC0406400
_DRM_STRUCT = "@3i4x6N"


def _drm_version(node: Path) -> tuple[int, ...] | None:
    """Return the version of the driver behind a DRM node, which needs no rights but those of the node."""
    request = bytearray(struct.calcsize(_DRM_STRUCT))
    try:
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.ioctl(descriptor, _DRM_VERSION, request)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return struct.unpack(_DRM_STRUCT, request)[:3]


@dataclass(frozen=True)
class Machine:
    """A machine, described by its files."""

    # Replaces ``/``; the names of files have no leading slash, and paths are below it.
    root: Path = field(default_factory=lambda: Path(os.environ.get(ROOT_VARIABLE) or "/"))
    can_use: Callable[[Path], bool] = lambda path: os.access(path, os.R_OK | os.W_OK)  # tests access to a device node
    drm_version: Callable[[Path], tuple[int, ...] | None] = _drm_version  # version of a DRM node's driver

    def exists(self, name: str | Path) -> bool:
        """Return True if the path exists; a folder without access counts as missing."""
        try:
            return (self.root / name).exists()
        except OSError:
            return False

    def link_of(self, name: str | Path) -> str | None:
        """Return the target of a symbolic link; None for anything else."""
        try:
            return str((self.root / name).readlink())
        except OSError:
            return None

    def text(self, name: str | Path) -> str | None:
        """Return the contents, stripped; None if unreadable."""
        try:
            with (self.root / name).open("rb") as file:
                return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, name: str | Path) -> int | None:
        """Return the contents as an integer; None if they are not one."""
        try:
            return int(self.text(name) or "")
        except ValueError:
            return None

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a device-tree string list: strings that each end in NUL."""
        return tuple(part.strip() for part in (self.text(name) or "").split("\0") if part.strip())

    def group_of(self, name: str | Path) -> str | None:
        """Return the group that owns a path; None if the path or the list of groups is unreadable."""
        try:
            number = str((self.root / name).stat().st_gid)
        except OSError:
            return None
        groups = (line.split(":") for line in (self.text("etc/group") or "").splitlines())
        return next((group[0] for group in groups if len(group) > 2 and group[2] == number), None)

    def glob(self, pattern: str) -> tuple[Path, ...]:
        """Return the matching paths below the root, sorted; none if a folder is unreadable."""
        try:
            return tuple(path.relative_to(self.root) for path in sorted(self.root.glob(pattern)))
        except OSError:
            return ()
