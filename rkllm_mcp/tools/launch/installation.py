"""Where a program lives: the folders that have to be visible for it to run.

By what is common, read from the disk: a virtual environment and the Python behind it, packages installed from a source
folder, a ``node_modules`` tree, the folder above ``bin`` of a tool manager, the interpreter that a script names, the
script that an interpreter is given, the configured working folder. Never a whole home, nor a folder in which tools of
many kinds keep their data: of those the program's file alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rkllm_mcp.tools.servers import ServerSpec

RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx", "uv"})
"""Programs that fetch what they run."""

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")))
_INTERPRETERS = frozenset({"python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "bash", "sh"})
_PROJECT_FILES = ("package.json", "pyproject.toml")
# A script whose interpreter is a script whose interpreter …
_MAX_STEPS = 8
_SHEBANG_BYTES = 256


def is_system(path: Path) -> bool:
    """Whether a path belongs to the system's programs, which every program may read."""
    return any(path == system or system in path.parents for system in _SYSTEM)


def places_of(spec: ServerSpec, program: Path, env: Mapping[str, str]) -> list[Path]:
    """Files and folders that a server's program needs to read; the system's own may be among them.

    Args:
        spec: its arguments and working folder.
        program: the file that its command means.
        env: its environment, for PATH and HOME.
    """
    home = Path(env.get("HOME", "/nonexistent"))
    places = list(_installations(program, env, home))
    if spec.cwd is not None and not _is_too_wide(Path(spec.cwd), home):
        places.append(Path(spec.cwd))
    script = script_of(str(program), spec.args, spec.cwd)
    return [*places, *(_project(script, home) if script and script.is_file() else ())]


def _installations(program: Path, env: Mapping[str, str], home: Path) -> Iterator[Path]:
    pending = [program]
    for _ in range(_MAX_STEPS):
        if not pending:
            return
        path = pending.pop()
        real = path.resolve()
        for place in dict.fromkeys((path, real)):
            yield from _installation(place, home)
        interpreter = _interpreter(real, env)
        pending += [interpreter] if interpreter else []


def _installation(program: Path, home: Path) -> Iterator[Path]:
    tree = _outermost_node_modules(program)
    if tree is not None:
        yield tree
        return
    above = program.parent.parent
    if (above / "pyvenv.cfg").is_file():
        yield from _environment(above)
    elif program.parent.name in ("bin", "shims") and not _is_too_wide(above, home):
        yield above
    else:
        yield program
        if program.name == "uvx" and (program.parent / "uv").exists():
            yield program.parent / "uv"


def _environment(root: Path) -> Iterator[Path]:
    """A virtual environment, the Python it was made with, and the source folders that are installed in it."""
    yield root
    for line in (root / "pyvenv.cfg").read_text("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            yield Path(value.strip()).parent
    for origin in root.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        yield from _source_folder(origin)


def _source_folder(origin: Path) -> Iterator[Path]:
    """The folder that a package was installed from without being copied, by its ``direct_url.json`` (PEP 610)."""
    try:
        about: Any = json.loads(origin.read_text("utf-8"))
        if about.get("dir_info", {}).get("editable"):
            yield Path(unquote(urlsplit(str(about["url"])).path))
    except (OSError, ValueError, KeyError, AttributeError):
        return  # what cannot be read names no folder


def _interpreter(script: Path, env: Mapping[str, str]) -> Path | None:
    """The program that a script's first line names; None for what is no script."""
    try:
        with script.open("rb") as file:
            first = file.readline(_SHEBANG_BYTES)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = shutil.which(named[0], path=env.get("PATH")) if named else None
        return Path(found).absolute() if found else None
    return Path(words[0]) if words else None


def script_of(command: str, args: Sequence[str], cwd: str | Path | None) -> Path | None:
    """The file that an interpreter is told to run, which need not be there; None where it is told otherwise.

    Args:
        command: the interpreter, a name or a path.
        args: its arguments.
        cwd: the folder that it starts in.
    """
    if Path(command).name.rstrip("0123456789.") not in _INTERPRETERS or not args or args[0].startswith("-"):
        return None
    script = Path(cwd or ".", args[0]).absolute()
    # What has no suffix may be a word that the interpreter knows, as in "deno run".
    return script if script.suffix or script.is_file() else None


def _project(script: Path, home: Path) -> Iterator[Path]:
    """The folder of a script's project: the nearest one that says so, else its own."""
    for path in dict.fromkeys((script, script.resolve())):
        tree = _outermost_node_modules(path)
        folders = [folder for folder in path.parents if not _is_too_wide(folder, home)]
        marked = (folder for folder in folders if any((folder / name).is_file() for name in _PROJECT_FILES))
        yield tree or next(marked, folders[0] if folders else path)


def _outermost_node_modules(path: Path) -> Path | None:
    parts = path.parts
    return Path(*parts[: parts.index("node_modules") + 1]) if "node_modules" in parts else None


def _is_too_wide(folder: Path, home: Path) -> bool:
    """Whether more than a program lives in a folder: a home, what is above one, or what tools share in it."""
    shared = {home, *home.parents, home / ".local", home / ".cargo", home / "go", Path("/opt"), Path("/usr/local")}
    return folder in shared or folder.parent == Path("/")
