"""The bubblewrap sandbox of a server, and the paths that its program needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from rkllm_base.folders import user_folder
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.errors import ServerUnavailableError

# Programs that download the package they run.
_RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx", "uv"})
_SYSTEM_FOLDERS = ("/usr", "/nix/store", "/gnu/store")
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# The system's programs, which every sandbox may read.
_SYSTEM = frozenset(map(Path, (*_SYSTEM_FOLDERS, *_SYSTEM_LINKS)))
_INTERPRETERS = frozenset({"python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "bash", "sh"})
_PROJECT_FILES = ("package.json", "pyproject.toml")
# Limit for chains of scripts whose interpreters are scripts.
_MAX_STEPS = 8
_SHEBANG_BYTES = 256


@dataclass(frozen=True)
class SandboxFolders:
    """Folders of the host that matter to every sandbox."""

    caches: Path | None = None  # download caches of the programs; None: an empty one at every start
    hidden: tuple[Path, ...] = ()  # configuration and state of the host, which no sandbox shows


NO_FOLDERS = SandboxFolders()


def places_of(spec: StdioServer, program: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the files and folders that a program needs to read; ``env``, its environment, has PATH and HOME."""
    home = Path(env.get("HOME", "/nonexistent"))
    paths = list(_installations(program, env, home))
    if spec.cwd is not None and not _is_too_wide(spec.cwd, home):
        paths.append(spec.cwd)
    script = script_of(str(program), spec.args, spec.cwd)
    # Of a script the nearest folder with a project file, else the script and its modules.
    for path in dict.fromkeys((script, script.resolve())) if script and script.is_file() else ():
        tree = _outermost_node_modules(path)
        folders = [folder for folder in path.parents if not _is_too_wide(folder, home)]
        marked = (folder for folder in folders if any((folder / name).is_file() for name in _PROJECT_FILES))
        project = tree or next(marked, None)
        paths.append(project or path)
        # The source files and Python packages next to a script, which it may import.
        for module in path.parent.iterdir() if project is None and path.parent in folders else ():
            is_source = module.suffix == path.suffix and module.is_file()
            paths += [module] if is_source or (module / "__init__.py").is_file() else []
    return paths


def _installations(program: Path, env: Mapping[str, str], home: Path) -> Iterator[Path]:
    pending = [program]
    for _ in range(_MAX_STEPS):
        if not pending:
            return
        path = pending.pop()
        real = path.resolve()
        for folder in dict.fromkeys((path, real)):
            tree = _outermost_node_modules(folder)
            if tree is not None:
                yield tree
            else:
                above = folder.parent.parent
                if (above / "pyvenv.cfg").is_file():
                    yield from _environment(above)
                elif folder.parent.name in ("bin", "shims") and not _is_too_wide(above, home):
                    yield above
                else:
                    yield folder
                    if folder.name == "uvx" and (folder.parent / "uv").exists():
                        yield folder.parent / "uv"
        # A script needs the interpreter of its shebang line.
        first_line = b""
        with suppress(OSError), real.open("rb") as opened:
            first_line = opened.readline(_SHEBANG_BYTES)
        words = first_line[2:].decode("utf-8", "replace").split() if first_line.startswith(b"#!") else []
        if words and Path(words[0]).name == "env":
            candidates = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            found = shutil.which(candidates[0], path=env.get("PATH")) if candidates else None
            pending += [Path(found).absolute()] if found else []
        elif words:
            pending.append(Path(words[0]))


def _environment(root: Path) -> Iterator[Path]:
    """Yield a virtual environment, the Python it was made with, and the source folders of editable installs."""
    yield root
    for line in (root / "pyvenv.cfg").read_text("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            yield Path(value.strip()).parent
    for origin in root.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        # PEP 610; without a readable file no folder has to be added.
        with suppress(OSError, ValueError, KeyError, AttributeError):
            about: Any = json.loads(origin.read_text("utf-8"))
            if about.get("dir_info", {}).get("editable"):
                yield Path(unquote(urlsplit(str(about["url"])).path))


def script_of(command: str, args: Sequence[str], cwd: str | Path | None) -> Path | None:
    """Return the script that an interpreter is started with, which may not exist; None without a script."""
    if Path(command).name.rstrip("0123456789.") not in _INTERPRETERS or not args or args[0].startswith("-"):
        return None
    script = Path(cwd or ".", args[0]).absolute()
    # An argument without a suffix may be a subcommand, as in "deno run".
    return script if script.suffix or script.is_file() else None


def _outermost_node_modules(path: Path) -> Path | None:
    parts = path.parts
    return Path(*parts[: parts.index("node_modules") + 1]) if "node_modules" in parts else None


def _is_too_wide(folder: Path, home: Path) -> bool:
    """Return True for folders that hold more than one program: homes, their parents, and folders shared by tools."""
    shared = {home, *home.parents, home / ".local", home / ".cargo", home / "go", Path("/opt"), Path("/usr/local")}
    return folder in shared or folder.parent == Path("/")


# Users, host names, time zones, certificates, libraries; no keys and no configuration of services.
_ETC = (
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "protocols", "services", "localtime"),
    *("timezone", "locale.alias", "mime.types", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted", "os-release"),
)
_PROBE_TIMEOUT_S = 10.0
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


async def wrap_in_sandbox(
    spec: StdioServer, program: Path, env: Mapping[str, str], folders: SandboxFolders
) -> StdioServer:
    """Return ``spec`` in bubblewrap; a ServerUnavailableError if that is unusable here or a named folder is missing."""
    problem = await anyio.to_thread.run_sync(unusable)
    if problem:
        raise ServerUnavailableError(problem)
    # Found on the host's PATH, not on the server's.
    bwrap = shutil.which("bwrap") or "bwrap"
    changes = {"command": bwrap, "args": tuple(arguments(spec, program, env, folders)), "cwd": None}
    return spec.model_copy(update=changes)


def arguments(spec: StdioServer, program: Path, env: Mapping[str, str], folders: SandboxFolders) -> list[str]:
    """Return the arguments of bubblewrap for a server."""
    home = env.get("HOME", "") if env.get("HOME", "").strip("/") else "/tmp/home"  # noqa: S108  (inside the sandbox)
    variables = {
        **dict.fromkeys(_existing(spec.sandbox_read, "sandbox_read"), False),
        **dict.fromkeys(_existing(spec.sandbox_write, "sandbox_write"), True),
    }
    words = ["--unshare-all", *(["--share-net"] if spec.sandbox_network else []), "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL"]
    for name in _SYSTEM_FOLDERS:
        words += ["--ro-bind-try", name, name]
    for path in map(Path, _SYSTEM_LINKS):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if spec.sandbox_network:
        # Often a link into /run, which the sandbox does not contain.
        words += ["--ro-bind-try", str(Path("/etc/resolv.conf").resolve()), "/etc/resolv.conf"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]  # noqa: S108
    words += ["--tmpfs", home, "--setenv", "HOME", home]
    # Without the places inside another place or inside the system's folders.
    places = dict.fromkeys(places_of(spec, program, env))
    distinct = [path for path in places if _SYSTEM.isdisjoint((path, *path.parents))]
    paths = sorted(path for path in distinct if not any(other in path.parents for other in distinct))
    for folder in paths:
        words += ["--ro-bind", str(folder), str(folder)]
    if folders.caches is not None and program.name in _RUNNERS:
        # A lasting cache, separate from the user's own, for programs that download what they run.
        lasting, cache = folders.caches / _UNSAFE.sub("_", spec.name), f"{home}/.cache"
        lasting.mkdir(mode=0o700, parents=True, exist_ok=True)
        words += ["--bind", str(lasting), cache, "--setenv", "XDG_CACHE_HOME", cache]
        words += ["--setenv", "npm_config_cache", f"{cache}/npm", "--setenv", "UV_CACHE_DIR", f"{cache}/uv"]
        words += ["--setenv", "UV_PYTHON_INSTALL_DIR", f"{cache}/uv-python"]
    # Parents first, so that a nested folder keeps its own mode.
    for path, may_write in sorted(variables.items(), key=lambda item: len(item[0].parts)):
        words += ["--bind" if may_write else "--ro-bind", str(path), str(path)]
    # Where hidden files and folders of the host would be seen.
    masked: list[Path] = []
    for hidden in (path.resolve() for path in folders.hidden if path.exists()):
        for visible in (*paths, *variables):
            real = visible.resolve()
            if real == hidden or hidden in real.parents:
                masked.append(visible)
            elif real in hidden.parents:
                masked.append(visible / hidden.relative_to(real))
    for path in dict.fromkeys(masked):
        words += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    words += ["--remount-ro", "/", "--chdir", spec.folder or home]
    return [*words, "--", str(program), *spec.args]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the download caches: ``$XDG_CACHE_HOME/rkllm-mcp/sandbox``."""
    return user_folder("cache", environment) / "sandbox"


def _existing(paths: Sequence[Path], key: str) -> Iterator[Path]:
    for path in map(Path.absolute, paths):
        if not path.exists():
            raise ServerUnavailableError(f"{key} names {path}, which does not exist; create it, or correct {key}")
        if path == Path("/"):
            message = f"{key} names /, the whole system; name only the folders that the server needs"
            raise ServerUnavailableError(message)
        yield path


def missing_place(spec: StdioServer) -> str:
    """Return a sentence about a configured folder that cannot be in the sandbox; empty if all can."""
    try:
        _ = [*_existing(spec.sandbox_read, "sandbox_read"), *_existing(spec.sandbox_write, "sandbox_write")]
    except ServerUnavailableError as error:
        return str(error)
    return ""


def unusable(path: str | None = None) -> str:
    """Return why bubblewrap does not work on this machine, and the remedy; empty if it works."""
    bwrap = shutil.which("bwrap", path=path)
    if bwrap is None:
        remedies = "sudo apt install bubblewrap, or set sandbox = false in the server's entry"
        return f"the sandbox needs bubblewrap, which is not installed; {remedies}"
    everything = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    probe = [bwrap, "--unshare-all", "--die-with-parent", *everything, "true"]
    try:
        result = subprocess.run(probe, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox does not work ({error}); repair bubblewrap, or set sandbox = false"
    if result.returncode == 0:
        return ""
    reason = result.stderr.strip().split("\n", 1)[0] or f"exit code {result.returncode}"
    return f"the sandbox does not work on this machine ({reason}); {remedy(Path('/proc/sys'))}"


def remedy(settings: Path) -> str:
    """Return the command that enables bubblewrap, according to the kernel settings in ``settings`` (``/proc/sys``)."""
    for name, forbidding, allowing in (
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ("user/max_user_namespaces", "0", "15000"),
    ):
        try:
            value = (settings / name).read_text("ascii").strip()
        except OSError:
            continue
        if value == forbidding:
            return f"allow it with: sudo sysctl -w {name.replace('/', '.')}={allowing}"
    if not (settings / "user/max_user_namespaces").exists():
        return "this kernel has no user namespaces; make bubblewrap setuid: sudo chmod u+s $(command -v bwrap)"
    return "in a container allow user namespaces (docker run --security-opt seccomp=unconfined), or set sandbox = false"
