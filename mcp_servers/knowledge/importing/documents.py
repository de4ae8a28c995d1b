"""The values of an import: what goes in, what comes out, and the limits in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mcp_servers.knowledge.values import Passage

# done, total, what is being done; awaited, so that it may tell somebody over a connection.
Progress = Callable[[int, int, str], Awaitable[None]]

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Blob:
    """A document as it came.

    Args:
        content: all its bytes.
        name: a file name or the last part of an address; its ending tells the format where the bytes do not.
        media_type: what its sender calls it, e.g. ``text/html``; empty when nobody said.
        charset: the encoding its sender claims; empty when nobody said.
        uri: where it came from; empty for bytes from nowhere.
    """

    content: bytes
    name: str
    media_type: str = ""
    charset: str = ""
    uri: str = ""


@dataclass(frozen=True)
class ReadDocument:
    """A document, read.

    Args:
        title: its own, or its name without the ending.
        passages: in reading order; never empty.
        content_hash: SHA-256 of its bytes, hexadecimal.
        media_type: what it turned out to be.
        warnings: sentences about what may have been lost.
        uri: where it came from; empty for bytes from nowhere.
    """

    title: str
    passages: tuple[Passage, ...]
    content_hash: str
    media_type: str
    warnings: tuple[str, ...] = ()
    uri: str = ""


@dataclass(frozen=True)
class ReadingLimits:
    """How much one document may cost.

    Args:
        document_bytes: of the file, or of what an address sends.
        unpacked_bytes: of a docx when unpacked; a zip bomb has more.
        characters: of text; what comes after is left out, with a warning.
        pages: of a PDF; what comes after is left out, with a warning.
        seconds: for one parse, then it is ended.
        memory_bytes: address space of the process that parses.
    """

    document_bytes: int = 50 * MEGABYTE
    unpacked_bytes: int = 200 * MEGABYTE
    characters: int = 20_000_000
    pages: int = 5_000
    seconds: float = 120.0
    memory_bytes: int = 2_000 * MEGABYTE
