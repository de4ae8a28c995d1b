"""Parser processes, parent side: start the children, send documents, enforce limits.

    document --small--> ParserProcess --> child        at most one document of an owner in each queue
             --large--> ParserProcess --> child

One child per ParserProcess handles one document at a time; it is started on demand and restarted after a crash. It gets
a minimal environment and can only return passages. A small document never waits for a large one. Memory is a share of
what the machine has left when a child starts, time grows with the size of the document.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_servers.knowledge.errors import TooSlowError
from mcp_servers.knowledge.importing import parser_worker
from mcp_servers.knowledge.importing.documents import MEGABYTE, Blob, ParsedDocument, ParseLimits
from rkllm_base.memory import available_bytes

# -I keeps modules of the working directory from replacing ours; the path is passed explicitly.
_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[1:-1];"
    " from mcp_servers.knowledge.importing.parser_worker import main; sys.exit(main())"
)
_ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
# Time after the child's own timer before it is considered stuck.
_GRACE_S = 10.0
_END_S = 2.0
_MAX_ANSWER = 500_000_000
_SMALL_BYTES = MEGABYTE
# A manual of 130 pages made by TeX (0.5 MB) takes 6 s on a desktop, a megabyte of Word 5 s; a board needs three times
# as long, and longer next to other programs.
_BASE_S, _S_PER_MEGABYTE = 20.0, 20.0
# An empty child has 100 MB of address space, an OCR program below it 300 MB.
MIN_MEMORY, _MAX_MEMORY = 512 * MEGABYTE, 2_000 * MEGABYTE
_MEMORY_SHARE = 1 / 3
_PICTURES = (b"%PDF-", b"\x89PNG", b"\xff\xd8\xff")
_HEAD_BYTES = 1024
_CONNECTION_ERRORS = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    OSError,
)


@dataclass(eq=False)
class ParserProcess:
    """Parses documents in a child, ``process``, which is None before the first one and after a crash."""

    limits: ParseLimits
    process: anyio.abc.Process | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def parse(self, blob: Blob) -> ParsedDocument:
        """Parse a document; raise DocumentImportError, or MissingExtraError for a missing library."""
        limits = replace(self.limits, seconds=seconds_for(blob, self.limits))
        request = parser_worker.pack_request(blob, limits)
        async with self.lock:
            answer, exit_code = await self._exchange(request, limits.seconds)
            if answer is None and exit_code == 0:
                # The child had exited when idle or full, just before the document was sent.
                answer, exit_code = await self._exchange(request, limits.seconds)
        if answer is None:
            if exit_code == -signal.SIGALRM:
                reason = f"it took longer than {limits.seconds:.3g} s"
            elif exit_code == parser_worker.EXIT_MEMORY:
                reason = parser_worker.NO_MEMORY
            elif exit_code < 0:
                reason = f"the library for its format crashed on it ({signal.strsignal(-exit_code)})"
            else:
                reason = f"the process that reads documents ended with {exit_code}"
            raise TooSlowError(blob.name, reason)
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

    async def _exchange(self, request: bytes, seconds: float) -> tuple[bytes | None, int]:
        """Return the child's answer, or None and its exit code."""
        if self.process and self.process.returncode is not None:
            await self.aclose()
        if self.process is None:
            memory = self.limits.memory_bytes or await anyio.to_thread.run_sync(memory_share)
            self.process = await anyio.open_process(
                [sys.executable, "-I", "-c", _BOOTSTRAP, *_absolute_path(), str(memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        child = self.process
        is_answered = False
        try:
            with anyio.fail_after(seconds + _GRACE_S):
                if child.stdin is None or child.stdout is None:
                    raise anyio.ClosedResourceError
                await child.stdin.send(request)
                received = BufferedByteReceiveStream(child.stdout)
                length, _ = parser_worker.HEAD.unpack(await received.receive_exactly(parser_worker.HEAD.size))
                answer = await received.receive_exactly(min(length, _MAX_ANSWER))
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


@asynccontextmanager
async def open_parser(limits: ParseLimits | None = None) -> AsyncGenerator[ParserProcess, None]:
    """Yield a parser whose process ends with the block."""
    parser = ParserProcess(limits or ParseLimits())
    try:
        yield parser
    finally:
        await parser.aclose()


@dataclass(eq=False)
class Parsers:
    """A parser for small documents and one for the others, each with one document of an owner in its queue."""

    small: ParserProcess
    large: ParserProcess
    # By size, True for the large ones, and owner.
    turns: dict[tuple[bool, str], anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))

    async def parse(self, blob: Blob, owner: str) -> ParsedDocument:
        """Parse a document of an owner; raises as ``ParserProcess.parse``."""
        is_large = len(blob.content) > _SMALL_BYTES or _needs_recognition(blob)
        turn = self.turns[is_large, owner]
        try:
            async with turn:
                return await (self.large if is_large else self.small).parse(blob)
        finally:
            if not turn.locked():
                self.turns.pop((is_large, owner), None)


def seconds_for(blob: Blob, limits: ParseLimits) -> float:
    """Return the time for a document: by its size, or all for pictures that Tesseract reads."""
    if _needs_recognition(blob):
        return limits.seconds
    return min(limits.seconds, _BASE_S + _S_PER_MEGABYTE * len(blob.content) / MEGABYTE)


def _needs_recognition(blob: Blob) -> bool:
    """True if Tesseract is installed and may have to read the document."""
    head = blob.content[:_HEAD_BYTES]
    return any(magic in head for magic in _PICTURES) and shutil.which("tesseract") is not None


def memory_share(root: Path = Path("/")) -> int:
    """Return the address space of a parser, bytes: a third of what is available to this process, within bounds."""
    available = available_bytes(root)
    share = (_MAX_MEMORY if available is None else available) * _MEMORY_SHARE
    return int(max(MIN_MEMORY, min(_MAX_MEMORY, share)))


def _absolute_path() -> list[str]:
    """Return ``sys.path`` with absolute entries, for a process with another working directory."""
    return [str(Path(entry).absolute()) for entry in sys.path]
