"""Parser process, child side: its main program and the frames of the pipe.

    parent -> child    HEAD, JSON {blob, limits}, bytes of the document
    child -> parent    HEAD, JSON of the document or of the error

Documents may crash, hang or exhaust the process: a kernel timer ends parsing also inside C libraries, and the address
space is limited. The child exits when its input ends, when idle, and after many documents, which bounds leaks. Its
answers are untrusted, so they are JSON and are validated. It is the first process that the kernel ends when the machine
runs out of memory.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    DocumentImportError,
    KnowledgeError,
    MissingExtraError,
    PicturesOnlyError,
    TooSlowError,
)
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob

# Length of the JSON, length of the bytes after it.
HEAD = struct.Struct("!QQ")
# Exit code if not even an answer fits into the memory.
EXIT_MEMORY = 71
NO_MEMORY = "it needs more memory than one document may"

_KINDS = (*DocumentImportError.__subclasses__(), PicturesOnlyError, MissingExtraError)
_PROBLEMS = {kind.__name__: kind for kind in _KINDS}


def pack_request(blob: Blob, limits: ParseLimits) -> bytes:
    """Encode a document and its limits."""
    header = {name: value for name, value in vars(blob).items() if name != "content"}
    return _pack({"blob": header, "limits": asdict(limits)}, blob.content)


def pack_problem(problem: KnowledgeError) -> bytes:
    """Encode an error."""
    return _pack({"problem": problem.kind, "fields": vars(problem)})


def unpack_answer(head: bytes) -> ParsedDocument:
    """Decode an answer; raise the error that it contains, or ValueError, LookupError, TypeError if invalid."""
    answer = json.loads(head)
    if "problem" in answer:
        raise _PROBLEMS[answer["problem"]](**{name: str(value) for name, value in answer["fields"].items()})
    # Imported by the parent only: the child starts faster without it.
    from pydantic import TypeAdapter

    return TypeAdapter(ParsedDocument).validate_python(answer)


def _pack(value: dict[str, Any], content: bytes = b"") -> bytes:
    # File names may contain surrogates; json.loads restores them.
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return HEAD.pack(len(text), len(content)) + text + content


IDLE_S = 60.0
_MAX_DOCUMENTS = 500


def main() -> int:
    """Serve the parent process; the last argument limits the address space in bytes."""
    requests, answers = os.dup(0), os.dup(1)
    # Output of libraries must not mix with the answers.
    devnull = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(devnull, standard)
    memory_bytes = int(sys.argv[-1])
    # The kernel ends this process first if the machine has no memory left.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # Crashes are expected; core dumps are not useful.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        serve(requests, answers)
    except MemoryError:
        return EXIT_MEMORY
    return 0


def serve(requests: int, answers: int, *, idle_s: float = IDLE_S) -> None:
    """Answer requests from one file descriptor on another until the input ends or is idle."""
    for _ in range(_MAX_DOCUMENTS):
        if not select.select([requests], [], [], idle_s)[0]:
            return
        head = _read_exactly(requests, HEAD.size)
        if not head:
            return
        about_bytes, content_bytes = HEAD.unpack(head)
        header = _read_exactly(requests, about_bytes)
        unsent = memoryview(_parsed_reply(header, _read_exactly(requests, content_bytes)))
        while unsent:
            unsent = unsent[os.write(answers, unsent) :]
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        if limit != resource.RLIM_INFINITY and pages * resource.getpagesize() > limit / 2:
            # What an allocator holds back would be missing for the next document.
            return


def _parsed_reply(header: bytes, content: bytes) -> bytes:
    request = json.loads(header)
    blob, limits = Blob(content=content, **request["blob"]), ParseLimits(**request["limits"])
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    try:
        document = parse_blob(blob, limits)
        return _pack({**vars(document), "passages": [vars(passage) for passage in document.passages]})
    except KnowledgeError as problem:
        return pack_problem(problem)
    except MemoryError:
        return pack_problem(TooSlowError(blob.name, NO_MEMORY))
    except Exception as error:  # noqa: BLE001  # malicious input may raise anything
        return pack_problem(DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _read_exactly(descriptor: int, size: int) -> bytes:
    """Read exactly ``size`` bytes, or none at the end of the input."""
    received = bytearray()
    while len(received) < size:
        piece = os.read(descriptor, min(size - len(received), 1 << 20))
        if not piece:
            return b""
        received += piece
    return bytes(received)
