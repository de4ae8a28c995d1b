"""Background work of a library: text indexes of an older analyzer version, and missing vectors.

Pending work is read from the store each time, so a killed process loses nothing and two processes at most repeat work.
A base is searched with its old vectors until the new ones are complete, then one transaction switches. A failing
embedder is retried with growing pauses, and at once when there is new work.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress

import anyio
import anyio.to_thread

from mcp_servers.knowledge.embedding import Embedder, Vectors
from mcp_servers.knowledge.errors import BaseNotFoundError, KnowledgeError
from mcp_servers.knowledge.storage.bases import StoredBase, base_by_key, bases
from mcp_servers.knowledge.storage.database import BATCH_S
from mcp_servers.knowledge.storage.stores import Database
from mcp_servers.knowledge.storage.text_index import (
    IndexedChunk,
    chunks_to_rebuild,
    extend_rebuilt_index,
    finish_rebuilt_index,
)
from mcp_servers.knowledge.storage.vectors import (
    chunks_without_vectors,
    create_embedding,
    delete_unused_vectors,
    embedding_by_key,
    set_active_embedding,
    store_vectors,
    unused_embeddings,
)
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION
from mcp_servers.knowledge.types import UNRESTRICTED

# Batches between two reports of progress.
_REPORTED = 20
logger = logging.getLogger(__name__)
_FIRST_PAUSE_S, _MAX_PAUSE_S = 5.0, 300.0


class BackgroundIndexer:
    """The worker of one library, from ``run`` to ``stop``; ``target`` names the embedder for all bases, or none."""

    def __init__(self, database: Database, embedders: Mapping[str, Embedder], target: str) -> None:
        self._database = database
        self._embedders = embedders
        self._target = target
        self._new_work = anyio.Event()
        self._idle = anyio.Event()
        self._scope = anyio.CancelScope()
        self._merged: dict[int, StoredBase] = {}
        self.problems: dict[int, str] = {}

    def wake(self) -> None:
        """Signal that there may be work."""
        # Replaced only when set: waiters hold the current event.
        if self._idle.is_set():
            self._idle = anyio.Event()
        self._new_work.set()

    async def wait_idle(self) -> None:
        """Wait until nothing is left that can be done now; ``problems`` then has the reasons for the rest."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until ``stop`` is called."""
        with self._scope:
            pause = _FIRST_PAUSE_S
            while True:
                self._new_work = new_work = anyio.Event()
                try:
                    all_bases = await anyio.to_thread.run_sync(self._database.read, bases, UNRESTRICTED)
                except KnowledgeError as problem:
                    self.problems[0] = problem.words
                else:
                    keys = {base.key for base in all_bases}
                    self.problems = {key: words for key, words in self.problems.items() if key in keys}
                    for base in all_bases:
                        await self._process_base(base)
                    await anyio.to_thread.run_sync(self._database.checkpoint)
                if new_work.is_set():
                    continue
                self._idle.set()
                with anyio.move_on_after(pause if self.problems else math.inf) as limit:
                    await new_work.wait()
                pause = min(2 * pause, _MAX_PAUSE_S) if limit.cancelled_caught else _FIRST_PAUSE_S
                if self._idle.is_set():
                    self._idle = anyio.Event()

    def stop(self) -> None:
        """End ``run`` after the current batch is stored."""
        self._scope.cancel()

    async def _process_base(self, base: StoredBase) -> None:
        try:
            # It may be removed meanwhile.
            with suppress(BaseNotFoundError):
                if base.analyzer != ANALYZER_VERSION:
                    while not await anyio.to_thread.run_sync(self._rebuild, base.key):
                        pass
                if self._merged.get(base.key) != base:
                    while await anyio.to_thread.run_sync(self._merge_segments, base.key):
                        pass
                    self._merged[base.key] = base
                if embedder := self._embedders.get(self._target):
                    key = await anyio.to_thread.run_sync(self._target_embedding, base.key)
                    after = batches = 0
                    # A second pass finds chunks added during the first.
                    while not await anyio.to_thread.run_sync(self._finish, base.key, key):
                        arguments = (chunks_without_vectors, base.key, key, after, embedder.batch)
                        missing = await anyio.to_thread.run_sync(self._database.read, *arguments)
                        after = max(missing, default=0)
                        if missing:
                            vectors = await embedder.embed(list(missing.values()))
                            stored = await anyio.to_thread.run_sync(self._store, base.key, key, list(missing), vectors)
                            batches += 1
                            if batches % _REPORTED == 0 or stored >= base.chunks:
                                counts = (base.base.name, stored, base.chunks, embedder.name)
                                logger.info("%s: %d of %d vectors of %s", *counts)
                while await anyio.to_thread.run_sync(self._delete_replaced, base.key):
                    pass
        except KnowledgeError as problem:
            if self.problems.get(base.key) != problem.words:
                logger.warning("%s: %s; this is repeated later", base.base.name, problem.words)
            self.problems[base.key] = problem.words
        else:
            self.problems.pop(base.key, None)

    # --- in threads, each in its own transaction -----------------------------------------------------------------

    def _rebuild(self, base: int) -> bool:
        """Rebuild a part of a text index; return True after the last one."""
        # Analyzed before the transaction, so the write lock is held briefly.
        chunks: list[tuple[int, IndexedChunk]] = []
        with self._database.reading() as connection:
            for chunk in chunks_to_rebuild(connection, base):
                chunks.append(chunk)
                self._database.give_way()
        with self._database.writing(is_durable=False) as connection:
            base_by_key(connection, base)
            if chunks:
                extend_rebuilt_index(connection, base, chunks)
            return not chunks and finish_rebuilt_index(connection, base)

    def _merge_segments(self, base: int) -> bool:
        """Merge a part of a text index; return False after the last one."""
        with self._database.writing(is_durable=False) as connection:
            base_by_key(connection, base)
            return connection.terms.merge(base, BATCH_S)

    def _delete_replaced(self, base: int) -> bool:
        """Delete a part of the indexes and vectors that others replaced; return False after the last one."""
        with self._database.reading() as connection:
            if not connection.terms.has_replaced(base) and not unused_embeddings(connection, base):
                return False
        with self._database.writing(is_durable=False) as connection:
            return connection.terms.delete_replaced(base) or delete_unused_vectors(connection, base)

    def _target_embedding(self, base: int) -> int:
        """Return the vector set of the target embedder, creating and marking it as the next one if missing."""
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            unfinished = stored.next_embedding
            if unfinished is not None and embedding_by_key(connection, unfinished).embedder == self._target:
                return unfinished
            if stored.embedding is None or stored.base.embedder != self._target:
                return create_embedding(connection, base, self._target)
            if unfinished is not None:
                # The set of another embedder is given up.
                set_active_embedding(connection, base, stored.embedding)
            return stored.embedding

    def _store(self, base: int, key: int, chunks: list[int], vectors: Vectors) -> int:
        """Store vectors; return the number of vectors of the set."""
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            # The base may have been reindexed meanwhile and have another set.
            if key in {stored.embedding, stored.next_embedding}:
                store_vectors(connection, key, chunks, vectors)
                return embedding_by_key(connection, key).vectors
            return 0

    def _finish(self, base: int, key: int) -> bool:
        """Return True if a set is complete or obsolete; a complete set becomes the active one."""
        with self._database.reading() as connection:
            stored = base_by_key(connection, base)
            if key not in {stored.embedding, stored.next_embedding}:
                # Another process uses another embedder: do not compete with it.
                return True
            if embedding_by_key(connection, key).vectors < stored.chunks:
                return False
            if stored.embedding == key:
                return True
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            if stored.next_embedding != key or embedding_by_key(connection, key).vectors < stored.chunks:
                return False
            set_active_embedding(connection, base, key)
            return True
