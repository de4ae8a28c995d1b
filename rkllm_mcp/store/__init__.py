"""The stored data of one user: calls, approvals, conversations, usage, devices; rules are in ``store.database``."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from rkllm_mcp.errors import StoreError
from rkllm_mcp.store.boards import RENEWAL_S, Leases
from rkllm_mcp.store.conversations import EXCHANGE, Conversations, StoredResponses, append_again
from rkllm_mcp.store.database import Database, SQLiteDatabase, open_database, state_file
from rkllm_mcp.store.limits import Limits, StoreLimits
from rkllm_mcp.store.memories import Memories
from rkllm_mcp.store.outbox import Behind, Outbox
from rkllm_mcp.store.request_keys import RequestKeys
from rkllm_mcp.store.schedules import Schedules
from rkllm_mcp.store.tables import (
    PERSON,
    TOKENS,
    AgreedLimits,
    ApprovalTable,
    DailyUsage,
    DeviceKeys,
    KeyValue,
    SwitchTable,
    add_tokens,
    read_texts,
)
from rkllm_mcp.store.tool_calls import CallHistory


@dataclass(frozen=True)
class Store:
    """Stored data of one user."""

    database: SQLiteDatabase
    # The same, or the one that several boards share: all but ``texts`` of servers.
    shared: Database
    calls: CallHistory  # history of tool calls
    grants: ApprovalTable  # approvals and refusals of tools
    switches: SwitchTable  # tools and servers that are switched off
    conversations: Conversations
    tally: DailyUsage  # daily token usage
    devices: DeviceKeys  # keys of the owner's devices
    responses: StoredResponses  # answers that clients continue by their ids
    request_keys: RequestKeys  # requests that are answered once, however often they are sent
    schedules: Schedules  # what is asked or said by a rule of time
    memories: Memories  # what the person wants remembered in all conversations
    leases: Leases | None = None  # what the boards of a shared database know of each other
    outbox: Outbox | None = None  # what waits for a shared database
    is_shared: bool = False  # several boards share a database
    person: list[KeyValue] = field(default_factory=list[KeyValue])  # what a person has set, read again by ``keep_up``

    async def keep_up(self) -> None:
        """Say that this board lives, and make up for what waited while the database was away, until it is cancelled."""
        if self.leases is None or self.outbox is None:
            return
        while True:
            with suppress(StoreError):  # the database reports it
                await self.leases.renew()
                await self.outbox.ship()
                for texts in self.person:
                    await texts.refresh()
            await anyio.sleep(RENEWAL_S)

    async def flush(self) -> None:
        """Wait until all queued data is written; a StoreError if some of it could not be written."""
        await self.database.flush()
        if self.is_shared:
            await self.shared.flush()

    @property
    def failing(self) -> StoreError | None:
        """The reason why nothing can be stored at present."""
        return self.database.failing or self.shared.failing

    async def behind(self) -> Behind:
        """Return what waits for the shared database; nothing where there is none."""
        if self.outbox is not None:
            with suppress(StoreError):
                return await self.outbox.behind()
        return Behind(0, 0.0)

    async def texts(self, kind: str) -> KeyValue:
        """Return the texts of one kind; empty if they cannot be read. Those of a person are the same at every board."""
        texts = KeyValue(kind, {}, self.shared if kind == PERSON else self.database)
        with suppress(StoreError):
            await texts.refresh()
        if kind == PERSON:
            self.person.append(texts)
        return texts


@asynccontextmanager
async def open_store(
    *,
    path: Path | None = None,
    limits: StoreLimits | None = None,
    given: Collection[str] = (),
    on_problem: Callable[[str], None] | None = None,
    required: bool = False,
    url: str | None = None,
    tenant: str = "",
) -> AsyncGenerator[Store, None]:
    """Open the stored data; everything is written at the end of the block.

    ``path`` defaults to the user's own file; ``url`` is the database that several boards share, in which the ``tenant``
    sees its own rows, and whose limits count but for those that are ``given`` here (see ``AgreedLimits``); for the rest
    see ``open_database``. A StoreError if one of them is required and cannot be used.
    """
    where = state_file(os.environ) if path is None else path
    on_problem = on_problem or (lambda _: None)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(where, on_problem=on_problem, required=required))
        shared: Database = database
        leases, outbox = None, None
        agreed = Limits(limits)
        devices = DeviceKeys(database)
        schedules = Schedules(database)
        if url is not None:
            from rkllm_mcp.store.postgres import database_time, open_postgres

            opening = open_postgres(url, tenant, on_problem=on_problem, required=required)
            shared = postgres = await stack.enter_async_context(opening)
            devices = DeviceKeys(shared, since_boot=lambda transaction: ("", database_time(transaction)))
            leases = Leases(shared, postgres.server.board, database_time)
            schedules = Schedules(shared, postgres.server.board, database_time, is_shared=True)
            # Limits are read in the thread of the database.
            report = partial(asyncio.get_running_loop().call_soon_threadsafe, on_problem)
            agreed = AgreedLimits(limits, given, database_time, report)
            with suppress(StoreError):  # the database is away; what is deleted then asks again
                await shared.ask(agreed.read)
            outbox = Outbox(database, shared, tenant, {EXCHANGE: append_again, TOKENS: add_tokens})
            postgres.keep = outbox.keep
        yield Store(
            database,
            shared,
            CallHistory(shared, agreed),
            ApprovalTable(shared),
            SwitchTable(shared),
            Conversations(shared, agreed, leases=leases, outbox=outbox),
            DailyUsage(shared, outbox),
            devices,
            StoredResponses(shared, agreed),
            RequestKeys(shared, agreed.now, leases.board if leases is not None else ""),
            schedules,
            Memories(shared),
            leases,
            outbox,
            is_shared=url is not None,
        )


def stored_texts(path: Path, kind: str) -> dict[str, str]:
    """Return the texts of one kind without opening the store for writing; empty if the file cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return read_texts(kind, connection)
    except sqlite3.Error:
        return {}
