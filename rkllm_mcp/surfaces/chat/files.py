"""Files in a question of the chat: ``@path`` in its words, pictures dropped onto the terminal, completion of paths.

Compare @notes.txt with @"My notes.md"  ─▶  Compare notes.txt with My notes.md, and the two files
/home/me/photo.jpg what is it?          ─▶  what is it?, and the picture
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from rkllm_mcp.messages import picture_type

# Not an address (me@example.org); a name with blanks is in quotation marks.
_MENTION = re.compile(r'(?<![\w.+-])@(?:"([^"\n]+)"|(\S+))', re.ASCII)
# What a path that is meant begins with, whether or not the file exists.
_CERTAIN = ("/", "./", "../", "~/")
_MOST_COMPLETIONS = 200
# What a terminal pastes for a file that is dropped onto it: in quotation marks, or with escaped blanks.
_DROPPED = re.compile(r"""(?:'([^'\n]+)'|"([^"\n]+)"|((?:file://|/|~/)(?:\\.|[^\s\\])+))(?:\s+|$)""")
_ESCAPED = re.compile(r"\\(.)")
_HEAD_BYTES = 32


def take_files(text: str, servers: Collection[str]) -> tuple[str, list[str]]:
    """Return a question with the names of the files that it mentions, and their paths.

    A mention is the longest beginning of a word that is a file, because Japanese has no blanks: ``@notes.txtを要約``.
    What names a resource of one of ``servers`` (``@server:uri``) stays, and so does what is not a file.
    """
    parts: list[str] = []
    paths: list[str] = []
    end = 0
    while (match := _MENTION.search(text, end)) is not None:
        path = match[1] or ""
        server, colon, _ = (match[2] or "").partition(":")
        if not path and not (colon and server in servers):
            beginnings = (match[2][:end] for end in range(len(match[2]), 0, -1))
            path = next(filter(_is_file, beginnings), match[2] if match[2].startswith(_CERTAIN) else "")
        # After a name without quotation marks another mention may follow at once.
        length = len(match[0]) if match[1] else len(path) + 1
        parts += [text[end : match.start()], Path(path).name if path else "@"]
        paths += [path] if path else []
        end = match.start() + length
    return "".join([*parts, text[end:]]), list(dict.fromkeys(paths))


def take_dropped(text: str) -> tuple[str, list[str]]:
    """Return a line without the pictures that it begins with, as terminals paste dropped files, and their paths."""
    paths: list[str] = []
    while (match := _DROPPED.match(text)) is not None:
        path = match[1] or match[2] or _ESCAPED.sub(r"\1", match[3])
        path = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
        if not _is_file(path):
            break
        head = b""
        with suppress(OSError), Path(path).expanduser().open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        if not picture_type(head):
            break
        paths.append(path)
        text = text[match.end() :]
    return text, paths


def named_files(text: str) -> list[str]:
    """Return the paths of ``/file``: the whole text if that is a file, else each part, as terminals paste paths.

    A name with blanks is in quotation marks, or its blanks are escaped; ``file://`` addresses are paths.
    """
    if _is_file(text):
        return [text]
    try:
        words = shlex.split(text)
    except ValueError:  # a quotation mark that is part of the name
        return [text]
    paths = [unquote(word.removeprefix("file://")) if word.startswith("file://") else word for word in words]
    # A path with blanks that were not escaped is one name, in the message that it does not exist, too.
    return paths if len(paths) == 1 or any(map(_is_file, paths)) else [text]


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return False


def path_completions(started: str) -> Mapping[str, str]:
    """Return the paths that begin as ``started`` does, folders with a slash; hidden ones only where a dot was typed."""
    head, _, name = started.rpartition("/")
    prefix = started[: len(started) - len(name)]
    try:
        folder = Path(prefix or ".").expanduser() if head or prefix else Path()
        with os.scandir(folder) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in entries
                if entry.name.startswith(name) and (name or not entry.name.startswith("."))
            ]
    except (OSError, RuntimeError):
        return {}
    return {f"{prefix}{name}": "" for name in sorted(names)[:_MOST_COMPLETIONS]}
