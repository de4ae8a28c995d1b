"""Synchronise a knowledge base with a folder, once or after each change.

The knowledge base holds all state (URI and content hash of each document), so an interrupted run continues, and another
run only reads the files. Documents of deleted files are removed; a file that has become unreadable keeps its document.
Every file is reported once. Hidden files, tool folders and temporary files are ignored without a report; links are
not followed.

Notifications of a watched folder only trigger rounds, so a missed one is made up by the next round. Without
``watchfiles``, or where the system sends none, rounds run at a fixed interval.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args
from urllib.parse import unquote_to_bytes, urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread

from mcp_servers.knowledge.errors import KnowledgeError, StorageError, UnreadableFileError
from mcp_servers.knowledge.importing.documents import ParsedDocument, Progress
from mcp_servers.knowledge.importing.reader import Reader

# Compared with every path component below the folder, case-insensitively.
IGNORED = (
    *(".*", "node_modules", "__pycache__", "venv", "site-packages", "lost+found", "$recycle.bin"),
    *("system volume information", "thumbs.db", "desktop.ini", "~$*", "*~", "*.tmp", "*.part", "*.crdownload", "*.swp"),
)
_MAX_FILES = 100_000


@dataclass(frozen=True)
class FoundFile:
    """A candidate for import."""

    path: Path
    stamp: tuple[int, int, int]  # size, mtime in nanoseconds and inode


@dataclass(frozen=True)
class SkippedPath:
    """A file or folder that is not imported; ``reason`` is a predicate."""

    path: Path
    reason: str


def walk(folder: Path, max_files: int = _MAX_FILES) -> Iterator[FoundFile | SkippedPath]:
    """Yield the files below an absolute folder, by name; the rest above ``max_files`` is skipped and reported."""
    waiting = [folder]
    files = 0
    while waiting:
        opened = waiting.pop()
        try:
            with os.scandir(opened) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            yield SkippedPath(opened, f"cannot be opened: {error.strerror}")
            continue
        inner: list[Path] = []
        for entry in entries:
            if is_ignored(entry.name):
                continue
            path = Path(entry.path)
            try:
                entry.name.encode()
                about = entry.stat(follow_symlinks=False)
            except UnicodeError:
                printable = os.fsencode(entry.path).decode("utf-8", "replace")
                yield SkippedPath(Path(printable), "has a name that is not valid UTF-8")
                continue
            except OSError as error:
                yield SkippedPath(path, f"cannot be opened: {error.strerror}")
                continue
            if stat.S_ISLNK(about.st_mode):
                yield SkippedPath(path, "is a link")
            elif stat.S_ISDIR(about.st_mode):
                inner.append(path)
            elif not stat.S_ISREG(about.st_mode):
                yield SkippedPath(path, "is not a regular file")
            elif files == max_files:
                yield SkippedPath(folder, f"has more than {max_files:,} files")
                return
            else:
                files += 1
                yield FoundFile(path, (about.st_size, about.st_mtime_ns, about.st_ino))
        waiting += reversed(inner)


def is_ignored(name: str) -> bool:
    """True if a name is ignored without a report."""
    return any(fnmatch(name.lower(), pattern) for pattern in IGNORED)


Outcome = Literal["imported", "unchanged", "removed", "skipped", "failed"]
_SHOWN_FAILURES = 5
_GROWING = "is still being written"
# A file that grows without end, such as a log, is read at this interval.
_MAX_SETTLE_S = 60.0


class DocumentStore(Protocol):
    """Destination of documents."""

    async def content_hashes(self, prefix: str) -> Mapping[str, str]:
        """Return URI -> content hash of the documents whose URI starts with ``prefix``."""
        ...

    async def add(self, document: ParsedDocument) -> None:
        """Store a document, replacing the one with the same URI."""
        ...

    async def remove(self, uri: str) -> None:
        """Remove the document with this URI, if there is one."""
        ...


@dataclass(frozen=True)
class FileReport:
    """Result for one file."""

    path: str
    outcome: Outcome
    reason: str = ""  # for a skipped or failed file, or warnings


@dataclass(frozen=True)
class FolderReport:
    """Results for all files of a folder, in order."""

    files: tuple[FileReport, ...]

    def count(self, outcome: Outcome) -> int:
        """Return the number of files with this outcome."""
        return Counter(file.outcome for file in self.files)[outcome]

    def __str__(self) -> str:
        """Return the counts and the first failures."""
        counts = ", ".join(f"{self.count(outcome)} {outcome}" for outcome in get_args(Outcome) if self.count(outcome))
        failed = [file for file in self.files if file.outcome == "failed"]
        reasons = "".join(f" {file.reason}" for file in failed[:_SHOWN_FAILURES])
        more = f" … and {len(failed) - _SHOWN_FAILURES} more." if len(failed) > _SHOWN_FAILURES else ""
        return f"{counts or 'nothing to import'}.{reasons}{more}"


@dataclass(frozen=True)
class FolderRules:
    """Options of a folder import."""

    removes: bool = True  # remove documents of deleted files
    settle_s: float = 0.0  # a file that changes while the folder is watched is read after this time without changes


@dataclass(frozen=True)
class SeenFile:
    """State of a file in an earlier round of a watched folder."""

    stamp: tuple[int, int, int]
    problem: str = ""  # import error; empty if it succeeded
    waiting: tuple[float, float] | None = None  # monotonic time of the first and the last change not read yet


SeenFiles = dict[Path, SeenFile]


async def no_progress(finished: int, total: int, message: str) -> None:
    """Ignore progress."""


async def import_folder(
    folder: Path,
    store: DocumentStore,
    reader: Reader,
    rules: FolderRules | None = None,
    *,
    on_progress: Progress = no_progress,
    known_files: SeenFiles | None = None,
) -> FolderReport:
    """Bring a knowledge base into agreement with a folder.

    ``known_files`` is the state of earlier rounds, updated here; unchanged files are not even opened. Raises
    UnreadableFileError without removing anything if the folder is missing (a drive may be unplugged), and StorageError
    if the knowledge base cannot be written; documents stored before remain.
    """
    folder = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100, ASYNC240  # no look at the disk
    rules = rules or FolderRules()
    entries = await anyio.to_thread.run_sync(_entries_below, folder)
    files = [entry for entry in entries if isinstance(entry, FoundFile)]
    prefix = folder.as_uri().rstrip("/") + "/"
    content_hashes = await store.content_hashes(prefix)
    settle_s = rules.settle_s if known_files else 0.0
    run = _FolderImport(store, reader, content_hashes, known_files if known_files is not None else {}, settle_s)
    skipped = [entry for entry in entries if isinstance(entry, SkippedPath)]
    reports = [FileReport(str(entry.path), "skipped", entry.reason) for entry in skipped]
    for number, file in enumerate(files):
        await on_progress(number, len(files), str(file.path.relative_to(folder)))
        reports.append(await run.import_file(file))
    # Files below an unreadable folder are not known to be deleted.
    unreadable = tuple(f"{entry.path.as_uri()}/" for entry in skipped if entry.path.is_absolute())
    if rules.removes:
        present = {file.path.as_uri() for file in files} | {address.removesuffix("/") for address in unreadable}
        gone = [uri for uri in content_hashes if uri not in present and not uri.startswith(unreadable)]
        for uri in gone:
            path = Path(unquote_to_bytes(urlsplit(uri).path).decode("utf-8", "surrogateescape"))
            run.seen.pop(path, None)
            try:
                await store.remove(uri)
                reports.append(FileReport(str(path), "removed"))
            except StorageError:
                raise
            except KnowledgeError as problem:
                reports.append(FileReport(str(path), "failed", str(problem)))
    await on_progress(len(files), len(files), "done")
    return FolderReport(tuple(reports))


def _entries_below(folder: Path) -> list[FoundFile | SkippedPath]:
    try:
        if not folder.is_dir():
            raise UnreadableFileError(str(folder), "the folder does not exist")
    except OSError as error:
        raise UnreadableFileError(str(folder), error.strerror or "it cannot be read") from error
    return list(walk(folder))


@dataclass
class _FolderImport:
    store: DocumentStore
    reader: Reader
    content_hashes: Mapping[str, str]
    seen: SeenFiles
    settle_s: float

    async def import_file(self, file: FoundFile) -> FileReport:
        """Import a file unless it is unchanged, or still changing."""
        before = self.seen.get(file.path)
        is_changed = before is None or before.stamp != file.stamp
        if is_changed or (before is not None and before.waiting is not None):
            now = time.monotonic()
            first, last = (before.waiting if before else None) or (now, now)
            last = now if is_changed else last
            self.seen[file.path] = SeenFile(file.stamp, waiting=(first, last))
            if now - last < self.settle_s and now - first < _MAX_SETTLE_S:
                return FileReport(str(file.path), "skipped", _GROWING)
        elif before is not None:
            if before.problem:
                return FileReport(str(file.path), "skipped", f"has not changed since this: {before.problem}")
            if file.path.as_uri() in self.content_hashes:
                return FileReport(str(file.path), "unchanged")
        try:
            # A file that was one when the folder was listed may be a link by now.
            blob = await self.reader.load(file.path, follows_links=False)
            digest = await anyio.to_thread.run_sync(hashlib.sha256, blob.content)
            if self.content_hashes.get(blob.uri) == digest.hexdigest():
                report = FileReport(str(file.path), "unchanged")
            else:
                document = await self.reader.read_document(blob)
                await self.store.add(document)
                report = FileReport(str(file.path), "imported", " ".join(document.warnings))
        except StorageError:
            raise
        except KnowledgeError as problem:
            report = FileReport(str(file.path), "failed", str(problem))
        self.seen[file.path] = SeenFile(file.stamp, report.reason if report.outcome == "failed" else "")
        return report


# Receives the report of a round, or the error that prevented it.
RoundListener = Callable[[FolderReport | KnowledgeError], Awaitable[None]]

# Interval at which the notification thread checks for its end.
_STEP_MS = 50


@dataclass(frozen=True)
class WatchRules:
    """Options of a watched folder."""

    importing: FolderRules = field(default_factory=lambda: FolderRules(settle_s=2.0))
    debounce_s: float = 1.6  # changes closer together count as one, so files are read after copying
    interval_s: float = 30.0  # between rounds without notifications, and after a failed round
    rescan_s: float = 600.0  # between rounds without changes; systems miss some
    uses_notifications: bool = True  # False for network drives, which send none


async def watch_folder(
    folder: Path, store: DocumentStore, reader: Reader, rules: WatchRules, on_round: RoundListener
) -> None:
    """Import a folder now and after each change, until cancelled.

    ``on_round`` receives each round that changed something, and each new error once.
    """
    known_files: SeenFiles = {}
    last_reported = ""

    while True:
        problem: KnowledgeError | None = None
        changed, stop = asyncio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            # Started before the first round, so changes during it are noticed.
            tasks.start_soon(_signal_changes, folder, rules, changed, stop)
            await anyio.lowlevel.checkpoint()
            try:
                while problem is None:
                    changed.clear()
                    try:
                        report = await import_folder(folder, store, reader, rules.importing, known_files=known_files)
                        last_reported = ""
                        if any(file.outcome in {"imported", "removed", "failed"} for file in report.files):
                            await on_round(report)
                    except KnowledgeError as error:
                        problem = error
                    else:
                        is_growing = any(file.reason == _GROWING for file in report.files)
                        with anyio.move_on_after(rules.importing.settle_s if is_growing else math.inf):
                            await changed.wait()
            finally:
                # The thread cannot be cancelled; this ends it at its next step.
                stop.set()
            tasks.cancel_scope.cancel()
        if problem and str(problem) != last_reported:
            last_reported = str(problem)
            await on_round(problem)
        await anyio.sleep(rules.interval_s)


async def _signal_changes(folder: Path, rules: WatchRules, changed: asyncio.Event, stop: anyio.Event) -> None:
    while not stop.is_set():
        if rules.uses_notifications:
            with suppress(ImportError, OSError):
                # Optional; an OSError where the system sends none.
                import watchfiles

                def is_counted(_: object, path: str) -> bool:
                    parts = Path(path).relative_to(folder).parts if Path(path).is_relative_to(folder) else ()
                    return not any(map(is_ignored, parts))

                notifications = cast("Any", watchfiles).awatch(
                    folder,
                    watch_filter=is_counted,
                    debounce=int(rules.debounce_s * 1000),
                    step=_STEP_MS,
                    stop_event=stop,
                    rust_timeout=int(rules.rescan_s * 1000),
                    yield_on_timeout=True,
                    ignore_permission_denied=True,
                )
                async with aclosing(notifications) as rounds:
                    async for _ in rounds:
                        changed.set()
        await anyio.sleep(rules.interval_s)
        changed.set()
