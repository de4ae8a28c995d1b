"""Stored conversations: the user's messages and the final answers.

    conversation.unkept ─▶ save ─▶ messages, appended in one transaction that survives a power failure

Rules:
* Every query names the tenant; no tenant can read, count or delete another's conversations.
* A question and its answer are written together or not at all. Written turns are never written again: repeating a save
with unknown outcome adds nothing.
* Two processes may continue one conversation: both append, and nothing is lost.
* Deleting a conversation deletes the records of its tool calls.

``conversation_queries`` has the SQL. Conversion between turns and conversations is in ``keeping``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rkllm_mcp.messages import Conversation
from rkllm_mcp.records import ConversationSummary, KeptConversation
from rkllm_mcp.store import conversation_queries as queries
from rkllm_mcp.store.conversation_queries import HistoryLimits, HistoryStats
from rkllm_mcp.store.database import Database, Work


class Conversations:
    """Stored conversations; ``clock`` returns seconds since 1970."""

    def __init__(
        self, database: Database, limits: HistoryLimits | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._limits = limits or HistoryLimits()
        self._clock = clock

    @property
    def is_lasting(self) -> bool:
        """True if saved data survives the process; False if the file cannot be used."""
        return self._database.is_lasting

    async def save(self, tenant: str, conversation: Conversation) -> int:
        """Save the turns of ``conversation.unkept``; they are on disk when this returns.

        After an error or cancellation they are still ``unkept``, and the next save repeats the attempt.

        Returns:
            The number of turns that others have added since this conversation was last saved or loaded.

        Raises:
            StoreError: the turns could not be saved; the disk is full or cannot be written.
        """
        count = len(conversation.unkept)
        if not count:
            return 0
        turns = [queries.storable(turn) for turn in conversation.unkept]
        work = partial(queries.append, tenant, conversation, turns)
        conversation.kept_turns, others = await self._database.ask(work, durable=True)
        del conversation.unkept[:count]
        return others

    async def add(self, tenant: str, kept: KeptConversation) -> str:
        """Save a conversation from elsewhere and return its id, a new one if its own is taken.

        Raises:
            StoreError: it could not be saved.
        """
        storable = replace(kept, turns=tuple(map(queries.storable, kept.turns)))
        return await self._database.ask(partial(queries.add, tenant, storable), durable=True)

    async def get(self, tenant: str, conversation_id: str) -> KeptConversation | None:
        """Return a conversation with all turns; None if this tenant has none of that id.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.get, tenant, conversation_id))

    async def latest(
        self, tenant: str, limit: int = 20, offset: int = 0, search: str = ""
    ) -> list[ConversationSummary]:
        """Return conversations, the most recently changed first.

        ``search`` restricts them to those whose title or turns contain this text, ignoring the case of Latin letters.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.latest, tenant, limit, offset, search))

    async def matching(self, tenant: str, prefix: str, limit: int = 10) -> list[ConversationSummary]:
        """Return the conversation of this id, or those whose id starts with it, most recently changed first.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.matching, tenant, prefix, limit))

    async def count(self, tenant: str, search: str = "") -> int:
        """Return the number of conversations that ``latest`` would list without a limit.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.count, tenant, search))

    async def stats(self, tenant: str) -> HistoryStats:
        """Return the size of a tenant's history.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.stats, tenant))

    async def rename(self, tenant: str, conversation_id: str, title: str) -> bool:
        """Change a conversation's title; return False if no conversation has that id.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._database.ask(
            partial(queries.rename, tenant, conversation_id, queries.title_of(title)), durable=True
        )

    async def delete(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, its turns and its tool call records; return False if no conversation has that id.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._gone(partial(queries.delete, tenant, (conversation_id,))) > 0

    async def delete_all(self, tenant: str) -> int:
        """Delete every conversation of a tenant; return how many existed.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._gone(partial(queries.delete_all, tenant))

    async def clean(self, tenant: str) -> int:
        """Delete conversations beyond the limits; return how many were deleted.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._gone(partial(queries.clean, tenant, self._clock(), self._limits))

    async def _gone(self, work: Work[int]) -> int:
        count = await self._database.ask(work, durable=True)
        if count:
            await self._database.empty_log()
        return count
