"""``rkllm-mcp backup`` and ``rkllm-mcp restore``: one archive of all that cannot be fetched again.

    manifest.json   format, version, time, names of the installed models
    config/…        configuration, with its secrets
    state/…         conversations, device keys, decisions about tools, logins
    data/…          knowledge bases

Models and runtimes are left out: they are large, and are downloaded again by name.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shlex
import shutil
import sqlite3
import stat
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, cast

import typer
from pydantic import BaseModel, ValidationError

from rkllm_base.folders import state_folder, user_folder
from rkllm_mcp import __version__
from rkllm_mcp.config.editing import draft_beside
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.models.cards import list_models
from rkllm_mcp.surfaces.cli.files import make_folder
from rkllm_mcp.surfaces.cli.options import System, Yes, argument, command, may_proceed
from rkllm_mcp.surfaces.cli.service import SYSTEM_STATE, stop_command, system_data
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.running_service import running_services

_FORMAT = 1
_MANIFEST = "manifest.json"
_PARTIAL = ".partial"
_RESTORING = "rkllm-mcp-restore"
# Longer than any name, and than the manifest.
_LONGEST_READ = 2**20
# Space that a restore leaves to others.
_FREE_BYTES = 64 * 2**20
_SQLITE = b"SQLite format 3\0"
# Below the data folder: what 'models pull', 'runtime pull' and the installer fetch again.
_FETCHED_AGAIN = frozenset({"models", "runtimes", "uv"})
_KINDS = ("config", "state", "data")
_SYSTEM_CONFIG = Path("/etc/rkllm-mcp")


class BackupError(RkllmMcpError):
    """An archive could not be written or read."""


def _folders(*, is_system: bool) -> Mapping[str, Path]:
    """Return the folders of the owner, or of the system's service, by their names in the archive."""
    if is_system:
        return {"config": _SYSTEM_CONFIG, "state": SYSTEM_STATE, "data": system_data()}
    return {"config": user_folder("config"), "state": state_folder(), "data": user_folder("data")}


def _stored_files(folders: Mapping[str, Path], skip: Callable[[Path], None]) -> Iterator[tuple[str, Path, int]]:
    """Yield the files that a backup has by name: ``kind/relative/path``, the file, and a descriptor of it.

    Root reads what the account of a service has written. So no link is followed and no device is read, and a file
    belongs to the owner of its folder, or to root with no second name elsewhere. ``skip`` is called with what is none.

    Raises:
        BackupError: a file belongs to another account.
    """
    # systemd makes the state folder of a service with a dynamic user as a link.
    resolved = {kind: folder.resolve() for kind, folder in folders.items()}
    for kind, folder in resolved.items():
        other_folders = {path for name, path in resolved.items() if name != kind}
        if not folder.is_dir():
            continue
        owner = folder.stat().st_uid
        for parent, names, files, descriptor in os.fwalk(folder, follow_symlinks=False):
            here = Path(parent)
            is_top = here == folder
            names[:] = sorted(
                name for name in names if here / name not in other_folders and not (is_top and name in _FETCHED_AGAIN)
            )
            for name in sorted(files):
                path = here / name
                # SQLite's own copy of a database contains what its log holds.
                if name.endswith(("-wal", "-shm", ".lock", ".partial")):
                    continue
                if not stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    skip(path)
                    continue
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
                try:
                    status = os.fstat(file)
                    is_own = status.st_uid == owner or (status.st_uid == 0 and status.st_nlink == 1)
                    if not stat.S_ISREG(status.st_mode) or not is_own:
                        raise BackupError(f"{path} belongs to another account; remove it, nothing was backed up")
                    yield f"{kind}/{path.relative_to(folder).as_posix()}", path, file
                finally:
                    os.close(file)


def write_backup(target: Path, folders: Mapping[str, Path], skip: Callable[[Path], None] = lambda _: None) -> int:
    """Write the archive, readable by its owner alone, and return the number of files in it.

    ``skip`` is called with each link, device or socket, which are left out. Databases may be in use meanwhile.
    ``target`` must not exist, and is not left behind half written.

    Raises:
        UsageError: ``target`` exists, its folder does not, or there is nothing to back up.
        BackupError: a file cannot be read.
    """
    if target.exists():
        raise UsageError(f"{target} exists; choose another name")
    if not target.parent.is_dir():
        folder = target.parent
        raise UsageError(f"there is no folder {folder}; make it first: mkdir -p {shlex.quote(str(folder))}")
    draft = draft_beside(target, _PARTIAL)
    count = 0
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with (
            os.fdopen(descriptor, "wb") as raw,
            tempfile.TemporaryDirectory(
                dir=target.parent, prefix=f".{target.name}.{os.getpid()}.", suffix=_PARTIAL
            ) as scratch,
            tarfile.open(fileobj=raw, mode="w:gz") as archive,
        ):
            manifest = Path(scratch) / _MANIFEST
            created, models = (
                int(time.time()),
                sorted(model.folder.name for model in list_models([folders["data"] / "models"])),
            )
            content = {"format": _FORMAT, "version": __version__, "created": created, "models": models}
            manifest.write_text(json.dumps(content, indent=1), "utf-8")
            archive.add(manifest, _MANIFEST)
            for name, path, file in _stored_files(folders, skip):
                archive.add(_copy(path, file, Path(scratch)), name)
                count += 1
        if not count:
            raise UsageError(f"there is nothing to back up in {', '.join(map(str, folders.values()))}")
        draft.replace(target)
    except OSError as error:
        is_draft = str(error.filename).startswith(str(target.with_name(f".{target.name}.")))
        where = target if is_draft else error.filename or target
        raise BackupError(f"{where}: {error.strerror}; nothing was backed up") from None
    finally:
        draft.unlink(missing_ok=True)
    return count


def _copy(path: Path, file: int, scratch: Path) -> Path:
    """Return a copy of an open file that nothing changes while it is read; of a database, SQLite's own."""
    copy = scratch / "copy"
    copy.unlink(missing_ok=True)
    with open(file, "rb", closefd=False) as source_file:
        is_database = source_file.read(len(_SQLITE)) == _SQLITE
        source_file.seek(0)
        if not is_database:
            with copy.open("xb") as target_file:
                shutil.copyfileobj(source_file, target_file)
    if is_database:
        try:
            with (
                closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise BackupError(f"{path}: {error}; nothing was backed up") from None
        # SQLite opens it by its name.
        if not os.path.samestat(os.fstat(file), path.lstat()):
            raise BackupError(f"{path} was replaced meanwhile; nothing was backed up, try again")
    opened = os.fstat(file)
    copy.chmod(stat.S_IMODE(opened.st_mode))
    os.utime(copy, ns=(opened.st_atime_ns, opened.st_mtime_ns))
    return copy


class _Manifest(BaseModel):
    """The first file of an archive."""

    format: int
    version: str
    models: list[str]


def extract_backup(source: Path, target: Path) -> _Manifest:
    """Extract an archive into an empty folder and return its manifest.

    Raises:
        UsageError: the file is damaged, of a later version, or unpacks to more than the disk has room for.
    """
    try:
        with (
            gzip.open(source) as content,
            tarfile.open(fileobj=cast("IO[bytes]", _BoundedReads(content)), mode="r:") as archive,
        ):
            first = archive.next()
            is_manifest = first is not None and first.name == _MANIFEST and first.size <= _LONGEST_READ
            written = archive.extractfile(first) if first is not None and is_manifest else None
            if written is None:
                problem = "it has no manifest"
                raise UsageError(f"{source} is not a whole backup of 'rkllm-mcp backup' ({problem})")
            manifest = _Manifest.model_validate_json(written.read())
            if manifest.format != _FORMAT:
                raise UsageError(f"{source} was written by rkllm-mcp {manifest.version}; 'rkllm-mcp update' first")
            while (member := archive.next()) is not None:
                if member.size + _FREE_BYTES > shutil.disk_usage(target).free:
                    problem = f"{source} unpacks to more than {target.parent} has room for"
                    raise UsageError(f"{problem}; free some space, or restore on a larger disk")
                path = PurePosixPath(member.name)
                is_plain = member.isfile() and not path.is_absolute() and ".." not in path.parts
                # An archive from another source could name any path.
                if not is_plain or len(path.parts) < 2 or path.parts[0] not in _KINDS:
                    problem = f"it has an entry {member.name!r}"
                    raise UsageError(f"{source} is not a whole backup of 'rkllm-mcp backup' ({problem})")
                file = target / path
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with file.open("xb") as copy:
                    shutil.copyfileobj(cast("IO[bytes]", archive.extractfile(member)), copy)
                file.chmod(member.mode & 0o700)
                # The names of many empty files would fill the memory.
                cast("Any", archive).members.clear()
            return manifest
    except OSError as error:
        raise UsageError(f"{source} cannot be read ({error.strerror or error})") from None
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        damage = f"its manifest is damaged: {where}: {problem['msg']}" if where else "its manifest is damaged"
        raise UsageError(f"{source} is not a whole backup of 'rkllm-mcp backup' ({damage})") from None
    except (tarfile.TarError, EOFError, ValueError, KeyError, zlib.error) as error:
        raise UsageError(f"{source} is not a whole backup of 'rkllm-mcp backup' ({error})") from None


class _BoundedReads:
    """The unpacked bytes of an archive; tarfile reads a long name at once, however long it is said to be."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        """Return the next bytes; a ValueError for more than any backup has in one piece."""
        if not 0 <= size <= _LONGEST_READ:
            raise ValueError("a name in it is too long")
        return self._file.read(size)


def _replace_all(targets: Mapping[Path, Path]) -> None:
    """Move extracted files to their targets; none is replaced before all are on the disk of their target.

    Raises:
        BackupError: a folder cannot be written or its disk is full.
    """
    drafts: dict[Path, Path] = {}
    try:
        for extracted, target in targets.items():
            folder = make_folder(target.parent)
            drafts[target] = draft_beside(target, _PARTIAL)
            shutil.move(extracted, drafts[target])
            # Give a file that root restores to the account that is to read it, such as a service's.
            owner = target.stat() if target.exists() else folder
            if os.geteuid() == 0:
                os.chown(drafts[target], owner.st_uid, owner.st_gid)
            if stat.S_ISREG(owner.st_mode):
                mode = stat.S_IMODE(drafts[target].stat().st_mode)
                drafts[target].chmod(mode | (owner.st_mode & stat.S_IRGRP))
        for target, draft in drafts.items():
            # The log of the database that is replaced would be applied to the new one.
            for suffix in ("-wal", "-shm"):
                target.with_name(target.name + suffix).unlink(missing_ok=True)
            draft.replace(target)
    except OSError as error:
        raise BackupError(f"{error.filename or error}: {error.strerror}; not everything was restored") from None
    finally:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink(missing_ok=True)


app = typer.Typer()


@command(app, "backup")
def backup_command(
    session: Session,
    file: Annotated[Path, argument("File to write, such as board.tar.gz.", "FILE")],
    system: System = False,
) -> None:
    """Save configuration, conversations, keys and knowledge bases to one file, also while the service runs."""
    folders = _folders(is_system=system)
    target = file.expanduser().absolute()
    skipped: list[Path] = []
    count = write_backup(target, folders, skipped.append)
    sys.stdout.write(f"{target}\n")
    session.status(f"{count} files, {target.stat().st_size:,} bytes. It contains keys: keep it private.")
    for path in skipped:
        session.status(f"Not in it, because it is a link or no file: {path}")
    source = session.config().origin.source
    if source is not None and not source.is_relative_to(folders["config"]):
        session.status(f"Not in it, because it is in another folder: {source}")


@command(app, "restore")
def restore_command(
    session: Session,
    file: Annotated[Path, argument("File of 'rkllm-mcp backup'.", "FILE")],
    yes: Yes = False,
    system: System = False,
) -> None:
    """Put back what a backup holds; what was here before is backed up first."""
    folders = _folders(is_system=system)
    # A card that is damaged is named before anything is changed.
    models_here = {model.folder.name for model in list_models([folders["data"] / "models"])}
    running = running_services(folders["state"])
    if running:
        raise UsageError(f"the assistant is running; stop it first: {stop_command(running[0].pid)}")
    state = folders["state"]
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = draft_beside(state.with_name(_RESTORING), _PARTIAL)
    prefix = draft.name.removesuffix(_PARTIAL[1:])
    with tempfile.TemporaryDirectory(dir=state.parent, prefix=prefix, suffix=_PARTIAL) as scratch:
        manifest = extract_backup(file.expanduser(), Path(scratch))
        targets: dict[Path, Path] = {}
        for path in sorted(Path(scratch).rglob("*")):
            if path.is_file():
                kind, *inner = path.relative_to(scratch).parts
                targets[path] = folders[kind].joinpath(*inner)
        replaced = [target for target in targets.values() if target.exists()]
        if replaced:
            if not may_proceed(session, f"Replace {len(replaced)} files, such as {replaced[0]}?", yes=yes):
                return
            stem = time.strftime("rkllm-mcp-before-restore-%Y%m%d-%H%M%S")
            endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
            names = (state.with_name(f"{stem}{ending}.tar.gz") for ending in endings)
            saved = next(path for path in names if not path.exists())
            # In this folder until it is whole: what a killed restore leaves is removed with the folder.
            former = Path(scratch) / "former.tar.gz"
            write_backup(former, folders)
            former.replace(saved)
            session.status(f"What was here before: {saved}")
        _replace_all(targets)
    session.status(f"Restored {len(targets)} files.")
    for name in manifest.models:
        if name not in models_here:
            session.status(f"Model {name!r} is not here: rkllm-mcp models pull {name}")
