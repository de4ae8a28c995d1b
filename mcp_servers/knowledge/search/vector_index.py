"""The vectors of the bases in memory, as fresh as the reading transaction, and the nearest of them.

A search over 100,000 vectors of 1024 numbers is one product of a matrix with a vector, 14 ms; an approximate index
would save ten of them and miss a twentieth of the answers. Kept as 32-bit floats, because processors multiply nothing
smaller this fast: 4 KiB a chunk at 1024 dimensions.

Only what changed is read again. A base that changes its embedder is read anew; vectors of two never meet.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding import Vectors
from mcp_servers.knowledge.storage.vectors import Embedding, embedded_chunks, read_vectors

_MIN_ROWS = 64


@dataclass(frozen=True)
class NearestChunks:
    """The chunks nearest to a question, and how near any other is.

    Args:
        chunks: with their cosines, nearest first.
        background: the mean cosine over everything the person may see: how near anything is.
        all_chunks: everything the person may see, sorted.
        all_cosines: for each of them.
    """

    chunks: list[tuple[int, float]]
    background: float
    all_chunks: NDArray[np.int64]
    all_cosines: Vectors

    def cosines_of(self, chunks: Sequence[int]) -> dict[int, float]:
        """The cosines of chunks to the question; one without a vector is missing."""
        if not self.all_chunks.size:
            return {}
        wanted = np.array(chunks, np.int64)
        places = np.minimum(np.searchsorted(self.all_chunks, wanted), self.all_chunks.size - 1)
        found = self.all_chunks[places] == wanted
        return dict(zip(wanted[found].tolist(), self.all_cosines[places[found]].tolist(), strict=True))


NO_NEIGHBOURS = NearestChunks([], 0.0, np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass
class _LoadedVectors:
    embedding: int
    changes: int = -1
    count: int = 0
    chunks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    documents: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    matrix: Vectors = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    rows: dict[int, int] = field(default_factory=dict[int, int])


class VectorIndex:
    """The vectors that were searched so far; safe to use from several threads."""

    def __init__(self) -> None:
        self._loaded: dict[int, _LoadedVectors] = {}
        self._lock = threading.Lock()

    def nearest(
        self,
        connection: sqlite3.Connection,
        base: int,
        embedding: Embedding,
        query: Vectors,
        documents: Sequence[int] | None,
        maximum: int,
    ) -> NearestChunks:
        """The nearest chunks of a base.

        Args:
            connection: in a transaction.
            base: its row.
            embedding: the set to search.
            query: a unit vector of its embedder.
            documents: the rows of those a person may see; None for all. The others are left out before anything is
                ranked.
            most: how many.
        """
        with self._lock:
            loaded = self._refresh(connection, base, embedding)
            if not loaded.count:
                return NO_NEIGHBOURS
            cosines = loaded.matrix[: loaded.count] @ query
            chunks = loaded.chunks[: loaded.count]
            if documents is not None:
                allowed = np.isin(loaded.documents[: loaded.count], np.array(documents, np.int64))
                cosines, chunks = cosines[allowed], chunks[allowed]
            if not cosines.size:
                return NO_NEIGHBOURS
            top = (
                np.argpartition(-cosines, maximum - 1)[:maximum] if cosines.size > maximum else np.arange(cosines.size)
            )
            top = top[np.argsort(-cosines[top], kind="stable")]
            found = list(zip(chunks[top].tolist(), cosines[top].tolist(), strict=True))
            # Rows are in order already unless something was removed, and then a stable sort has little to do.
            order = np.argsort(chunks, kind="stable")
            return NearestChunks(found, float(cosines.mean()), chunks[order], cosines[order])

    def _refresh(self, connection: sqlite3.Connection, base: int, embedding: Embedding) -> _LoadedVectors:
        loaded = self._loaded.get(base)
        if loaded is None or loaded.embedding != embedding.key:
            loaded = self._loaded[base] = _LoadedVectors(embedding.key)
        if loaded.changes != embedding.changes:
            stored = set(embedded_chunks(connection, embedding.key))
            for chunk in loaded.rows.keys() - stored:
                _remove_row(loaded, chunk)
            new = sorted(stored - loaded.rows.keys())
            _append(connection, loaded, embedding, new)
            loaded.changes = embedding.changes
        return loaded


def _remove_row(loaded: _LoadedVectors, chunk: int) -> None:
    # The last row takes its place: order means nothing here.
    row, last = loaded.rows.pop(chunk), loaded.count - 1
    if row != last:
        loaded.chunks[row], loaded.documents[row], loaded.matrix[row] = (
            loaded.chunks[last],
            loaded.documents[last],
            loaded.matrix[last],
        )
        loaded.rows[int(loaded.chunks[row])] = row
    loaded.count = last


def _append(connection: sqlite3.Connection, loaded: _LoadedVectors, embedding: Embedding, new: list[int]) -> None:
    if not new:
        return
    _reserve(loaded, loaded.count + len(new), embedding.dimensions)
    for chunk, document, half_floats in read_vectors(connection, embedding.key, new if loaded.count else None):
        row = loaded.count
        loaded.chunks[row], loaded.documents[row] = chunk, document
        loaded.matrix[row] = np.frombuffer(half_floats, "<f2")
        loaded.rows[chunk] = row
        loaded.count += 1


def _reserve(loaded: _LoadedVectors, rows: int, dimensions: int) -> None:
    if rows <= len(loaded.chunks):
        return
    # A base that grows chunk by chunk is not copied at every one; one that was read whole wastes nothing.
    size = max(rows, len(loaded.chunks) + len(loaded.chunks) // 4, _MIN_ROWS)
    matrix = np.zeros((size, dimensions), np.float32)
    chunks, documents = np.zeros(size, np.int64), np.zeros(size, np.int64)
    if loaded.count:
        matrix[: loaded.count] = loaded.matrix[: loaded.count]
        chunks[: loaded.count] = loaded.chunks[: loaded.count]
        documents[: loaded.count] = loaded.documents[: loaded.count]
    loaded.matrix, loaded.chunks, loaded.documents = matrix, chunks, documents
