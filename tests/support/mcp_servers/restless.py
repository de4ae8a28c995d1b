"""A server whose resources change as soon as somebody watches them; started as a module."""

from __future__ import annotations

from typing import Any

from tests.support.mcp_servers.asking import RESOURCES, AskingServer
from tests.support.mcp_servers.tiny import LEGACY, MODERN


class Restless(AskingServer):
    """See the module."""

    def handle(self, message: dict[str, Any]) -> None:
        """Answer one message, then tell of changes to whoever has just asked for them."""
        super().handle(message)
        if message.get("method") in ("subscriptions/listen", "resources/subscribe"):
            for uri in RESOURCES:
                self.updated(uri)


if __name__ == "__main__":
    Restless((MODERN, LEGACY)).run()
