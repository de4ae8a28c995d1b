"""Find the folders that a program has to read in order to run.

Known layouts, read from the disk: virtual environments and the Python they were made with, editable installs,
``node_modules``, a tool manager's folder above ``bin``, interpreters of scripts, scripts of interpreters, the working
directory. Never a whole home directory or a folder that many tools share: there only the program's own file.
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
"""Programs that download the package they run."""

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")))
_INTERPRETERS = frozenset({"python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "bash", "sh"})
_PROJECT_FILES = ("package.json", "pyproject.toml")
# Limit for chains of scripts whose interpreters are scripts.
_MAX_STEPS = 8
_SHEBANG_BYTES = 256


def is_system(path: Path) -> bool:
    """Return True if a path belongs to the system's programs, which every sandbox may read."""
    return any(path == system or system in path.parents for system in _SYSTEM)


def places_of(spec: ServerSpec, program: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the files and folders that a server's program needs to read; may include system folders.

    ``env`` is the program's environment and provides PATH and HOME.
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
    """Yield a virtual environment, the Python it was made with, and the source folders of editable installs."""
    yield root
    for line in (root / "pyvenv.cfg").read_text("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            yield Path(value.strip()).parent
    for origin in root.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        yield from _source_folder(origin)


def _source_folder(origin: Path) -> Iterator[Path]:
    """Yield the source folder of an editable install, from its ``direct_url.json`` (PEP 610)."""
    try:
        about: Any = json.loads(origin.read_text("utf-8"))
        if about.get("dir_info", {}).get("editable"):
            yield Path(unquote(urlsplit(str(about["url"])).path))
    except (OSError, ValueError, KeyError, AttributeError):
        return  # without a readable file there is no folder to add


def _interpreter(script: Path, env: Mapping[str, str]) -> Path | None:
    """Return the interpreter in a script's shebang line; None if the file is not a script."""
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
    """Return the script that an interpreter is started with, which may not exist; None without a script."""
    if Path(command).name.rstrip("0123456789.") not in _INTERPRETERS or not args or args[0].startswith("-"):
        return None
    script = Path(cwd or ".", args[0]).absolute()
    # An argument without a suffix may be a subcommand, as in "deno run".
    return script if script.suffix or script.is_file() else None


def _project(script: Path, home: Path) -> Iterator[Path]:
    """Yield the project folder of a script: the nearest one with a project file, else the script's own folder."""
    for path in dict.fromkeys((script, script.resolve())):
        tree = _outermost_node_modules(path)
        folders = [folder for folder in path.parents if not _is_too_wide(folder, home)]
        marked = (folder for folder in folders if any((folder / name).is_file() for name in _PROJECT_FILES))
        yield tree or next(marked, folders[0] if folders else path)


def _outermost_node_modules(path: Path) -> Path | None:
    parts = path.parts
    return Path(*parts[: parts.index("node_modules") + 1]) if "node_modules" in parts else None


def _is_too_wide(folder: Path, home: Path) -> bool:
    """Return True for folders that hold more than one program: homes, their parents, and folders shared by tools."""
    shared = {home, *home.parents, home / ".local", home / ".cargo", home / "go", Path("/opt"), Path("/usr/local")}
    return folder in shared or folder.parent == Path("/")
