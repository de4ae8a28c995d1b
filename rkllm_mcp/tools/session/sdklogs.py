"""Redact secrets in the logs of the SDK and of its HTTP library, and keep these logs off the terminal.

Both log whole messages at debug level, and tracebacks with parts of responses above it. The loggers are global, so
every change is undone when the block ends.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rkllm_mcp.tools.tokens import redacted

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
    hiding = _Hiding(secrets)
    watched = _loggers() if secrets else []
    for logger in watched:
        logger.addFilter(hiding)
    try:
        yield
    finally:
        for logger, handler in quiet:
            logger.removeHandler(handler)
        for logger in watched:
            logger.removeFilter(hiding)


class _Hiding(logging.Filter):
    """Passes every record on, redacted."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage(), self._secrets), ()
        if record.exc_info and record.exc_info[0] is not None:
            # pydantic quotes excerpts of a message, which may contain parts of a secret that redaction cannot find.
            record.exc_text = f"{record.exc_info[0].__name__} (not shown: a token may be in it)"
            record.exc_info = None
        return True


def _loggers() -> list[logging.Logger]:
    """Return all loggers of these libraries: a filter acts only on the logger it is added to, not on its children."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".", 1)[0] in _FAMILIES]
    return [logging.getLogger(name) for name in names]
