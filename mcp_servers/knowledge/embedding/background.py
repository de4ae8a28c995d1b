"""The background work of a library: text indexes of an older analyzer, and vectors that are missing.

What is to be done is read from the file each time, so work goes on where a killed process left it, and two processes
that do the same work only waste it. A base is searched with its old vectors until the new ones are complete; then, in
one transaction, they take their place.

An engine that does not answer is asked again after a while, longer each time, and as soon as there is new work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import anyio
import anyio.to_thread

from mcp_servers.knowledge.embedding import Embedder, Vectors
from mcp_servers.knowledge.errors import BaseNotFoundError, KnowledgeError
from mcp_servers.knowledge.storage.bases import StoredBase, base_by_key, bases
from mcp_servers.knowledge.storage.database import Database
from mcp_servers.knowledge.storage.text_index import rebuild_text_index
from mcp_servers.knowledge.storage.vectors import (
    PendingChunk,
    chunks_without_vectors,
    create_embedding,
    embedding_by_key,
    remove_embedding,
    set_active_embedding,
    set_next_embedding,
    store_vectors,
)
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION, embedded_text
from mcp_servers.knowledge.types import UNRESTRICTED

# One commit costs 5 ms on a card; an embedder behind an address has batches of its own size.
_BATCH = 32
_FIRST_PAUSE_S, _MAX_PAUSE_S = 5.0, 300.0


class BackgroundIndexer:
    """The background work; ``run`` does it until ``stop``.

    Args:
        database: where the work is found and its results are kept.
        embedders: by name.
        wanted: the name of the embedder every base is to have; empty leaves each as it is.
    """

    def __init__(self, database: Database, embedders: Mapping[str, Embedder], wanted: str) -> None:
        self._database = database
        self._embedders = embedders
        self._wanted = wanted
        self._new_work = anyio.Event()
        self._idle = anyio.Event()
        self._scope = anyio.CancelScope()
        self.problems: dict[int, str] = {}

    def wake(self) -> None:
        """There may be something to do."""
        self._clear_idle()
        self._new_work.set()

    async def wait_idle(self) -> None:
        """Waits until there is nothing left that can be done now."""
        await self._idle.wait()

    async def run(self) -> None:
        """Works until ``stop``."""
        with self._scope:
            pause = _FIRST_PAUSE_S
            while True:
                self._new_work = new_work = anyio.Event()
                await self._process_all()
                if new_work.is_set():
                    continue
                self._idle.set()
                with anyio.move_on_after(pause if self.problems else math.inf) as limit:
                    await new_work.wait()
                pause = min(2 * pause, _MAX_PAUSE_S) if limit.cancelled_caught else _FIRST_PAUSE_S
                self._clear_idle()

    def stop(self) -> None:
        """Ends ``run`` as soon as the batch at hand is written."""
        self._scope.cancel()

    def _clear_idle(self) -> None:
        # Only a rest that was had: whoever waits for the next one waits on this very event.
        if self._idle.is_set():
            self._idle = anyio.Event()

    async def _process_all(self) -> None:
        """Everything that is to be done now, base by base."""
        try:
            all_bases = await anyio.to_thread.run_sync(self._bases)
        except KnowledgeError as problem:
            self.problems[0] = problem.words
            return
        self.problems = {key: words for key, words in self.problems.items() if key in {base.key for base in all_bases}}
        for base in all_bases:
            await self._process_base(base)

    async def _process_base(self, base: StoredBase) -> None:
        try:
            await self._update_base(base)
        except KnowledgeError as problem:
            self.problems[base.key] = problem.words
        else:
            self.problems.pop(base.key, None)

    async def _update_base(self, base: StoredBase) -> None:
        try:
            if base.analyzer != ANALYZER_VERSION:
                await anyio.to_thread.run_sync(self._rebuild, base.key)
            embedder = self._embedders.get(self._wanted)
            if embedder is None:
                return
            key = await anyio.to_thread.run_sync(self._target_embedding, base.key)
            after = 0
            # A second pass finds what was added behind the first one's back, and nothing means that it is complete.
            while not await anyio.to_thread.run_sync(self._finish, base.key, key):
                missing = await anyio.to_thread.run_sync(self._missing, base.key, key, after)
                after = missing[-1].chunk if missing else 0
                if missing:
                    texts = [embedded_text(chunk.title, chunk.headings, chunk.text) for chunk in missing]
                    vectors = await embedder.embed_documents(texts)
                    await anyio.to_thread.run_sync(self._store, base.key, key, missing, vectors)
        except BaseNotFoundError:
            # It was removed meanwhile.
            return

    # --- in threads, each in a transaction of its own -----------------------------------------------------------------

    def _bases(self) -> list[StoredBase]:
        with self._database.reading() as connection:
            return bases(connection, UNRESTRICTED)

    def _rebuild(self, base: int) -> None:
        with self._database.writing() as connection:
            rebuild_text_index(connection, base)

    def _target_embedding(self, base: int) -> int:
        """The set of the wanted embedder, which is made and marked as becoming where there is none."""
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            if stored.next_embedding is not None:
                if embedding_by_key(connection, stored.next_embedding).embedder == self._wanted:
                    return stored.next_embedding
                set_next_embedding(connection, base, None)
                remove_embedding(connection, stored.next_embedding)
            if stored.embedding is not None and stored.base.embedder == self._wanted:
                return stored.embedding
            key = create_embedding(connection, base, self._wanted)
            set_next_embedding(connection, base, key)
            return key

    def _missing(self, base: int, key: int, after: int) -> list[PendingChunk]:
        with self._database.reading() as connection:
            return chunks_without_vectors(connection, base, key, after, _BATCH)

    def _store(self, base: int, key: int, missing: list[PendingChunk], vectors: Vectors) -> None:
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            # While they were made, the base may have been indexed anew, and has another set now.
            if key in {stored.embedding, stored.next_embedding}:
                store_vectors(connection, key, [chunk.chunk for chunk in missing], vectors)

    def _finish(self, base: int, key: int) -> bool:
        """Whether a set is complete; then it is also the one that is searched."""
        with self._database.reading() as connection:
            stored = base_by_key(connection, base)
            if key not in {stored.embedding, stored.next_embedding}:
                # Another process wants another embedder; that one is not to be fought with here.
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
            if stored.embedding is not None:
                remove_embedding(connection, stored.embedding)
            return True
