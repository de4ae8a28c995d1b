"""Documents -> passages in a process of its own, so that a bad one costs itself and nothing else.

One child serves one parser, one document after the other; it is started when the first comes, and again when it has
ended. It gets no environment to speak of, no files and no answer but passages to give.
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

from mcp_servers.knowledge.importing import parser_worker
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.errors import TooSlowError

# With -I no module of the working directory can take the place of ours; the path is handed over instead.
_BOOTSTRAP = "import sys; sys.path[:] = sys.argv[1:-1]; from mcp_servers.knowledge.importing.parser_worker import main; sys.exit(main())"
_ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
# The child's own timer ends a document; this much later the child itself is taken for stuck.
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
    """A process that parses; ``open_parser`` makes one.

    Args:
        limits: how much one document may cost.

    Attributes:
        process: the process; None before the first document and after one that took it down.
    """

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._lock = anyio.Lock()
        self.process: anyio.abc.Process | None = None

    async def parse(self, blob: Blob) -> ParsedDocument:
        """Read a document.

        Raises:
            ImportProblem: it cannot be read, or took the parser down.
            MissingExtraError: the library for its format is not installed.
        """
        request = parser_worker.pack_request(blob, self._limits)
        async with self._lock:
            answer, exit_code = await self._ask(request)
            if answer is None and exit_code == 0:
                # It had ended for having nothing to do, just when the document came.
                answer, exit_code = await self._ask(request)
        if answer is None:
            raise TooSlowError(blob.name, _reason(exit_code, self._limits))
        return await anyio.to_thread.run_sync(parser_worker.unpack_answer, answer)

    async def aclose(self) -> None:
        """End the child, whatever it does."""
        child, self.process = self.process, None
        if child is None:
            return
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_END_S):
                if child.stdin:
                    await child.stdin.aclose()
                await child.wait()
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
            await child.aclose()

    async def _ask(self, request: bytes) -> tuple[bytes | None, int]:
        """The child's answer, or None and how the child ended."""
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
                await self._kill(child)

    async def _kill(self, child: anyio.abc.Process) -> None:
        """A child that owes an answer is of no more use, not even to be asked to end."""
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
        await self.aclose()

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
    """A parser for as long as the block lasts; its process ends with it."""
    parser = ParserProcess(limits or ParseLimits())
    try:
        yield parser
    finally:
        await parser.aclose()


def _absolute_path() -> list[str]:
    """Where this process finds its modules, for a process that works in another directory."""
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
