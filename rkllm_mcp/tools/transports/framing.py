"""One frame, a line or a WebSocket message, to a message of the protocol; shared by the transports that frame."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

# A result of this size is far more than any model reads; without a limit one message could take all memory.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024


def message_in(frame: bytes | str) -> SessionMessage | None:
    """The message in a frame; None when there is none."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(frame, by_name=False))
    except ValueError:
        mended = _with_whole_characters(frame)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(mended, by_name=False))
    except ValueError:
        return None


def _with_whole_characters(frame: bytes | str) -> bytes | str:
    """The frame with halves of characters replaced; programs that cut UTF-16 text inside an emoji send them."""
    try:
        return json.dumps(json.loads(frame), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return frame
