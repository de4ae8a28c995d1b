"""Exact nearest neighbours over the vectors of a base, in memory and consistent with the transaction.

The product is taken with 8-bit integers, a quarter of the memory of 32-bit floats and as fast, because memory is what
limits it; the candidates' cosines are then computed from the stored vectors. An approximate index would miss 5 % of the
answers. Only changed vectors are read again. Sets of different embedders are never mixed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding import Vectors
from mcp_servers.knowledge.storage.stores import Transaction
from mcp_servers.knowledge.storage.vectors import Embedding, float_rows, read_vectors, stored_vectors

# Rows converted to floats at a time: they stay in the processor's cache.
_ROWS = 512
# Rows of one block of memory; blocks are never moved, so that reading needs no lock.
_BLOCK_ROWS = 8192
_REMOVED = -1


@dataclass(frozen=True)
class NearestChunks:
    """Chunks nearest to a query."""

    embedding: int  # vector set
    query: Vectors
    chunks: list[tuple[int, float]]  # with approximate cosine, nearest first
    background: float  # mean cosine of all visible chunks
    deviation: float  # standard deviation of these cosines


NO_NEIGHBOURS = NearestChunks(0, np.zeros(0, np.float32), [], 0.0, 1.0)


@dataclass
class _Block:
    """Vectors of consecutive rows; a row is complete before ``count`` includes it."""

    matrix: NDArray[np.int8]
    scales: Vectors = field(default_factory=lambda: np.zeros(_BLOCK_ROWS, np.float32))
    chunks: NDArray[np.int64] = field(default_factory=lambda: np.full(_BLOCK_ROWS, _REMOVED, np.int64))
    documents: NDArray[np.int32] = field(default_factory=lambda: np.zeros(_BLOCK_ROWS, np.int32))
    count: int = 0

    def cosines(self, query: Vectors) -> Vectors:
        """Return the approximate cosines of all rows."""
        count = self.count
        cosines, floats = np.empty(count, np.float32), np.empty((_ROWS, query.size), np.float32)
        for start in range(0, count, _ROWS):
            part = floats[: min(_ROWS, count - start)]
            part[:] = self.matrix[start : start + len(part)]
            np.dot(part, query, out=cosines[start : start + len(part)])
        return cosines * self.scales[:count]


@dataclass
class _LoadedVectors:
    embedding: int
    changes: int = -1
    blocks: list[_Block] = field(default_factory=list[_Block])


class VectorIndex:
    """Cache of the vectors of all searched bases; thread-safe, without a lock around the product."""

    def __init__(self) -> None:
        self._loaded: dict[int, _LoadedVectors] = {}
        self._lock = threading.Lock()

    def nearest(
        self,
        connection: Transaction,
        base: int,
        embedding: Embedding,
        query: Vectors,
        documents: Sequence[int] | None,
        maximum: int,
    ) -> NearestChunks:
        """Return the chunks of a base nearest to a unit vector, of documents with these keys, or of all for None."""
        with self._lock:
            loaded = self._loaded.get(base)
            if loaded is None or loaded.embedding != embedding.key:
                loaded = self._loaded[base] = _LoadedVectors(embedding.key)
            if loaded.changes != embedding.changes:
                stored = stored_vectors(connection, embedding.key)
                still_stored = [np.isin(block.chunks, stored) for block in loaded.blocks]
                if sum(block.count for block in loaded.blocks) > 2 * sum(map(np.count_nonzero, still_stored)):
                    # More rows were removed than remain.
                    loaded.blocks, still_stored = [], []
                loaded_chunks = np.concatenate([block.chunks for block in loaded.blocks] or [stored[:0]])
                for block, is_stored in zip(loaded.blocks, still_stored, strict=True):
                    block.chunks[~is_stored] = _REMOVED
                new = np.setdiff1d(stored, loaded_chunks)
                rows = read_vectors(connection, embedding.key, new.tolist() if loaded_chunks.size else None)
                room = _BLOCK_ROWS - loaded.blocks[-1].count if loaded.blocks else 0
                while part := list(islice(rows, min(_ROWS, room or _ROWS))):
                    if not room:
                        loaded.blocks.append(_Block(np.empty((_BLOCK_ROWS, embedding.dimensions), np.int8)))
                        room = _BLOCK_ROWS
                    block = loaded.blocks[-1]
                    vectors = float_rows([half for *_, half in part], embedding.dimensions)
                    scales = np.maximum(np.abs(vectors).max(axis=1), np.finfo(np.float32).tiny) / 127
                    at = slice(block.count, block.count + len(part))
                    block.matrix[at] = np.rint(vectors / scales[:, np.newaxis])
                    block.scales[at], block.chunks[at] = scales, [chunk for chunk, *_ in part]
                    block.documents[at] = [document for _, document, _ in part]
                    block.count = at.stop
                    room -= len(part)
                loaded.changes = embedding.changes
            blocks = list(loaded.blocks)
        visible = None if documents is None else np.array(documents, np.int32)
        chunk_lists: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        near: list[Vectors] = [np.zeros(0, np.float32)]
        for block in blocks:
            cosines = block.cosines(query)
            chunks = block.chunks[: cosines.size]
            is_there = chunks != _REMOVED
            if visible is not None:
                is_there &= np.isin(block.documents[: cosines.size], visible)
            chunk_lists.append(chunks[is_there])
            near.append(cosines[is_there])
        chunks, cosines = np.concatenate(chunk_lists), np.concatenate(near)
        if not cosines.size:
            return NO_NEIGHBOURS
        top = np.argpartition(-cosines, maximum)[:maximum] if cosines.size > maximum else np.arange(cosines.size)
        top = top[np.argsort(-cosines[top], kind="stable")]
        pairs = list(zip(chunks[top].tolist(), cosines[top].tolist(), strict=True))
        return NearestChunks(embedding.key, query, pairs, float(cosines.mean()), float(cosines.std()))
