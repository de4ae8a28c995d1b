"""Library: the facade over one data folder or database, used by the tools and the importer.

Methods may be called concurrently, and several processes may open the same one. Blocking work runs in threads, in
one transaction per call. Methods raise BaseNotFoundError or AccessDeniedError for knowledge bases that do not exist or
belong to another tenant, and StorageError if the file cannot be used.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import zlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import IO, Any, Literal, ParamSpec, TypeVar, cast

import anyio
import anyio.to_thread

from mcp_servers.knowledge.embedding import Embedder, Reranker, Vectors
from mcp_servers.knowledge.embedding.background import BackgroundIndexer
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.embedding.remote import RemoteEmbedder, RemoteReranker
from mcp_servers.knowledge.errors import AccessDeniedError, BadArgumentError, KnowledgeError
from mcp_servers.knowledge.search.pipeline import Pipeline, Trace
from mcp_servers.knowledge.storage import bases as stored_bases
from mcp_servers.knowledge.storage import documents as stored_documents
from mcp_servers.knowledge.storage.bases import StoredBase
from mcp_servers.knowledge.storage.documents import PreparedDocument
from mcp_servers.knowledge.storage.sqlite import SQLiteDatabase
from mcp_servers.knowledge.storage.stores import Database, Transaction
from mcp_servers.knowledge.storage.text_index import index_chunk, mark_text_index_stale
from mcp_servers.knowledge.storage.vectors import (
    create_embedding,
    embedding_by_key,
    set_active_embedding,
)
from mcp_servers.knowledge.text_analysis import embedded_text
from mcp_servers.knowledge.types import (
    ALL,
    UNRESTRICTED,
    Access,
    AddResult,
    Document,
    IndexState,
    KnowledgeBase,
    NewChunk,
    NewDocument,
    Page,
    SearchRequest,
    SearchResult,
    Summary,
)
from mcp_servers.knowledge.validation import checked_access, checked_document, checked_request, checked_text

_MAX_NAME, _MAX_DESCRIPTION = 200, 4000
_CLOSE_S = 3.0


P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make a coroutine function of a method that blocks, by running it in a thread."""

    @wraps(method)
    async def call_in_thread(*args: P.args, **kwargs: P.kwargs) -> R:
        return await anyio.to_thread.run_sync(partial(method, *args, **kwargs))

    return call_in_thread


@dataclass(frozen=True)
class LibrarySettings:
    """Models of a library; without any, searches use BM25 only."""

    embedder: Embedder | None = None  # for all knowledge bases; None keeps existing vectors and makes none
    reranker: Reranker | None = None
    # whose vectors are searched while new ones are made; hashing is always available
    previous: tuple[Embedder, ...] = ()
    tenant_chunks: int = 0  # chunks that a tenant may store; 0 for no limit
    database_url: str = ""  # a PostgreSQL database instead of the folder


class Library:
    """An open folder or database of knowledge bases; created by ``open_library``."""

    def __init__(self, database: Database, settings: LibrarySettings) -> None:
        embedder = settings.embedder
        configured = (HashingEmbedder(), *settings.previous, *([embedder] if embedder else []))
        self._database = database
        self._tenant_chunks = settings.tenant_chunks
        self._embedders: dict[str, Embedder] = {embedder.name: embedder for embedder in configured}
        self._target_embedder = embedder.name if embedder else ""
        self._pipeline = Pipeline(database, self._embedders, settings.reranker)
        self.indexer = BackgroundIndexer(database, self._embedders, self._target_embedder)

    @_in_thread
    def create(self, name: str, description: str = "", *, access: Access = UNRESTRICTED) -> KnowledgeBase:
        """Create an empty knowledge base that belongs to the caller's tenant."""
        name = checked_text("name", name, maximum=_MAX_NAME)
        description = checked_text("description", description, maximum=_MAX_DESCRIPTION, may_be_empty=True)
        with self._database.writing() as connection:
            return self._create(connection, name, description, checked_access(access).tenant)

    def _create(self, connection: Transaction, name: str, description: str, tenant: str) -> KnowledgeBase:
        stored = stored_bases.create_base(connection, name, description, tenant)
        if self._target_embedder:
            # An empty base is complete, so this set is searched from the start.
            embedding = create_embedding(connection, stored.key, self._target_embedder)
            set_active_embedding(connection, stored.key, embedding)
        return stored_bases.base_by_key(connection, stored.key).base

    @_in_thread
    def ensure_base(self, name: str, access: Access) -> KnowledgeBase:
        """Return the first knowledge base of the caller's tenant; create an empty one if none exists."""
        owner = replace(checked_access(access), sees_shared=False)
        with self._database.writing() as connection:
            bases = stored_bases.bases(connection, owner)
            if bases:
                return bases[0].base
            return self._create(connection, checked_text("name", name, maximum=_MAX_NAME), "", owner.tenant)

    async def bases(self, access: Access = UNRESTRICTED) -> tuple[KnowledgeBase, ...]:
        """List the visible knowledge bases by name."""
        return tuple(stored.base for stored in await self._stored_bases(None, checked_access(access)))

    async def base(self, base_id: str, access: Access = UNRESTRICTED) -> KnowledgeBase:
        """Return one knowledge base."""
        return (await self._stored_bases(base_id, checked_access(access)))[0].base

    @_in_thread
    def overview(
        self, base_id: str | None = None, access: Access = UNRESTRICTED, page: Page = ALL
    ) -> tuple[tuple[KnowledgeBase, Summary], ...]:
        """Return one or all visible knowledge bases with their counts."""
        access = checked_access(access)
        with self._database.reading() as connection:
            bases = stored_bases.bases(connection, access, base_id)[page.offset :]
            bases = bases if page.limit < 0 else bases[: page.limit]
            overview: list[tuple[KnowledgeBase, Summary]] = []
            for stored in bases:
                base, counts = stored.base, stored_bases.counts(connection, stored.key, access)
                words = ": ".join(filter(None, (base.name, base.description)))
                overview.append((base, Summary(base.id, words, *counts, stored_bases.now())))
            return tuple(overview)

    @_in_thread
    def documents(
        self,
        base_id: str,
        access: Access = UNRESTRICTED,
        page: Page = ALL,
        uri: str | None = None,
        *,
        every_place: bool = False,
    ) -> tuple[Document, ...]:
        """List the visible documents of a knowledge base by title, or the one at this URI.

        ``every_place`` lists the same content once for each of its places.
        """
        access = checked_access(access)
        with self._database.reading() as connection:
            base = stored_bases.base_by_id(connection, base_id, access)
            return tuple(
                stored_documents.documents_of(connection, base.key, access, uri, page, every_place=every_place)
            )

    @_in_thread
    def passages(
        self, document_id: str, access: Access = UNRESTRICTED, page: Page = ALL
    ) -> tuple[Document, list[NewChunk]]:
        """Return a visible document with some of its chunks in order; raise DocumentNotFoundError."""
        with self._database.reading() as connection:
            document = stored_documents.document_by_id(connection, document_id, checked_access(access)).document
            return document, stored_documents.chunks_of(connection, document.id, page)

    async def add(self, base_id: str, document: NewDocument, access: Access = UNRESTRICTED) -> AddResult:
        """Add a document or replace its previous version, in one transaction.

        BM25 finds it when this returns; vectors of slow embedders follow in the background. Raises AccessDeniedError if
        the caller could not read the document afterwards, or if its URI belongs to a document the caller may not see;
        BadArgumentError if it has no chunks or an invalid attribute.
        """
        access = checked_access(access)
        new = checked_document(document, base_id, access)
        unchanged, embedders = await self._find_unchanged(base_id, new, access)
        if unchanged:
            return unchanged
        fast = [embedder for name, embedder in self._embedders.items() if name in embedders and embedder.is_fast]
        texts = [embedded_text(new.title, chunk.headings, chunk.text) for chunk in new.chunks]
        vectors = {embedder.name: await embedder.embed(texts) for embedder in fast}
        added = await self._write(base_id, new, vectors, access)
        self.indexer.wake()
        return added

    @_in_thread
    def remove(self, document_id: str, access: Access = UNRESTRICTED, *, every_place: bool = True) -> Document:
        """Remove and return a document; without ``every_place`` its content remains at its other places.

        Raises DocumentNotFoundError, or AccessDeniedError if it is of all tenants.
        """
        access = checked_access(access)
        with self._database.writing() as connection:
            stored = stored_documents.document_by_id(connection, document_id, access)
            _check_owner(stored.document.base_id, stored.document.tenant, access)
            stored_documents.remove_document(connection, stored, every_place=every_place)
        return stored.document

    @_in_thread
    def remove_base(self, base_id: str, access: Access = UNRESTRICTED) -> None:
        """Remove a knowledge base with all documents.

        Raises AccessDeniedError if it belongs to all tenants or has documents the caller may not see.
        """
        access = checked_access(access)
        with self._database.writing() as connection:
            base = stored_bases.base_by_id(connection, base_id, access)
            _check_owner(base_id, base.base.tenant, access)
            visible, there = (stored_bases.counts(connection, base.key, who)[0] for who in (access, UNRESTRICTED))
            if visible < there:
                raise AccessDeniedError(base_id, "it holds documents that you may not see")
            stored_bases.remove_base(connection, base.key)

    async def search(
        self, request: SearchRequest, access: Access = UNRESTRICTED, *, explain: bool = False
    ) -> SearchResult:
        """Return the passages that answer a query best.

        Access is enforced inside the queries. ``explain`` fills ``SearchResult.explained``. Raises ThresholdError,
        MaxResultsError, TextTooLongError or BadArgumentError for invalid requests.
        """
        request, access = checked_request(request), checked_access(access)
        trace = Trace(is_enabled=explain)
        with self._database.searching():
            bases = await self._stored_bases(request.base_id, access)
            hits = await self._pipeline.search(bases, request, access, trace)
        return SearchResult(request, hits, tuple(trace.problems), tuple(trace.stages) if explain else ())

    async def summary(self, base_id: str, access: Access = UNRESTRICTED) -> Summary:
        """Return name, description and counts of a knowledge base."""
        return (await self.overview(base_id, access))[0][1]

    async def reindex(self, base_id: str, access: Access = UNRESTRICTED) -> IndexState:
        """Rebuild the text index, and the vectors with the configured embedder, in the background.

        Searches continue meanwhile. The returned state is the one before the work; ``index_state`` shows progress.
        """
        await self._invalidate_indexes(base_id, checked_access(access))
        self.indexer.wake()
        return await self.index_state(base_id, access)

    @_in_thread
    def index_state(self, base_id: str, access: Access = UNRESTRICTED) -> IndexState:
        """Return the progress of the vectors of a knowledge base."""
        access = checked_access(access)
        with self._database.reading() as connection:
            base = stored_bases.base_by_id(connection, base_id, access)
            next_embedding = None if base.next_embedding is None else embedding_by_key(connection, base.next_embedding)
            searched = None if base.embedding is None else embedding_by_key(connection, base.embedding)
        target = next_embedding or searched
        return IndexState(
            base_id=base.base.id,
            chunks=base.chunks,
            active_embedder=base.base.embedder,
            next_embedding=next_embedding.embedder if next_embedding else "",
            done=target.vectors if target else 0,
            problem=self.indexer.problems.get(base.key, ""),
        )

    @_in_thread
    def export_base(self, base_id: str, file: Path) -> tuple[int, int]:
        """Write a knowledge base to a new file as JSON lines; return the numbers of documents and chunks.

        The first line describes the base, each other one is a document with its chunks. A name that ends in ``.gz``
        is compressed. Raises BadArgumentError if the file exists or cannot be written.
        """
        with self._database.reading() as connection, _new_file(file) as partial_file:
            base = stored_bases.base_by_id(connection, base_id, UNRESTRICTED)
            documents = stored_documents.documents_of(connection, base.key, UNRESTRICTED, every_place=True)
            # In the order in which they came, which decides between passages that are equal.
            documents.sort(key=lambda document: document.created)
            about = {key: getattr(base.base, key) for key in ("name", "description", "tenant")}
            as_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
            chunks = 0
            with _text_file(partial_file, file, "wt") as lines:
                lines.write(f"{as_json({'format': _EXPORT_FORMAT, 'version': 1, **about})}\n")
                for document in documents:
                    table = {key: getattr(document, key) for key in _EXPORTED}
                    parts = stored_documents.text_of(connection, document, UNRESTRICTED)
                    lines.write(f"{as_json({**table, 'chunks': [vars(part) for part in parts]})}\n")
                    chunks += len(parts)
        return len(documents), chunks

    async def import_base(self, file: Path, base_id: str = "", name: str = "") -> tuple[str, int, int]:
        """Add the documents of an exported file, to a new knowledge base unless ``base_id`` is given.

        Return its id and the numbers of documents and chunks. Raises BadArgumentError for a line without a document;
        the documents before it remain.
        """
        header, documents = await anyio.to_thread.run_sync(_opened_export, file)
        if not base_id:
            owner = replace(UNRESTRICTED, tenant=str(header.get("tenant", "")))
            base = await self.create(name or str(header["name"]), str(header.get("description", "")), access=owner)
            base_id = base.id
        count = chunks = 0
        with documents as lines:
            while (document := await anyio.to_thread.run_sync(_next_document, lines, file, count + 2)) is not None:
                added = await self.add(base_id, document)
                count, chunks = count + 1, chunks + added.chunks
        return base_id, count, chunks

    @_in_thread
    def back_up(self, file: Path) -> None:
        """Copy the database, also in use, to a new file; raise BadArgumentError if that exists or cannot be written."""
        with _new_file(file) as partial_file:
            self._database.back_up(partial_file)

    @_in_thread
    def _stored_bases(self, base_id: str | None, access: Access) -> list[StoredBase]:
        with self._database.reading() as connection:
            return stored_bases.bases(connection, access, base_id)

    @_in_thread
    def _find_unchanged(self, base_id: str, new: NewDocument, access: Access) -> tuple[AddResult | None, set[str]]:
        """Return the stored document if it is identical, and the names of the base's embedders."""
        with self._database.reading() as connection:
            base = stored_bases.base_by_id(connection, base_id, access)
            unchanged = stored_documents.unchanged_document(connection, base, new, access)
            return unchanged, set(_embedders_of(connection, base).values())

    @_in_thread
    def _write(self, base_id: str, new: NewDocument, vectors: dict[str, Vectors], access: Access) -> AddResult:
        # Analyzed before the transaction, so the write lock is held briefly.
        chunks = [index_chunk(new.title, chunk.headings, chunk.text) for chunk in new.chunks]
        with self._database.writing() as connection:
            base = stored_bases.base_by_id(connection, base_id, access)
            sets = _embedders_of(connection, base)
            at_once = {key: vectors[name] for key, name in sets.items() if name in vectors}
            added = stored_documents.write_document(connection, base, PreparedDocument(new, chunks, at_once), access)
            if self._tenant_chunks and not access.is_unrestricted:
                stored = stored_documents.tenant_chunks(connection, new.tenant)
                if stored > self._tenant_chunks:
                    raise KnowledgeError("TenantFull", chunks=stored, maximum=self._tenant_chunks)
            return added

    @_in_thread
    def _invalidate_indexes(self, base_id: str, access: Access) -> None:
        with self._database.writing() as connection:
            base = stored_bases.base_by_id(connection, base_id, access)
            _check_owner(base_id, base.base.tenant, access)
            mark_text_index_stale(connection, base.key)
            target, unfinished = self._target_embedder, base.next_embedding
            # Vectors that are being made are as good as new ones.
            is_begun = unfinished is not None and embedding_by_key(connection, unfinished).embedder == target
            if target and not is_begun:
                create_embedding(connection, base.key, target)


def _check_owner(base_id: str, tenant: str, access: Access) -> None:
    # All tenants see it; none of them may change it for the others.
    if not access.is_unrestricted and tenant != access.tenant:
        raise AccessDeniedError(base_id, "it belongs to all tenants, so only the owner may change it")


_EXPORT_FORMAT = "rkllm-mcp knowledge base"
_EXPORTED = ("title", "uri", "collection", "content_hash", "tenant", "department", "clearance", "fields")
_EXPORT_LINE_BYTES = 500_000_000


def _text_file(path: Path, requested: Path, mode: Literal["rt", "wt"]) -> IO[str]:
    """Open a text file, compressed if the name of ``requested`` says so."""
    if requested.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, mode, encoding="utf-8"))  # closed by the caller
    return cast("IO[str]", path.open(mode, encoding="utf-8"))


@contextmanager
def _new_file(file: Path) -> Generator[Path, None, None]:
    """Yield the path of a partial file, which takes the name of ``file`` at the end; only its owner may read it."""
    if file.exists():
        raise BadArgumentError("path", f"{file} exists", "Give another name, or remove it first")
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            yield partial
            partial.rename(file)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadArgumentError("path", f"{file} cannot be written ({reason})", "Give another folder") from None


def _opened_export(file: Path) -> tuple[Mapping[str, object], IO[str]]:
    """Open an exported file; return its first line and the lines after it."""
    lines: IO[str] | None = None
    try:
        lines = _text_file(file, file, "rt")
        header: Any = json.loads(lines.readline(_EXPORT_LINE_BYTES))
        if header["format"] == _EXPORT_FORMAT and header["version"] == 1 and header["name"]:
            return header, lines
    except OSError as error:
        raise BadArgumentError("path", f"{file} cannot be read ({error.strerror or error})", "Check it") from None
    except (ValueError, TypeError, LookupError, EOFError):
        pass
    if lines is not None:
        lines.close()
    reason = f"{file} is no exported knowledge base"
    raise BadArgumentError("path", reason, "Give a file of 'rkllm-mcp knowledge export'")


def _next_document(lines: IO[str], file: Path, number: int) -> NewDocument | None:
    try:
        line = lines.readline(_EXPORT_LINE_BYTES)
        if not line:
            return None
        table: dict[str, Any] = json.loads(line)
        parts = ((str(chunk["text"]), tuple(map(str, chunk["headings"])), chunk["page"]) for chunk in table["chunks"])
        chunks = tuple(NewChunk(text, headings, None if page is None else int(page)) for text, headings, page in parts)
        fields = {str(key): str(value) for key, value in table["fields"].items()}
        texts = {key: str(table[key]) for key in _EXPORTED if key not in ("clearance", "fields")}
        return NewDocument(**texts, chunks=chunks, clearance=int(table["clearance"]), fields=fields)
    except (ValueError, TypeError, LookupError, AttributeError, EOFError, OSError, zlib.error) as error:
        reason = f"{file} is damaged in line {number} ({type(error).__name__})"
        remedy = "Export the knowledge base again; what came before that is added"
        raise BadArgumentError("path", reason, remedy) from None


def _embedders_of(connection: Transaction, base: StoredBase) -> dict[int, str]:
    """Return embedding key -> embedder name of a base's vector sets."""
    keys = [key for key in (base.embedding, base.next_embedding) if key is not None]
    return {key: embedding_by_key(connection, key).embedder for key in keys}


@asynccontextmanager
async def open_library(folder: Path, settings: LibrarySettings | None = None) -> AsyncGenerator[Library, None]:
    """Open the knowledge bases of a folder, creating it with mode 0700 if missing, or of a PostgreSQL database.

    Connections to the models of ``settings`` are closed at the end. Raises StorageError if the database cannot be used;
    one of PostgreSQL that cannot be reached is asked again with each call.
    """
    settings = settings or LibrarySettings()
    database: Database
    if settings.database_url:
        from mcp_servers.knowledge.storage.postgres import PostgresDatabase

        database = await anyio.to_thread.run_sync(PostgresDatabase, settings.database_url)
    else:
        database = await anyio.to_thread.run_sync(SQLiteDatabase, folder)
    library = Library(database, settings)
    background = asyncio.create_task(library.indexer.run(), name="knowledge: indexes and vectors")
    try:
        yield library
    finally:
        library.indexer.stop()
        # The current batch is finished and stored first.
        with anyio.CancelScope(shield=True):
            await asyncio.wait({background})
        with anyio.move_on_after(_CLOSE_S, shield=True):
            for engine in (*settings.previous, settings.embedder, settings.reranker):
                if isinstance(engine, (RemoteEmbedder, RemoteReranker)):
                    await engine.client.aclose()
        database.close()
    if not background.cancelled() and (failure := background.exception()):
        raise failure
