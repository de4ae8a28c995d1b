"""What a server may ask or tell the host: in this version it may log, and say that its tools have changed.

Registering a callback declares the capability, so none is registered for sampling, elicitation and roots: a server that
needs one of them is told so by the SDK. A callback never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.client.session import IncomingMessage, LoggingFnT, MessageHandlerFnT
    from mcp_types import LoggingMessageNotificationParams


def logging_to(note: Callable[[str], None]) -> LoggingFnT:
    """A logging callback that writes one line per message."""

    async def log(params: LoggingMessageNotificationParams) -> None:
        logger = f" {params.logger}:" if params.logger else ""
        note(f"{params.level}:{logger} {params.data}".replace("\n", " "))

    return log


def tool_changes_to(changed: Callable[[], None]) -> MessageHandlerFnT:
    """A message handler that reports each change of the list of tools, of both eras."""

    async def handle(message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            changed()

    return handle
