"""Check a server's program against ``allowed_commands`` and wrap it in the sandbox."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.tools.launch.commands import found_program, is_allowed
from rkllm_mcp.tools.launch.sandbox import sandboxed
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.transports.child import environment


async def launch_of(spec: ServerSpec, host: Mapping[str, str] = os.environ) -> ServerSpec:
    """Return ``spec`` with the command that is really started.

    Raises:
        ServerUnavailableError: the program is not allowed, or its sandbox is not available.
        OSError: the program does not exist.
    """
    if spec.allowed_commands is None and spec.sandbox is None:
        return spec
    env = environment(spec, host)
    program = found_program(spec.command, env.get("PATH", os.defpath), spec.cwd)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), spec.command)
    refusal = refusal_of(spec, program)
    if refusal:
        raise ServerUnavailableError(refusal)
    if spec.sandbox is not None:
        return await sandboxed(spec, program, env)
    # Start the file that was checked: a second search of the PATH might find another one.
    return replace(spec, command=str(program))


def refusal_here(spec: ServerSpec, host: Mapping[str, str] = os.environ) -> str:
    """Return why a server's program may not be started on this machine; empty if it is allowed or does not exist."""
    program = found_program(spec.command, environment(spec, host).get("PATH", os.defpath), spec.cwd)
    return "" if program is None else refusal_of(spec, program)


def refusal_of(spec: ServerSpec, program: Path) -> str:
    """Return why a program may not be started; empty if it is allowed."""
    allowed = spec.allowed_commands
    if allowed is None or is_allowed(program, spec.args, allowed):
        return ""
    entries = ", ".join(allowed) or "none"
    shown = str(program) if str(program) == spec.command else f"{spec.command} ({program})"
    return f"{shown} may not be started; security.allowed_commands allows {entries}"
