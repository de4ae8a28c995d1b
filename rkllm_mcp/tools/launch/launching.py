"""What is really started for a configured server: its program checked against ``allowed_commands``, and sandboxed."""

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
    """The server as it is started.

    Args:
        spec: the server as it is configured.
        host: the host's environment.

    Raises:
        ServerUnavailableError: it may not be started, or not in the sandbox that it needs.
        OSError: there is no such program.
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
    # The file that was checked, whatever the PATH finds a moment later.
    return replace(spec, command=str(program))


def refusal_here(spec: ServerSpec, host: Mapping[str, str] = os.environ) -> str:
    """Why a server's program may not be started on this machine; empty when it may, or is not there at all."""
    program = found_program(spec.command, environment(spec, host).get("PATH", os.defpath), spec.cwd)
    return "" if program is None else refusal_of(spec, program)


def refusal_of(spec: ServerSpec, program: Path) -> str:
    """Why a program may not be started; empty when it may."""
    allowed = spec.allowed_commands
    if allowed is None or is_allowed(program, spec.args, allowed):
        return ""
    entries = ", ".join(allowed) or "none"
    what = str(program) if str(program) == spec.command else f"{spec.command} ({program})"
    return f"{what} may not be started; security.allowed_commands allows {entries}"
