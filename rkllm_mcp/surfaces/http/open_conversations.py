"""Open conversations: found by id in memory, or restored from the store.

A conversation in memory has the generated token ids, so its next question prefills only new text; a restored one is
read from its messages. The key is tenant and id, so tenants cannot see each other's. If too many are open, the tenant
with the most loses the one used longest ago that is not being answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rkllm_mcp.completions.conversation_cache import evict_fairly
from rkllm_mcp.messages import Message

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import Assistant
    from rkllm_mcp.messages import Conversation

# The model keeps the token ids of each (providers.rkllm); one more conversation costs some kilobytes.
KEPT = 64


class OpenConversations:
    """The open conversations of a service, with a limit on their number."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._open: OrderedDict[tuple[str, str], tuple[Assistant, Conversation]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    async def find(self, app: Assistant, conversation_id: str) -> Conversation | None:
        """Return an open or stored conversation; None if this tenant has none with this id."""
        # One id asked for by two requests at once must come to one conversation, so it is looked for again.
        if (found := self.opened(app, conversation_id)) is not None:
            return found
        kept = await app.store.conversations.get(app.tenant, conversation_id)
        if kept is None:
            return None
        return self.opened(app, conversation_id) or self.put(app, app.resume(kept))

    def begin(self, app: Assistant, system: str | None, told: Iterable[tuple[str, str]] = ()) -> Conversation:
        """Create a conversation, not open before ``put``, so that a refused request evicts none."""
        conversation = app.new_conversation(system)
        for role, text in told:
            conversation.add(Message("assistant" if role == "assistant" else "user", text))
        return conversation

    def put(self, app: Assistant, conversation: Conversation) -> Conversation:
        """Keep a conversation open, the latest of all."""
        self._open[app.tenant, conversation.id] = (app, conversation)
        self._open.move_to_end((app.tenant, conversation.id))
        while len(self._open) > self._kept:
            self.drop(*self._dispensable())
        return conversation

    def drop(self, app: Assistant, conversation_id: str) -> bool:
        """Forget a conversation; False when it was not open."""
        if self._open.pop((app.tenant, conversation_id), None) is None:
            return False
        app.model_host.chat_model.forget(conversation_id)
        return True

    def _dispensable(self) -> tuple[Assistant, str]:
        """The open conversation that is given up for another one."""
        held = list(self._open.values())
        # A draft is that of an answer that waits or runs.
        resting = [(app, each) for app, each in held if each.draft is None and not app.is_answering(each.id)] or held
        app, conversation = resting[evict_fairly([(app.tenant, 1) for app, _ in resting])]
        return app, conversation.id

    def opened(self, app: Assistant, conversation_id: str) -> Conversation | None:
        """Return an open conversation, if there is one of this id; it counts as used."""
        entry = self._open.get((app.tenant, conversation_id))
        if entry is None:
            return None
        self._open.move_to_end((app.tenant, conversation_id))
        return entry[1]
