"""Text index of a base, and term profiles for the re-rank.

A profile is the distinct terms of a chunk with their counts, 5 bytes per term; analyzing hundreds of texts per query
took most of its time. Terms are 32-bit hashes: among 200 terms of a chunk and 20 of a query, a collision occurs once in
a million.
"""

# ruff: noqa: S608 - the SQL is put together from constants, whole numbers and question marks; values are parameters

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.storage.bases import SqlFilter, StoredBase
from mcp_servers.knowledge.storage.database import (
    BATCH_S,
    create_text_index,
    drop_text_tables,
    merge_segments,
    replace_text_index,
)
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION, analyze, indexed_text

# Prefix for a kanji counted separately: a lone kanji is also a term.
_KANJI_MARK = "\x01"
_MAX_COUNT = 255
# Chunks analyzed for one transaction of a rebuild.
_BATCH = 50
# 8 bytes each, for all terms of a base that were searched since it changed.
_MAX_POSTINGS_KEPT = 2_000_000
_MAX_TERMS_KEPT = 100_000
_FILTERED = 1000

ChunkKeys = NDArray[np.int64]
NO_CHUNKS: ChunkKeys = np.zeros(0, np.int64)


@dataclass(frozen=True)
class IndexedChunk:
    """An analyzed chunk."""

    terms: str  # separated by spaces
    length: int  # number of terms
    hashes: bytes  # 32 bits per distinct term and kanji
    counts: bytes  # 8 bits each


@dataclass(frozen=True)
class Profile:
    """Term profile of a chunk."""

    chunk: int  # row id
    length: int
    hashes: bytes
    counts: bytes
    document: int = 0  # row id


def index_chunk(title: str, headings: tuple[str, ...], text: str) -> IndexedChunk:
    """Analyze a chunk."""
    analysis = analyze(indexed_text(title, headings, text))
    occurrences = Counter(analysis.terms)
    occurrences.update(_KANJI_MARK + kanji for kanji in analysis.kanji)
    hashes = np.fromiter(map(term_hash, occurrences), "<u4", len(occurrences)).tobytes()
    counts = bytes(min(count, _MAX_COUNT) for count in occurrences.values())
    return IndexedChunk(" ".join(analysis.terms), len(analysis.terms), hashes, counts)


def term_hash(term: str) -> int:
    """Return the hash of a term."""
    return zlib.crc32(term.encode())


def kanji_hash(kanji: str) -> int:
    """Return the hash of a kanji counted separately."""
    return term_hash(_KANJI_MARK + kanji)


def add_chunks(connection: sqlite3.Connection, base: int, chunks: Sequence[tuple[int, IndexedChunk]]) -> None:
    """Add chunks to the index and to the counts of the base."""
    connection.executemany(
        f"INSERT INTO text_{base:d} (rowid, terms) VALUES (?, ?)", ((key, chunk.terms) for key, chunk in chunks)
    )
    connection.executemany(
        "INSERT INTO profile (chunk, terms, hashes, counts) VALUES (?, ?, ?, ?)",
        ((key, chunk.length, chunk.hashes, chunk.counts) for key, chunk in chunks),
    )
    connection.execute(
        "UPDATE base SET chunks = chunks + ?, terms = terms + ? WHERE id = ?",
        (len(chunks), sum(chunk.length for _, chunk in chunks), base),
    )


def remove_document_chunks(connection: sqlite3.Connection, base: int, document: int) -> None:
    """Remove a document's chunks from the index; a contentless table needs the original terms.

    An index of another analyzer version keeps them until it is replaced: a search drops chunks that are not stored.
    """
    term_chunks, table = _analyzed_chunks(connection, "document.id = ?", document), f"text_{base:d}"
    if connection.execute("SELECT analyzer FROM base WHERE id = ?", (base,)).fetchone()[0] != ANALYZER_VERSION:
        table, last = _rebuilt_index(connection, base)
        term_chunks = ((key, chunk) for key, chunk in term_chunks if key <= last)
    if table:
        connection.executemany(
            f"INSERT INTO {table} ({table}, rowid, terms) VALUES ('delete', ?, ?)",
            ((key, chunk.terms) for key, chunk in term_chunks),
        )
    owned = "(SELECT id FROM chunk WHERE document = ?)"
    connection.execute(
        f"""
        UPDATE base SET (chunks, terms) = (SELECT chunks - COUNT(*), base.terms - COALESCE(SUM(profile.terms), 0)
        FROM profile WHERE chunk IN {owned}) WHERE id = ?
        """,
        (document, base),
    )


def chunks_to_rebuild(connection: sqlite3.Connection, base: int) -> Iterator[tuple[int, IndexedChunk]]:
    """Yield the next chunks that the new index of a base lacks, analyzed; none if it is complete."""
    _, last = _rebuilt_index(connection, base)
    yield from _analyzed_chunks(connection, f"chunk.id > {last:d} AND chunk.base = ?", base, _BATCH)


def extend_rebuilt_index(connection: sqlite3.Connection, base: int, chunks: Sequence[tuple[int, IndexedChunk]]) -> None:
    """Add the first of these chunks to the new index beside the one that is searched; replace their profiles.

    As many as fit into ``BATCH_S``, and at least one.
    """
    start = time.monotonic()
    table, last = _rebuilt_index(connection, base)
    if not table:
        drop_text_tables(connection, base, "rebuilt")
        table = _new_rebuilt_index(connection, base)
    merge_segments(connection, table, BATCH_S / 2)
    marks = ", ".join("?" * len(chunks))
    sql = f"SELECT id, COALESCE(terms, 0) FROM chunk LEFT JOIN profile ON chunk = id WHERE id IN ({marks})"
    lengths = dict(connection.execute(sql, [key for key, _ in chunks]))
    # Chunks may have been removed since they were read, or added by another process.
    added = 0
    for key, chunk in [(key, chunk) for key, chunk in chunks if key in lengths and key > last]:
        connection.execute(f"INSERT INTO {table} (rowid, terms) VALUES (?, ?)", (key, chunk.terms))
        connection.execute(
            "INSERT OR REPLACE INTO profile (chunk, terms, hashes, counts) VALUES (?, ?, ?, ?)",
            (key, chunk.length, chunk.hashes, chunk.counts),
        )
        added += chunk.length - lengths[key]
        if time.monotonic() > start + BATCH_S:
            break
    connection.execute("UPDATE base SET terms = terms + ? WHERE id = ?", (added, base))


def finish_rebuilt_index(connection: sqlite3.Connection, base: int) -> bool:
    """Search the new index from now on; return False if it lacks chunks that were added meanwhile."""
    table, last = _rebuilt_index(connection, base)
    if connection.execute("SELECT 1 FROM chunk WHERE base = ? AND id > ? LIMIT 1", (base, last)).fetchone():
        return False
    table = table or _new_rebuilt_index(connection, base)
    merge_segments(connection, table, 0, are_all=True)
    replace_text_index(connection, base, table)
    connection.execute("UPDATE base SET analyzer = ? WHERE id = ?", (ANALYZER_VERSION, base))
    return True


def _rebuilt_index(connection: sqlite3.Connection, base: int) -> tuple[str, int]:
    """Return the new index of the current analyzer version and its last chunk; an empty name if there is none."""
    name = f"rebuilt_{base:d}_{ANALYZER_VERSION}"
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
        return "", 0
    row = connection.execute(f"SELECT rowid FROM {name} ORDER BY rowid DESC LIMIT 1").fetchone()
    return name, row[0] if row else 0


def _new_rebuilt_index(connection: sqlite3.Connection, base: int) -> str:
    name = f"rebuilt_{base:d}_{ANALYZER_VERSION}"
    create_text_index(connection, name)
    return name


def mark_text_index_stale(connection: sqlite3.Connection, base: int) -> None:
    """Mark the index of a base for rebuilding."""
    connection.execute("UPDATE base SET analyzer = 0 WHERE id = ?", (base,))


@dataclass
class _SearchedTerms:
    """Document frequencies and posting lists of the terms that were searched since a base changed."""

    state: object
    counts: dict[str, int] = field(default_factory=dict[str, int])
    lists: dict[str, ChunkKeys] = field(default_factory=dict[str, ChunkKeys])
    postings: int = 0  # in all lists


class TermStatistics:
    """Document frequencies and posting lists of the bases, kept in memory until a base changes; thread-safe."""

    def __init__(self) -> None:
        self._searched: dict[int, _SearchedTerms] = {}

    def frequencies(self, connection: sqlite3.Connection, base: StoredBase, terms: Iterable[str]) -> dict[str, int]:
        """Return the number of chunks that contain each term."""
        counts = self._current(connection, base).counts
        if len(counts) > _MAX_TERMS_KEPT:
            counts.clear()
        frequencies: dict[str, int] = {}
        for term in terms:
            # Another thread may clear the cache at any time.
            count = counts.get(term)
            frequencies[term] = counts[term] = (
                _select(connection, base.key, "COUNT(*)", term) if count is None else count
            )
        return frequencies

    def postings(self, connection: sqlite3.Connection, base: StoredBase, term: str) -> ChunkKeys:
        """Return the chunks that contain a term in ascending order."""
        searched = self._current(connection, base)
        postings = searched.lists.get(term)
        if postings is None:
            if searched.postings > _MAX_POSTINGS_KEPT:
                searched.lists.clear()
                searched.postings = 0
            # One string is twice as fast as a row for each chunk.
            joined = _select(connection, base.key, "GROUP_CONCAT(rowid)", term)
            postings = searched.lists[term] = np.fromstring(joined, np.int64, sep=",") if joined else NO_CHUNKS
            searched.postings += postings.size
        return postings

    def _current(self, connection: sqlite3.Connection, base: StoredBase) -> _SearchedTerms:
        # Keys of chunks are never used again, so a change of the contents changes one of these numbers.
        (newest,) = connection.execute("SELECT MAX(id) FROM chunk").fetchone()
        state = (base.analyzer, base.chunks, newest)
        searched = self._searched.get(base.key)
        if searched is None or searched.state != state:
            searched = self._searched[base.key] = _SearchedTerms(state)
        return searched


def _select(connection: sqlite3.Connection, base: int, figure: str, term: str) -> Any:
    # Quoted, so that terms are not parsed as operators. A single character is a prefix of bigrams.
    phrase = f'"{term}"*' if len(term) == 1 and not term.isascii() else f'"{term}"'
    sql = f"SELECT {figure} FROM text_{base:d} WHERE text_{base:d} MATCH ?"
    return connection.execute(sql, (phrase,)).fetchone()[0]


def visible_chunks(connection: sqlite3.Connection, chunks: ChunkKeys, visible: SqlFilter, maximum: int) -> list[int]:
    """Return the places of the first chunks that are visible."""
    if visible.passes_everything:
        return list(range(min(maximum, chunks.size)))
    allowed: list[int] = []
    for start in range(0, chunks.size, _FILTERED):
        part: list[int] = chunks[start : start + _FILTERED].tolist()
        sql = f"""
            SELECT chunk.id FROM chunk JOIN document ON document.id = chunk.document
            WHERE chunk.id IN ({", ".join("?" * len(part))}){visible.and_sql()}
        """
        passed = {key for (key,) in connection.execute(sql, (*part, *visible.parameters))}
        allowed += [start + at for at, chunk in enumerate(part) if chunk in passed]
        if len(allowed) >= maximum:
            break
    return allowed[:maximum]


def profiles(connection: sqlite3.Connection, chunks: Sequence[int]) -> list[Profile]:
    """Return the profiles of chunks in any order; removed chunks are missing."""
    marks = ", ".join("?" * len(chunks))
    sql = f"""
        SELECT profile.chunk, terms, hashes, counts, document FROM profile JOIN chunk ON chunk.id = profile.chunk
        WHERE profile.chunk IN ({marks})
    """
    rows = connection.execute(sql, tuple(chunks))
    return [Profile(*row) for row in rows]


def heading_profiles(connection: sqlite3.Connection, chunks: Sequence[int]) -> dict[int, Profile]:
    """Return the profiles of the titles and headings of chunks, for chunks that may have been removed an empty one."""
    marks = ", ".join("?" * len(chunks))
    sql = f"""
        SELECT chunk.id, document.id, title, headings FROM chunk JOIN document ON document.id = chunk.document
        WHERE chunk.id IN ({marks})
    """
    profiles = dict.fromkeys(chunks, Profile(0, 0, b"", b""))
    for chunk, document, title, headings in connection.execute(sql, tuple(chunks)):
        indexed = index_chunk(title, tuple(json.loads(headings)), "")
        profiles[chunk] = Profile(chunk, indexed.length, indexed.hashes, indexed.counts, document)
    return profiles


def _analyzed_chunks(
    connection: sqlite3.Connection, condition: str, key: int, maximum: int = -1
) -> Iterator[tuple[int, IndexedChunk]]:
    rows = connection.execute(
        f"""
        SELECT chunk.id, title, headings, text FROM document JOIN chunk ON chunk.document = document.id
        WHERE {condition} ORDER BY chunk.id LIMIT ?
        """,
        (key, maximum),
    )
    for chunk, title, headings, text in rows:
        yield chunk, index_chunk(title, tuple(json.loads(headings)), text)
