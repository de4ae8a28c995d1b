"""Parser process, parent side: starts the child, sends documents, enforces limits.

One child per ParserProcess handles one document at a time; it is started on demand and restarted after a crash. It gets
a minimal environment and can only return passages.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_servers.knowledge.errors import TooSlowError
from mcp_servers.knowledge.importing import parser_worker
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits

# -I keeps modules of the working directory from replacing ours; the path is passed explicitly.
_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[1:-1];"
    " from mcp_servers.knowledge.importing.parser_worker import main; sys.exit(main())"
)
_ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
# Time after the child's own timer before it is considered stuck.
_GRACE_S = 10.0
_END_S = 2.0
_MAX_ANSWER = 1_000_000_000
_CONNECTION_ERRORS = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    OSError,
)


class ParserProcess:
    """Parses documents in a child, ``process``, which is None before the first one and after a crash."""

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._lock = anyio.Lock()
        self.process: anyio.abc.Process | None = None

    async def parse(self, blob: Blob) -> ParsedDocument:
        """Parse a document; raise DocumentImportError, or MissingExtraError for a missing library."""
        request = parser_worker.pack_request(blob, self._limits)
        async with self._lock:
            answer, exit_code = await self._ask(request)
            if answer is None and exit_code == 0:
                # The child had exited when idle, just before the document was sent.
                answer, exit_code = await self._ask(request)
        if answer is None:
            raise TooSlowError(blob.name, _reason(exit_code, self._limits))
        return await anyio.to_thread.run_sync(parser_worker.unpack_answer, answer)

    async def aclose(self, *, within_s: float = _END_S) -> None:
        """End the child process, by killing it if it has not ended by itself in time."""
        child, self.process = self.process, None
        if child is None:
            return
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(within_s):
                if child.stdin:
                    await child.stdin.aclose()
                await child.wait()
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
            await child.aclose()

    async def _ask(self, request: bytes) -> tuple[bytes | None, int]:
        """Return the child's answer, or None and its exit code."""
        if self.process and self.process.returncode is not None:
            await self.aclose()
        child = self.process = self.process or await self._start()
        is_answered = False
        try:
            with anyio.fail_after(self._limits.seconds + _GRACE_S):
                answer = await _round_trip(child, request)
            is_answered = True
            return answer, 0
        except TimeoutError:
            return None, -signal.SIGALRM
        except _CONNECTION_ERRORS:
            with anyio.move_on_after(_END_S):
                await child.wait()
            return None, -signal.SIGKILL if child.returncode is None else child.returncode
        finally:
            if not is_answered:
                # It would not end by itself.
                await self.aclose(within_s=0)

    async def _start(self) -> anyio.abc.Process:
        command = [sys.executable, "-I", "-c", _BOOTSTRAP, *_absolute_path(), str(self._limits.memory_bytes)]
        return await anyio.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )


@asynccontextmanager
async def open_parser(limits: ParseLimits | None = None) -> AsyncGenerator[ParserProcess, None]:
    """Yield a parser whose process ends with the block."""
    parser = ParserProcess(limits or ParseLimits())
    try:
        yield parser
    finally:
        await parser.aclose()


def _absolute_path() -> list[str]:
    """Return ``sys.path`` with absolute entries, for a process with another working directory."""
    return [str(Path(entry).absolute()) for entry in sys.path]


async def _round_trip(child: anyio.abc.Process, request: bytes) -> bytes:
    if child.stdin is None or child.stdout is None:
        raise anyio.ClosedResourceError
    await child.stdin.send(request)
    received = BufferedByteReceiveStream(child.stdout)
    length, _ = parser_worker.HEAD.unpack(await received.receive_exactly(parser_worker.HEAD.size))
    return await received.receive_exactly(min(length, _MAX_ANSWER))


def _reason(exit_code: int, limits: ParseLimits) -> str:
    if exit_code == -signal.SIGALRM:
        return f"it took longer than {limits.seconds:g} s"
    if exit_code == parser_worker.EXIT_MEMORY:
        return parser_worker.NO_MEMORY
    if exit_code < 0:
        return f"the library for its format crashed on it ({signal.strsignal(-exit_code)})"
    return f"the process that reads documents ended with {exit_code}"
