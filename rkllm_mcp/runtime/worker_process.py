"""The worker process from outside: process, socket, and the tail of its log.

The process has its own session, so that Ctrl-C in a terminal does not reach it, and imports only this package and
the standard library.

Leaving stops it with SHUTDOWN, then SIGKILL after ``stop_timeout_s``; the wait is shielded from cancellation.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime import frames

# Room for the runtime's banner and table; errors are in the last lines.
_MAX_LINES = 200
_LINE_BYTES = 4096
_READ_BYTES = 65_536
# As much as the largest pipe can hold
_READS_AT_ONCE = 16


class LogLines:
    """Last lines of a pipe, read as they arrive; owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._unfinished = b""
        self._total = 0
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self.read)

    @property
    def total(self) -> int:
        """Number of lines so far."""
        self.read()
        return self._total

    def lines(self, after: int = 0) -> tuple[str, ...]:
        """Return the last lines, oldest first; with ``after`` those that came after so many."""
        self.read()
        lines = tuple(self._lines)
        return lines[max(0, len(lines) - (self._total - after)) :]

    def read(self) -> None:
        """Read what the pipe holds, without blocking and at most a full pipe at once."""
        with suppress(BlockingIOError):
            for _ in range(_READS_AT_ONCE):
                if self._descriptor < 0:
                    return
                received = os.read(self._descriptor, _READ_BYTES)
                if not received:
                    self.close()
                self._split(received)

    def close(self) -> None:
        """Stop reading; the lines stay available."""
        if self._descriptor >= 0:
            if self._unfinished:
                self._split(b"\n")  # the last line of a killed process has no newline
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _split(self, received: bytes) -> None:
        *complete, self._unfinished = (self._unfinished + received).split(b"\n")
        if len(self._unfinished) > _LINE_BYTES:
            complete.append(self._unfinished)
            self._unfinished = b""
        for line in complete:
            self._lines.append(line[:_LINE_BYTES].decode("utf-8", "replace").rstrip())
            self._total += 1


OnFrames = Callable[[list[tuple[int, bytes]]], None]

# -I -S: no working directory, no PYTHON* variables, no site-packages: nothing can shadow a module or slow the start.
_BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from rkllm_mcp.runtime.{} import main; main(int(sys.argv[2]))"
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]

_BUFFER_BYTES = 65_536
# Room for some hundred tokens while the host is busy; then the worker queues them.
_SOCKET_BYTES = 1_048_576
# After SIGKILL only the kernel can delay the exit: a driver that does not release the process.
_KILL_TIMEOUT_S = 5.0


@dataclass(eq=False)
class _Link(asyncio.BufferedProtocol):
    """The host's end of the socket: bytes to frames."""

    _on_frames: OnFrames
    _buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(_BUFFER_BYTES)))
    _reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    is_lost: asyncio.Event = field(default_factory=asyncio.Event)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  asyncio's name and signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._on_frames(self._reader.feed(bytes(self._buffer[:nbytes])))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's name and signature
        self.is_lost.set()


@dataclass(eq=False)
class _Exit(asyncio.SubprocessProtocol):
    """End of the process."""

    has_exited: asyncio.Event = field(default_factory=asyncio.Event)

    def process_exited(self) -> None:
        self.has_exited.set()


@dataclass(eq=False)
class WorkerProcess:
    """A running worker: its process, its last log lines, and frames to it."""

    pid: int
    log: LogLines
    _link: _Link
    _transport: asyncio.Transport
    _process: asyncio.SubprocessTransport
    _ending: _Exit

    @property
    def is_gone(self) -> bool:
        """True once the process is known to have ended, or to read no more frames."""
        return self._ending.has_exited.is_set() or self._transport.is_closing()

    def send(self, frame: bytes) -> None:
        """Send a frame; does nothing if the worker is gone."""
        if not self._transport.is_closing():
            self._transport.write(frame)

    def memory_bytes(self) -> int:
        """Return the memory that the process has written to (RssAnon); 0 if it is gone or the kernel does not say."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text("ascii", "replace").splitlines():
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        return 0

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):  # it has already exited
            self._process.kill()
        asyncio.get_running_loop().call_later(_KILL_TIMEOUT_S, self._assume_gone)

    def _assume_gone(self) -> None:
        """Stop waiting for a killed process that the kernel does not release."""
        self._transport.abort()
        self._ending.has_exited.set()

    async def gone(self) -> int:
        """Wait until the worker has ended and all its output was read; return its exit code, negative for a signal."""
        await self._ending.has_exited.wait()
        # The kernel closes the socket before it reports the exit, so only buffered bytes remain.
        await self._link.is_lost.wait()
        code = self._process.get_returncode()
        return -signal.SIGKILL if code is None else code


@asynccontextmanager
async def open_worker(
    on_frames: OnFrames, *, environment: Mapping[str, str], stop_timeout_s: float, module: str = "worker"
) -> AsyncGenerator[WorkerProcess, None]:
    """Start a worker, and stop it at the end.

    ``on_frames`` gets the received frames in order, as (kind, body), in the socket's callback; ``stop_timeout_s``
    limits the shutdown before SIGKILL, seconds; ``module`` of this package has the worker's ``main``.

    Raises:
        RuntimeUnusableError: the process cannot be started.
    """
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    link = _Link(on_frames)
    with ExitStack() as stack:
        stack.callback(ours.close)
        stack.callback(theirs.close)
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
        stack.callback(transport.abort)
        read_end, write_end = os.pipe()
        log = LogLines(read_end)
        stack.callback(log.close)
        program = _BOOTSTRAP.format(module)
        try:
            process, ending = await asyncio.get_running_loop().subprocess_exec(
                _Exit,
                *(sys.executable, "-I", "-S", "-c", program, str(_PACKAGE_PARENT), str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **environment},
            )
        except OSError as error:
            problem = f"The runtime's process cannot be started: {error}."
            raise RuntimeUnusableError(problem, "Free some memory.") from None
        finally:
            os.close(write_end)
            # Only the worker may hold its end: the end of the worker has to be the end of the socket.
            theirs.close()
        stack.callback(process.close)
        worker = WorkerProcess(process.get_pid(), log, link, transport, process, ending)
        try:
            yield worker
        finally:
            worker.send(frames.frame(frames.SHUTDOWN))
            with anyio.move_on_after(stop_timeout_s, shield=True) as limit:
                await worker.gone()
            if limit.cancelled_caught:
                worker.kill()
                with anyio.move_on_after(_KILL_TIMEOUT_S, shield=True):
                    await worker.gone()
