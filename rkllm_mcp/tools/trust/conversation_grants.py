"""Approvals that are valid for one conversation, until this process ends."""

from __future__ import annotations

# A service runs for months and does not notice the end of a conversation; a dropped approval is asked again.
_MAX_GRANTS = 4096


class ConversationGrants:
    """Approvals per conversation; the oldest are dropped first."""

    def __init__(self) -> None:
        # Conversation, server, wire name of the tool, fingerprint.
        self._allowed: dict[tuple[str, str, str, str], None] = {}

    def allows(self, conversation: str, server: str, tool: str, fingerprint: str) -> bool:
        """Return True if this tool with this fingerprint is approved in the conversation."""
        return (conversation, server, tool, fingerprint) in self._allowed

    def keep(self, conversation: str, server: str, tool: str, fingerprint: str) -> None:
        """Store an approval; without a conversation id nothing is stored."""
        if not conversation:
            return
        self._allowed[conversation, server, tool, fingerprint] = None
        while len(self._allowed) > _MAX_GRANTS:
            del self._allowed[next(iter(self._allowed))]

    def of(self, conversation: str) -> list[tuple[str, str]]:
        """Return server and tool of every approval of a conversation."""
        return sorted({(server, tool) for owner, server, tool, _ in self._allowed if owner == conversation})

    def forget(self, conversation: str, server: str, tool: str) -> None:
        """Revoke the approvals of a tool in a conversation."""
        revoked = (conversation, server, tool)
        self._allowed = {key: None for key in self._allowed if key[:3] != revoked}
