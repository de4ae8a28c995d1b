"""Wire log: every message to and from servers, one JSON object per line, redacted.

The file has mode 0600; at ``max_bytes`` it is renamed to ``NAME.1``, replacing the previous one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from rkllm_mcp.config.redaction import redacted as without_secrets

MAX_BYTES = 16 * 1024 * 1024

Direction: TypeAlias = Literal["sent", "received"]
# Writes one message; takes its direction and its JSON.
Write: TypeAlias = Callable[[Direction, "dict[str, Any]"], None]


class WireLog:
    """A log of messages; ``close`` it at the end.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self._opened()

    def of(self, server: str, clean: Callable[[str], str]) -> Write:
        """Return the function that logs messages of one server; ``clean`` redacts the secrets of the connection."""

        def write(direction: Direction, message: dict[str, Any]) -> None:
            shown = without_secrets(message)
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            line = {"time": now, "server": server, "direction": direction, "message": shown}
            # A log that cannot be written must not fail a call.
            with contextlib.suppress(OSError, ValueError):
                self._write(clean(json.dumps(line, ensure_ascii=False)) + "\n")

        return write

    def close(self) -> None:
        """Close the file; later messages are dropped."""
        self._file.close()

    def _write(self, line: str) -> None:
        if self._file.tell() > self._max_bytes:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._opened()
        self._file.write(line.encode("utf-8", "replace"))
        self._file.flush()

    def _opened(self) -> IO[bytes]:
        return os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
