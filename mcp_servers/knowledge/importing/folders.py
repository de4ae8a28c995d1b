"""A folder -> the files in it that are documents, and what was left out and why. Reads names, never contents.

Hidden files, folders of tools and half-written files are left out silently, they are nobody's documents; everything
else that is left out is told. Links are followed only on request, and never round in a circle.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import unquote_to_bytes, urlsplit

import anyio.to_thread

from mcp_servers.knowledge.errors import KnowledgeError, StorageError
from mcp_servers.knowledge.importing.chunking import DEFAULT_LIMITS, ChunkLimits, chunk_passages
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, Progress
from mcp_servers.knowledge.importing.errors import UnreadableFileError
from mcp_servers.knowledge.importing.reader import Reader
from mcp_servers.knowledge.types import NewChunk

# Matched against every part of a path below the folder, whatever the case.
IGNORED = (
    *(".*", "node_modules", "__pycache__", "venv", "site-packages", "lost+found", "$recycle.bin"),
    *("system volume information", "thumbs.db", "desktop.ini", "~$*", "*~", "*.tmp", "*.part", "*.crdownload", "*.swp"),
)


@dataclass(frozen=True)
class WalkRules:
    """Which files of a folder count.

    Args:
        ignored: patterns of names; a folder that matches is not entered.
        follows_links: also look behind symbolic links.
        most_files: what comes after is left out, and told.
    """

    ignored: tuple[str, ...] = IGNORED
    follows_links: bool = False
    max_files: int = 100_000


@dataclass(frozen=True)
class FoundFile:
    """A file that may be a document.

    Args:
        path: below the folder as it was given.
        stamp: size, time of the last change in nanoseconds and inode: another content has another stamp.
    """

    path: Path
    stamp: tuple[int, int, int]


@dataclass(frozen=True)
class SkippedPath:
    """A file or folder that was not read, and why, as the rest of a sentence."""

    path: Path
    reason: str


def walk(folder: Path, rules: WalkRules) -> Iterator[FoundFile | SkippedPath]:
    """Everything in a folder and below, in the order of names.

    Args:
        folder: absolute.
        rules: which files count.
    """
    entered: set[tuple[int, int]] = set()
    waiting = [folder]
    files = 0
    while waiting:
        inner, found = _listed(waiting.pop(), rules, entered)
        for each in found:
            files += isinstance(each, FoundFile)
            if files > rules.max_files:
                yield SkippedPath(folder, f"has more than {rules.max_files:,} files")
                return
            yield each
        waiting += reversed(inner)


def _listed(
    folder: Path, rules: WalkRules, entered: set[tuple[int, int]]
) -> tuple[list[Path], list[FoundFile | SkippedPath]]:
    """The folders in a folder, and what else is in it."""
    try:
        about = folder.stat()
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        return [], [SkippedPath(folder, f"cannot be opened: {error.strerror}")]
    if (about.st_dev, about.st_ino) in entered:
        return [], [SkippedPath(folder, "was seen already, behind another link")]
    entered.add((about.st_dev, about.st_ino))
    inner: list[Path] = []
    found: list[FoundFile | SkippedPath] = []
    for entry in entries:
        if is_ignored(entry.name, rules):
            continue
        classified = _classify(entry, rules)
        if isinstance(classified, Path):
            inner.append(classified)
        else:
            found.append(classified)
    return inner, found


def is_ignored(name: str, rules: WalkRules) -> bool:
    """Whether a file or folder of this name is left out silently."""
    return any(fnmatch(name.lower(), pattern) for pattern in rules.ignored)


def _classify(entry: os.DirEntry[str], rules: WalkRules) -> Path | FoundFile | SkippedPath:
    path = Path(entry.path)
    try:
        entry.name.encode()
        if entry.is_symlink() and not rules.follows_links:
            return SkippedPath(path, "is a link")
        about = entry.stat()
    except UnicodeError:
        return SkippedPath(Path(os.fsencode(entry.path).decode("utf-8", "replace")), "has a name that is no text")
    except OSError as error:
        return SkippedPath(path, f"cannot be opened: {error.strerror}")
    if stat.S_ISDIR(about.st_mode):
        return path
    if not stat.S_ISREG(about.st_mode):
        return SkippedPath(path, "is no file")
    return FoundFile(path, (about.st_size, about.st_mtime_ns, about.st_ino))


Outcome = Literal["imported", "unchanged", "removed", "skipped", "failed"]
_SHOWN_FAILURES = 5


class DocumentStore(Protocol):
    """Where documents go; the knowledge base behind it is the library's business."""

    async def content_hashes(self, prefix: str) -> Mapping[str, str]:
        """The content hash of every document whose address begins so, by address."""
        ...

    async def add(self, document: ParsedDocument, chunks: tuple[NewChunk, ...]) -> None:
        """Keep a document, instead of the one of the same address."""
        ...

    async def remove(self, uri: str) -> None:
        """Forget the document of an address; nothing when there is none."""
        ...


@dataclass(frozen=True)
class FileReport:
    """What became of one file.

    Args:
        path: the file.
        outcome: in a word.
        reason: why it was skipped or failed, or what may have been lost; a sentence or the rest of one.
    """

    path: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class FolderReport:
    """What became of a folder: every file once, in order."""

    files: tuple[FileReport, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """How many files ended so."""
        return Counter(file.outcome for file in self.files)[outcome]

    def __str__(self) -> str:
        """The numbers, and the first failures."""
        outcomes: tuple[Outcome, ...] = ("imported", "unchanged", "removed", "skipped", "failed")
        counts = ", ".join(f"{self.count(outcome)} {outcome}" for outcome in outcomes if self.count(outcome))
        failed = [file for file in self.files if file.outcome == "failed"]
        shown = "".join(f" {file.reason}" for file in failed[:_SHOWN_FAILURES])
        more = f" … and {len(failed) - _SHOWN_FAILURES} more." if len(failed) > _SHOWN_FAILURES else ""
        return f"{counts or 'nothing to import'}.{shown}{more}"


@dataclass(frozen=True)
class FolderRules:
    """How a folder is imported.

    Args:
        walking: which files count.
        chunking: how large chunks are.
        removes: whether documents are removed whose files are gone.
    """

    walking: WalkRules = field(default_factory=WalkRules)
    chunking: ChunkLimits = DEFAULT_LIMITS
    removes: bool = True


@dataclass(frozen=True)
class SeenFile:
    """A file as an earlier round saw it.

    Args:
        stamp: what it looked like.
        problem: why it could not be imported; empty when it could.
    """

    stamp: tuple[int, int, int]
    problem: str = ""


SeenFiles = dict[Path, SeenFile]


async def no_progress(done: int, total: int, message: str) -> None:
    """The progress of an import nobody waits for."""


async def import_folder(
    folder: Path,
    store: DocumentStore,
    reader: Reader,
    rules: FolderRules | None = None,
    *,
    on_progress: Progress = no_progress,
    seen: SeenFiles | None = None,
) -> FolderReport:
    """Bring a knowledge base into agreement with a folder.

    Args:
        folder: what is imported, with everything below.
        importer: where the documents go.
        reader: reads them.
        rules: how.
        on_progress: awaited before every file.
        seen: what earlier calls saw: files that look the same are not even opened. Kept up to date.

    Raises:
        UnreadableFileError: there is no such folder. Nothing is removed then: a drive may only be unplugged.
        StorageError: the knowledge base cannot be written; what was imported before is kept.
    """
    folder = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100, ASYNC240  # no look at the disk
    rules = rules or FolderRules()
    found = await anyio.to_thread.run_sync(_found, folder, rules.walking)
    files = [each for each in found if isinstance(each, FoundFile)]
    prefix = folder.as_uri().rstrip("/") + "/"
    content_hashes = await store.content_hashes(prefix)
    run = _FolderImport(store, reader, rules, content_hashes, seen if seen is not None else {})
    reports = [FileReport(str(each.path), "skipped", each.reason) for each in found if isinstance(each, SkippedPath)]
    for number, file in enumerate(files):
        await on_progress(number, len(files), str(file.path.relative_to(folder)))
        reports.append(await run.import_file(file))
    # Where something could not be looked into, what was in it is not known to be gone.
    unreadable = tuple(
        f"{each.path.as_uri()}/" for each in found if isinstance(each, SkippedPath) and each.path.is_absolute()
    )
    if rules.removes:
        present = {file.path.as_uri() for file in files} | {address.removesuffix("/") for address in unreadable}
        gone = [uri for uri in content_hashes if uri not in present and not uri.startswith(unreadable)]
        reports += [await run.remove_document(uri) for uri in gone]
    await on_progress(len(files), len(files), "done")
    return FolderReport(tuple(reports))


def _found(folder: Path, rules: WalkRules) -> list[FoundFile | SkippedPath]:
    try:
        if not folder.is_dir():
            raise UnreadableFileError(str(folder), "there is no such folder")
    except OSError as error:
        raise UnreadableFileError(str(folder), error.strerror or "it cannot be read") from error
    return list(walk(folder, rules))


@dataclass
class _FolderImport:
    """One run over one folder."""

    store: DocumentStore
    reader: Reader
    rules: FolderRules
    content_hashes: Mapping[str, str]
    seen: SeenFiles

    async def import_file(self, file: FoundFile) -> FileReport:
        """Import a file if it has changed."""
        before = self.seen.get(file.path)
        if before and before.stamp == file.stamp:
            if before.problem:
                return FileReport(str(file.path), "skipped", f"has not changed since this: {before.problem}")
            if file.path.as_uri() in self.content_hashes:
                return FileReport(str(file.path), "unchanged")
        try:
            report = await self._import(await self.reader.load(file.path), file)
        except StorageError:
            raise
        except KnowledgeError as problem:
            report = FileReport(str(file.path), "failed", str(problem))
        self.seen[file.path] = SeenFile(file.stamp, report.reason if report.outcome == "failed" else "")
        return report

    async def _import(self, blob: Blob, file: FoundFile) -> FileReport:
        content_hash = await anyio.to_thread.run_sync(_hash, blob.content)
        if self.content_hashes.get(blob.uri) == content_hash:
            return FileReport(str(file.path), "unchanged")
        document = await self.reader.read_document(blob)
        chunks = await anyio.to_thread.run_sync(chunk_passages, document.passages, self.rules.chunking)
        await self.store.add(document, tuple(chunks))
        return FileReport(str(file.path), "imported", " ".join(document.warnings))

    async def remove_document(self, uri: str) -> FileReport:
        """Remove the document of a file that is gone."""
        path = _path_of(uri)
        self.seen.pop(path, None)
        try:
            await self.store.remove(uri)
        except StorageError:
            raise
        except KnowledgeError as problem:
            return FileReport(str(path), "failed", str(problem))
        return FileReport(str(path), "removed")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _path_of(uri: str) -> Path:
    return Path(unquote_to_bytes(urlsplit(uri).path).decode("utf-8", "surrogateescape"))
