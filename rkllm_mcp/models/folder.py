"""Files -> a model folder, created completely or not at all.

    <root>/.<name>.part/lock, *.incomplete   work in progress; not visible as a model
    <root>/.<name>.part/ready/               finished files, renamed to <root>/<name>/ atomically

Rules: one process works on a name at a time; partial downloads are retained for the next attempt, other unfinished
files are deleted; an existing file of several gigabytes is linked instead of copied.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rkllm_mcp.errors import ModelFileError, UsageError
from rkllm_mcp.models.cards import CARD_NAME

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
# Reserve in addition to the files; a completely full file system breaks other programs.
_SPARE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Workspace:
    """Working folder for one model."""

    place: Path  # for partial files, retained after a failure
    ready: Path  # for finished files; the future model folder


@dataclass(frozen=True)
class ModelFolderStore:
    """The user's model folders."""

    root: Path  # created on first use
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free  # free space at a path

    def folder(self, name: str) -> Path:
        """Return the folder of a model; a UsageError if the name is not a valid folder name."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a valid model name; use letters, digits and . _ + -, with --name")
        return self.root / name

    def has(self, name: str) -> bool:
        """Return True if a folder of this name exists."""
        return _NAME.fullmatch(name) is not None and os.path.lexists(self.root / name)

    def partial_bytes(self, name: str) -> int:
        """Return the bytes of a download that was not finished; 0 without one."""
        if not _NAME.fullmatch(name):
            return 0
        return sum(path.stat().st_size for path in (self.root / f".{name}.part").glob("*.incomplete"))

    @contextmanager
    def workspace(self, name: str) -> Generator[Workspace]:
        """Open a folder that keeps only partial downloads at the end; a ModelFileError if it is in use or read-only."""
        self.folder(name)
        partial = self.root / f".{name}.part"
        with _explained_write_errors(partial):
            partial.mkdir(parents=True, exist_ok=True)
            lock = os.open(partial / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ModelFileError(
                    f"Another rkllm-mcp process is using {name!r}.", "Wait for it, or end it."
                ) from None
            try:
                # A process that was killed leaves finished files, which belong to another attempt.
                shutil.rmtree(partial / "ready", ignore_errors=True)
                with _explained_write_errors(partial):
                    (partial / "ready").mkdir()
                yield Workspace(partial, partial / "ready")
            finally:
                shutil.rmtree(partial / "ready", ignore_errors=True)
                if not any(partial.glob("*.incomplete")):
                    shutil.rmtree(partial, ignore_errors=True)
        finally:
            os.close(lock)

    def check_room(self, needed_bytes: int) -> None:
        """Raise a ModelFileError if files of this size do not fit on the file system."""
        self.root.mkdir(parents=True, exist_ok=True)
        free = self.free_bytes(self.root)
        if needed_bytes + _SPARE_BYTES > free:
            needed_mb, free_mb = (f"{count / 1e6:,.0f}".replace(",", " ") for count in (needed_bytes, free))
            raise ModelFileError(
                f"Not enough disk space: {needed_mb} MB needed in {self.root}, {free_mb} MB free.",
                "Remove a model, or set XDG_DATA_HOME to a larger disk.",
            )

    def publish(self, name: str, workspace: Workspace) -> Path:
        """Move the finished files into place: a new folder atomically, an existing one file by file, the card last."""
        target = self.folder(name)
        with _explained_write_errors(target):
            # Partial downloads of other versions, which no later attempt can use.
            for part in workspace.place.glob("*.incomplete"):
                part.unlink()
            if not os.path.lexists(target):
                workspace.ready.rename(target)
                return target
            for file in sorted(workspace.ready.iterdir(), key=lambda path: path.name == CARD_NAME):
                if file.name != CARD_NAME or not (target / CARD_NAME).exists():
                    file.replace(target / file.name)
        return target

    def remove(self, name: str) -> int:
        """Remove a model's folder; return the freed bytes, without files that have other hard links."""
        target = self.folder(name)
        with _explained_write_errors(target):
            if target.is_symlink():
                target.unlink()
                return 0
            freed = sum(
                status.st_size
                for path in target.rglob("*")
                if path.is_file() and (status := path.lstat()).st_nlink == 1
            )
            # Rename it first: a partially deleted folder must not be visible as a model.
            doomed = self.root / f".{name}.removed"
            shutil.rmtree(doomed, ignore_errors=True)
            target.rename(doomed)
            shutil.rmtree(doomed)
            return freed


def place_file(source: Path, target: Path, *, copy: bool = False) -> str:
    """Link a file to a new path, or copy it; return ``hard link``, ``link`` or ``copy``.

    A link as ``source`` is resolved first. ``copy`` always copies.
    """
    real = source.resolve(strict=True)
    if not copy:
        try:
            os.link(real, target)
        except OSError:  # another file system, or one without hard links
            target.symlink_to(real)
            return "link"
        return "hard link"
    shutil.copyfile(real, target)
    return "copy"


@contextmanager
def _explained_write_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be written ({error.strerror or error}).", "Set XDG_DATA_HOME to a folder of yours."
        ) from None
