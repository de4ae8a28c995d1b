"""Logs of a server: its messages, the last lines of its output, and the SDK's own log without secrets.

The SDK and its HTTP library log whole messages at debug level, and tracebacks with parts of responses above it. Their
loggers are global, so every change is undone when the block ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from rkllm_mcp.config.header_templates import redact
from rkllm_mcp.config.secrets import redact_config as without_secrets
from rkllm_mcp.config.secrets import redacted_text

MAX_BYTES = 16 * 1024 * 1024

Direction: TypeAlias = Literal["sent", "received"]
# Writes one message; takes its direction and its JSON.
Write: TypeAlias = Callable[[Direction, "dict[str, Any]"], None]


class WireLog:
    """A log of messages; ``close`` it at the end. An OSError if the file cannot be written."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self._open()

    def write(self, server: str, clean: Callable[[str], str], direction: Direction, message: dict[str, Any]) -> None:
        """Log a message of a server; ``clean`` redacts the secrets of the connection."""
        public = without_secrets(message)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": now, "server": server, "direction": direction, "message": public}
        # A log that cannot be written must not fail a call.
        with contextlib.suppress(OSError, ValueError):
            if self._file.tell() > self._max_bytes:
                self._file.close()
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self._file = self._open()
            self._file.write((clean(json.dumps(line, ensure_ascii=False)) + "\n").encode("utf-8", "replace"))
            self._file.flush()

    def close(self) -> None:
        """Close the file; later messages are dropped."""
        self._file.close()

    def _open(self) -> IO[bytes]:
        return os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


_FAMILIES = ("mcp", "client", "httpx2", "httpcore2")


@contextmanager
def sdk_logs(secrets: Sequence[str]) -> Generator[None]:
    """Redact ``secrets`` in the SDK's logs and suppress Python's default output to stderr, inside this block.

    Enter it after the SDK was imported: its loggers exist from then on.
    """
    # Without a handler Python writes warnings and errors to stderr, where they interrupt an answer.
    quiet = [(logging.getLogger(name), logging.NullHandler()) for name in ("mcp", "client")]
    for logger, handler in quiet:
        logger.addHandler(handler)
    hiding = partial(_redact_record, tuple(secrets))
    # All loggers of these libraries: a filter acts only on the logger it is added to, not on its children.
    names = [name for name in logging.root.manager.loggerDict if name.split(".", 1)[0] in _FAMILIES]
    watched = [logging.getLogger(name) for name in names if secrets]
    for logger in watched:
        logger.addFilter(hiding)
    try:
        yield
    finally:
        for logger, handler in quiet:
            logger.removeHandler(handler)
        for logger in watched:
            logger.removeFilter(hiding)


def _redact_record(secrets: Sequence[str], record: logging.LogRecord) -> bool:
    """Pass a record of a log on, redacted."""
    record.msg, record.args = redact(record.getMessage(), secrets), ()
    if record.exc_info and record.exc_info[0] is not None:
        # pydantic quotes excerpts of a message, which may contain parts of a secret that redaction cannot find.
        record.exc_text = f"{record.exc_info[0].__name__} (not shown: a token may be in it)"
        record.exc_info = None
    return True


# Colours, cursor movements and other control sequences, which would act on the terminal that shows the line.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LastLines:
    """Stores the last ``limit`` lines of a text, decoded, without control characters, cut to ``width`` characters."""

    def __init__(self, limit: int = 40, width: int = 400) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._limit = limit
        self._width = width
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the text, split at any point."""
        *lines, tail = (self._tail + chunk).split(b"\n")
        for line in lines[-self._limit :]:
            self.add(line)
        # A character has at most four bytes; bytes beyond the width are dropped at once.
        self._tail = tail[: self._width * 4]

    def add(self, line: str | bytes) -> None:
        """Add a line, such as one that is not part of the byte stream."""
        encoded = line.encode("utf-8", "replace") if isinstance(line, str) else line
        text = _CONTROL.sub("", encoded[: self._width * 4].decode("utf-8", "replace")).rstrip()
        if text:
            self._lines.append(text)

    def finish(self) -> None:
        """Add the last line if it has no newline."""
        self.add(self._tail)
        self._tail = b""

    def forget(self) -> None:
        """Drop all lines, which belong to an earlier connection attempt."""
        self._lines.clear()
        self._tail = b""

    def shown(self) -> tuple[str, ...]:
        """Return the lines, oldest first, without secrets."""
        # Programs such as mcp-remote print the address that they connect to. It is redacted here, not as it arrives: a
        # server may write without end, and most of its lines are never shown.
        return tuple(redacted_text(line)[: self._width] for line in self._lines)
