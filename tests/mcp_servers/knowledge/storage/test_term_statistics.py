"""The cache of a text index: each list is read once, and again after the base has changed."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from mcp_servers.knowledge.library import Library, LibrarySettings
from mcp_servers.knowledge.storage.bases import base_by_key
from mcp_servers.knowledge.storage.stores import Database, Transaction
from mcp_servers.knowledge.storage.text_index import TermStatistics
from mcp_servers.knowledge.types import NewChunk, NewDocument, SearchRequest

pytestmark = pytest.mark.anyio
BASE = 1


async def add(library: Library, base_id: str, *texts: str) -> str:
    new = NewDocument(texts[0], tuple(map(NewChunk, texts)), texts[0], uri=texts[0])
    return (await library.add(base_id, new)).document_id


class Recorded:
    """A transaction that notes the statements that it runs."""

    def __init__(self, connection: Transaction, statements: list[str]) -> None:
        self._connection = connection
        self._statements = statements

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        self._statements.append(sql)
        return self._connection.execute(sql, parameters)


@pytest.mark.parametrize("at_once", [0, 4_000])
async def test_the_chunks_of_a_term_are_counted_alike_in_small_and_large_bases(
    database: Database, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_servers.knowledge.storage.text_index._READ_AT_ONCE", at_once)
    library = Library(database, LibrarySettings())
    base_id = (await library.create("rules")).id
    await add(library, base_id, "title", "印刷の設定", "印象と印刷", "rain falls")
    statistics, terms = TermStatistics(), ["印刷", "印", "rain", "snow"]
    with database.reading() as connection:
        base = base_by_key(connection, BASE)
        for _ in range(2):
            assert statistics.frequencies(connection, base, terms) == {"印刷": 2, "印": 2, "rain": 1, "snow": 0}
            postings = statistics.postings(connection, base, terms)
            assert {term: keys.size for term, keys in postings.items()} == {"印刷": 2, "印": 2, "rain": 1, "snow": 0}


async def test_profiles_are_read_once_until_the_base_changes(database: Database) -> None:
    library = Library(database, LibrarySettings())
    base_id = (await library.create("rules")).id
    first = await add(library, base_id, "rain", "snow", "hail")
    statistics = TermStatistics()
    statements: list[str] = []

    def read(*chunks: int) -> list[int]:
        with database.reading() as connection:
            base = base_by_key(connection, BASE)
            recorded = cast("Transaction", Recorded(connection, statements))
            return [profile.chunk for profile in statistics.profiles(recorded, base, chunks)]

    assert read(3, 1) == [1, 3]
    assert read(2, 3, 1) == [1, 2, 3]
    count = sum("FROM profile" in sql for sql in statements)
    assert read(1, 2, 3) == [1, 2, 3]
    assert sum("FROM profile" in sql for sql in statements) == count == 2
    await add(library, base_id, "wind")
    await library.remove(first)
    assert read(1, 2, 3, 4) == [4]


async def test_a_question_in_one_base_without_vectors_takes_three_transactions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(database, LibrarySettings())
    base_id = (await library.create("rules")).id
    await add(library, base_id, "rain falls")
    transactions = 0
    reading = database.reading

    @contextmanager
    def counted() -> Generator[Transaction, None, None]:
        nonlocal transactions
        transactions += 1
        with reading() as connection:
            yield connection

    monkeypatch.setattr(database, "reading", counted)
    assert [hit.title for hit in (await library.search(SearchRequest("rain", base_id))).hits] == ["rain falls"]
    # The base, the passages, and where they stand.
    assert transactions == 3
