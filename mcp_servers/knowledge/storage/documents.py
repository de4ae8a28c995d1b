"""Documents: adding, replacing, removing and locating, with all index entries, in the caller's transaction.

The same content at several places is indexed once: a place is its own document without chunks, whose content,
collection, fields and readers are those of a document that has them.
"""

# ruff: noqa: S608 - the SQL is put together from constants, whole numbers and question marks; values are parameters

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mcp_servers.knowledge.errors import AccessDeniedError, DocumentNotFoundError
from mcp_servers.knowledge.storage.bases import SqlFilter, StoredBase, base_filter, document_filter, now
from mcp_servers.knowledge.storage.database import NO_LIMIT, marks
from mcp_servers.knowledge.storage.stores import Transaction
from mcp_servers.knowledge.storage.text_index import IndexedChunk, add_chunks, remove_document_chunks
from mcp_servers.knowledge.storage.vectors import Vectors, remove_vectors, store_vectors
from mcp_servers.knowledge.types import ALL, Access, AddResult, Document, NewChunk, NewDocument, Page
from mcp_servers.knowledge.validation import parse_uuid

_SELECT = """
    SELECT document.id, document.base, document.uuid, base.uuid, collection.uuid, collection.name, title, uri,
           content_hash, version, document.chunks, document.tenant, department, clearance, fields, document.created
    FROM document JOIN base ON base.id = document.base JOIN collection ON collection.id = document.collection
"""


@dataclass(frozen=True)
class StoredDocument:
    """A document with its row and the row of its base."""

    key: int
    base: int
    document: Document


@dataclass(frozen=True)
class PreparedDocument:
    """A document with everything computed before the transaction."""

    document: NewDocument
    chunks: Sequence[IndexedChunk]  # for the text index, one per chunk
    vectors: Mapping[int, Vectors]  # by embedding key


@dataclass(frozen=True)
class ChunkLocation:
    """Text and source of a chunk."""

    text: str
    position: int  # from 0 within the document
    headings: tuple[str, ...]
    page: int | None
    version: int
    document_id: str
    collection_id: str
    title: str
    uri: str


def unchanged_document(connection: Transaction, base: StoredBase, new: NewDocument, access: Access) -> AddResult | None:
    """Return the result of adding a document that is stored already, or None."""
    old = _existing_version(connection, base, new, access)
    if old is None or not _is_visible(connection, old.key, access):
        return None
    there = old if old.document.chunks else next(iter(_of_content(connection, base.key, new, "> 0")), None)
    compared = ("content_hash", "title", "collection", "department", "clearance", "fields")
    is_unchanged = all(getattr(old.document, name) == getattr(new, name) for name in compared)
    if not is_unchanged or there is None or there.document.chunks != len(new.chunks):
        return None
    return AddResult(there.document.id, there.document.version, there.document.chunks, is_new=False)


def write_document(connection: Transaction, base: StoredBase, prepared: PreparedDocument, access: Access) -> AddResult:
    """Add a document, replacing its previous version; raise AccessDeniedError if the caller may not see that."""
    new = prepared.document
    old = _existing_version(connection, base, new, access)
    if old and not _is_visible(connection, old.key, access):
        raise AccessDeniedError(base.base.id, "there is such a document already, and you may not see it")
    if unchanged := unchanged_document(connection, base, new, access):
        return unchanged
    if old:
        remove_document(connection, old, every_place=False)
    document_id, version = (old.document.id, old.document.version + 1) if old else (str(uuid.uuid4()), 1)
    there = next(iter(_of_content(connection, base.key, new, "> 0")), None)
    if there and there.document.chunks == len(new.chunks):
        if new.uri:
            _insert(connection, base, replace(new, chunks=()), document_id, version)
        return AddResult(there.document.id, there.document.version, there.document.chunks, is_new=False)
    key = _insert(connection, base, new, document_id, version)
    connection.executemany(
        "INSERT INTO chunk (document, base, position, text, headings, page) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (key, base.key, position, chunk.text, json.dumps(chunk.headings, ensure_ascii=False), chunk.page)
            for position, chunk in enumerate(new.chunks)
        ],
    )
    rows = connection.execute("SELECT id FROM chunk WHERE document = ? ORDER BY position", (key,))
    chunks = [chunk for (chunk,) in rows]
    add_chunks(connection, base.key, list(zip(chunks, prepared.chunks, strict=True)))
    for embedding, vectors in prepared.vectors.items():
        store_vectors(connection, embedding, chunks, vectors)
    return AddResult(document_id, version, len(chunks), is_new=True)


def remove_document(connection: Transaction, stored: StoredDocument, *, every_place: bool) -> None:
    """Delete a document with its index entries; its collection remains.

    Without ``every_place`` it is removed from its place only: if its content is at another one, it goes on there.
    """
    others = _of_content(connection, stored.base, stored.document, "= 0") if stored.document.chunks else []
    if others and not every_place:
        # The row of the chunks stays: searches keep its key in memory.
        connection.execute("DELETE FROM document WHERE id = ?", (others[0].key,))
        other = others[0].document
        values = (other.id, other.title, other.uri, other.version, other.created, stored.key)
        sql = "UPDATE document SET uuid = ?, title = ?, uri = ?, version = ?, created = ? WHERE id = ?"
        connection.execute(sql, values)
        return
    for place in (*others, stored):
        remove_document_chunks(connection, place.base, place.key)
        remove_vectors(connection, place.key)
        connection.execute("DELETE FROM document WHERE id = ?", (place.key,))


def document_by_id(connection: Transaction, document_id: str, access: Access) -> StoredDocument:
    """Return one visible document; raise DocumentNotFoundError."""
    visible, base_visible = document_filter(access), base_filter(access)
    row = connection.execute(
        f"{_SELECT} WHERE document.uuid = ?{visible.sql}{base_visible.sql}",
        (parse_uuid(document_id), *visible.parameters, *base_visible.parameters),
    ).fetchone()
    if row is None:
        raise DocumentNotFoundError(document_id)
    return _document(row)


def documents_of(
    connection: Transaction,
    base: int,
    access: Access,
    uri: str | None = None,
    page: Page = ALL,
    *,
    every_place: bool = False,
) -> list[Document]:
    """Return the visible documents of a base by title, all or the one at a URI; ``every_place`` repeats content."""
    visible = document_filter(access)
    condition, parameters = (" AND document.chunks > 0", ()) if uri is None else (" AND uri = ?", (uri,))
    condition = "" if every_place else condition
    rows = connection.execute(
        f"{_SELECT} WHERE document.base = ?{condition}{visible.sql} ORDER BY title, document.id LIMIT ? OFFSET ?",
        (base, *parameters, *visible.parameters, NO_LIMIT if page.limit < 0 else page.limit, page.offset),
    )
    documents = [_document(row) for row in rows]
    are_repeated = "SELECT 1 FROM document WHERE base = ? AND chunks = 0"
    if every_place or not connection.execute(are_repeated, (base,)).fetchone():
        return [stored.document for stored in documents]
    repeated: list[Document] = []
    for stored in documents:
        others = _of_content(connection, base, stored.document, "= 0") if stored.document.chunks else []
        repeated.append(replace(stored.document, places=tuple(place.document.uri for place in others)))
    return repeated


def text_of(connection: Transaction, document: Document, access: Access) -> list[NewChunk]:
    """Return the chunks of a document, which may be those of another one with the same content."""
    if document.chunks:
        return chunks_of(connection, document.id)
    base = document_by_id(connection, document.id, access).base
    there = next(iter(_of_content(connection, base, document, "> 0")), None)
    return chunks_of(connection, there.document.id) if there else []


def locate(connection: Transaction, chunks: Sequence[int], access: Access) -> dict[int, ChunkLocation]:
    """Return the locations of chunks; invisible and removed ones are missing."""
    visible = document_filter(access)
    rows = connection.execute(
        f"""
        SELECT chunk.id, text, position, headings, page, version, document.uuid, collection.uuid, title, uri
        FROM chunk JOIN document ON document.id = chunk.document JOIN collection ON collection.id = document.collection
        WHERE chunk.id IN ({marks(chunks)}){visible.sql}
        """,
        (*chunks, *visible.parameters),
    )
    return {
        key: ChunkLocation(text, position, tuple(json.loads(headings)), page, *columns)
        for key, text, position, headings, page, *columns in rows
    }


def chunks_of(connection: Transaction, document_id: str, page: Page = ALL) -> list[NewChunk]:
    """Return the chunks of a document in order."""
    rows = connection.execute(
        "SELECT text, chunk.headings, page FROM chunk JOIN document ON document.id = chunk.document WHERE uuid = ?"
        " ORDER BY position LIMIT ? OFFSET ?",
        (document_id, NO_LIMIT if page.limit < 0 else page.limit, page.offset),
    )
    return [NewChunk(text, tuple(json.loads(headings)), page) for text, headings, page in rows]


def tenant_chunks(connection: Transaction, tenant: str) -> int:
    """Return the number of chunks of a tenant's documents."""
    sql = "SELECT COALESCE(SUM(chunks), 0) FROM document WHERE tenant = ?"
    return connection.execute(sql, (tenant,)).fetchone()[0]


def visible_document_keys(connection: Transaction, base: int, visible: SqlFilter) -> list[int]:
    """Return the keys of a base's documents that pass a filter."""
    rows = connection.execute(f"SELECT id FROM document WHERE base = ?{visible.sql}", (base, *visible.parameters))
    return [row[0] for row in rows]


def _existing_version(
    connection: Transaction, base: StoredBase, new: NewDocument, access: Access
) -> StoredDocument | None:
    """Return the document with the same URI, or without a URI with the same content.

    A URI belongs to one document regardless of visibility. Equal content may belong to several people who must not
    learn of each other, so that lookup is limited to visible documents.
    """
    mark, value = ("uri", new.uri) if new.uri else ("content_hash", new.content_hash)
    visible = SqlFilter() if new.uri else document_filter(access)
    row = connection.execute(
        f"{_SELECT} WHERE document.base = ? AND {mark} = ? AND document.tenant = ? AND (uri <> '') = ?{visible.sql}",
        (base.key, value, new.tenant, bool(new.uri), *visible.parameters),
    ).fetchone()
    return _document(row) if row else None


def _of_content(
    connection: Transaction, base: int, document: Document | NewDocument, chunks: Literal["= 0", "> 0"]
) -> list[StoredDocument]:
    """Return the documents of a base with the content, collection, fields and readers of a document.

    At most one of them has the chunks; those without are its other places.
    """
    rows = connection.execute(
        f"{_SELECT} WHERE document.base = ? AND content_hash = ? AND document.tenant = ? AND department = ?"
        f" AND clearance = ? AND collection.name = ? AND document.chunks {chunks} ORDER BY document.id",
        (base, document.content_hash, document.tenant, document.department, document.clearance, document.collection),
    )
    return [stored for row in rows if (stored := _document(row)).document.fields == document.fields]


def _insert(connection: Transaction, base: StoredBase, new: NewDocument, document_id: str, version: int) -> int:
    collection = (base.key, new.collection)
    sql = "INSERT INTO collection (uuid, base, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    connection.execute(sql, (str(uuid.uuid4()), *collection))
    find = "SELECT id FROM collection WHERE base = ? AND name = ?"
    copied = ("title", "uri", "content_hash", "tenant", "department", "clearance")
    row = {
        "uuid": document_id,
        "base": base.key,
        "collection": connection.execute(find, collection).fetchone()[0],
        **{name: getattr(new, name) for name in copied},
        "version": version,
        "chunks": len(new.chunks),
        "fields": json.dumps(dict(new.fields), ensure_ascii=False, sort_keys=True),
        "created": now(),
    }
    sql = f"INSERT INTO document ({', '.join(row)}) VALUES ({', '.join('?' * len(row))}) RETURNING id"
    key: int = connection.execute(sql, tuple(row.values())).fetchone()[0]
    if new.fields:
        fields = [(key, *pair) for pair in new.fields.items()]
        connection.executemany("INSERT INTO field (document, name, value) VALUES (?, ?, ?)", fields)
    return key


def _is_visible(connection: Transaction, key: int, access: Access) -> bool:
    visible = document_filter(access)
    parameters = (key, *visible.parameters)
    return bool(connection.execute(f"SELECT 1 FROM document WHERE id = ?{visible.sql}", parameters).fetchone())


def _document(row: Sequence[Any]) -> StoredDocument:
    key, base, *values, fields, created = row
    return StoredDocument(key, base, Document(*values, fields=json.loads(fields), created=created))
