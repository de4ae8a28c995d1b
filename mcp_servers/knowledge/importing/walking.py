"""A folder -> the files in it that are documents, and what was left out and why. Reads names, never contents.

Hidden files, folders of tools and half-written files are left out silently, they are nobody's documents; everything
else that is left out is told. Links are followed only on request, and never round in a circle.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

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
    most_files: int = 100_000


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
class LeftOut:
    """A file or folder that was not read, and why, as the rest of a sentence."""

    path: Path
    reason: str


def walk(folder: Path, rules: WalkRules) -> Iterator[FoundFile | LeftOut]:
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
            if files > rules.most_files:
                yield LeftOut(folder, f"has more than {rules.most_files:,} files")
                return
            yield each
        waiting += reversed(inner)


def _listed(
    folder: Path, rules: WalkRules, entered: set[tuple[int, int]]
) -> tuple[list[Path], list[FoundFile | LeftOut]]:
    """The folders in a folder, and what else is in it."""
    try:
        about = folder.stat()
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        return [], [LeftOut(folder, f"cannot be opened: {error.strerror}")]
    if (about.st_dev, about.st_ino) in entered:
        return [], [LeftOut(folder, "was seen already, behind another link")]
    entered.add((about.st_dev, about.st_ino))
    inner: list[Path] = []
    found: list[FoundFile | LeftOut] = []
    for entry in entries:
        if is_ignored(entry.name, rules):
            continue
        judged = _judged(entry, rules)
        if isinstance(judged, Path):
            inner.append(judged)
        else:
            found.append(judged)
    return inner, found


def is_ignored(name: str, rules: WalkRules) -> bool:
    """Whether a file or folder of this name is left out silently."""
    return any(fnmatch(name.lower(), pattern) for pattern in rules.ignored)


def _judged(entry: os.DirEntry[str], rules: WalkRules) -> Path | FoundFile | LeftOut:
    path = Path(entry.path)
    try:
        entry.name.encode()
        if entry.is_symlink() and not rules.follows_links:
            return LeftOut(path, "is a link")
        about = entry.stat()
    except UnicodeError:
        return LeftOut(Path(os.fsencode(entry.path).decode("utf-8", "replace")), "has a name that is no text")
    except OSError as error:
        return LeftOut(path, f"cannot be opened: {error.strerror}")
    if stat.S_ISDIR(about.st_mode):
        return path
    if not stat.S_ISREG(about.st_mode):
        return LeftOut(path, "is no file")
    return FoundFile(path, (about.st_size, about.st_mtime_ns, about.st_ino))
