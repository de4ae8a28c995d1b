"""The tools, independent of transport, and the construction of everything they need from Settings.

A knowledge base is given by id, by name, or not at all if a default is configured. A stage whose model does not answer
is skipped with a warning, or is an error with ``strict``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import anyio

from mcp_servers.knowledge import ingest, results
from mcp_servers.knowledge.embedding import Embedder, Reranker
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.embedding.onnx import OnnxEmbedder, OnnxReranker
from mcp_servers.knowledge.embedding.remote import ChatJudge, ModelAddress, RemoteEmbedder, RemoteReranker
from mcp_servers.knowledge.embedding.sentence_encoder import SentenceEncoder
from mcp_servers.knowledge.embedding.static import StaticEmbedder, static_folder
from mcp_servers.knowledge.errors import BadArgumentError, BaseNotFoundError, KnowledgeError, StorageAwayError
from mcp_servers.knowledge.importing.documents import MEGABYTE, Blob, ParseLimits, Progress
from mcp_servers.knowledge.importing.folders import FolderReport, WatchRules, no_progress, watch_folder
from mcp_servers.knowledge.importing.reader import FetchLimits, Reader, open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.ocr.normalize import Judge, normalize
from mcp_servers.knowledge.settings import Settings, WatchedFolder
from mcp_servers.knowledge.types import (
    DEFAULT_THRESHOLD,
    MAX_RESULTS,
    Access,
    KnowledgeBase,
    NewDocument,
    Page,
    SearchRequest,
)
from mcp_servers.knowledge.validation import BASE, ToolArguments, check_may_write, parse_uuid

# Selects all knowledge bases.
ALL_BASES = "*"
_PAGE, _MAX_PAGE = 100, 1000
# More than any model reads at once; a message of the protocol has it twice, and hosts refuse messages of 32 MB.
MAX_TEXT = 2_000_000
_MAX_CURSOR = 12
_TENANT_NAME = 200
_TITLE_CHARACTERS = 80
_CHOOSE_BASE = "Give one of list_knowledge_bases"
_MODEL_FORMS = "give none, hashing, universal-sentence-encoder, cpu:FOLDER, or an address like http://127.0.0.1:8080/v1#Qwen3-Embedding-0.6B"


@dataclass(frozen=True)
class CallContext:
    """Access of the caller and the services its client offers during the call."""

    access: Access
    judge: Judge | None = None  # the client's model, if it supports sampling
    on_progress: Progress = no_progress
    is_automatic: bool = False  # the host searches for every question, whatever it is about


class KnowledgeService:
    """The tools over one open library; created by ``open_service``."""

    def __init__(self, library: Library, reader: Reader, settings: Settings, judge: Judge | None = None) -> None:
        self.library = library
        self.settings = settings
        self.uploads = ingest.Uploads(settings.document_mb * MEGABYTE)
        self._reader = reader
        self._judge = judge

    async def search(self, arguments: ToolArguments, call: CallContext) -> results.SearchOutput:
        """Search a knowledge base given by id or name, all of them for ``*``, or the default."""
        threshold = arguments.number("threshold", DEFAULT_THRESHOLD) if arguments.has("threshold") else None
        if threshold is None and call.is_automatic:
            threshold = self.settings.automatic_percent / 100
        request = SearchRequest(
            query=arguments.text("query"),
            threshold=threshold,
            max_results=arguments.integer("max_results", self.settings.default_results),
            previous=arguments.text("previous_question", ""),
            collection=arguments.text("collection") if arguments.has("collection") else None,
            fields=arguments.mapping("fields"),
        )
        base_id = arguments.text(BASE, "") or self.settings.default_base
        if base_id != ALL_BASES:
            base_id = await self._resolve_base(base_id, call.access)
            request = replace(request, base_id=base_id)
        result = await self.library.search(request, call.access, explain=arguments.boolean("explain"))
        if result.left_out and self.settings.models.strict:
            raise _stage_error(result.left_out[0])
        return results.search_output(result, base_id)

    async def summary(self, arguments: ToolArguments, call: CallContext) -> results.SummaryOutput:
        """Return name, description and counts of a knowledge base."""
        base_id = await self._resolve_base(arguments.text(BASE, ""), call.access)
        summary = await self.library.summary(base_id, call.access)
        is_empty = summary.total_collections and not summary.total_documents
        return results.SummaryOutput(
            knowledge_base_id=summary.base_id,
            summary=summary.summary,
            statistics=results.build_model(results.Statistics, summary),
            generated_at=summary.generated_at.replace("+00:00", "Z"),
            warning=str(KnowledgeError("NoDocuments")) if is_empty else "",
        )

    async def normalize(self, arguments: ToolArguments, call: CallContext) -> results.NormalizedOutput:
        """Correct misread long vowel marks; the client's model takes precedence over the configured one."""
        normalized = await normalize(arguments.text("text"), call.judge or self._judge)
        if self.settings.models.strict and normalized.status.startswith("LLM service unavailable"):
            raise _stage_error(normalized.status)
        return results.build_model(results.NormalizedOutput, normalized)

    async def bases(self, arguments: ToolArguments, call: CallContext) -> results.BasesOutput:
        """List a page of the knowledge bases, or of the documents of one."""
        limit, cursor = arguments.integer("limit", _PAGE), arguments.text("cursor", "")
        if not 1 <= limit <= _MAX_PAGE:
            raise BadArgumentError("limit", "is out of range", f"Give a number from 1 to {_MAX_PAGE}")
        if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < _MAX_CURSOR):
            raise BadArgumentError("cursor", "is unknown", "Give next_cursor of the previous page")
        # One more shows that another page follows.
        page = Page(limit + 1, int(cursor or 0))
        base = arguments.text(BASE, "")
        if base:
            base_id = await self._resolve_base(base, call.access)
            bases = await self.library.overview(base_id, call.access)
            documents = await self.library.documents(base_id, call.access, page)
            is_last = len(documents) <= limit
        else:
            bases, documents = await self.library.overview(None, call.access, page), ()
            is_last = len(bases) <= limit
        build = results.build_model
        return results.BasesOutput(
            knowledge_bases=[
                build(results.BaseEntry, summary, base, knowledge_base_id=base.id) for base, summary in bases[:limit]
            ],
            documents=[
                build(results.DocumentEntry, document, document_id=document.id) for document in documents[:limit]
            ],
            next_cursor="" if is_last else str(page.offset + limit),
        )

    async def create(self, arguments: ToolArguments, call: CallContext) -> results.CreatedOutput:
        """Create a knowledge base."""
        name, description = arguments.text("name"), arguments.text("description", "")
        check_may_write(call.access)
        base = await self.library.create(name, description, access=call.access)
        return results.CreatedOutput(knowledge_base_id=base.id, name=base.name, description=base.description)

    async def add(self, arguments: ToolArguments, call: CallContext, file: Blob | None = None) -> results.AddedOutput:
        """Add documents from a text, a path, a URL, the parts of a file, or a file that came in one request."""
        base, attributes = arguments.text(BASE, ""), ingest.document_attributes(arguments)
        if file is not None:
            check_may_write(call.access, files=True)
            writer = await self._writer(base, attributes, call.access)
            return await ingest.add_document(file, writer, self._reader, call.on_progress)
        if arguments.has("data"):
            # A part of a file; the attributes of the last one count.
            check_may_write(call.access, files=True)
            writer = await self._writer(base, attributes, call.access)
            upload_id, received, blob = await anyio.to_thread.run_sync(self.uploads.take, arguments, call.access)
            if blob is not None:
                return await ingest.add_document(blob, writer, self._reader, call.on_progress)
            return ingest.added_output(writer, upload_id=upload_id, received=received)
        text, path, url = (arguments.text(name, "") for name in ("text", "path", "url"))
        if sum(map(bool, (text.strip(), path, url))) != 1:
            reason = "is missing, or given more than once"
            raise BadArgumentError("the document", reason, "Give one of text, path, url or data")
        if url and "://" not in url:
            raise BadArgumentError("url", "is not a URL", "Give one that begins with http:// or https://")
        writer = await self._writer(base, attributes, call.access)
        source: Path | str | Blob = url
        if path:
            source = ingest.allowed_path(path, self.settings.import_from, call.access)
        elif not url:
            # A text is a Markdown document named after its first line.
            line = next((line.strip("# \t") for line in text.splitlines() if line.strip("# \t")), "")
            name = line[:_TITLE_CHARACTERS].replace("/", " ") or "text"
            source = Blob(text.encode(), f"{name}.md", charset="utf-8")
        return await ingest.add_document(source, writer, self._reader, call.on_progress)

    async def read(self, arguments: ToolArguments, call: CallContext) -> results.ReadOutput:
        """Take a part of a file, and return the text of the file after the last one; nothing is stored."""
        upload_id, received, blob = await anyio.to_thread.run_sync(self.uploads.take, arguments, call.access)
        if blob is None:
            return results.ReadOutput(title="", text="", received=received, warnings=[], upload_id=upload_id)
        document = await self._reader.read_document(blob, call.access.tenant)
        # The passages up to MAX_TEXT characters, and where the pages begin.
        parts, length, page, pages = list[str](), 0, None, list[int]()
        for passage in document.passages:
            if length:
                parts.append("\n\n")
                length += 2
            if length > MAX_TEXT:
                break
            if passage.page != page:
                pages.append(length)
            page = passage.page
            parts.append(passage.text)
            length += len(passage.text)
        text, warnings = "".join(parts)[:MAX_TEXT], list(document.warnings)
        if length > MAX_TEXT:
            warnings.append(
                f"Only its first {MAX_TEXT:,} characters are given: add it to a knowledge base to search it all."
            )
        return results.ReadOutput(title=document.title, text=text, received=received, warnings=warnings, pages=pages)

    async def passages(self, arguments: ToolArguments, call: CallContext) -> results.PassagesOutput:
        """Return passages of a document in order, from ``chunk_index`` on."""
        first, limit = arguments.integer("chunk_index", 0), arguments.integer("limit", 1)
        if first < 0:
            raise BadArgumentError("chunk_index", "is below 0", "Give the index of a passage")
        if not 1 <= limit <= MAX_RESULTS:
            raise BadArgumentError("limit", "is out of range", f"Give a number from 1 to {MAX_RESULTS}")
        page = Page(limit, first)
        document, chunks = await self.library.passages(arguments.text("document_id"), call.access, page)
        passages = [
            results.DocumentPassage(
                content=chunk.text, chunk_index=index, headings=list(chunk.headings), page=chunk.page
            )
            for index, chunk in enumerate(chunks, first)
        ]
        about = {"document_id": document.id, "knowledge_base_id": document.base_id, "results": passages}
        return results.build_model(results.PassagesOutput, document, **about)

    async def _writer(self, base: str, attributes: NewDocument, access: Access) -> DocumentWriter:
        check_may_write(access)
        base_id = await self._resolve_base(base, access)
        # Checked before anything is read or fetched for a caller without access.
        await self.library.base(base_id, access)
        return DocumentWriter(self.library, base_id, attributes, access)

    async def export_base(self, arguments: ToolArguments, call: CallContext) -> results.CopiedOutput:
        """Write a knowledge base to a file of the server's machine."""
        file = ingest.allowed_path(arguments.text("path"), self.settings.import_from, call.access)
        base_id = await self._resolve_base(arguments.text(BASE, ""), call.access)
        documents, chunks = await self.library.export_base(base_id, file)
        counts = {"documents": documents, "chunks": chunks}
        return results.CopiedOutput(path=str(file), bytes=file.stat().st_size, knowledge_base_id=base_id, **counts)

    async def import_base(self, arguments: ToolArguments, call: CallContext) -> results.CopiedOutput:
        """Add the documents of an exported file, to a new knowledge base unless one is given."""
        file = ingest.allowed_path(arguments.text("path"), self.settings.import_from, call.access)
        base = arguments.text(BASE, "")
        base_id = await self._resolve_base(base, call.access) if base else ""
        base_id, documents, chunks = await self.library.import_base(file, base_id, arguments.text("name", ""))
        counts = {"documents": documents, "chunks": chunks}
        return results.CopiedOutput(path=str(file), bytes=file.stat().st_size, knowledge_base_id=base_id, **counts)

    async def back_up(self, arguments: ToolArguments, call: CallContext) -> results.CopiedOutput:
        """Copy the database to a file of the server's machine."""
        file = ingest.allowed_path(arguments.text("path"), self.settings.import_from, call.access)
        await self.library.back_up(file)
        return results.CopiedOutput(path=str(file), bytes=file.stat().st_size)

    async def remove(self, arguments: ToolArguments, call: CallContext) -> results.RemovedOutput:
        """Remove a document; without one, the knowledge base if it has none, so that a call never deletes more."""
        access = call.access
        if arguments.has("document_id") or not arguments.has(BASE):
            document_id = arguments.text("document_id")
            check_may_write(access)
            document = await self.library.remove(document_id, access)
            return results.RemovedOutput(removed=document.id, title=document.title, knowledge_base_id=document.base_id)
        check_may_write(access)
        base_id = await self._resolve_base(arguments.text(BASE), access)
        base = await self.library.base(base_id, access)
        if await self.library.documents(base_id, access, Page(1)):
            raise BadArgumentError(BASE, "still holds documents", "Remove each by its document_id first")
        await self.library.remove_base(base_id, access)
        return results.RemovedOutput(removed=base_id, title=base.name, knowledge_base_id=base_id)

    async def reindex(self, arguments: ToolArguments, call: CallContext) -> results.ReindexOutput:
        """Rebuild the indexes in the background; with ``wait`` return when they are complete, or cannot be made."""
        check_may_write(call.access)
        base_id = await self._resolve_base(arguments.text(BASE, ""), call.access)
        state = await self.library.reindex(base_id, call.access)
        if arguments.boolean("wait"):
            await self.library.indexer.wait_idle()
            state = await self.library.index_state(base_id, call.access)
        names = {"embedder": state.active_embedder, "becoming": state.next_embedding, "problem_found": state.problem}
        return results.build_model(results.ReindexOutput, state, knowledge_base_id=base_id, **names)

    async def _resolve_base(self, base: str, access: Access) -> str:
        """Return the id of a base given by id or name, or of the default."""
        default = self.settings.default_base
        id_or_name = (base if not default or base.strip() not in {"", ALL_BASES} else default).strip()
        if not id_or_name:
            raise BadArgumentError(BASE, "is missing", _CHOOSE_BASE)
        if parse_uuid(id_or_name):
            return id_or_name
        bases = await self.library.bases(access)
        if id_or_name == ALL_BASES:
            if len(bases) == 1:
                return bases[0].id
            raise BadArgumentError(BASE, "is missing", _CHOOSE_BASE)
        matching = [candidate for candidate in bases if candidate.name.casefold() == id_or_name.casefold()]
        if len(matching) > 1:
            raise BadArgumentError(BASE, f"is {id_or_name!r:.80}, the name of several knowledge bases", "Give an id")
        if not matching:
            raise BaseNotFoundError(id_or_name)
        return matching[0].id


logger = logging.getLogger(__name__)


def _stage_error(warning: str) -> KnowledgeError:
    """Return the error for a skipped stage, from the specified words in its warning on."""
    cause = warning[max(warning.find("Failed to connect"), 0) :].removesuffix(".")
    return KnowledgeError("StageUnavailable", cause=cause)


@asynccontextmanager
async def open_service(
    settings: Settings, watch_rules: WatchRules | None = None
) -> AsyncGenerator[KnowledgeService, None]:
    """Open library, reader and watched folders for the duration of the block.

    Cancelling an import of a watched folder leaves whole documents only; the next start continues.
    """
    models = settings.models
    request_limits = {"timeout_s": models.embedder_timeout_s, "batch": models.embedder_batch}
    embedder = embedder_from(models.embedder, key=models.embedder_key, **request_limits)
    # A key is sent only to the service it was configured for.
    is_same_service = models.previous_embedder.partition("#")[0] == models.embedder.partition("#")[0]
    previous_key = models.embedder_key if is_same_service else ""
    previous = embedder_from(models.previous_embedder, key=previous_key, **request_limits)
    reranker = reranker_from(models.reranker, key=models.reranker_key)
    former = (previous,) if previous else ()
    library_settings = LibrarySettings(embedder, reranker, former, settings.tenant_chunks, settings.database_url)
    judge: Judge | None = None
    if models.llm not in {"", "none"}:
        url, _, model = models.llm.partition("#")
        if not url.startswith(("http://", "https://")) or not model:
            raise BadArgumentError("llm", "names no model", "Give http://HOST/v1#MODEL")
        judge = ChatJudge(ModelAddress(url.rstrip("/"), model, models.llm_key)).answer
    limits = ParseLimits(document_bytes=settings.document_mb * MEGABYTE, include_hidden=settings.include_hidden)
    fetching = FetchLimits(allowed_networks=settings.allow_networks)
    failure: Exception | None = None
    async with (
        open_library(settings.folder, library_settings) as library,
        open_reader(limits, fetching) as reader,
        anyio.create_task_group() as watchers,
    ):
        # Raised outside of the task group, which would wrap it in an exception group.
        try:
            if settings.tenant and settings.tenant_documents == "own":
                default_base = await library.ensure_base(settings.tenant[:_TENANT_NAME], Access(settings.tenant))
                # The default in the owner's settings is a base of the owner.
                settings = replace(settings, default_base=default_base.id if settings.default_base else "")
            # The owner's server watches the folders, which are the owner's.
            for watch in () if settings.tenant else settings.watch:
                base: KnowledgeBase | None = None
                with suppress(StorageAwayError):  # it is asked again by the watcher
                    base = await _watched_base(library, watch.base)
                watchers.start_soon(_watch, watch, library, base, reader, watch_rules or WatchRules())
            service = KnowledgeService(library, reader, settings, judge)
            with closing(service.uploads):
                yield service
        except Exception as error:  # noqa: BLE001  # raised again below
            failure = error
        watchers.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _watch(
    watch: WatchedFolder, library: Library, base: KnowledgeBase | None, reader: Reader, rules: WatchRules
) -> None:
    """Synchronise a folder until cancelled; a base that could not be looked up is, when the database is there."""
    while base is None:
        await anyio.sleep(rules.interval_s)
        try:
            base = await _watched_base(library, watch.base)
        except StorageAwayError as problem:
            logger.warning("%s: %s", watch.folder, problem.words)
    writer = DocumentWriter(library, base.id)

    async def report(outcome: FolderReport | KnowledgeError) -> None:
        is_bad = isinstance(outcome, KnowledgeError) or outcome.count("failed") > 0
        logger.log(logging.WARNING if is_bad else logging.INFO, "%s: %s", watch.folder, outcome)
        writer.written.clear()

    await watch_folder(watch.folder, writer, reader, rules, report)


async def _watched_base(library: Library, name: str) -> KnowledgeBase:
    """Return the base with this id or name, creating it if no base has the name."""
    if parse_uuid(name):
        return await library.base(name)
    matching = [base for base in await library.bases() if base.name.casefold() == name.casefold()]
    if len(matching) > 1:
        raise BadArgumentError("watch", f"names {name!r:.80}, the name of several knowledge bases", "Give an id")
    return matching[0] if matching else await library.create(name)


def embedder_from(text: str, *, key: str = "", timeout_s: int = 60, batch: int = 16) -> Embedder | None:
    """Return the embedder of a setting; None for ``none`` and an empty setting (BM25 only).

    ``hashing`` needs no model, ``universal-sentence-encoder`` only its package; ``cpu:FOLDER`` is a static or an ONNX
    model on this machine's processor; ``http://HOST/v1#MODEL`` is a service with OpenAI's interface, which gets
    ``batch`` texts in a request that may take ``timeout_s``. Raises BadArgumentError for an unknown form or a folder
    without a model, MissingExtraError without the package of the embedder.
    """
    kind, _, argument = text.partition(":")
    if kind in {"", "none"}:
        return None
    if text == "hashing":
        return HashingEmbedder()
    if text == "universal-sentence-encoder":
        return SentenceEncoder()
    if kind == "cpu" and argument:
        static = static_folder(argument)
        return StaticEmbedder(static) if static else OnnxEmbedder(argument)
    return RemoteEmbedder(replace(_address("embedder", text, key), timeout_s=timeout_s, batch=batch))


def reranker_from(text: str, *, key: str = "") -> Reranker | None:
    """Return the reranker of a setting, as ``embedder_from``."""
    kind, _, argument = text.partition(":")
    if kind in {"", "none"}:
        return None
    return OnnxReranker(argument) if kind == "cpu" and argument else RemoteReranker(_address("reranker", text, key))


def _address(name: str, text: str, key: str) -> ModelAddress:
    url, _, model = text.partition("#")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise BadArgumentError(name, f"is {text.partition(':')[0]!r}, which is not a model", _MODEL_FORMS)
    if not model:
        raise BadArgumentError(name, "names no model", "write it behind the address: http://HOST/v1#MODEL")
    return ModelAddress(url.rstrip("/"), model, key)
