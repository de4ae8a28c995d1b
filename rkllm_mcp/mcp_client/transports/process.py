"""A server's process: started with pipes in its own process group; the whole group is gone when the block ends.

stderr is always drained, otherwise a server could block on a full pipe. Shutdown closes stdin, then sends SIGTERM, then
SIGKILL, each with a grace period, and is shielded from cancellation. The process is reaped last, so that a signal to
its group cannot reach a reused process id.

Follows MCP specification 2025-11-25, lifecycle, shutdown (the order); grace periods and process group are our choice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import IO

import anyio

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.mcp_client.wire_log import LastLines

# Variables every program needs, without secrets (the SDK's list, mcp 2.3.0 client/stdio.py).
INHERITED_ALWAYS = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

_CHUNK_BYTES = 65536
# After SIGKILL only a process stuck in the kernel remains; it is not waited for any longer.
_KILL_GRACE_S = 2.0


def environment(spec: StdioServer, host: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: the minimum, then inherited variables, then configured ones."""
    names = tuple(host) if spec.inherit_env is True else (*INHERITED_ALWAYS, *(spec.inherit_env or ()))
    # A value that begins with "()" is an exported shell function.
    inherited = {name: host[name] for name in names if name in host and not host[name].startswith("()")}
    return {**inherited, **spec.env}


class Child:
    """A running process and its pipes; created and ended by ``open_child``."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: LastLines) -> None:
        self.process = process  # its returncode is as in subprocess (negative: the signal)
        self.pid = process.pid  # which is also the id of the process group
        self._stderr = stderr
        pipes: list[IO[bytes]] = []
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None, "the process is started with three pipes"  # noqa: S101  (narrows the type)
            os.set_blocking(pipe.fileno(), False)
            pipes.append(pipe)
        self._stdin, self._stdout, self._errors = pipes
        # A pipe that becomes readable when the process has ended. A thread closes its other end: older kernels and
        # container profiles refuse a pidfd, and asyncio's notification also waits for the pipes.
        reader, writer = os.pipe()
        waiting = threading.Thread(target=_close_at_exit, args=(self.pid, writer), name=f"exit of {self.pid}")
        waiting.daemon = True
        waiting.start()
        self._exited = os.fdopen(reader, "rb", buffering=0)
        self.was_stopped = False  # it ended because the host closed its stdin or signalled it
        self.has_read = False  # it has read something of what was sent; valid once it has ended
        self._has_hung_up = False
        self._sent_bytes = 0

    async def receive(self) -> bytes:
        """Return the next bytes of stdout; empty at the end."""
        chunk = await _read_pipe(self._stdout)
        self._has_hung_up = not chunk
        return chunk

    async def send(self, data: bytes) -> None:
        """Write to stdin; an OSError if the process has closed its stdin."""
        unsent = memoryview(data)
        while unsent:
            await anyio.wait_writable(self._stdin.fileno())
            count = os.write(self._stdin.fileno(), unsent)
            self._sent_bytes += count
            unsent = unsent[count:]

    async def keep_errors(self) -> None:
        """Read stderr to the end into ``LastLines``."""
        while chunk := await _read_pipe(self._errors):
            self._stderr.feed(chunk)

    async def end_group_with_leader(self) -> None:
        """Kill the process group when the process has ended: a helper that holds stdout open would hide the end."""
        await anyio.wait_readable(self._exited.fileno())
        self._signal(signal.SIGKILL)

    async def stop(self, grace_s: float) -> None:
        """End the process group: close stdin, then SIGTERM, then SIGKILL; takes at most three grace periods.

        Shielded from cancellation. If the wait itself is interrupted (a second Ctrl-C), the group is killed at once.
        """
        unread = int.from_bytes(fcntl.ioctl(self._stdin.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
        self.has_read = unread < self._sent_bytes
        # A process that ends because its stdin is closed here did not end by itself.
        try:
            # Returns at once.
            exited = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)  # noqa: ASYNC222
            has_exited = exited is not None
        except ChildProcessError:
            has_exited = True
        self.was_stopped = not self._has_hung_up and not has_exited
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as draining:
                    draining.start_soon(self._discard_output)
                    draining.start_soon(self.keep_errors)
                    self._stdin.close()
                    steps = ((None, grace_s), (signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_GRACE_S))
                    for number, timeout_s in steps:
                        if number is not None:
                            self.was_stopped = True
                            self._signal(number)
                        with anyio.move_on_after(timeout_s) as waiting:
                            await anyio.wait_readable(self._exited.fileno())
                        if not waiting.cancelled_caught:
                            break
                    draining.cancel_scope.cancel()
        finally:
            self._signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_KILL_GRACE_S)
            with contextlib.suppress(BlockingIOError):
                while chunk := os.read(self._errors.fileno(), _CHUNK_BYTES):
                    self._stderr.feed(chunk)
            self._stderr.finish()
            for pipe in (self._stdin, self._stdout, self._errors, self._exited):
                pipe.close()

    async def _discard_output(self) -> None:
        while await _read_pipe(self._stdout):
            pass

    def _signal(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            # EPERM: a member that changed its user cannot be signalled; the others have received the signal.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


@asynccontextmanager
async def open_child(spec: StdioServer, stderr: LastLines, stop_grace_s: float) -> AsyncGenerator[Child]:
    """Start the server's program; end it and its process group on exit.

    Raises:
        OSError: the program or its working directory does not exist or is not accessible.
        ValueError: an argument or variable contains a NUL byte.
    """
    # Not asyncio's subprocess: it waits for a process differently in each Python version, and hides the pipes.
    process = subprocess.Popen(  # noqa: ASYNC220  (returns once the program is loaded, after milliseconds)
        [spec.command, *spec.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(spec, os.environ),
        cwd=spec.folder,
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
        await child.stop(stop_grace_s)


async def _read_pipe(pipe: IO[bytes]) -> bytes:
    # Waiting first yields to the event loop once per chunk: a server that never pauses must not block other tasks.
    await anyio.wait_readable(pipe.fileno())
    return os.read(pipe.fileno(), _CHUNK_BYTES)


def _close_at_exit(pid: int, writer: int) -> None:
    """Close the end of a pipe when the process has ended, without reaping it."""
    with os.fdopen(writer, "wb"), contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
