"""What the SDK and its HTTP library log while a server is connected: never a secret, and nothing into the terminal.

Both write whole messages at the debug level and tracebacks with pieces of responses above it. Their loggers are shared
by everything in the process, so what is changed about them is undone when the block is left.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rkllm_mcp.tools.tokens import redacted

_FAMILIES = ("mcp", "client", "httpx2", "httpcore2")


@contextmanager
def sdk_logs(secrets: Sequence[str]) -> Generator[None]:
    """Keep ``secrets`` out of the logs, and the logs out of a terminal that has not asked for any, inside this block.

    Enter it when the SDK is imported: its loggers exist from then on.
    """
    # Without a handler Python writes warnings and errors to stderr, in the middle of an answer.
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
    """Lets every record through, without secrets."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage(), self._secrets), ()
        if record.exc_info and record.exc_info[0] is not None:
            # What pydantic says of a message quotes the middle out of it, and so ends of secrets that nobody finds.
            record.exc_text = f"{record.exc_info[0].__name__} (not shown: a token may be in it)"
            record.exc_info = None
        return True


def _loggers() -> list[logging.Logger]:
    """The loggers of these libraries; a filter acts on the very logger that is written to, not on those below it."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".", 1)[0] in _FAMILIES]
    return [logging.getLogger(name) for name in names]
