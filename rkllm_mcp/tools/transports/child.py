"""One server's process: started with pipes in a group of its own, and gone with its whole group when its block is left.

Rules: stderr is always drained, or a talkative server would block on a full pipe. The end is polite, then firm: input
closed, SIGTERM, SIGKILL, each with a grace; the wait is shielded, so cancelling the host cannot leave a process behind.
The dead leader is reaped last: until then its number belongs to its group and a signal cannot hit a stranger. Knows
nothing of MCP.

Followed: MCP specification 2025-11-25, lifecycle, shutdown (the order); the graces and the group are our choice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import IO

import anyio

from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.transports.lines import LastLines

# What a program needs to find its way, and no secrets (the SDK's list, mcp 2.3.0 client/stdio.py).
INHERITED_ALWAYS = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

_CHUNK_BYTES = 65536
# After SIGKILL only a process stuck in the kernel stays; nobody can wait for that one.
_KILL_GRACE_S = 2.0


def environment(spec: ServerSpec, host: Mapping[str, str]) -> dict[str, str]:
    """The environment a server gets: what every program needs, then what is inherited, then what is configured."""
    names = tuple(host) if spec.inherit_env is True else (*INHERITED_ALWAYS, *(spec.inherit_env or ()))
    # A value that begins with "()" is a shell function in disguise.
    inherited = {name: host[name] for name in names if name in host and not host[name].startswith("()")}
    return {**inherited, **spec.env}


class Child:
    """A running process and its pipes; ``open_child`` makes and ends it.

    ``exit_code`` is as subprocess reports it (negative: the signal), None while it runs; ``was_stopped`` says that it
    left only because it was signalled.
    """

    def __init__(self, process: subprocess.Popen[bytes], stderr: LastLines) -> None:
        self._process = process
        self._stderr = stderr
        self._stdin, self._stdout, self._errors = (_pipe(process.stdin), _pipe(process.stdout), _pipe(process.stderr))
        self._exited = _exit_notice(process.pid)
        self.was_stopped = False

    @property
    def pid(self) -> int:
        """Its process id, and the id of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None before."""
        return self._process.returncode

    async def receive(self) -> bytes:
        """The next bytes of its stdout; empty at the end."""
        return await _read(self._stdout)

    async def send(self, data: bytes) -> None:
        """Write to its stdin.

        Raises:
            OSError: it has closed its stdin.
        """
        rest = memoryview(data)
        while rest:
            await anyio.wait_writable(self._stdin.fileno())
            rest = rest[os.write(self._stdin.fileno(), rest) :]

    async def keep_errors(self) -> None:
        """Read its stderr to the end, keeping the last lines."""
        while chunk := await _read(self._errors):
            self._stderr.feed(chunk)

    async def end_group_with_leader(self) -> None:
        """When the process has ended, end what it started too: a helper that holds its stdout would hide the end."""
        await anyio.wait_readable(self._exited.fileno())
        self._signal(signal.SIGKILL)

    async def stop(self, grace_s: float) -> None:
        """End the process and its group: close its input, then SIGTERM, then SIGKILL; at most three graces long.

        Shielded from cancellation. When even that is broken through (a second Ctrl-C), the group is killed at once.
        """
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as draining:
                    draining.start_soon(self._discard_output)
                    draining.start_soon(self.keep_errors)
                    self._stdin.close()
                    await self._leave(grace_s)
                    draining.cancel_scope.cancel()
        finally:
            self._signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_GRACE_S)
            self._close()

    async def _leave(self, grace_s: float) -> None:
        for number, patience_s in ((None, grace_s), (signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_GRACE_S)):
            if number is not None:
                self.was_stopped = True
                self._signal(number)
            with anyio.move_on_after(patience_s):
                await anyio.wait_readable(self._exited.fileno())
                return

    async def _discard_output(self) -> None:
        while await _read(self._stdout):
            pass

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            # EPERM: a member that changed its user is out of reach, and the others have got the signal.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _close(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._errors.fileno(), _CHUNK_BYTES):
                self._stderr.feed(chunk)
        self._stderr.finish()
        for pipe in (self._stdin, self._stdout, self._errors, self._exited):
            pipe.close()


@asynccontextmanager
async def open_child(spec: ServerSpec, stderr: LastLines) -> AsyncGenerator[Child]:
    """Start the server's program; on leaving, it and its whole group are gone.

    Args:
        spec: command, args, environment, folder and grace.
        stderr: gets what it writes on stderr.

    Raises:
        OSError: the program or its folder is not there or may not be used.
        ValueError: an argument or variable holds a NUL byte.
    """
    # Not asyncio's: that waits for a process by other means in every Python version, and hides its pipes.
    process = subprocess.Popen(  # noqa: ASYNC220  (returns once the program is loaded, after milliseconds)
        [spec.command, *spec.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(spec, os.environ),
        cwd=spec.cwd,
        start_new_session=True,
        bufsize=0,
    )
    child = Child(process, stderr)
    try:
        async with anyio.create_task_group() as watching:
            watching.start_soon(child.keep_errors)
            watching.start_soon(child.end_group_with_leader)
            try:
                yield child
            finally:
                watching.cancel_scope.cancel()
    finally:
        await child.stop(spec.stop_grace_s)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the process is started with three pipes"  # noqa: S101  (narrows the type)
    os.set_blocking(pipe.fileno(), False)
    return pipe


async def _read(pipe: IO[bytes]) -> bytes:
    # Waiting first gives the event loop a turn per chunk: a server that never stops talking must not hold up everybody
    # else.
    await anyio.wait_readable(pipe.fileno())
    return os.read(pipe.fileno(), _CHUNK_BYTES)


def _exit_notice(pid: int) -> IO[bytes]:
    """A pipe that becomes readable when the process has ended, without reaping it.

    A thread, because a pidfd is refused by older kernels and container profiles, and asyncio's own notice also waits
    for pipes.
    """
    reader, writer = os.pipe()

    def wait() -> None:
        with os.fdopen(writer, "wb"), contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return os.fdopen(reader, "rb", buffering=0)
