"""The conversations that are kept: a person's words, and the answers they got at last.

    conversation.unkept ─▶ save ─▶ messages, appended in one transaction that a power failure does not take back

Rules:
* Every query names the tenant; nobody reads, counts or deletes what is another's.
* A question and its answer are written together or not at all. What was written is never written again: a save that is
repeated, because nobody knows whether it was done, adds nothing.
* Two processes may go on with one conversation: what each adds stands behind what is there, and nothing is lost.
* A conversation that is deleted takes the records of its tool calls with it.

``conversation_queries`` has the SQL. It knows neither models nor what a turn means to them; ``keeping`` makes turns of
an answer and a conversation of turns.
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
    """The kept conversations.

    Args:
        database: where.
        limits: how many of them.
        clock: the time, seconds since 1970.
    """

    def __init__(
        self, database: Database, limits: HistoryLimits | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._limits = limits or HistoryLimits()
        self._clock = clock

    @property
    def is_lasting(self) -> bool:
        """Whether what is saved is there in the next run; False where the file cannot be used."""
        return self._database.is_lasting

    async def save(self, tenant: str, conversation: Conversation) -> int:
        """Keep the turns of ``conversation.unkept``; on returning, the disk has them.

        After an error, or where nobody waited for its end, they are still ``unkept``; the next save tries again.

        Returns:
            How many turns somebody else has added since this conversation was saved or loaded last.

        Raises:
            StoreError: they could not be kept; the disk is full or cannot be written.
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
        """Keep a conversation from elsewhere; under a new id where its own is taken.

        Returns:
            The id.

        Raises:
            StoreError: it could not be kept.
        """
        storable = replace(kept, turns=tuple(map(queries.storable, kept.turns)))
        return await self._database.ask(partial(queries.add, tenant, storable), durable=True)

    async def get(self, tenant: str, conversation_id: str) -> KeptConversation | None:
        """A conversation with all that was said; None where this tenant has none of that id.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.get, tenant, conversation_id))

    async def latest(
        self, tenant: str, limit: int = 20, offset: int = 0, search: str = ""
    ) -> list[ConversationSummary]:
        """The conversations, the one that was changed last first.

        Args:
            tenant: whose.
            limit: at most so many.
            offset: leave out so many at the front.
            search: those alone whose title or words hold this text, whatever the case of Latin letters.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.latest, tenant, limit, offset, search))

    async def matching(self, tenant: str, prefix: str, limit: int = 10) -> list[ConversationSummary]:
        """The conversation of this id, or else those whose id begins so, the one that was changed last first.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.matching, tenant, prefix, limit))

    async def count(self, tenant: str, search: str = "") -> int:
        """How many conversations ``latest`` would list without a limit.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.count, tenant, search))

    async def stats(self, tenant: str) -> HistoryStats:
        """How much is kept of a tenant.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(queries.stats, tenant))

    async def rename(self, tenant: str, conversation_id: str, title: str) -> bool:
        """Give a conversation another title; False where there is none of that id.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._database.ask(
            partial(queries.rename, tenant, conversation_id, queries.title_of(title)), durable=True
        )

    async def delete(self, tenant: str, conversation_id: str) -> bool:
        """Forget a conversation, its words and the records of its tool calls; False where there is none of that id.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._gone(partial(queries.delete, tenant, (conversation_id,))) > 0

    async def delete_all(self, tenant: str) -> int:
        """Forget every conversation of a tenant; how many there were.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._gone(partial(queries.delete_all, tenant))

    async def clean(self, tenant: str) -> int:
        """Forget what is kept no longer; how many conversations went.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._gone(partial(queries.clean, tenant, self._clock(), self._limits))

    async def _gone(self, work: Work[int]) -> int:
        count = await self._database.ask(work, durable=True)
        if count:
            await self._database.empty_log()
        return count
