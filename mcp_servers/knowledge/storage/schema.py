"""The tables, and the steps that bring an older file to them.

``PRAGMA user_version`` counts the steps that were taken; each is one transaction, and none is ever changed once it was
released. A file that has taken more steps than there are is left alone.

Text index: ``text_<base>`` is a contentless FTS5 table per base (one for all bases is seven times slower for a small
base among large ones, docs/knowledge.md), ``vocabulary_<base>`` its vocabulary. Terms are made in ``analysis``; the
``ascii`` tokenizer only cuts at the spaces between them, as it takes every other character beyond ASCII for a letter.

Written for SQLite 3.37 (Ubuntu 22.04) and later.
"""

from __future__ import annotations

import sqlite3

_STEPS: tuple[str, ...] = (
    """
    CREATE TABLE base (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uuid TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        tenant TEXT NOT NULL,
        created TEXT NOT NULL,
        analyzer INTEGER NOT NULL,
        chunks INTEGER NOT NULL DEFAULT 0,
        terms INTEGER NOT NULL DEFAULT 0,
        embedding INTEGER REFERENCES embedding(id),
        becoming INTEGER REFERENCES embedding(id)
    );
    -- The vectors one embedder made of a base; total is their sum, which points where the base's documents lie;
    -- changes tells a process whether the vectors it has in memory are still these.
    CREATE TABLE embedding (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        base INTEGER NOT NULL REFERENCES base(id),
        embedder TEXT NOT NULL,
        dimensions INTEGER NOT NULL DEFAULT 0,
        vectors INTEGER NOT NULL DEFAULT 0,
        changes INTEGER NOT NULL DEFAULT 0,
        total BLOB NOT NULL DEFAULT x''
    );
    CREATE TABLE collection (
        id INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL UNIQUE,
        base INTEGER NOT NULL REFERENCES base(id),
        name TEXT NOT NULL,
        UNIQUE (base, name)
    );
    CREATE TABLE document (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uuid TEXT NOT NULL UNIQUE,
        base INTEGER NOT NULL REFERENCES base(id),
        collection INTEGER NOT NULL REFERENCES collection(id),
        title TEXT NOT NULL,
        uri TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        version INTEGER NOT NULL,
        chunks INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        department TEXT NOT NULL,
        clearance INTEGER NOT NULL,
        fields TEXT NOT NULL,
        created TEXT NOT NULL
    );
    CREATE INDEX document_by_uri ON document (base, uri, tenant);
    CREATE INDEX document_by_content ON document (base, content_hash);
    CREATE TABLE field (
        document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (document, name)
    ) WITHOUT ROWID;
    -- An id is never used again: vectors in memory are told apart by it.
    CREATE TABLE chunk (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE,
        base INTEGER NOT NULL,
        position INTEGER NOT NULL,
        text TEXT NOT NULL,
        headings TEXT NOT NULL,
        page INTEGER
    );
    CREATE INDEX chunk_by_document ON chunk (document, position);
    CREATE INDEX chunk_by_base ON chunk (base);
    -- What the re-rank counts, apart from the text so that a hundred of them lie close together.
    CREATE TABLE profile (
        chunk INTEGER PRIMARY KEY REFERENCES chunk(id) ON DELETE CASCADE,
        terms INTEGER NOT NULL,
        hashes BLOB NOT NULL,
        counts BLOB NOT NULL
    );
    CREATE TABLE vector (
        chunk INTEGER NOT NULL REFERENCES chunk(id) ON DELETE CASCADE,
        embedding INTEGER NOT NULL REFERENCES embedding(id),
        half_floats BLOB NOT NULL
    );
    CREATE UNIQUE INDEX vector_by_chunk ON vector (chunk, embedding);
    CREATE INDEX vector_by_embedding ON vector (embedding, chunk);
    """,
)


class NewerFileError(Exception):
    """The file has taken more steps than this version knows."""


def migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing.

    Raises:
        NewerFileError: it has taken more than there are.
        sqlite3.Error: it cannot be read or written, or is no database.
    """
    if steps_taken(connection) == len(_STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: another process may have been faster.
        for number, step in enumerate(_STEPS[steps_taken(connection) :], steps_taken(connection) + 1):
            for statement in step.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def steps_taken(connection: sqlite3.Connection) -> int:
    """How many steps the file has taken.

    Raises:
        NewerFileError: more than there are.
        sqlite3.Error: it cannot be read, or is no database.
    """
    taken: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if taken > len(_STEPS):
        raise NewerFileError(f"layout {taken}, this program knows {len(_STEPS)}")
    return taken


def create_text_index(connection: sqlite3.Connection, base: int) -> None:
    """An empty text index for a base, in place of any that is there."""
    drop_text_index(connection, base)
    connection.execute(f"CREATE VIRTUAL TABLE text_{base:d} USING fts5(terms, content='', tokenize='ascii')")
    connection.execute(f"CREATE VIRTUAL TABLE vocabulary_{base:d} USING fts5vocab(text_{base:d}, row)")


def drop_text_index(connection: sqlite3.Connection, base: int) -> None:
    """Remove the text index of a base."""
    connection.execute(f"DROP TABLE IF EXISTS vocabulary_{base:d}")
    connection.execute(f"DROP TABLE IF EXISTS text_{base:d}")
