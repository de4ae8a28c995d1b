"""The vectors of a base, embedder by embedder, and which chunks still need one.

There is no queue on disk: what is missing is what has no row. So work that was interrupted goes on where it was, and
nobody can forget to put a chunk into the queue. A base has at most two sets: the one a search uses, and the one that
is becoming it; vectors of two embedders are never in one set. Vectors are unit length, kept as 16-bit floats.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding import Vectors
from mcp_servers.knowledge.errors import EngineUnreachableError


@dataclass(frozen=True)
class Embedding:
    """One set of vectors.

    Args:
        key: its row.
        embedder: who made them.
        dimensions: numbers in each; 0 while there are none.
        vectors: how many there are.
        changes: another number means other vectors.
        total: their sum; empty while there are none.
    """

    key: int
    embedder: str
    dimensions: int
    vectors: int
    changes: int
    total: bytes


@dataclass(frozen=True)
class PendingChunk:
    """A chunk without a vector."""

    chunk: int
    title: str
    headings: tuple[str, ...]
    text: str


def embedding_by_key(connection: sqlite3.Connection, key: int) -> Embedding:
    """One set that is known to be there."""
    row = connection.execute(
        "SELECT id, embedder, dimensions, vectors, changes, total FROM embedding WHERE id = ?", (key,)
    ).fetchone()
    return Embedding(*row)


def create_embedding(connection: sqlite3.Connection, base: int, embedder: str) -> int:
    """An empty set."""
    return connection.execute("INSERT INTO embedding (base, embedder) VALUES (?, ?)", (base, embedder)).lastrowid or 0


def set_next_embedding(connection: sqlite3.Connection, base: int, key: int | None) -> None:
    """The set that is to be searched once it is complete; None for none."""
    connection.execute("UPDATE base SET becoming = ? WHERE id = ?", (key, base))


def set_active_embedding(connection: sqlite3.Connection, base: int, key: int) -> None:
    """The set that is searched from now on, and that nothing is becoming any more."""
    connection.execute("UPDATE base SET embedding = ?, becoming = NULL WHERE id = ?", (key, base))


def remove_embedding(connection: sqlite3.Connection, key: int) -> None:
    """A set with its vectors; nothing may use it any more."""
    connection.execute("DELETE FROM vector WHERE embedding = ?", (key,))
    connection.execute("DELETE FROM embedding WHERE id = ?", (key,))


def store_vectors(connection: sqlite3.Connection, key: int, chunks: Sequence[int], vectors: Vectors) -> None:
    """Vectors of chunks into a set; a chunk that was removed meanwhile is passed over.

    Raises:
        EngineUnreachableError: they are not as long as those before.
    """
    embedding = embedding_by_key(connection, key)
    dimensions = int(vectors.shape[1])
    if embedding.dimensions not in {0, dimensions}:
        reason = f"it gave vectors of {dimensions} numbers, before {embedding.dimensions}; is it another model?"
        raise EngineUnreachableError(embedding.embedder, reason)
    halves = vectors.astype("<f2")
    total, count = _numbers(embedding.total, dimensions), embedding.vectors
    for chunk, half in zip(chunks, halves, strict=True):
        written = connection.execute(
            "INSERT OR IGNORE INTO vector (chunk, embedding, half_floats) SELECT id, ?, ? FROM chunk WHERE id = ?",
            (key, half.tobytes(), chunk),
        )
        if written.rowcount:
            total += half
            count += 1
    _save(connection, key, dimensions, count, total)


def remove_vectors(connection: sqlite3.Connection, document: int) -> None:
    """The vectors of a document out of every set."""
    rows = connection.execute(
        "SELECT embedding, half_floats FROM vector WHERE chunk IN (SELECT id FROM chunk WHERE document = ?)",
        (document,),
    ).fetchall()
    for key in {embedding for embedding, _ in rows}:
        embedding = embedding_by_key(connection, key)
        halves = [np.frombuffer(half, "<f2") for owner, half in rows if owner == key]
        total = _numbers(embedding.total, embedding.dimensions) - np.sum(halves, axis=0, dtype=float)
        _save(connection, key, embedding.dimensions, embedding.vectors - len(halves), total)
    connection.execute("DELETE FROM vector WHERE chunk IN (SELECT id FROM chunk WHERE document = ?)", (document,))


def chunks_without_vectors(
    connection: sqlite3.Connection, base: int, key: int, after: int, maximum: int
) -> list[PendingChunk]:
    """Chunks of a base that have no vector in a set, in order, from behind a chunk."""
    rows = connection.execute(
        """
        SELECT chunk.id, title, headings, text FROM chunk JOIN document ON document.id = chunk.document
        WHERE chunk.base = ? AND chunk.id > ?
        AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND embedding = ?)
        ORDER BY chunk.id LIMIT ?
        """,
        (base, after, key, maximum),
    )
    return [PendingChunk(chunk, title, tuple(json.loads(headings)), text) for chunk, title, headings, text in rows]


def embedded_chunks(connection: sqlite3.Connection, key: int) -> list[int]:
    """The chunks of a set."""
    return [row[0] for row in connection.execute("SELECT chunk FROM vector WHERE embedding = ?", (key,))]


def read_vectors(
    connection: sqlite3.Connection, key: int, chunks: Sequence[int] | None
) -> Iterator[tuple[int, int, bytes]]:
    """Chunk, document and vector as stored, of some chunks or of all."""
    sql = """
        SELECT vector.chunk, document, half_floats FROM vector JOIN chunk ON chunk.id = vector.chunk
        WHERE embedding = ?
    """
    if chunks is None:
        yield from connection.execute(sql, (key,))
        return
    for chunk in chunks:
        yield from connection.execute(f"{sql} AND vector.chunk = ?", (key, chunk))


def mean_direction(embedding: Embedding) -> Vectors | None:
    """Where the documents of a set lie: a unit vector; None while there are none."""
    total = _numbers(embedding.total, embedding.dimensions)
    length = float(np.linalg.norm(total))
    return (total / length).astype(np.float32) if length > 0 else None


def _numbers(stored: bytes, dimensions: int) -> NDArray[np.float64]:
    # Sums of 16-bit numbers are exact in 64 bits, so that adding and removing leaves nothing behind.
    return np.array(np.frombuffer(stored, "<f8")) if stored else np.zeros(dimensions)


def _save(connection: sqlite3.Connection, key: int, dimensions: int, count: int, total: NDArray[np.float64]) -> None:
    connection.execute(
        "UPDATE embedding SET dimensions = ?, vectors = ?, total = ?, changes = changes + 1 WHERE id = ?",
        (dimensions, count, total.astype("<f8").tobytes(), key),
    )
