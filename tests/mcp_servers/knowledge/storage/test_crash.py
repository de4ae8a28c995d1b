"""An import that is killed at any moment loses no committed document and leaves no half one."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio

from mcp_servers.knowledge.library import open_library
from mcp_servers.knowledge.storage.bases import base_by_key
from mcp_servers.knowledge.storage.sqlite import FILE_NAME, SQLiteDatabase
from mcp_servers.knowledge.storage.text_index import TermStatistics
from mcp_servers.knowledge.text_analysis import analyze_query
from tests.support.cuts import has_every_point
from tests.support.shared import REPOSITORY

ROUNDS = 6 if has_every_point() else 3
CHUNKS = 15

# Adds documents without end, every third one a new version of an earlier one, and says when each is committed.
_IMPORT = """
import sys
from itertools import count
from pathlib import Path
import anyio
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.library import LibrarySettings, open_library
from tests.support.knowledge import document

async def main(folder, base_id, first, chunks):
    async with open_library(Path(folder), LibrarySettings(HashingEmbedder())) as library:
        for number in count(int(first)):
            uri = str(number // 3 * 3)
            texts = [f"document {number} 番の文書 chunk {place}" for place in range(int(chunks))]
            await library.add(base_id, document(*texts, title=f"title{number}", uri=uri))
            print(number, flush=True)

anyio.run(main, *sys.argv[1:])
"""


def import_and_kill(folder: Path, base_id: str, first: int, after: int) -> int:
    """Imports from a number on, is killed at some moment after this many documents, and returns the last one told."""
    arguments = [sys.executable, "-c", _IMPORT, str(folder), base_id, str(first), str(CHUNKS)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=REPOSITORY) as child:
        assert child.stdout
        told = [child.stdout.readline() for _ in range(after)]
        child.kill()
        told += child.stdout.readlines()
    return max(int(line) for line in told if line.endswith(b"\n"))


def make_base(folder: Path) -> str:
    async def create() -> str:
        async with open_library(folder) as library:
            return (await library.create("crash")).id

    return anyio.run(create)


def assert_whole(folder: Path, last: int) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    documents = dict(connection.execute("SELECT CAST(uri AS INTEGER), CAST(SUBSTR(title, 6) AS INTEGER) FROM document"))
    # One more than was told may have been committed, and only the newest version of each is there.
    newest = {}
    for number in range(max(documents.values()) + 1):
        newest[number // 3 * 3] = number
    assert documents == newest
    assert max(documents.values()) in {last, last + 1}
    halves = "SELECT uri FROM document WHERE chunks <> (SELECT COUNT(*) FROM chunk WHERE document = document.id)"
    assert connection.execute(halves).fetchall() == []
    chunks = len(documents) * CHUNKS
    tables = ("chunk", "profile", "vector")
    assert [connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables] == [chunks] * 3
    assert connection.execute("SELECT chunks FROM base").fetchone() == (chunks,)
    connection.execute("INSERT INTO text_1 (text_1) VALUES ('integrity-check')")
    connection.close()
    assert_text_index_agrees(folder, documents)


def assert_text_index_agrees(folder: Path, documents: dict[int, int]) -> None:
    """What the text index knows is exactly the newest versions: every number that was replaced is gone from it."""
    database = SQLiteDatabase(folder)
    with database.reading() as connection:
        for number in range(max(documents.values()) + 1):
            (term,) = analyze_query(f"title{number}").terms
            found = TermStatistics().postings(connection, base_by_key(connection, 1), [term])
            assert found[term].size == (CHUNKS if number in documents.values() else 0)
    database.close()


def test_an_import_killed_again_and_again_loses_nothing_and_leaves_no_halves(tmp_path: Path) -> None:
    chance = random.Random(5)
    base_id = make_base(tmp_path)
    last = -1
    for _ in range(ROUNDS):
        last = import_and_kill(tmp_path, base_id, last + 1, chance.randint(1, 9))
        assert_whole(tmp_path, last)
