"""The process that parses: documents on standard input, passages on standard output, one at a time.

A document may crash it, hang it or eat its memory: a timer of the kernel ends what takes too long, also inside a C
library, and the address space is limited. It ends by itself when its input ends, when nothing came for a while, or
after many documents, so that neither it nor what a library leaks stays.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys

from mcp_servers.knowledge.importing import frames
from mcp_servers.knowledge.importing.parsing import read_blob
from mcp_servers.knowledge.importing.problems import DamagedDocumentError, TooSlowError
from mcp_servers.knowledge.problems import KnowledgeProblem

IDLE_S = 60.0
_MOST_DOCUMENTS = 500


def main() -> int:
    """Serve the process that started this one; its argument is the limit of the address space in bytes."""
    requests, answers = os.dup(0), os.dup(1)
    # What a library prints must not end up among the answers.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    _limit(int(sys.argv[-1]))
    try:
        serve(requests, answers)
    except MemoryError:
        return frames.EXIT_MEMORY
    return 0


def serve(requests: int, answers: int, *, idle_s: float = IDLE_S) -> None:
    """Answer until nothing more comes.

    Args:
        requests: a file descriptor to read from.
        answers: a file descriptor to write to.
        idle_s: how long to wait for the next document.
    """
    for _ in range(_MOST_DOCUMENTS):
        if not select.select([requests], [], [], idle_s)[0]:
            return
        head = _read(requests, frames.HEAD.size)
        if not head:
            return
        about_bytes, content_bytes = frames.HEAD.unpack(head)
        about = _read(requests, about_bytes)
        _write(answers, _answer(about, _read(requests, content_bytes)))


def _answer(about: bytes, content: bytes) -> bytes:
    blob, limits = frames.unpack_request(about, content)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    try:
        return frames.pack_document(read_blob(blob, limits))
    except KnowledgeProblem as problem:
        return frames.pack_problem(problem)
    except MemoryError:
        return frames.pack_problem(TooSlowError(blob.name, frames.NO_MEMORY))
    except Exception as error:  # noqa: BLE001  # whatever a parser does with bytes made to confuse it
        return frames.pack_problem(DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # A crash is expected now and then; its image on the disk helps nobody.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(descriptor: int, size: int) -> bytes:
    """Exactly so many bytes; fewer only when the other side is gone."""
    received = bytearray()
    while len(received) < size:
        piece = os.read(descriptor, min(size - len(received), 1 << 20))
        if not piece:
            return b""
        received += piece
    return bytes(received)


def _write(descriptor: int, answer: bytes) -> None:
    waiting = memoryview(answer)
    while waiting:
        waiting = waiting[os.write(descriptor, waiting) :]
