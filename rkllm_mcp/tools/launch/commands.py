"""Which programs may be started as servers: ``allowed_commands``, checked on the program that would really run.

An entry is a line as one would type it: a name or a path, and perhaps the first arguments.

    npx                                                the npx that the host's own PATH finds, with any arguments
    /usr/bin/python3                                   that program, under whatever name it is called
    npx @modelcontextprotocol/server-filesystem        npx with that package, in any version, and no other
    /opt/venv/bin/python -m mcp_server_time            that program with these arguments first

A program is compared as the file that it is, links followed: anybody may call a program "npx" and put its folder first
in a server's PATH. Environment variables are not looked at; ``allowed_commands`` guards against other programs, not
against an owner who gives an allowed one other settings.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

# Programs whose first argument is the package that they fetch and run.
_RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx"})
# Options of theirs that change nothing about what is run; --package, --from, --with, --call and the like do.
_HARMLESS_OPTIONS = frozenset(
    {"-y", "--yes", "-q", "--quiet", "--silent", "--offline", "--prefer-offline", "--isolated"}
)
# A version or a tag; what has a colon or a slash names another place than the registry.
_VERSION = re.compile(r"(?:@|==)[\w.^~*+-]+")


def found_program(command: str, path: str | None, cwd: str | None) -> Path | None:
    """The file that starting ``command`` would run; None when there is none.

    Args:
        command: a name or a path, as configured.
        path: the PATH of the server's own environment.
        cwd: the folder that it starts in; the host's own when None.
    """
    if "/" in command:
        candidate = Path(cwd or ".") / Path(command)
        return candidate.absolute() if os.access(candidate, os.X_OK) and candidate.is_file() else None
    found = shutil.which(command, path=path)
    return Path(found).absolute() if found else None


def is_allowed(program: Path, args: Sequence[str], allowed: Sequence[str]) -> bool:
    """Whether a program may be started with these arguments.

    Args:
        program: the file that would run.
        args: its arguments.
        allowed: the entries of ``allowed_commands``.
    """
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
    # Some files are many programs, by the name they are called: busybox, the shims of version managers.
    return one.name == other.name or _family(one) == _family(other) == _family(file)


def _family(program: Path) -> str:
    """The name without a version: python for python3.11."""
    return program.name.rstrip("0123456789.-")


def _is_package(argument: str, wanted: str) -> bool:
    if argument == wanted:
        return True
    return argument.startswith(wanted) and _VERSION.fullmatch(argument[len(wanted) :]) is not None
