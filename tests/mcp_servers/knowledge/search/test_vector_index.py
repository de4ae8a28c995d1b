"""The vectors in memory find the nearest chunks, also while others search and vectors come and go."""

from __future__ import annotations

import numpy as np
import pytest

from mcp_servers.knowledge.embedding import Vectors
from mcp_servers.knowledge.library import Library, LibrarySettings
from mcp_servers.knowledge.search.vector_index import VectorIndex
from mcp_servers.knowledge.storage.stores import Database
from mcp_servers.knowledge.storage.vectors import (
    create_embedding,
    embedding_by_key,
    exact_cosines,
    float_rows,
    store_vectors,
)
from mcp_servers.knowledge.types import NewChunk, NewDocument

pytestmark = pytest.mark.anyio
ROWS, DIMENSIONS = 9000, 16


def random_rows(count: int) -> Vectors:
    rows = np.random.default_rng(3).normal(size=(count, DIMENSIONS))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


async def test_the_nearest_by_bytes_have_the_cosines_of_the_stored_vectors(database: Database) -> None:
    index, rows = VectorIndex(), random_rows(ROWS)
    library = Library(database, LibrarySettings())
    base = await library.create("base")
    first = await library.add(base.id, NewDocument("one", (NewChunk("rain"),) * 1000, "1"))
    await library.add(base.id, NewDocument("two", (NewChunk("snow"),) * (ROWS - 1000), "2"))
    with database.writing() as connection:
        key = create_embedding(connection, 1, "model")
        store_vectors(connection, key, list(range(1, ROWS + 1)), rows)
    query = float_rows([rows[8500].astype("<f2").tobytes()], DIMENSIONS)[0]
    expected = [int(chunk) + 1 for chunk in np.argsort(-(rows @ query), kind="stable")[:10]]
    with database.reading() as connection:
        embedding = embedding_by_key(connection, key)
        found = index.nearest(connection, 1, embedding, query, None, 20)
        exact = exact_cosines(connection, key, query, [chunk for chunk, _ in found.chunks])
        seen = index.nearest(connection, 1, embedding, query, [1], 20)
    assert sorted(exact, key=lambda chunk: -exact[chunk])[:10] == expected
    assert dict(found.chunks) == pytest.approx(exact, abs=0.01)
    assert found.background == pytest.approx(float((rows @ query).mean()), abs=0.001)
    assert all(chunk <= 1000 for chunk, _ in seen.chunks)
    await library.remove(first.document_id)
    with database.reading() as connection:
        left = index.nearest(connection, 1, embedding_by_key(connection, key), query, None, ROWS)
    assert sorted(chunk for chunk, _ in left.chunks) == list(range(1001, ROWS + 1))
