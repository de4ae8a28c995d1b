"""A text index is rebuilt next to the one that is searched, in short transactions, and then takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.storage.bases import base_by_key
from mcp_servers.knowledge.storage.sqlite import SQLiteDatabase
from mcp_servers.knowledge.storage.stores import Database, Transaction
from mcp_servers.knowledge.storage.text_index import (
    TermStatistics,
    chunks_to_rebuild,
    extend_rebuilt_index,
    finish_rebuilt_index,
    mark_text_index_stale,
)
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION
from mcp_servers.knowledge.types import NewChunk, NewDocument, SearchRequest

pytestmark = pytest.mark.anyio
BASE = 1
OLDER = ANALYZER_VERSION - 1


async def add(library: Library, base_id: str, name: str, words: str = "rain") -> str:
    chunks = tuple(NewChunk(f"{words} {name} {number}") for number in range(60))
    return (await library.add(base_id, NewDocument(name, chunks, name + words, uri=name))).document_id


async def found(library: Library, base_id: str, query: str) -> set[str]:
    result = await library.search(SearchRequest(query, base_id, threshold=0.0, max_results=50))
    return {hit.title for hit in result.hits}


def indexes(database: Database) -> set[str]:
    """The kinds of indexes in the store."""
    with database.reading() as connection:
        if isinstance(database, SQLiteDatabase):
            rows = connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%'").fetchall()
            return {name.partition("_")[0] for (name,) in rows}
        kinds = {0: "text", -1: "replaced"}
        return {kinds.get(version, "rebuilt") for (version,) in connection.execute("SELECT version FROM term_index")}


def rebuild(database: Database, last: int = 1_000_000) -> None:
    """Add batches to the new index until it has the chunk ``last``."""
    while True:
        with database.writing() as connection:
            chunks = list(chunks_to_rebuild(connection, BASE))
            if not chunks or chunks[0][0] > last:
                return
            extend_rebuilt_index(connection, BASE, chunks)


def numbers(connection: Transaction) -> tuple[int, int, int]:
    chunks, terms = connection.execute("SELECT chunks, terms FROM base").fetchone()
    return chunks, terms, connection.execute("SELECT SUM(terms) FROM profile").fetchone()[0]


async def test_documents_come_and_go_while_the_index_is_rebuilt_in_parts(database: Database) -> None:
    # Without its background work, which would rebuild as well.
    library = Library(database, LibrarySettings())
    base_id = (await library.create("rules")).id
    documents = {name: await add(library, base_id, name) for name in ("first", "second", "third")}
    with database.writing() as connection:
        mark_text_index_stale(connection, BASE)
    rebuild(database, 70)
    assert [await found(library, base_id, name) for name in documents] == [{"first"}, {"second"}, {"third"}]
    # One document is in the new index as a whole, one in part and one not at all.
    for document in documents.values():
        await library.remove(document)
    await add(library, base_id, "fourth", "snow")
    assert await found(library, base_id, "snow rain") == {"fourth"}
    with database.writing() as connection:
        assert not finish_rebuilt_index(connection, BASE)
    rebuild(database)
    with database.writing() as connection:
        assert finish_rebuilt_index(connection, BASE)
        counts = TermStatistics().frequencies(connection, base_by_key(connection, BASE), ["rain", "snow", "fourth"])
        assert counts == {"rain": 0, "snow": 60, "fourth": 60}
        chunks, terms, in_profiles = numbers(connection)
    assert (chunks, terms) == (60, in_profiles)
    while "replaced" in indexes(database):
        with database.writing() as connection:
            assert connection.terms.delete_replaced(BASE)
    assert indexes(database) == {"text"}
    with database.writing() as connection:
        while connection.terms.merge(BASE, 0):
            pass
        if isinstance(database, SQLiteDatabase):
            assert connection.execute("SELECT COUNT(DISTINCT segid) FROM text_1_idx").fetchone() == (1,)
    fourth = await add(library, base_id, "fourth", "hail")
    assert await found(library, base_id, "snow") == set()
    assert await found(library, base_id, "hail") == {"fourth"}
    await library.remove(fourth)
    with database.reading() as connection:
        assert TermStatistics().frequencies(connection, base_by_key(connection, BASE), ["hail"]) == {"hail": 0}


async def test_a_rebuild_that_was_interrupted_goes_on_and_one_of_an_older_version_starts_anew(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    library = Library(database, LibrarySettings())
    base_id = (await library.create("rules")).id
    for name in ("first", "second"):
        await add(library, base_id, name)
    with database.writing() as connection:
        mark_text_index_stale(connection, BASE)
        connection.terms.create(BASE, OLDER)
    rebuild(database, 70)
    with database.reading() as connection:
        last = [connection.terms.last(BASE, version) for version in (OLDER, ANALYZER_VERSION)]
    assert last[0] is None
    assert last[1] is not None
    assert 0 < last[1] <= 120
    async with open_library(tmp_path, LibrarySettings(database_url=database_url)) as opened:
        await opened.indexer.wait_idle()
        assert indexes(database) == {"text"}
        assert await found(opened, base_id, "second") == {"second"}
        await opened.reindex(base_id)
        await opened.indexer.wait_idle()
        assert await found(opened, base_id, "first") == {"first"}


async def test_a_base_is_removed_with_its_unfinished_index(database: Database) -> None:
    library = Library(database, LibrarySettings())
    base_id = (await library.create("rules")).id
    await add(library, base_id, "first")
    with database.writing() as connection:
        mark_text_index_stale(connection, BASE)
    rebuild(database)
    await library.remove_base(base_id)
    while "replaced" in indexes(database):
        with database.writing() as connection:
            assert connection.terms.delete_replaced(BASE)
    assert indexes(database) == set()
