"""Text index of a base, and term profiles for the re-rank.

A profile is the distinct terms of a chunk with their counts, 5 bytes per term; analyzing hundreds of texts per query
took most of its time. Terms are 32-bit hashes: among 200 terms of a chunk and 20 of a query, a collision occurs once in
a million.
"""

# ruff: noqa: S608 - the SQL is put together from constants, whole numbers and question marks; values are parameters

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mcp_servers.knowledge.storage.bases import SqlFilter, StoredBase
from mcp_servers.knowledge.storage.database import BATCH_S, NO_LIMIT, ChunkKeys, marks
from mcp_servers.knowledge.storage.stores import Transaction
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION, Analysis, analyze, indexed_text

# Prefix for a kanji counted separately: a lone kanji is also a term.
_KANJI_MARK = "\x01"
_MAX_COUNT = 255
# Chunks analyzed for one transaction of a rebuild.
_BATCH = 50
# 8 bytes each, for all terms of a base that were searched since it changed.
_MAX_POSTINGS_KEPT = 2_000_000
_MAX_TERMS_KEPT = 100_000
# About 1.5 KB each.
_MAX_PROFILES_KEPT = 4_000
# In a base with fewer chunks, reading all lists is faster than counting them first and reading those of rare terms.
_READ_AT_ONCE = 4_000
_FILTERED = 1000


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
    return IndexedChunk(" ".join(analysis.terms), len(analysis.terms), *_pack(_occurrences(analysis)))


def _occurrences(analysis: Analysis) -> Counter[str]:
    occurrences = Counter(analysis.terms)
    occurrences.update(_KANJI_MARK + kanji for kanji in analysis.kanji)
    return occurrences


def _pack(occurrences: Counter[str]) -> tuple[bytes, bytes]:
    """Return the hashes of terms and how often each occurs, as a profile has them."""
    # An import spends a fifth of its time here: without calls of our own for each term.
    hashes = np.array([zlib.crc32(term.encode()) for term in occurrences], "<u4").tobytes()
    counts: Iterable[int] = occurrences.values()
    if max(counts, default=0) > _MAX_COUNT:
        counts = [min(count, _MAX_COUNT) for count in counts]
    return hashes, bytes(counts)


def term_hash(term: str) -> int:
    """Return the hash of a term."""
    return zlib.crc32(term.encode())


def kanji_hash(kanji: str) -> int:
    """Return the hash of a kanji counted separately."""
    return term_hash(_KANJI_MARK + kanji)


def add_chunks(connection: Transaction, base: int, chunks: Sequence[tuple[int, IndexedChunk]]) -> None:
    """Add chunks to the index and to the counts of the base."""
    connection.terms.add(base, ((key, chunk.terms) for key, chunk in chunks))
    connection.executemany(
        "INSERT INTO profile (chunk, terms, hashes, counts) VALUES (?, ?, ?, ?)",
        ((key, chunk.length, chunk.hashes, chunk.counts) for key, chunk in chunks),
    )
    connection.execute(
        "UPDATE base SET chunks = chunks + ?, terms = terms + ? WHERE id = ?",
        (len(chunks), sum(chunk.length for _, chunk in chunks), base),
    )


def remove_document_chunks(connection: Transaction, base: int, document: int) -> None:
    """Remove a document's chunks from the index, which needs the terms that were added.

    An index of another analyzer version keeps them until it is replaced: a search drops chunks that are not stored.
    """
    chunks, version, last = _analyzed_chunks(connection, "document.id = ?", document), 0, 0
    if connection.execute("SELECT analyzer FROM base WHERE id = ?", (base,)).fetchone()[0] != ANALYZER_VERSION:
        version, last = ANALYZER_VERSION, connection.terms.last(base, ANALYZER_VERSION) or 0
        chunks = ((key, chunk) for key, chunk in chunks if key <= last)
    if not version or last:
        connection.terms.remove(base, ((key, chunk.terms) for key, chunk in chunks), version)
    owned = "(SELECT id FROM chunk WHERE document = ?)"
    connection.execute(
        f"""
        UPDATE base SET (chunks, terms) = (SELECT base.chunks - COUNT(*), base.terms - COALESCE(SUM(profile.terms), 0)
        FROM profile WHERE chunk IN {owned}) WHERE id = ?
        """,
        (document, base),
    )


def chunks_to_rebuild(connection: Transaction, base: int) -> Iterator[tuple[int, IndexedChunk]]:
    """Yield the next chunks that the new index of a base lacks, analyzed; none if it is complete."""
    last = connection.terms.last(base, ANALYZER_VERSION) or 0
    yield from _analyzed_chunks(connection, f"chunk.id > {last:d} AND chunk.base = ?", base, _BATCH)


def extend_rebuilt_index(connection: Transaction, base: int, chunks: Sequence[tuple[int, IndexedChunk]]) -> None:
    """Add the first of these chunks to the new index next to the one that is searched; replace their profiles.

    As many as fit into ``BATCH_S``, and at least one.
    """
    start = time.monotonic()
    last = connection.terms.last(base, ANALYZER_VERSION)
    if last is None:
        connection.terms.create(base, ANALYZER_VERSION)
        last = 0
    connection.terms.merge(base, BATCH_S / 2, ANALYZER_VERSION)
    sql = f"SELECT id, COALESCE(terms, 0) FROM chunk LEFT JOIN profile ON chunk = id WHERE id IN ({marks(chunks)})"
    lengths = dict(connection.execute(sql, [key for key, _ in chunks]))
    # Chunks may have been removed since they were read, or added by another process.
    added = 0
    for key, chunk in [(key, chunk) for key, chunk in chunks if key in lengths and key > last]:
        connection.terms.add(base, [(key, chunk.terms)], ANALYZER_VERSION)
        connection.execute(
            """
            INSERT INTO profile (chunk, terms, hashes, counts) VALUES (?, ?, ?, ?)
            ON CONFLICT (chunk) DO UPDATE SET terms = excluded.terms, hashes = excluded.hashes, counts = excluded.counts
            """,
            (key, chunk.length, chunk.hashes, chunk.counts),
        )
        added += chunk.length - lengths[key]
        if time.monotonic() > start + BATCH_S:
            break
    connection.execute("UPDATE base SET terms = terms + ? WHERE id = ?", (added, base))


def finish_rebuilt_index(connection: Transaction, base: int) -> bool:
    """Search the new index from now on; return False if it lacks chunks that were added meanwhile."""
    last = connection.terms.last(base, ANALYZER_VERSION)
    if connection.execute("SELECT 1 FROM chunk WHERE base = ? AND id > ? LIMIT 1", (base, last or 0)).fetchone():
        return False
    if last is None:
        connection.terms.create(base, ANALYZER_VERSION)
    connection.terms.replace(base, ANALYZER_VERSION)
    connection.execute("UPDATE base SET analyzer = ? WHERE id = ?", (ANALYZER_VERSION, base))
    return True


def mark_text_index_stale(connection: Transaction, base: int) -> None:
    """Mark the index of a base for rebuilding."""
    connection.execute("UPDATE base SET analyzer = 0 WHERE id = ?", (base,))


@dataclass
class _SearchedTerms:
    """What was read for searches since a base changed."""

    state: object
    counts: dict[str, int] = field(default_factory=dict[str, int])
    lists: dict[str, ChunkKeys] = field(default_factory=dict[str, ChunkKeys])
    postings: int = 0  # in all lists
    profiles: dict[int, Profile] = field(default_factory=dict[int, Profile])  # by chunk


class TermStatistics:
    """Document frequencies, posting lists and profiles, kept in memory until a base changes; thread-safe."""

    def __init__(self) -> None:
        self._searched: dict[int, _SearchedTerms] = {}

    def frequencies(self, connection: Transaction, base: StoredBase, terms: Sequence[str]) -> dict[str, int]:
        """Return the number of chunks that contain each term."""
        counts = self._current(connection, base).counts
        if len(counts) > _MAX_TERMS_KEPT:
            counts.clear()
        # Another thread may clear the cache at any time.
        frequencies = {term: count for term in terms if (count := counts.get(term)) is not None}
        new_terms = [term for term in dict.fromkeys(terms) if term not in frequencies]
        if base.chunks < _READ_AT_ONCE:
            new = {term: keys.size for term, keys in self.postings(connection, base, new_terms).items()}
        else:
            new = connection.terms.frequencies(base.key, new_terms)
        counts.update(new)
        return {**frequencies, **new}

    def postings(self, connection: Transaction, base: StoredBase, terms: Sequence[str]) -> dict[str, ChunkKeys]:
        """Return the chunks that contain each term in ascending order."""
        searched = self._current(connection, base)
        if searched.postings > _MAX_POSTINGS_KEPT:
            searched.lists.clear()
            searched.postings = 0
        postings = {term: keys for term in terms if (keys := searched.lists.get(term)) is not None}
        new = connection.terms.postings(base.key, [term for term in dict.fromkeys(terms) if term not in postings])
        searched.lists.update(new)
        searched.postings += sum(keys.size for keys in new.values())
        return {**postings, **new}

    def profiles(self, connection: Transaction, base: StoredBase, chunks: Collection[int]) -> list[Profile]:
        """Return the profiles of chunks in ascending order; removed chunks are missing."""
        kept = self._current(connection, base).profiles
        if len(kept) > _MAX_PROFILES_KEPT:
            kept.clear()
        profiles = [profile for chunk in chunks if (profile := kept.get(chunk)) is not None]
        there = {profile.chunk for profile in profiles}
        missing = [chunk for chunk in chunks if chunk not in there]
        new: list[Profile] = []
        if missing:
            sql = f"""
                SELECT profile.chunk, terms, hashes, counts, document
                FROM profile JOIN chunk ON chunk.id = profile.chunk WHERE profile.chunk IN ({marks(missing)})
            """
            new = [Profile(*row) for row in connection.execute(sql, missing)]
        kept.update((profile.chunk, profile) for profile in new)
        return sorted([*profiles, *new], key=lambda profile: profile.chunk)

    def _current(self, connection: Transaction, base: StoredBase) -> _SearchedTerms:
        # Keys of chunks are never used again, so a change of the contents changes one of these numbers.
        (newest,) = connection.execute("SELECT MAX(id) FROM chunk").fetchone()
        state = (base.analyzer, base.chunks, newest)
        searched = self._searched.get(base.key)
        if searched is None or searched.state != state:
            searched = self._searched[base.key] = _SearchedTerms(state)
        return searched


def visible_chunks(connection: Transaction, chunks: ChunkKeys, visible: SqlFilter, maximum: int) -> list[int]:
    """Return the places of the first chunks that are visible."""
    if not visible.sql:
        return list(range(min(maximum, chunks.size)))
    allowed: list[int] = []
    for start in range(0, chunks.size, _FILTERED):
        part: list[int] = chunks[start : start + _FILTERED].tolist()
        sql = f"""
            SELECT chunk.id FROM chunk JOIN document ON document.id = chunk.document
            WHERE chunk.id IN ({marks(part)}){visible.sql}
        """
        passed = {key for (key,) in connection.execute(sql, (*part, *visible.parameters))}
        allowed += [start + at for at, chunk in enumerate(part) if chunk in passed]
        if len(allowed) >= maximum:
            break
    return allowed[:maximum]


def heading_profiles(connection: Transaction, chunks: Sequence[int]) -> dict[int, Profile]:
    """Return the profiles of the titles and headings of chunks, for chunks that may have been removed an empty one."""
    sql = f"""
        SELECT chunk.id, document.id, title, headings FROM chunk JOIN document ON document.id = chunk.document
        WHERE chunk.id IN ({marks(chunks)})
    """
    profiles = dict.fromkeys(chunks, Profile(0, 0, b"", b""))
    for chunk, document, title, headings in connection.execute(sql, tuple(chunks)):
        profiles[chunk] = Profile(chunk, *_analyzed_headings(title, headings), document)
    return profiles


@lru_cache(maxsize=2_048)
def _analyzed_headings(title: str, headings: str) -> tuple[int, bytes, bytes]:
    """Return the number of terms of a title and headings in JSON, and their profile."""
    lines = [_analyzed_line(line) for line in indexed_text(title, tuple(json.loads(headings)), "").split("\n")]
    occurrences = Counter[str]()
    for _, found in lines:
        occurrences.update(found)
    hashes, counts = _pack(occurrences)
    return sum(length for length, _ in lines), hashes, counts


@lru_cache(maxsize=8_192)
def _analyzed_line(line: str) -> tuple[int, Counter[str]]:
    """Return the number of terms of a title or heading, which many passages have, and how often each occurs."""
    analysis = analyze(line)
    return len(analysis.terms), _occurrences(analysis)


def _analyzed_chunks(
    connection: Transaction, condition: str, key: int, maximum: int = NO_LIMIT
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
