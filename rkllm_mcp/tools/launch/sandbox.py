"""A server's program under bubblewrap: the command line that lets it see what it needs and nothing else.

What it gets: the system's programs and libraries, read-only; a few files of ``/etc`` that programs look into; the
folders that the program itself is installed in, read-only (see ``installation``); the files and folders that its owner
named; an empty home, an empty ``/tmp``, a ``/dev`` and a ``/proc`` of its own. No other process, no device, no network
unless that was said, no privilege, and it dies with the host. Where that cannot be had the server is not started.

Followed: bubblewrap 0.4 and newer, bwrap(1).
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
# What programs look up: users, names of hosts, time zones, certificates, libraries. No keys, no configurations.
_ETC = (
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "protocols", "services", "localtime"),
    *("timezone", "locale.alias", "mime.types", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted", "os-release"),
)
_PROBE_TIMEOUT_S = 10.0


async def sandboxed(spec: ServerSpec, program: Path, env: Mapping[str, str]) -> ServerSpec:
    """The same server with bubblewrap as its command.

    Args:
        spec: the server; it has a ``sandbox``.
        program: the file that its command means.
        env: its environment.

    Raises:
        ServerUnavailableError: bubblewrap is missing or may not work here, or a named folder is not there.
    """
    problem = await anyio.to_thread.run_sync(unusable)
    if problem:
        raise ServerUnavailableError(problem)
    # The host's own, whatever PATH the server is given.
    bwrap = shutil.which("bwrap") or "bwrap"
    return replace(spec, command=bwrap, args=tuple(arguments(spec, program, env)), cwd=None)


def arguments(spec: ServerSpec, program: Path, env: Mapping[str, str]) -> list[str]:
    """Bubblewrap's arguments for a server; see ``sandboxed``.

    Raises:
        ServerUnavailableError: a named folder is not there.
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
    # What lies in another of these comes behind it, so that its own mode holds.
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
        # Often a link into /run, which is not there.
        yield from ("--ro-bind-try", str(Path("/etc/resolv.conf").resolve()), "/etc/resolv.conf")


def _cache(sandbox: Sandbox, program: Path, home: str) -> Iterator[str]:
    """A folder that survives for programs that fetch what they run; never the one of programs outside."""
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
            raise ServerUnavailableError(f"{key} names {path}, which is not there; make it, or correct {key}")
        if path == Path("/"):
            raise ServerUnavailableError(f"{key} names /, which is everything; name the folders that it needs")
        yield path


def missing_place(sandbox: Sandbox) -> str:
    """Which of the folders that a sandbox names cannot be in it, as a sentence; empty when all can."""
    try:
        _ = [*_existing(sandbox.read, "sandbox_read"), *_existing(sandbox.write, "sandbox_write")]
    except ServerUnavailableError as error:
        return str(error)
    return ""


def _outermost(places: Sequence[Path]) -> list[Path]:
    """The places that do not lie in another of them, nor in what is visible anyway."""
    seen = [place for place in dict.fromkeys(places) if not is_system(place)]
    return sorted(place for place in seen if not any(other in place.parents for other in seen))


# --- whether it works here -------------------------------------------------------------------------------------------


def unusable(path: str | None = None) -> str:
    """Why there is no sandbox on this machine, and what to do about it; empty when there is one.

    Args:
        path: where to look for bubblewrap; the host's PATH when None.
    """
    bwrap = shutil.which("bwrap", path=path)
    if bwrap is None:
        return (
            "it is to run in a sandbox and bubblewrap is missing; sudo apt install bubblewrap, or set sandbox = false"
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
        return f"it is to run in a sandbox and that cannot be had ({error}); mend it, or set sandbox = false"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().split("\n", 1)[0] or f"exit code {done.returncode}"
    return f"it is to run in a sandbox and that cannot be had here ({said}); {remedy(Path('/proc/sys'))}"


def remedy(settings: Path) -> str:
    """What allows bubblewrap to work, by what the kernel's ``settings`` (``/proc/sys``) say."""
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
        return "this kernel has no user namespaces; allow bubblewrap to do without: sudo chmod u+s $(command -v bwrap)"
    return "in a container allow it namespaces (docker run --security-opt seccomp=unconfined), or set sandbox = false"
