"""Every request has an id: the client's own where it is a sane one, else one of ours. Log and answer name it."""

from __future__ import annotations

import logging
import re
import uuid
from contextvars import ContextVar

HEADER = "X-Request-Id"

# Long enough for a UUID or a trace id, and nothing that could forge a line of a log.
_SANE = re.compile(r"[A-Za-z0-9._\-]{1,64}", re.ASCII)
_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return _REQUEST_ID.get()


def begin_request(offered: str) -> str:
    """Give the current task a request id: ``offered`` where it is sane."""
    request_id = offered if _SANE.fullmatch(offered) else uuid.uuid4().hex
    _REQUEST_ID.set(request_id)
    return request_id


class NamesRequest(logging.Filter):
    """Adds ``request_id`` to log records, for a handler's format."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add it; every record passes."""
        record.request_id = current_request_id() or "-"
        return True
