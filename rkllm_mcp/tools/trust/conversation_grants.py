"""What was allowed for the rest of one conversation; until this process ends."""

from __future__ import annotations

# A service lives for months and conversations end unnoticed; whoever is forgotten is asked once more.
_KEPT = 4096


class ConversationGrants:
    """The yeses that hold for one conversation, the oldest forgotten first."""

    def __init__(self) -> None:
        # Conversation, server, the server's name of the tool, and the fingerprint of what was allowed.
        self._allowed: dict[tuple[str, str, str, str], None] = {}

    def allows(self, conversation: str, server: str, tool: str, fingerprint: str) -> bool:
        """Whether a yes was given for exactly this."""
        return (conversation, server, tool, fingerprint) in self._allowed

    def keep(self, conversation: str, server: str, tool: str, fingerprint: str) -> None:
        """Keep a yes; a call that belongs to no conversation has none to keep it for."""
        if not conversation:
            return
        self._allowed[conversation, server, tool, fingerprint] = None
        while len(self._allowed) > _KEPT:
            del self._allowed[next(iter(self._allowed))]

    def of(self, conversation: str) -> list[tuple[str, str]]:
        """Server and tool of everything that a conversation allows."""
        return sorted({(server, tool) for whose, server, tool, _ in self._allowed if whose == conversation})

    def forget(self, conversation: str, server: str, tool: str) -> None:
        """Take back what a conversation allows of a tool."""
        taken_back = (conversation, server, tool)
        self._allowed = {key: None for key in self._allowed if key[:3] != taken_back}
