"""Parse one frame (a line or a WebSocket message) to a JSON-RPC message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

# Far more than a model can read; without a limit one message could use all memory.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024


def message_in(frame: bytes | str) -> SessionMessage | None:
    """Return the message in a frame; None if the frame is not a valid message."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(frame, by_name=False))
    except ValueError:
        repaired = _without_lone_surrogates(frame)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(repaired, by_name=False))
    except ValueError:
        return None


def _without_lone_surrogates(frame: bytes | str) -> bytes | str:
    """Replace lone surrogates, which programs send that truncate UTF-16 text inside an emoji."""
    try:
        return json.dumps(json.loads(frame), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return frame
