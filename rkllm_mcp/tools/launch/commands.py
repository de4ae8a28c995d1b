"""``allowed_commands``: the programs that may be started as servers, checked against the file that would be executed.

    npx                                                the npx on the host's own PATH, with any arguments
    /usr/bin/python3                                   that file, under any name
    npx @modelcontextprotocol/server-filesystem        npx with that package in any version, and no other package
    /opt/venv/bin/python -m mcp_server_time            that file with these leading arguments

Files are compared with symbolic links resolved, because any file can be named "npx" and put on a server's PATH.
Environment variables are not checked: the list restricts programs, not the settings that the owner gives to one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

# Programs that download and run the package named by their first argument.
_RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx"})
# Options that do not change the package that is run, unlike --package, --from, --with or --call.
_HARMLESS_OPTIONS = frozenset(
    {"-y", "--yes", "-q", "--quiet", "--silent", "--offline", "--prefer-offline", "--isolated"}
)
# A version or a tag; a colon or a slash would refer to a source other than the registry.
_VERSION = re.compile(r"(?:@|==)[\w.^~*+-]+")


def found_program(command: str, path: str | None, cwd: str | None) -> Path | None:
    """Return the file that starting ``command`` with this PATH and directory would execute; None if not found."""
    if "/" in command:
        candidate = Path(cwd or ".") / Path(command)
        return candidate.absolute() if os.access(candidate, os.X_OK) and candidate.is_file() else None
    found = shutil.which(command, path=path)
    return Path(found).absolute() if found else None


def is_allowed(program: Path, args: Sequence[str], allowed: Sequence[str]) -> bool:
    """Return True if an entry of ``allowed_commands`` permits the program with these arguments."""
    return any(_allows(entry, program, args) for entry in allowed)


def _allows(entry: str, program: Path, args: Sequence[str]) -> bool:
    try:
        name, *wanted = shlex.split(entry)
    except ValueError:
        return False
    allowed = found_program(str(Path(name).expanduser()), None, "/")
    if allowed is None or not _is_same(allowed, program):
        return False
    if wanted and allowed.name in _RUNNERS:
        args = list(args)
        while args and args[0] in _HARMLESS_OPTIONS:
            del args[0]
        return bool(args) and _is_package(args[0], wanted[0]) and args[1 : len(wanted)] == wanted[1:]
    return list(args[: len(wanted)]) == wanted


def _is_same(one: Path, other: Path) -> bool:
    file = one.resolve()
    if file != other.resolve():
        return False
    # One file can be several programs, chosen by name: busybox, shims of version managers.
    return one.name == other.name or _family(one) == _family(other) == _family(file)


def _family(program: Path) -> str:
    """Return the name without a version: python for python3.11."""
    return program.name.rstrip("0123456789.-")


def _is_package(argument: str, wanted: str) -> bool:
    if argument == wanted:
        return True
    return argument.startswith(wanted) and _VERSION.fullmatch(argument[len(wanted) :]) is not None
