"""The log of the service: a line for each request and for what went wrong, as text or as JSON.

Every line names the request that it belongs to. Headers, queries and bodies are in none of them, and of other
libraries only warnings are: what they tell at a lower level holds addresses and keys.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Literal, TextIO

from rkllm_mcp.surfaces.http.request_id import NamesRequest

LogFormat = Literal["off", "text", "json"]
_OURS = "rkllm_mcp"
_TEXT = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, request_id and message, and error with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, tz=timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "message": record.getMessage(),
        }
        extra = getattr(record, "fields", None)
        if isinstance(extra, dict):
            line.update(extra)  # pyright: ignore[reportUnknownArgumentType]  # our own records' fields are JSON values
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _is_ours_or_a_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == _OURS


def log_to(stream: TextIO, form: LogFormat) -> logging.Handler:
    """Write the log of this process to ``stream``, when it is off only what breaks. The caller removes the handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    handler.addFilter(NamesRequest())
    handler.addFilter(_is_ours_or_a_warning)
    root = logging.getLogger()
    root.addHandler(handler)
    if form == "off":
        # The client is told no more of it than the name of the request.
        handler.setLevel(logging.ERROR)
    elif root.level > logging.INFO or root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    return handler
