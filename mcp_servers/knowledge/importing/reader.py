"""Reader: path, bytes or URL -> ParsedDocument. Loads bytes here and parses them in the parser process."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from mcp_servers.knowledge.errors import TooLargeError, UnreadableFileError
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.fetch import FetchLimits, fetch
from mcp_servers.knowledge.importing.parser_process import ParserProcess, open_parser


class Reader:
    """Reads documents; created by ``open_reader``."""

    def __init__(self, parser: ParserProcess, limits: ParseLimits, fetching: FetchLimits) -> None:
        self._parser = parser
        self._limits = limits
        self._fetching = fetching

    async def read_document(self, source: Path | str | Blob) -> ParsedDocument:
        """Read a path, a URL or bytes; raise DocumentImportError, or MissingExtraError for a missing library."""
        if isinstance(source, Blob):
            return await self._parser.parse(source)
        if isinstance(source, str) and "://" in source:
            blob = await fetch(source, self._fetching, self._limits.document_bytes)
            return await self._parser.parse(blob)
        return await self._parser.parse(await self.load(Path(source)))

    async def load(self, path: Path) -> Blob:
        """Return a file's bytes; raise UnreadableFileError or TooLargeError."""
        return await anyio.to_thread.run_sync(_load_file, path, self._limits.document_bytes)


@asynccontextmanager
async def open_reader(
    limits: ParseLimits | None = None, fetching: FetchLimits | None = None
) -> AsyncGenerator[Reader, None]:
    """Yield a reader; its process starts with the first document."""
    limits = limits or ParseLimits()
    async with open_parser(limits) as parser:
        yield Reader(parser, limits, fetching or FetchLimits())


def _load_file(path: Path, max_bytes: int) -> Blob:
    try:
        # Not resolve(): the name of a link is kept.
        path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError, RuntimeError) as error:
        raise UnreadableFileError(_printable(path), _os_reason(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFileError(_printable(path), "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(max_bytes + 1)
        except OSError as error:
            raise UnreadableFileError(_printable(path), _os_reason(error)) from error
    if len(content) > max_bytes:
        raise TooLargeError(_printable(path.name), f"it has more than {max_bytes // 1_000_000:,} MB")
    return Blob(content, _printable(path.name), uri=path.as_uri())


def _os_reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _printable(path: Path | str) -> str:
    """Return a file name as valid text."""
    return os.fsencode(path).decode("utf-8", "replace")
