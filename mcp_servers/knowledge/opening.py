"""Settings -> a service that is open: its library, the process that reads documents, the folders that are watched.

All of it belongs to one block and has ended when the block has. A round of a watched folder that is broken off leaves
whole documents only, and the next start goes on where it was.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from mcp_servers.knowledge.embedding.choice import embedder_from, reranker_from
from mcp_servers.knowledge.embedding.service import ServiceAddress
from mcp_servers.knowledge.filing import Filing
from mcp_servers.knowledge.importing.fetching import FetchLimits
from mcp_servers.knowledge.importing.folders import FolderReport
from mcp_servers.knowledge.importing.reader import Reader, ReaderSettings, open_reader
from mcp_servers.knowledge.importing.watching import WatchRules, watch_folder
from mcp_servers.knowledge.intake import known_id
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.ocr import Judge
from mcp_servers.knowledge.ocr.service import ChatService
from mcp_servers.knowledge.problems import BadArgumentError, KnowledgeProblem
from mcp_servers.knowledge.service import Service
from mcp_servers.knowledge.settings import ModelSettings, Settings, Watch
from mcp_servers.knowledge.values import KnowledgeBase

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_service(settings: Settings, watching: WatchRules | None = None) -> AsyncGenerator[Service, None]:
    """The tools for as long as the block lasts.

    Args:
        settings: what the owner wants.
        watching: how folders are watched.

    Raises:
        KnowledgeProblem: the folder cannot be used, or a model or a knowledge base is none.
    """
    models = settings.models
    judge = _judge(models)
    reading = ReaderSettings(fetching=FetchLimits(allowed_networks=settings.allow_networks))
    failure: Exception | None = None
    async with (
        open_library(settings.folder, _library_settings(models)) as library,
        open_reader(reading) as reader,
        anyio.create_task_group() as watchers,
    ):
        # A task group would wrap what is raised inside it in a group.
        try:
            for watch in settings.watch:
                base = await _watched_base(library, watch.base)
                watchers.start_soon(_keep, watch, Filing(library, base.id), reader, watching or WatchRules())
            yield Service(library, reader, settings, judge)
        except Exception as error:  # noqa: BLE001  # raised again below
            failure = error
        watchers.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _keep(watch: Watch, filing: Filing, reader: Reader, rules: WatchRules) -> None:
    async def tell(told: FolderReport | KnowledgeProblem) -> None:
        is_bad = isinstance(told, KnowledgeProblem) or told.count("failed") > 0
        logger.log(logging.WARNING if is_bad else logging.INFO, "%s: %s", watch.folder, told)
        filing.filed.clear()

    await watch_folder(watch.folder, filing, reader, rules, tell)


async def _watched_base(library: Library, wanted: str) -> KnowledgeBase:
    """The base of an id or a name, made when there is none of that name."""
    if known_id(wanted):
        return await library.base(wanted)
    named = [base for base in await library.bases() if base.name.casefold() == wanted.casefold()]
    if len(named) > 1:
        raise BadArgumentError("watch", f"names {wanted!r:.80}, as several knowledge bases are called", "Give an id")
    return named[0] if named else await library.create(wanted)


def _library_settings(models: ModelSettings) -> LibrarySettings:
    embedder = embedder_from(models.embedder, key=models.embedder_key)
    # A key goes to the service it belongs to and to no other.
    is_same_service = models.previous_embedder.partition("#")[0] == models.embedder.partition("#")[0]
    previous = embedder_from(models.previous_embedder, key=models.embedder_key if is_same_service else "")
    reranker = reranker_from(models.reranker, key=models.reranker_key)
    return LibrarySettings(embedder, reranker, (previous,) if previous else ())


def _judge(models: ModelSettings) -> Judge | None:
    if models.llm in {"", "none"}:
        return None
    url, _, model = models.llm.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise BadArgumentError("llm", "names no model", "Give http://HOST/v1#MODEL")
    return ChatService(ServiceAddress(url.rstrip("/"), model, models.llm_key))
