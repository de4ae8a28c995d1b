"""The files in which Linux describes a machine, read under an injectable root and never failing.

A missing file, a forbidden one and one with strange contents all read as None: a check-up that crashes helps nobody.
Nothing here judges what it reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Files under /sys and /proc are short; a longer one is not what it should be.
_MOST_BYTES = 65536


def _readable_and_writable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True)
class Machine:
    """A machine as its files show it.

    Args:
        root: what stands for ``/``.
        can_use: whether this user may read and write a device node.
    """

    root: Path = Path("/")
    can_use: Callable[[Path], bool] = _readable_and_writable

    def path(self, name: str) -> Path:
        """A path under the root; ``name`` has no leading slash."""
        return self.root / name

    def exists(self, name: str) -> bool:
        """Whether the path is there; a folder that may not be entered counts as not there."""
        try:
            return self.path(name).exists()
        except OSError:
            return False

    def is_forbidden(self, name: str) -> bool:
        """Whether the path, or a folder above it, may not be read by this user."""
        try:
            self.path(name).stat()
        except PermissionError:
            return True
        except OSError:
            return False
        return not os.access(self.path(name), os.R_OK)

    def text(self, name: str) -> str | None:
        """The contents, stripped; None when they cannot be read."""
        try:
            with self.path(name).open("rb") as file:
                return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """The contents as a whole number; None when they are none."""
        try:
            return int(self.text(name) or "")
        except ValueError:
            return None

    def strings(self, name: str) -> tuple[str, ...]:
        """The contents as a device tree writes lists: strings that each end in NUL."""
        return tuple(part.strip() for part in (self.text(name) or "").split("\0") if part.strip())

    def group_of(self, name: str) -> str | None:
        """The name of the group that owns a path; None when the path, or the list of groups, cannot be read."""
        try:
            number = str(self.path(name).stat().st_gid)
        except OSError:
            return None
        groups = (line.split(":") for line in (self.text("etc/group") or "").splitlines())
        return next((group[0] for group in groups if len(group) > 2 and group[2] == number), None)

    def glob(self, pattern: str) -> tuple[Path, ...]:
        """The paths that match, sorted; none when a folder cannot be read."""
        try:
            return tuple(sorted(self.root.glob(pattern)))
        except OSError:
            return ()

    def name_of(self, path: Path) -> str:
        """The path as the machine's own user would write it."""
        return f"/{path.relative_to(self.root)}"

    def inside(self, path: Path) -> str:
        """A path that ``glob`` gave, relative to the root."""
        return str(path.relative_to(self.root))
