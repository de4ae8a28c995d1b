"""Text index of a base, and term profiles for the re-rank.

A profile is the distinct terms of a chunk with their counts, 5 bytes per term; analyzing hundreds of texts per query
took most of its time. Terms are 32-bit hashes: among 200 terms of a chunk and 20 of a query, a collision occurs once in
a million.
"""

# ruff: noqa: S608 - the SQL is put together from constants, whole numbers and question marks; values are parameters

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mcp_servers.knowledge.storage.bases import SqlFilter
from mcp_servers.knowledge.storage.database import create_text_index
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION, analyze, indexed_text

# Prefix for a kanji counted separately: a lone kanji is also a term.
_KANJI_MARK = "\x01"
_MAX_COUNT = 255
_BATCH = 500


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


def index_chunk(title: str, headings: tuple[str, ...], text: str) -> IndexedChunk:
    """Analyze a chunk."""
    analysis = analyze(indexed_text(title, headings, text))
    found = Counter(analysis.terms)
    found.update(_KANJI_MARK + kanji for kanji in analysis.kanji)
    hashes = np.fromiter(map(term_hash, found), "<u4", len(found)).tobytes()
    counts = bytes(min(count, _MAX_COUNT) for count in found.values())
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
    """Remove a document's chunks from the index; a contentless table needs the original terms."""
    chunks = list(_analyzed_chunks(connection, "document.id = ?", document))
    connection.executemany(
        f"INSERT INTO text_{base:d} (text_{base:d}, rowid, terms) VALUES ('delete', ?, ?)",
        ((key, chunk.terms) for key, chunk in chunks),
    )
    connection.execute(
        "UPDATE base SET chunks = chunks - ?, terms = terms - ? WHERE id = ?",
        (len(chunks), sum(chunk.length for _, chunk in chunks), base),
    )


def rebuild_text_index(connection: sqlite3.Connection, base: int) -> None:
    """Rebuild the index of a base with the current analyzer."""
    create_text_index(connection, base)
    connection.execute("DELETE FROM profile WHERE chunk IN (SELECT id FROM chunk WHERE base = ?)", (base,))
    connection.execute("UPDATE base SET chunks = 0, terms = 0, analyzer = ? WHERE id = ?", (ANALYZER_VERSION, base))
    batch: list[tuple[int, IndexedChunk]] = []
    for chunk in _analyzed_chunks(connection, "chunk.base = ?", base):
        batch.append(chunk)
        if len(batch) == _BATCH:
            add_chunks(connection, base, batch)
            batch.clear()
    add_chunks(connection, base, batch)


def mark_text_index_stale(connection: sqlite3.Connection, base: int) -> None:
    """Mark the index of a base for rebuilding."""
    connection.execute("UPDATE base SET analyzer = 0 WHERE id = ?", (base,))


def ranked_chunks(
    connection: sqlite3.Connection, base: int, terms: Iterable[str], visible: SqlFilter, maximum: int
) -> list[tuple[int, float]]:
    """Return the visible chunks that contain any of the terms with their BM25, best first."""
    match = " OR ".join(_phrase(term) for term in dict.fromkeys(terms))
    if not match:
        return []
    table = f"text_{base:d}"
    if visible.passes_everything:
        sql = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?"
    else:
        # CROSS JOIN keeps the index first, in rank order; the planner's own choice may take minutes.
        sql = f"""
            SELECT {table}.rowid, -{table}.rank
            FROM {table}
            CROSS JOIN chunk ON chunk.id = {table}.rowid
            CROSS JOIN document ON document.id = chunk.document
            WHERE {table} MATCH ?{visible.and_sql()} ORDER BY {table}.rank LIMIT ?
        """
    return connection.execute(sql, (match, *visible.parameters, maximum)).fetchall()


def _phrase(term: str) -> str:
    # Quoted, so that terms are not parsed as operators; terms contain no quotes. A single character is a prefix of
    # bigrams.
    return f'"{term}"*' if len(term) == 1 and not term.isascii() else f'"{term}"'


def document_frequencies(connection: sqlite3.Connection, base: int, terms: Sequence[str]) -> dict[str, int]:
    """Return the number of chunks that contain each term."""
    sql = f"SELECT doc FROM vocabulary_{base:d} WHERE term = ?"
    rows = ((term, connection.execute(sql, (term,)).fetchone()) for term in terms)
    return {term: row[0] if row else 0 for term, row in rows}


def profiles(connection: sqlite3.Connection, chunks: Sequence[int]) -> list[Profile]:
    """Return the profiles of chunks in any order; removed chunks are missing."""
    marks = ", ".join("?" * len(chunks))
    sql = f"SELECT chunk, terms, hashes, counts FROM profile WHERE chunk IN ({marks})"
    rows = connection.execute(sql, tuple(chunks))
    return [Profile(*row) for row in rows]


def _analyzed_chunks(connection: sqlite3.Connection, condition: str, key: int) -> Iterator[tuple[int, IndexedChunk]]:
    rows = connection.execute(
        f"""
        SELECT chunk.id, title, headings, text FROM document JOIN chunk ON chunk.document = document.id
        WHERE {condition} ORDER BY chunk.id
        """,
        (key,),
    )
    for chunk, title, headings, text in rows:
        yield chunk, index_chunk(title, tuple(json.loads(headings)), text)
