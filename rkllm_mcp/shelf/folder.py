"""Files become a model folder of the user's, whole or not at all.

    <root>/.<name>.part/lock, *.incomplete   what is under way; a folder that no list of models sees
    <root>/.<name>.part/ready/               what is finished, renamed to <root>/<name>/ as one

Rules: one process works on a name at a time; what was fetched in part stays for the next try, anything else that is not
finished goes; a link to a file somebody has is preferred to a second copy of gigabytes.
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

from rkllm_mcp.config.models import CARD_NAME
from rkllm_mcp.errors import ModelFileError, UsageError

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
# Beside the files themselves; a file system that is full to the last byte breaks other things.
_SPARE_BYTES = 64 * 2**20


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


@dataclass(frozen=True)
class Workspace:
    """Where one model is put together.

    Args:
        place: for parts of files; they stay when the work fails.
        ready: for finished files; the future model folder.
    """

    place: Path
    ready: Path


@dataclass(frozen=True)
class Shelf:
    """The user's model folders.

    Args:
        root: the folder that holds them; made when it is first needed.
        free_bytes: how much room there is at a path.
    """

    root: Path
    free_bytes: Callable[[Path], int] = _free_bytes

    def folder(self, name: str) -> Path:
        """The folder of a model.

        Raises:
            UsageError: the name is none that a folder can have.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for a model; use letters, digits and . _ + -, with --name")
        return self.root / name

    def has(self, name: str) -> bool:
        """Whether there is a folder of this name."""
        return _NAME.fullmatch(name) is not None and os.path.lexists(self.root / name)

    @contextmanager
    def workspace(self, name: str) -> Generator[Workspace]:
        """A place to put a model together; on leaving, only parts of files are left of it.

        Raises:
            ModelFileError: another process is at it, or the folder cannot be written.
        """
        self.folder(name)
        place = self.root / f".{name}.part"
        with _told(place):
            (place / "ready").mkdir(parents=True, exist_ok=True)
            lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(lock, name)
            try:
                yield Workspace(place, place / "ready")
            finally:
                _tidy(place)
        finally:
            os.close(lock)

    def check_room(self, needed_bytes: int) -> None:
        """Refuse what would fill the file system.

        Raises:
            ModelFileError: there is not room enough.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        free = self.free_bytes(self.root)
        if needed_bytes + _SPARE_BYTES > free:
            raise ModelFileError(
                f"There is no room: {_megabytes(needed_bytes)} are needed in {self.root}, {_megabytes(free)} are free.",
                "Remove a model, or set XDG_DATA_HOME to a larger disk.",
            )

    def publish(self, name: str, workspace: Workspace) -> Path:
        """Put what is ready in its place: a new folder as one, into an existing one file by file, the card last."""
        target = self.folder(name)
        with _told(target):
            # Parts of other versions, which nobody goes on with.
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
        """Remove a model's folder.

        Returns:
            How many bytes became free; a file that stands elsewhere too frees none.
        """
        target = self.folder(name)
        with _told(target):
            if target.is_symlink():
                target.unlink()
                return 0
            freed = sum(
                status.st_size
                for path in target.rglob("*")
                if path.is_file() and (status := path.lstat()).st_nlink == 1
            )
            # Under another name first: half a folder must not look like a model.
            doomed = self.root / f".{name}.removed"
            shutil.rmtree(doomed, ignore_errors=True)
            target.rename(doomed)
            shutil.rmtree(doomed)
            return freed


def place_file(source: Path, target: Path, *, copy: bool = False) -> str:
    """Put a file that is somewhere else in its place here too.

    Args:
        source: the file; a link is followed.
        target: where it is wanted.
        copy: make a copy in any case.

    Returns:
        How: ``hard link``, ``link`` or ``copy``.
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


def _lock(lock: int, name: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ModelFileError(f"Another rkllm-mcp is at work on {name!r}.", "Wait for it, or end it.") from None


def _tidy(place: Path) -> None:
    shutil.rmtree(place / "ready", ignore_errors=True)
    if not any(place.glob("*.incomplete")):
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _told(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be written ({error.strerror or error}).", "Set XDG_DATA_HOME to a folder of yours."
        ) from None


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB".replace(",", " ")
