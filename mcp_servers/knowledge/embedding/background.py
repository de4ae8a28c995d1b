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
from mcp_servers.knowledge.errors import BaseNotFoundError, KnowledgeProblem
from mcp_servers.knowledge.storage.bases import StoredBase, base_by_key, bases
from mcp_servers.knowledge.storage.database import Database
from mcp_servers.knowledge.storage.text_index import rebuild_texts
from mcp_servers.knowledge.storage.vectors import (
    Unembedded,
    create_embedding,
    embedding_by_key,
    remove_embedding,
    set_becoming,
    set_searched,
    store_vectors,
    unembedded,
)
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION, embedded_text
from mcp_servers.knowledge.types import EVERYONE

# One commit costs 5 ms on a card; an embedder behind an address has batches of its own size.
_BATCH = 32
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0


class Filling:
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
        self._news = anyio.Event()
        self._rest = anyio.Event()
        self._working = anyio.CancelScope()
        self.problems: dict[int, str] = {}

    def wake(self) -> None:
        """There may be something to do."""
        self._end_rest()
        self._news.set()

    async def settled(self) -> None:
        """Waits until there is nothing left that can be done now."""
        await self._rest.wait()

    async def run(self) -> None:
        """Works until ``stop``."""
        with self._working:
            pause = _FIRST_PAUSE_S
            while True:
                self._news = news = anyio.Event()
                await self._round()
                if news.is_set():
                    continue
                self._rest.set()
                with anyio.move_on_after(pause if self.problems else math.inf) as limit:
                    await news.wait()
                pause = min(2 * pause, _LONGEST_PAUSE_S) if limit.cancelled_caught else _FIRST_PAUSE_S
                self._end_rest()

    def stop(self) -> None:
        """Ends ``run`` as soon as the batch at hand is written."""
        self._working.cancel()

    def _end_rest(self) -> None:
        # Only a rest that was had: whoever waits for the next one waits on this very event.
        if self._rest.is_set():
            self._rest = anyio.Event()

    async def _round(self) -> None:
        """Everything that is to be done now, base by base."""
        try:
            everything = await anyio.to_thread.run_sync(self._bases)
        except KnowledgeProblem as problem:
            self.problems[0] = problem.words
            return
        self.problems = {key: words for key, words in self.problems.items() if key in {base.key for base in everything}}
        for base in everything:
            await self._attend(base)

    async def _attend(self, base: StoredBase) -> None:
        try:
            await self._bring_up_to_date(base)
        except KnowledgeProblem as problem:
            self.problems[base.key] = problem.words
        else:
            self.problems.pop(base.key, None)

    async def _bring_up_to_date(self, base: StoredBase) -> None:
        try:
            if base.analyzer != ANALYZER_VERSION:
                await anyio.to_thread.run_sync(self._rebuild, base.key)
            embedder = self._embedders.get(self._wanted)
            if embedder is None:
                return
            key = await anyio.to_thread.run_sync(self._set_to_fill, base.key)
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
            return bases(connection, EVERYONE)

    def _rebuild(self, base: int) -> None:
        with self._database.writing() as connection:
            rebuild_texts(connection, base)

    def _set_to_fill(self, base: int) -> int:
        """The set of the wanted embedder, which is made and marked as becoming where there is none."""
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            if stored.becoming is not None:
                if embedding_by_key(connection, stored.becoming).embedder == self._wanted:
                    return stored.becoming
                set_becoming(connection, base, None)
                remove_embedding(connection, stored.becoming)
            if stored.embedding is not None and stored.base.embedder == self._wanted:
                return stored.embedding
            key = create_embedding(connection, base, self._wanted)
            set_becoming(connection, base, key)
            return key

    def _missing(self, base: int, key: int, after: int) -> list[Unembedded]:
        with self._database.reading() as connection:
            return unembedded(connection, base, key, after, _BATCH)

    def _store(self, base: int, key: int, missing: list[Unembedded], vectors: Vectors) -> None:
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            # While they were made, the base may have been indexed anew, and has another set now.
            if key in {stored.embedding, stored.becoming}:
                store_vectors(connection, key, [chunk.chunk for chunk in missing], vectors)

    def _finish(self, base: int, key: int) -> bool:
        """Whether a set is complete; then it is also the one that is searched."""
        with self._database.reading() as connection:
            stored = base_by_key(connection, base)
            if key not in {stored.embedding, stored.becoming}:
                # Another process wants another embedder; that one is not to be fought with here.
                return True
            if embedding_by_key(connection, key).vectors < stored.chunks:
                return False
            if stored.embedding == key:
                return True
        with self._database.writing() as connection:
            stored = base_by_key(connection, base)
            if stored.becoming != key or embedding_by_key(connection, key).vectors < stored.chunks:
                return False
            set_searched(connection, base, key)
            if stored.embedding is not None:
                remove_embedding(connection, stored.embedding)
            return True
