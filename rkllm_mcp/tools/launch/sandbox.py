"""Bubblewrap command line for a server's program.

Read-only: system programs and libraries, selected files of ``/etc``, the program's own installation (see ``places_of``)
and ``sandbox_read``; writable: ``sandbox_write``. Home, ``/tmp``, ``/dev`` and ``/proc`` are private. No other
processes, devices or capabilities, no network unless allowed; the program dies with the host. Without a working
bubblewrap the server is not started.

Follows bubblewrap 0.4 and newer, bwrap(1).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.tools.launch.installation import RUNNERS, is_system, places_of
from rkllm_mcp.tools.servers import Sandbox, ServerSpec

_SYSTEM = ("/usr", "/nix/store", "/gnu/store")
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Users, host names, time zones, certificates, libraries; no keys and no configuration of services.
_ETC = (
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "protocols", "services", "localtime"),
    *("timezone", "locale.alias", "mime.types", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted", "os-release"),
)
_PROBE_TIMEOUT_S = 10.0


async def sandboxed(spec: ServerSpec, program: Path, env: Mapping[str, str]) -> ServerSpec:
    """Return ``spec`` with bubblewrap as its command.

    Raises:
        ServerUnavailableError: bubblewrap is missing or does not work here, or a configured folder does not exist.
    """
    problem = await anyio.to_thread.run_sync(unusable)
    if problem:
        raise ServerUnavailableError(problem)
    # Found on the host's PATH, not on the server's.
    bwrap = shutil.which("bwrap") or "bwrap"
    return replace(spec, command=bwrap, args=tuple(arguments(spec, program, env)), cwd=None)


def arguments(spec: ServerSpec, program: Path, env: Mapping[str, str]) -> list[str]:
    """Return the arguments of bubblewrap for a server.

    Raises:
        ServerUnavailableError: a configured folder does not exist.
    """
    sandbox = spec.sandbox or Sandbox()
    home = env.get("HOME", "") if env.get("HOME", "").strip("/") else "/tmp/home"  # noqa: S108  (inside the sandbox)
    named = {
        **dict.fromkeys(_existing(sandbox.read, "sandbox_read"), False),
        **dict.fromkeys(_existing(sandbox.write, "sandbox_write"), True),
    }
    words = ["--unshare-all", *(["--share-net"] if sandbox.network else []), "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL", *_system(network=sandbox.network)]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]  # noqa: S108
    words += ["--tmpfs", home, "--setenv", "HOME", home]
    for place in _outermost(places_of(spec, program, env)):
        words += ["--ro-bind", str(place), str(place)]
    words += _cache(sandbox, program, home)
    # Parents first, so that a nested folder keeps its own mode.
    for path, may_write in sorted(named.items(), key=lambda item: len(item[0].parts)):
        words += ["--bind" if may_write else "--ro-bind", str(path), str(path)]
    words += ["--remount-ro", "/", "--chdir", spec.cwd or home]
    return [*words, "--", str(program), *spec.args]


def _system(*, network: bool) -> Iterator[str]:
    for path in _SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for path in map(Path, _SYSTEM_LINKS):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    if network:
        # Often a link into /run, which the sandbox does not contain.
        yield from ("--ro-bind-try", str(Path("/etc/resolv.conf").resolve()), "/etc/resolv.conf")


def _cache(sandbox: Sandbox, program: Path, home: str) -> Iterator[str]:
    """Bind a persistent cache, separate from the user's own, for programs that download what they run."""
    if sandbox.cache is None or program.name not in RUNNERS:
        return
    Path(sandbox.cache).mkdir(mode=0o700, parents=True, exist_ok=True)
    cache = f"{home}/.cache"
    yield from ("--bind", sandbox.cache, cache, "--setenv", "XDG_CACHE_HOME", cache)
    yield from ("--setenv", "npm_config_cache", f"{cache}/npm", "--setenv", "UV_CACHE_DIR", f"{cache}/uv")
    yield from ("--setenv", "UV_PYTHON_INSTALL_DIR", f"{cache}/uv-python")


def _existing(paths: Sequence[str], key: str) -> Iterator[Path]:
    for path in map(Path, paths):
        if not path.exists():
            raise ServerUnavailableError(f"{key} names {path}, which does not exist; create it, or correct {key}")
        if path == Path("/"):
            raise ServerUnavailableError(
                f"{key} names /, the whole system; name only the folders that the server needs"
            )
        yield path


def missing_place(sandbox: Sandbox) -> str:
    """Return a sentence about a configured folder that cannot be in the sandbox; empty if all can."""
    try:
        _ = [*_existing(sandbox.read, "sandbox_read"), *_existing(sandbox.write, "sandbox_write")]
    except ServerUnavailableError as error:
        return str(error)
    return ""


def _outermost(places: Sequence[Path]) -> list[Path]:
    """Drop the places inside another place or inside the system's folders."""
    seen = [place for place in dict.fromkeys(places) if not is_system(place)]
    return sorted(place for place in seen if not any(other in place.parents for other in seen))


# --- availability ----------------------------------------------------------------------------------------------------


def unusable(path: str | None = None) -> str:
    """Return why bubblewrap does not work on this machine, and the remedy; empty if it works."""
    bwrap = shutil.which("bwrap", path=path)
    if bwrap is None:
        return (
            "the sandbox needs bubblewrap, which is not installed; sudo apt install bubblewrap, or set sandbox = false"
        )
    everything = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        done = subprocess.run(
            [bwrap, "--unshare-all", "--die-with-parent", *everything, "true"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox does not work ({error}); repair bubblewrap, or set sandbox = false"
    if done.returncode == 0:
        return ""
    reason = done.stderr.strip().split("\n", 1)[0] or f"exit code {done.returncode}"
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
