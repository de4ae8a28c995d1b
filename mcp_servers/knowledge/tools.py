"""The tools as a table: what each is called, what it takes, what it answers, what it may change, and what it does.

The input schemas are the promised ones, word for word, and say little beyond: a small model reads every token of them.
Some arguments are for programs and stand in no schema: ``explain``, ``collection`` and ``fields`` of
``search_documents``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import Tool, ToolAnnotations

from mcp_servers.knowledge import answers, descriptions
from mcp_servers.knowledge.adding import Source
from mcp_servers.knowledge.answers import Answer
from mcp_servers.knowledge.arguments import Arguments
from mcp_servers.knowledge.filing import Placing
from mcp_servers.knowledge.importing.documents import Progress
from mcp_servers.knowledge.importing.folders import nobody_listens
from mcp_servers.knowledge.ocr import Judge
from mcp_servers.knowledge.service import Service
from mcp_servers.knowledge.settings import Settings
from mcp_servers.knowledge.values import (
    DEFAULT_COLLECTION,
    DEFAULT_RESULTS,
    DEFAULT_THRESHOLD,
    MOST_RESULTS,
    Access,
    SearchRequest,
)

_ID = "knowledge_base_id"


@dataclass(frozen=True)
class Caller:
    """Who calls, and what they offer meanwhile.

    Args:
        access: what they may see.
        judge: a language model of theirs; None for none.
        on_progress: told how far the call is.
    """

    access: Access
    judge: Judge | None = None
    on_progress: Progress = nobody_listens


@dataclass(frozen=True)
class KnowledgeTool:
    """One tool.

    Args:
        name: as called.
        title: for people.
        description: for models.
        properties: of the input schema.
        required: those that have to be given.
        answer: what comes out.
        annotations: what it may change.
        run: does it.
    """

    name: str
    title: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    answer: type[Answer]
    annotations: ToolAnnotations
    run: Callable[[Service, Arguments, Caller], Awaitable[Answer]]


async def _search(service: Service, given: Arguments, caller: Caller) -> Answer:
    request = SearchRequest(
        query=given.text("query"),
        base_id=given.text(_ID, ""),
        threshold=given.number("threshold", DEFAULT_THRESHOLD),
        max_results=given.whole("max_results", service.settings.default_results),
        collection=given.text("collection") if given.has("collection") else None,
        fields=given.table("fields"),
    )
    return await service.search(request, caller.access, explain=given.switch("explain"))


async def _summary(service: Service, given: Arguments, caller: Caller) -> Answer:
    return await service.summary(given.text(_ID, ""), caller.access)


async def _normalize(service: Service, given: Arguments, caller: Caller) -> Answer:
    return await service.normalize(given.text("text"), caller.judge)


async def _list(service: Service, given: Arguments, caller: Caller) -> Answer:
    return await service.bases(given.text(_ID, ""), caller.access)


async def _create(service: Service, given: Arguments, caller: Caller) -> Answer:
    return await service.create(given.text("name"), given.text("description", ""), caller.access)


async def _add(service: Service, given: Arguments, caller: Caller) -> Answer:
    source = Source(given.text("text", ""), given.text("path", ""), given.text("url", ""))
    placing = Placing(
        collection=given.text("collection", DEFAULT_COLLECTION),
        title=given.text("title", "").strip(),
        uri=given.text("uri", "").strip(),
        department=given.text("department", ""),
        clearance=given.whole("clearance", 0),
        fields=given.table("fields"),
    )
    return await service.add(given.text(_ID, ""), source, placing, caller.access, caller.on_progress)


async def _remove(service: Service, given: Arguments, caller: Caller) -> Answer:
    if given.has(_ID) and not given.has("document_id"):
        return await service.remove_empty(given.text(_ID), caller.access)
    return await service.remove(given.text("document_id"), caller.access)


async def _reindex(service: Service, given: Arguments, caller: Caller) -> Answer:
    return await service.reindex(given.text(_ID, ""), caller.access)


_BASE = {"type": "string", "format": "uuid", "description": "対象ナレッジベースのUUID"}
_LOOKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_FETCHES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
_REMOVES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_REBUILDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


TOOLS: tuple[KnowledgeTool, ...] = (
    KnowledgeTool(
        "search_documents",
        "ナレッジベース検索",
        descriptions.SEARCH_DOCUMENTS,
        {
            "query": _text("検索クエリ（日本語・英語対応）"),
            _ID: _BASE,
            "threshold": {
                "type": "number",
                "minimum": 0.0,
                "maximum": 1.0,
                "default": DEFAULT_THRESHOLD,
                "description": "類似度閾値（0.0〜1.0、推奨: 0.6〜0.8）",
            },
            "max_results": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_RESULTS,
                "default": DEFAULT_RESULTS,
                "description": "最大返却件数（1〜50）",
            },
        },
        ("query", _ID),
        answers.SearchAnswer,
        _LOOKS,
        _search,
    ),
    KnowledgeTool(
        "get_knowledge_base_summary",
        "ナレッジベースの概要",
        descriptions.GET_KNOWLEDGE_BASE_SUMMARY,
        {_ID: _BASE},
        (_ID,),
        answers.SummaryAnswer,
        _LOOKS,
        _summary,
    ),
    KnowledgeTool(
        "normalize_ocr_text",
        "OCRテキストの正規化",
        descriptions.NORMALIZE_OCR_TEXT,
        {"text": _text("正規化対象のOCRテキスト")},
        ("text",),
        answers.NormalizedAnswer,
        _LOOKS,
        _normalize,
    ),
    KnowledgeTool(
        "list_knowledge_bases",
        "ナレッジベース一覧",
        descriptions.LIST_KNOWLEDGE_BASES,
        {_ID: _BASE | {"description": "With one: this one and its documents"}},
        (),
        answers.BasesAnswer,
        _LOOKS,
        _list,
    ),
    KnowledgeTool(
        "create_knowledge_base",
        "ナレッジベース作成",
        descriptions.CREATE_KNOWLEDGE_BASE,
        {"name": _text("Its name"), "description": _text("What it is about, in a sentence")},
        ("name",),
        answers.CreatedAnswer,
        _ADDS,
        _create,
    ),
    KnowledgeTool(
        "add_document",
        "ドキュメント追加",
        descriptions.ADD_DOCUMENT,
        {
            _ID: _BASE,
            "text": _text("The text itself; give one of text, path, url"),
            "path": _text("A file or folder of the server's machine"),
            "url": _text("A web page"),
            "title": _text("Instead of the document's own"),
            "collection": _text("The collection's name"),
            "department": _text("The only one that may see it"),
            "clearance": {"type": "integer", "minimum": 0, "description": "What a reader needs"},
            "fields": {"type": "object", "description": "Free metadata", "additionalProperties": {"type": "string"}},
        },
        (_ID,),
        answers.AddedAnswer,
        _FETCHES,
        _add,
    ),
    KnowledgeTool(
        "remove_document",
        "ドキュメント削除",
        descriptions.REMOVE_DOCUMENT,
        {"document_id": _text("As search_documents or list_knowledge_bases say it") | {"format": "uuid"}},
        ("document_id",),
        answers.RemovedAnswer,
        _REMOVES,
        _remove,
    ),
    KnowledgeTool(
        "reindex",
        "再インデックス",
        descriptions.REINDEX,
        {_ID: _BASE},
        (_ID,),
        answers.ReindexAnswer,
        _REBUILDS,
        _reindex,
    ),
)
BY_NAME: Mapping[str, KnowledgeTool] = {tool.name: tool for tool in TOOLS}


def shown(tool: KnowledgeTool, settings: Settings) -> Tool:
    """A tool as MCP lists it.

    With a default knowledge base, ``knowledge_base_id`` need not be given; without one it is required, as promised.
    """
    properties = {name: dict(schema) for name, schema in tool.properties.items()}
    required = [name for name in tool.required if not (name == _ID and settings.default_base)]
    if "max_results" in properties:
        properties["max_results"]["default"] = settings.default_results
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema,
        output_schema=answers.schema_of(tool.answer),
        annotations=tool.annotations.model_copy(update={"title": tool.title}),
    )
