"""Requests that their clients named with an ``Idempotency-Key``: asked again, they are answered and stored once.

    key ─▶ ``claim`` ─▶ the answer ─▶ ``finish`` with what is stored of it, or ``forget`` if nothing is

A key is remembered for a day, in a row that all boards of a database see. Methods raise ``StoreError`` if it cannot be
read or written.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace

from rkllm_mcp.records import KeyedRequest
from rkllm_mcp.store.database import Database, Transaction, in_transaction

REMEMBERED_S = 86400.0
# A row of an answer whose board lives and has not said how it ended is believed for that long.
UNDER_WAY_S = 1200.0
_KIND = "requests"
_TIDY = "DELETE FROM texts WHERE kind = ? AND at < ?"
_FIND = "SELECT text, at FROM texts WHERE kind = ? AND key = ?"
_INSERT = "INSERT INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_EXCHANGE = "UPDATE texts SET text = ?, at = ? WHERE kind = ? AND key = ? AND text = ?"
_FINISH = "UPDATE texts SET text = ? WHERE kind = ? AND key = ? AND text = ?"
_FORGET = "DELETE FROM texts WHERE kind = ? AND key = ? AND text = ?"
_LIVES = "SELECT 1 FROM boards WHERE id = ? AND until >= ?"


class RequestKeys:
    """The keys of requests of one user; ``board`` is the id of this process, ``now`` the time that boards share."""

    def __init__(self, database: Database, now: Callable[[Transaction], float], board: str = "") -> None:
        self.database = database
        self._now = now
        self._board = board or uuid.uuid4().hex
        self._is_shared = bool(board)
        self._under_way: set[str] = set()

    @in_transaction(reads=True)
    def find(self, transaction: Transaction, key: str) -> tuple[KeyedRequest, bool] | None:
        """Return the request of a key and whether it is under way; None without one of the last day."""
        row = transaction.execute(_FIND, (_KIND, key)).fetchone()
        now = self._now(transaction)
        if row is None or row[1] < now - REMEMBERED_S:
            return None
        keyed = KeyedRequest(**json.loads(row[0]))
        is_elsewhere = self._is_shared and keyed.board != self._board and row[1] > now - UNDER_WAY_S
        if not keyed.is_over and is_elsewhere and transaction.execute(_LIVES, (keyed.board, now)).fetchone():
            return keyed, True
        return keyed, not keyed.is_over and keyed.board == self._board and key in self._under_way

    async def claim(self, key: str, request: KeyedRequest, before: KeyedRequest | None = None) -> KeyedRequest | None:
        """Store a request that is about to be answered, in place of ``before``; None if another one was faster."""
        claimed = replace(request, board=self._board)
        if key in self._under_way or not await self._insert(key, claimed, before):
            return None
        self._under_way.add(key)
        return claimed

    @in_transaction(durable=True)
    def _insert(self, transaction: Transaction, key: str, claimed: KeyedRequest, before: KeyedRequest | None) -> bool:
        now = self._now(transaction)
        transaction.execute(_TIDY, (_KIND, now - REMEMBERED_S))
        if before is not None:
            changed = (claimed.as_json(), now, _KIND, key, before.as_json())
            return transaction.execute(_EXCHANGE, changed).rowcount > 0
        return transaction.execute(_INSERT, (_KIND, key, claimed.as_json(), now)).rowcount > 0

    async def finish(self, key: str, claimed: KeyedRequest, response: str = "") -> None:
        """Note that the answer of a claimed request is stored, with the id of its response if it has one."""
        self._under_way.discard(key)
        over = replace(claimed, is_over=True, response=response)
        await self.database.change(_FINISH, (over.as_json(), _KIND, key, claimed.as_json()), durable=True)

    async def forget(self, key: str, claimed: KeyedRequest) -> None:
        """Give up a claimed request of which nothing is stored."""
        self._under_way.discard(key)
        await self.database.change(_FORGET, (_KIND, key, claimed.as_json()), durable=True)
