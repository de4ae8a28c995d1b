"""Knowledge bases, and the SQL conditions that enforce access.

The conditions are part of every reading statement, so invisible data is never ranked, counted or read. Values from
callers are always parameters.
"""

# ruff: noqa: S608 - the SQL is put together from constants, whole numbers and question marks; values are parameters

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from mcp_servers.knowledge.errors import AccessDeniedError, BaseNotFoundError
from mcp_servers.knowledge.storage.stores import Transaction
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION
from mcp_servers.knowledge.types import Access, KnowledgeBase
from mcp_servers.knowledge.validation import parse_uuid


@dataclass(frozen=True)
class SqlFilter:
    """A condition over ``document`` with its parameters."""

    sql: str = ""  # to append to another condition: it begins with AND; empty: every document passes
    parameters: tuple[object, ...] = ()


def document_filter(
    access: Access, collection: str | None = None, fields: Mapping[str, str] | None = None
) -> SqlFilter:
    """Return the condition for visible documents of a collection with these fields."""
    conditions: list[tuple[str, tuple[object, ...]]] = []
    if not access.is_unrestricted:
        conditions += [
            ("document.tenant IN ('', ?)", (access.tenant,)),
            ("document.clearance <= ?", (access.clearance,)),
        ]
    if not access.is_unrestricted and access.department is not None:
        conditions.append(("document.department IN ('', ?)", (access.department,)))
    if collection is not None:
        conditions.append(("document.collection IN (SELECT id FROM collection WHERE name = ?)", (collection,)))
    conditions += [
        ("EXISTS (SELECT 1 FROM field WHERE field.document = document.id AND name = ? AND value = ?)", pair)
        for pair in (fields or {}).items()
    ]
    return SqlFilter("".join(f" AND {sql}" for sql, _ in conditions), tuple(p for _, pair in conditions for p in pair))


def base_filter(access: Access) -> SqlFilter:
    """Return the condition over ``base`` for visible knowledge bases."""
    if access.is_unrestricted:
        return SqlFilter()
    # The owner may put documents for a tenant, which have no tenant, into the tenant's base.
    return SqlFilter(" AND base.tenant IN ('', ?)" if access.sees_shared else " AND base.tenant = ?", (access.tenant,))


@dataclass(frozen=True)
class StoredBase:
    """A knowledge base with its row."""

    key: int  # row id
    base: KnowledgeBase
    analyzer: int  # version of the text index
    chunks: int  # count
    terms: int  # total number of terms
    embedding: int | None  # vector set that is searched
    next_embedding: int | None  # vector set that is being made


_SELECT = """
    SELECT base.id, uuid, name, description, tenant, created, analyzer, chunks, terms, base.embedding, becoming,
           COALESCE(embedder, '')
    FROM base LEFT JOIN embedding ON embedding.id = base.embedding
"""


def now() -> str:
    """Return the current time, ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def create_base(connection: Transaction, name: str, description: str, tenant: str) -> StoredBase:
    """Create a base with an empty text index."""
    row = (str(uuid.uuid4()), name, description, tenant, now(), ANALYZER_VERSION)
    columns = "uuid, name, description, tenant, created, analyzer"
    sql = f"INSERT INTO base ({columns}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id"
    key: int = connection.execute(sql, row).fetchone()[0]
    connection.terms.create(key)
    return base_by_key(connection, key)


def bases(connection: Transaction, access: Access, base_id: str | None = None) -> list[StoredBase]:
    """Return the visible bases by name, or one as ``base_by_id``."""
    if base_id is not None:
        return [base_by_id(connection, base_id, access)]
    visible = base_filter(access)
    rows = connection.execute(
        f"{_SELECT} WHERE TRUE{visible.sql} ORDER BY name, base.id", visible.parameters
    ).fetchall()
    return [_base(row) for row in rows]


def base_by_id(connection: Transaction, base_id: str, access: Access) -> StoredBase:
    """Return one base; raise BaseNotFoundError or AccessDeniedError."""
    row = connection.execute(f"{_SELECT} WHERE uuid = ?", (parse_uuid(base_id),)).fetchone()
    if row is None:
        raise BaseNotFoundError(base_id)
    visible = base_filter(access)
    parameters = (row[0], *visible.parameters)
    if not connection.execute(f"SELECT 1 FROM base WHERE id = ?{visible.sql}", parameters).fetchone():
        raise AccessDeniedError(base_id)
    return _base(row)


def base_by_key(connection: Transaction, key: int) -> StoredBase:
    """Return one base; raise BaseNotFoundError if it was removed meanwhile."""
    row = connection.execute(f"{_SELECT} WHERE base.id = ?", (key,)).fetchone()
    if row is None:
        raise BaseNotFoundError(str(key))
    return _base(row)


def remove_base(connection: Transaction, key: int) -> None:
    """Delete a base and its contents."""
    connection.execute("DELETE FROM document WHERE base = ?", (key,))
    connection.execute("DELETE FROM collection WHERE base = ?", (key,))
    connection.execute("UPDATE base SET embedding = NULL, becoming = NULL WHERE id = ?", (key,))
    connection.execute("DELETE FROM embedding WHERE base = ?", (key,))
    connection.execute("DELETE FROM base WHERE id = ?", (key,))
    connection.terms.drop(key)


def counts(connection: Transaction, key: int, access: Access) -> tuple[int, int, int]:
    """Return the numbers of visible documents, collections and chunks; empty collections are visible to all."""
    visible = document_filter(access)
    documents, chunks = connection.execute(
        "SELECT COUNT(*) FILTER (WHERE chunks > 0), COALESCE(SUM(chunks), 0) FROM document"
        f" WHERE base = ?{visible.sql}",
        (key, *visible.parameters),
    ).fetchone()
    (collections,) = connection.execute(
        f"""
        SELECT COUNT(*) FROM collection WHERE base = ? AND (
            NOT EXISTS (SELECT 1 FROM document WHERE document.collection = collection.id)
            OR EXISTS (SELECT 1 FROM document WHERE document.collection = collection.id{visible.sql})
        )
        """,
        (key, *visible.parameters),
    ).fetchone()
    return documents, collections, chunks


def _base(row: tuple[int, str, str, str, str, str, int, int, int, int | None, int | None, str]) -> StoredBase:
    key, base_id, name, description, tenant, created, analyzer, chunks, terms, embedding, next_embedding, embedder = row
    base = KnowledgeBase(base_id, name, description, tenant, embedder, created)
    return StoredBase(key, base, analyzer, chunks, terms, embedding, next_embedding)
