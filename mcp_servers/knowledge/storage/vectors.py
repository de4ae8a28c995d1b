"""Vectors of a base by embedder, and chunks without a vector.

Pending work is not queued: missing are chunks without a row, so interrupted work continues. A base has at most two
sets: the one that is searched and the next one. Sets of embedders are never mixed. Vectors have unit length and are
stored as 16-bit floats.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding import Vectors
from mcp_servers.knowledge.errors import EngineUnreachableError
from mcp_servers.knowledge.storage.database import BATCH_S, marks
from mcp_servers.knowledge.storage.stores import Transaction
from mcp_servers.knowledge.text_analysis import embedded_text

# In one statement.
_DELETED_ROWS = 200
# Read in one statement: neither all vectors in memory, nor a statement for each.
_ROWS = 500


@dataclass(frozen=True)
class Embedding:
    """A vector set."""

    key: int  # row id
    embedder: str  # name
    dimensions: int  # 0 if empty
    vectors: int  # count
    changes: int  # incremented by every change
    total: bytes  # sum of the vectors


def embedding_by_key(connection: Transaction, key: int) -> Embedding:
    """Return an existing set."""
    row = connection.execute(
        "SELECT id, embedder, dimensions, vectors, changes, total FROM embedding WHERE id = ?", (key,)
    ).fetchone()
    return Embedding(*row)


def create_embedding(connection: Transaction, base: int, embedder: str) -> int:
    """Create an empty set, which becomes active when it is complete."""
    sql = "INSERT INTO embedding (base, embedder) VALUES (?, ?) RETURNING id"
    key: int = connection.execute(sql, (base, embedder)).fetchone()[0]
    connection.execute("UPDATE base SET becoming = ? WHERE id = ?", (key, base))
    return key


def set_active_embedding(connection: Transaction, base: int, key: int) -> None:
    """Make a set the active one and clear the next one."""
    connection.execute("UPDATE base SET embedding = ?, becoming = NULL WHERE id = ?", (key, base))


def delete_unused_vectors(connection: Transaction, base: int) -> bool:
    """Delete a part of the vectors of former sets, for ``BATCH_S``; return False if none exist."""
    end = time.monotonic() + BATCH_S
    for (key,) in unused_embeddings(connection, base):
        query = "SELECT chunk FROM vector WHERE embedding = ? LIMIT ?"
        sql = f"DELETE FROM vector WHERE embedding = ? AND chunk IN ({query})"  # noqa: S608
        while connection.execute(sql, (key, key, _DELETED_ROWS)).rowcount:
            if time.monotonic() > end:
                return True
        connection.execute("DELETE FROM embedding WHERE id = ?", (key,))
        return True
    return False


def unused_embeddings(connection: Transaction, base: int) -> list[tuple[int]]:
    """Return the keys of the sets of a base that are neither the active nor the next one."""
    return connection.execute(
        """
        SELECT embedding.id FROM embedding JOIN base ON base.id = embedding.base
        WHERE base.id = ? AND embedding.id NOT IN (COALESCE(base.embedding, 0), COALESCE(becoming, 0))
        """,
        (base,),
    ).fetchall()


def store_vectors(connection: Transaction, key: int, chunks: Sequence[int], vectors: Vectors) -> None:
    """Store vectors of chunks, unless removed; raise EngineUnreachableError if their dimensions have changed."""
    embedding = embedding_by_key(connection, key)
    dimensions = int(vectors.shape[1])
    if embedding.dimensions not in {0, dimensions}:
        reason = f"it gave vectors of {dimensions} numbers, before {embedding.dimensions}; is it another model?"
        raise EngineUnreachableError(embedding.embedder, reason)
    halves = vectors.astype("<f2")
    total, count = _numbers(embedding.total, dimensions), embedding.vectors
    # Chunks that are stored and have no vector in this set.
    missing: set[int] = set()
    for start in range(0, len(chunks), _ROWS):
        part = chunks[start : start + _ROWS]
        sql = f"""
            SELECT id FROM chunk WHERE id IN ({marks(part)})
            AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND embedding = ?)
        """  # noqa: S608
        missing.update(chunk for (chunk,) in connection.execute(sql, (*part, key)))
    added = [(chunk, half) for chunk, half in zip(chunks, halves, strict=True) if chunk in missing]
    connection.executemany(
        "INSERT INTO vector (chunk, embedding, half_floats) VALUES (?, ?, ?)",
        [(chunk, key, half.tobytes()) for chunk, half in added],
    )
    for _, half in added:
        total += half
    count += len(added)
    _save(connection, key, dimensions, count, total)


def remove_vectors(connection: Transaction, document: int) -> None:
    """Delete the vectors of a document from all sets."""
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


def chunks_without_vectors(connection: Transaction, base: int, key: int, after: int, maximum: int) -> dict[int, str]:
    """Return the chunks after a key that have no vector in a set, with the texts to embed, in ascending order."""
    rows = connection.execute(
        """
        SELECT chunk.id, title, headings, text FROM chunk JOIN document ON document.id = chunk.document
        WHERE chunk.base = ? AND chunk.id > ?
        AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND embedding = ?)
        ORDER BY chunk.id LIMIT ?
        """,
        (base, after, key, maximum),
    )
    return {chunk: embedded_text(title, tuple(json.loads(headings)), text) for chunk, title, headings, text in rows}


def stored_vectors(connection: Transaction, key: int) -> NDArray[np.int64]:
    """Return the chunks of a set in ascending order."""
    sql = "SELECT chunk FROM vector WHERE embedding = ? ORDER BY chunk"
    return np.fromiter((chunk for (chunk,) in connection.execute(sql, (key,))), np.int64)


def exact_cosines(connection: Transaction, key: int, query: Vectors, chunks: Sequence[int]) -> dict[int, float]:
    """Return the cosines of chunks from their stored vectors; chunks without one are missing."""
    sql = f"SELECT chunk, half_floats FROM vector WHERE embedding = ? AND chunk IN ({marks(chunks)})"  # noqa: S608
    rows = connection.execute(sql, (key, *chunks)).fetchall()
    cosines: list[float] = (float_rows([half for _, half in rows], query.size) @ query).tolist()
    return dict(zip((chunk for chunk, _ in rows), cosines, strict=True))


def float_rows(stored: Sequence[bytes], dimensions: int) -> Vectors:
    """Return stored vectors as rows."""
    rows = np.ndarray((len(stored), dimensions), "<f2", b"".join(stored))
    return rows.astype(np.float32)


def read_vectors(connection: Transaction, key: int, chunks: Sequence[int] | None) -> Iterator[tuple[int, int, bytes]]:
    """Yield chunk, document and stored vector of some or all chunks."""
    sql = "SELECT vector.chunk, document, half_floats FROM vector JOIN chunk ON chunk.id = vector.chunk"
    if chunks is None:
        after = 0
        query = f"{sql} WHERE embedding = ? AND vector.chunk > ? ORDER BY vector.chunk LIMIT ?"
        while rows := connection.execute(query, (key, after, _ROWS)).fetchall():
            yield from rows
            after = rows[-1][0]
        return
    for start in range(0, len(chunks), _ROWS):
        part = chunks[start : start + _ROWS]
        yield from connection.execute(f"{sql} WHERE embedding = ? AND vector.chunk IN ({marks(part)})", (key, *part))


def mean_direction(embedding: Embedding) -> Vectors | None:
    """Return the normalized mean of a set, or None if it is empty."""
    total = _numbers(embedding.total, embedding.dimensions)
    length = float(np.linalg.norm(total))
    return (total / length).astype(np.float32) if length > 0 else None


def _numbers(stored: bytes, dimensions: int) -> NDArray[np.float64]:
    # Sums of 16-bit floats are exact in 64 bits, so removing leaves no residue.
    return np.array(np.frombuffer(stored, "<f8")) if stored else np.zeros(dimensions)


def _save(connection: Transaction, key: int, dimensions: int, count: int, total: NDArray[np.float64]) -> None:
    connection.execute(
        "UPDATE embedding SET dimensions = ?, vectors = ?, total = ?, changes = changes + 1 WHERE id = ?",
        (dimensions, count, total.astype("<f8").tobytes(), key),
    )
