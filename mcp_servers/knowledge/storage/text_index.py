"""The text index of a base: terms in, chunks with their BM25 out; and the profiles the re-rank counts in.

A profile is a chunk's distinct terms and how often each occurs, 5 bytes a term. It saves the re-rank from taking
hundreds of texts apart for every question, which was most of a query's time. Terms are told apart by 32 bits; among a
chunk's 200 terms and a question's 20, two that differ share them once in a million.
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

# Ahead of a kanji that is counted by itself: a lone kanji is a term besides.
_KANJI_MARK = "\x01"
_MAX_COUNT = 255
_BATCH = 500


@dataclass(frozen=True)
class IndexedChunk:
    """A chunk ready for the index.

    Args:
        terms: separated by spaces, as the index takes them.
        length: how many there are.
        hashes: of its distinct terms and kanji, 32 bits each.
        counts: how often each occurs, 8 bits each.
    """

    terms: str
    length: int
    hashes: bytes
    counts: bytes


@dataclass(frozen=True)
class Profile:
    """A chunk as the re-rank sees it.

    Args:
        chunk: its row.
        length: how many terms it has.
        hashes: as stored.
        counts: as stored.
    """

    chunk: int
    length: int
    hashes: bytes
    counts: bytes


def index_chunk(title: str, headings: tuple[str, ...], text: str) -> IndexedChunk:
    """A chunk taken apart."""
    analysis = analyze(indexed_text(title, headings, text))
    found = Counter(analysis.terms)
    found.update(_KANJI_MARK + kanji for kanji in analysis.kanji)
    hashes = np.fromiter(map(term_hash, found), "<u4", len(found)).tobytes()
    counts = bytes(min(count, _MAX_COUNT) for count in found.values())
    return IndexedChunk(" ".join(analysis.terms), len(analysis.terms), hashes, counts)


def term_hash(term: str) -> int:
    """The 32 bits that stand for a term in a profile."""
    return zlib.crc32(term.encode())


def kanji_hash(kanji: str) -> int:
    """The 32 bits that stand for a kanji counted by itself."""
    return term_hash(_KANJI_MARK + kanji)


def add_chunks(connection: sqlite3.Connection, base: int, chunks: Sequence[tuple[int, IndexedChunk]]) -> None:
    """Chunks into the index, and into the numbers of the base."""
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
    """The chunks of a document out of the index: a contentless index is told the terms it is to forget."""
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
    """The index of a base anew from its chunks, with today's analyzer."""
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
    """Mark the index of a base as one to be made anew."""
    connection.execute("UPDATE base SET analyzer = 0 WHERE id = ?", (base,))


def ranked_chunks(
    connection: sqlite3.Connection, base: int, terms: Iterable[str], visible: SqlFilter, maximum: int
) -> list[tuple[int, float]]:
    """The chunks that hold any of the terms, best BM25 first.

    Args:
        connection: within a transaction.
        base: its row.
        terms: of the question; each counts once here.
        visible: limits the chunks by their document, inside the query.
        most: how many.
    """
    match = " OR ".join(_phrase(term) for term in dict.fromkeys(terms))
    if not match:
        return []
    table = f"text_{base:d}"
    if visible.passes_everything:
        sql = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?"
    else:
        # The index comes first and in order of rank; whoever lets the planner choose may wait for minutes.
        sql = f"""
            SELECT {table}.rowid, -{table}.rank
            FROM {table}
            CROSS JOIN chunk ON chunk.id = {table}.rowid
            CROSS JOIN document ON document.id = chunk.document
            WHERE {table} MATCH ?{visible.and_sql()} ORDER BY {table}.rank LIMIT ?
        """
    return connection.execute(sql, (match, *visible.parameters, maximum)).fetchall()


def _phrase(term: str) -> str:
    # Quoted, so that no term is an operator of the query language; terms hold no quotes. A character alone is the
    # beginning of the pairs it is found in.
    return f'"{term}"*' if len(term) == 1 and not term.isascii() else f'"{term}"'


def document_frequencies(connection: sqlite3.Connection, base: int, terms: Sequence[str]) -> dict[str, int]:
    """In how many chunks of the base each term occurs."""
    sql = f"SELECT doc FROM vocabulary_{base:d} WHERE term = ?"
    rows = ((term, connection.execute(sql, (term,)).fetchone()) for term in terms)
    return {term: row[0] if row else 0 for term, row in rows}


def profiles(connection: sqlite3.Connection, chunks: Sequence[int]) -> list[Profile]:
    """The profiles of chunks, in no particular order; one that was removed meanwhile is missing."""
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
