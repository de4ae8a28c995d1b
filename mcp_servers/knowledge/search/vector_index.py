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
from mcp_servers.knowledge.storage.vectors import Embedding, read_vectors, vector_rows

_SMALLEST = 64


@dataclass(frozen=True)
class Nearest:
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


NOTHING_NEAR = Nearest([], 0.0, np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass
class _Held:
    embedding: int
    changes: int = -1
    count: int = 0
    chunks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    documents: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    matrix: Vectors = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    rows: dict[int, int] = field(default_factory=dict[int, int])


class VectorMemory:
    """The vectors that were searched so far; safe to use from several threads."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()

    def nearest(
        self,
        connection: sqlite3.Connection,
        base: int,
        embedding: Embedding,
        query: Vectors,
        documents: Sequence[int] | None,
        most: int,
    ) -> Nearest:
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
            held = self._fresh(connection, base, embedding)
            if not held.count:
                return NOTHING_NEAR
            cosines = held.matrix[: held.count] @ query
            chunks = held.chunks[: held.count]
            if documents is not None:
                allowed = np.isin(held.documents[: held.count], np.array(documents, np.int64))
                cosines, chunks = cosines[allowed], chunks[allowed]
            if not cosines.size:
                return NOTHING_NEAR
            top = np.argpartition(-cosines, most - 1)[:most] if cosines.size > most else np.arange(cosines.size)
            top = top[np.argsort(-cosines[top], kind="stable")]
            found = list(zip(chunks[top].tolist(), cosines[top].tolist(), strict=True))
            # Rows are in order already unless something was removed, and then a stable sort has little to do.
            order = np.argsort(chunks, kind="stable")
            return Nearest(found, float(cosines.mean()), chunks[order], cosines[order])

    def _fresh(self, connection: sqlite3.Connection, base: int, embedding: Embedding) -> _Held:
        held = self._held.get(base)
        if held is None or held.embedding != embedding.key:
            held = self._held[base] = _Held(embedding.key)
        if held.changes != embedding.changes:
            stored = set(vector_rows(connection, embedding.key))
            for chunk in held.rows.keys() - stored:
                _drop(held, chunk)
            new = sorted(stored - held.rows.keys())
            _append(connection, held, embedding, new)
            held.changes = embedding.changes
        return held


def _drop(held: _Held, chunk: int) -> None:
    # The last row takes its place: order means nothing here.
    row, last = held.rows.pop(chunk), held.count - 1
    if row != last:
        held.chunks[row], held.documents[row], held.matrix[row] = (
            held.chunks[last],
            held.documents[last],
            held.matrix[last],
        )
        held.rows[int(held.chunks[row])] = row
    held.count = last


def _append(connection: sqlite3.Connection, held: _Held, embedding: Embedding, new: list[int]) -> None:
    if not new:
        return
    _make_room(held, held.count + len(new), embedding.dimensions)
    for chunk, document, half_floats in read_vectors(connection, embedding.key, new if held.count else None):
        row = held.count
        held.chunks[row], held.documents[row] = chunk, document
        held.matrix[row] = np.frombuffer(half_floats, "<f2")
        held.rows[chunk] = row
        held.count += 1


def _make_room(held: _Held, rows: int, dimensions: int) -> None:
    if rows <= len(held.chunks):
        return
    # A base that grows chunk by chunk is not copied at every one; one that was read whole wastes nothing.
    size = max(rows, len(held.chunks) + len(held.chunks) // 4, _SMALLEST)
    matrix = np.zeros((size, dimensions), np.float32)
    chunks, documents = np.zeros(size, np.int64), np.zeros(size, np.int64)
    if held.count:
        matrix[: held.count] = held.matrix[: held.count]
        chunks[: held.count] = held.chunks[: held.count]
        documents[: held.count] = held.documents[: held.count]
    held.matrix, held.chunks, held.documents = matrix, chunks, documents
