"""Programs that may be started as servers."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rkllm_base.installation import find_uv, module_words
from rkllm_mcp.config.servers import StdioServer, is_own
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.sandbox import NO_FOLDERS, SandboxFolders, wrap_in_sandbox
from rkllm_mcp.mcp_client.transports.process import environment

# Programs that download and run the package named by their first argument.
_RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx"})
# Options that do not change the package that is run, unlike --package, --from, --with or --call.
_HARMLESS_OPTIONS = frozenset(
    {"-y", "--yes", "-q", "--quiet", "--silent", "--offline", "--prefer-offline", "--isolated"}
)
_OF_UV = frozenset({"uv", "uvx"})
# A version or a tag; a colon or a slash would refer to a source other than the registry.
_VERSION = re.compile(r"(?:@|==)[\w.^~*+-]+")


def resolve_program(command: str, path: str | None, cwd: str | None) -> Path | None:
    """Return the file that starting ``command`` with this PATH and directory would execute; None if not found."""
    if "/" in command:
        candidate = Path(cwd or ".") / Path(command)
        return candidate.absolute() if os.access(candidate, os.X_OK) and candidate.is_file() else None
    # uv is where install.sh or 'rkllm-mcp install uvx' put it, which a service need not have on its PATH.
    program = shutil.which(command, path=path) or (find_uv(command) if command in _OF_UV else None)
    return Path(program).absolute() if program else None


def is_allowed(program: Path, args: Sequence[str], allowed: Sequence[str]) -> bool:
    """Return True if an entry of ``allowed_commands`` permits the program with these arguments."""
    file = program.resolve()
    for entry in allowed:
        try:
            name, *pattern = shlex.split(entry)
        except ValueError:
            continue
        allowed_program = resolve_program(str(Path(name).expanduser()), None, "/")
        if allowed_program is None or allowed_program.resolve() != file:
            continue
        # One file can be several programs, chosen by name: busybox, shims of version managers. The
        # version in a name does not count: python for python3.11.
        names = {path.name.rstrip("0123456789.-") for path in (allowed_program, program, file)}
        if allowed_program.name != program.name and len(names) > 1:
            continue
        if not pattern or allowed_program.name not in _RUNNERS:
            if list(args[: len(pattern)]) == pattern:
                return True
            continue
        words = list(args)
        while words and words[0] in _HARMLESS_OPTIONS:
            del words[0]
        package, argument = pattern[0], words[0] if words else ""
        is_version = argument.startswith(package) and _VERSION.fullmatch(argument[len(package) :]) is not None
        if words and words[1 : len(pattern)] == pattern[1:] and (argument == package or is_version):
            return True
    return False


async def launch_of(
    spec: StdioServer,
    allowed: Sequence[str] | None,
    host: Mapping[str, str] = os.environ,
    *,
    folders: SandboxFolders = NO_FOLDERS,
) -> StdioServer:
    """Return ``spec`` with the command that is really started; ``allowed`` are the allowed commands, None allows any.

    Raises:
        ServerUnavailableError: the program is not allowed, or its sandbox is not available.
        OSError: the program does not exist.
    """
    # After "-m"; what lies in the folder that the assistant was started in is not part of them.
    started = spec.model_copy(update={"args": tuple(module_words(*spec.args[1:])[1:])}) if is_own(spec) else spec
    if allowed is None and not spec.sandbox and spec.command not in _OF_UV:
        return started
    env = environment(spec, host)
    program = resolve_program(spec.command, env.get("PATH", os.defpath), spec.folder)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), spec.command)
    refusal = refusal_of(spec, allowed, program)
    if refusal:
        raise ServerUnavailableError(refusal)
    if spec.sandbox:
        return await wrap_in_sandbox(started, program, env, folders)
    # Start the file that was checked: a second search of the PATH might find another one.
    return started.model_copy(update={"command": str(program)})


def refusal_here(spec: StdioServer, allowed: Sequence[str] | None, host: Mapping[str, str] = os.environ) -> str:
    """Return why a server's program may not be started on this machine; empty if it is allowed or does not exist."""
    program = resolve_program(spec.command, environment(spec, host).get("PATH", os.defpath), spec.folder)
    return "" if program is None else refusal_of(spec, allowed, program)


def refusal_of(spec: StdioServer, allowed: Sequence[str] | None, program: Path) -> str:
    """Return why a program may not be started; empty if it is allowed."""
    if allowed is None or is_allowed(program, spec.args, allowed):
        return ""
    entries = ", ".join(allowed) or "none"
    label = str(program) if str(program) == spec.command else f"{spec.command} ({program})"
    return f"{label} may not be started; security.allowed_commands allows {entries}"
