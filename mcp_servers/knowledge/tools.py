"""The tools: names, schemas, annotations and functions, and the conversion of their arguments.

The input schemas are specified word for word. They are short because a model reads every token of them, so ``explain``,
``collection`` and ``fields`` of ``search_documents``, ``wait`` of ``reindex`` and ``offset`` of ``add_document`` are
accepted but not listed. Hosts rank tools by the words of the descriptions: the three that answer questions use the
words of the questions (tests/tools/test_knowledge_choice.py), the others are kept short.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp_types import Tool, ToolAnnotations

from mcp_servers.knowledge import results
from mcp_servers.knowledge.errors import BadArgumentError
from mcp_servers.knowledge.importing.documents import Progress
from mcp_servers.knowledge.importing.folders import no_progress
from mcp_servers.knowledge.ingest import DocumentAttributes, DocumentSource, UploadPart
from mcp_servers.knowledge.ocr.judge import Judge
from mcp_servers.knowledge.results import ToolOutput
from mcp_servers.knowledge.service import MAX_PAGE, KnowledgeService
from mcp_servers.knowledge.settings import Settings
from mcp_servers.knowledge.types import (
    DEFAULT_COLLECTION,
    DEFAULT_RESULTS,
    DEFAULT_THRESHOLD,
    MAX_RESULTS,
    Access,
    SearchRequest,
)
from mcp_servers.knowledge.validation import valid_unicode

# Beyond this, numbers are meaningless and Python may refuse to format them.
_MAX_NUMBER = 10**15
_PAGE = 100


class ToolArguments:
    """Arguments of one call, converted tolerantly.

    Accepts ``"0.7"`` for a number, ``5.0`` for an integer and null for an omitted value. Other mismatches raise
    BadArgumentError.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._given = arguments

    def has(self, name: str) -> bool:
        """True if the argument is given and not null."""
        return self._given.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string of valid Unicode; without ``default`` it is required."""
        value = self._given.get(name)
        if value is None:
            if default is None:
                raise BadArgumentError(name, "is missing", f"Give a {name}")
            return default
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            return str(value)
        if not isinstance(value, str):
            raise BadArgumentError(name, f"is {_type_name(value)}", "Give a text")
        return valid_unicode(value)

    def number(self, name: str, default: float) -> float:
        """Return a number, also an infinite or undefined one: the range check rejects those."""
        value = self._given.get(name)
        if value is None:
            return default
        number = _number(value)
        if number is None:
            raise BadArgumentError(name, f"is {_type_name(value)}", "Give a number")
        return number

    def integer(self, name: str, default: int) -> int:
        """Return an integer, clamped to ±10^15."""
        value = self.number(name, default)
        if math.isnan(value) or (math.isfinite(value) and value != int(value)):
            raise BadArgumentError(name, "is no whole number", "Give a whole number")
        return int(min(max(value, -_MAX_NUMBER), _MAX_NUMBER))

    def boolean(self, name: str) -> bool:
        """Return True for true, "true" and 1."""
        return self._given.get(name) in (True, "true", 1)

    def mapping(self, name: str) -> dict[str, str]:
        """Return an object of strings."""
        value = self._given.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise BadArgumentError(name, f"is {_type_name(value)}", "Give an object of texts")
        inner = ToolArguments(cast("Mapping[str, Any]", value))
        return {valid_unicode(str(key)): inner.text(str(key), "") for key in cast("Mapping[str, Any]", value)}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast("int", value) > 0 else -math.inf
    except ValueError:
        return None


def _type_name(value: Any) -> str:
    kinds = ((bool, "true or false"), (str, "a text"), (int, "a large number"), (float, "a number"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")


_ID = "knowledge_base_id"


@dataclass(frozen=True)
class CallContext:
    """Access of the caller and the services its client offers during the call."""

    access: Access
    judge: Judge | None = None  # the client's model, if it supports sampling
    on_progress: Progress = no_progress


@dataclass(frozen=True)
class KnowledgeTool:
    """Declaration of one tool."""

    name: str
    title: str  # for people
    description: str  # for models
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    output: type[ToolOutput]
    annotations: ToolAnnotations
    run: Callable[[KnowledgeService, ToolArguments, CallContext], Awaitable[ToolOutput]]


async def _search(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    request = SearchRequest(
        query=arguments.text("query"),
        base_id=arguments.text(_ID, ""),
        threshold=arguments.number("threshold", DEFAULT_THRESHOLD) if arguments.has("threshold") else None,
        max_results=arguments.integer("max_results", service.settings.default_results),
        collection=arguments.text("collection") if arguments.has("collection") else None,
        fields=arguments.mapping("fields"),
    )
    return await service.search(request, call.access, explain=arguments.boolean("explain"))


async def _summary(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.summary(arguments.text(_ID, ""), call.access)


async def _normalize(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.normalize(arguments.text("text"), call.judge)


async def _list(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    limit, cursor = arguments.integer("limit", _PAGE), arguments.text("cursor", "")
    return await service.bases(arguments.text(_ID, ""), limit, cursor, call.access)


async def _create(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.create(arguments.text("name"), arguments.text("description", ""), call.access)


def document_attributes(arguments: ToolArguments) -> DocumentAttributes:
    """Return the attributes of a document to be added."""
    return DocumentAttributes(
        collection=arguments.text("collection", DEFAULT_COLLECTION),
        title=arguments.text("title", "").strip(),
        uri=arguments.text("uri", "").strip(),
        department=arguments.text("department", ""),
        clearance=arguments.integer("clearance", 0),
        fields=arguments.mapping("fields"),
    )


async def _add(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    base, attributes = arguments.text(_ID, ""), document_attributes(arguments)
    if arguments.has("data"):
        return await service.upload(base, _part(arguments), attributes, call.access, call.on_progress)
    source = DocumentSource(arguments.text("text", ""), arguments.text("path", ""), arguments.text("url", ""))
    return await service.add(base, source, attributes, call.access, call.on_progress)


def _part(arguments: ToolArguments) -> UploadPart:
    offset = arguments.integer("offset", 0) if arguments.has("offset") else None
    names = (arguments.text(name, "") for name in ("data", "file_name", "upload_id"))
    return UploadPart(*names, offset=offset, more=arguments.boolean("more"))


async def _read(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.read(_part(arguments), call.access)


async def _remove(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    if arguments.has(_ID) and not arguments.has("document_id"):
        return await service.remove_empty(arguments.text(_ID), call.access)
    return await service.remove(arguments.text("document_id"), call.access)


async def _reindex(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.reindex(arguments.text(_ID, ""), call.access, wait=arguments.boolean("wait"))


async def _export(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.export_base(arguments.text(_ID, ""), arguments.text("path"), call.access)


async def _import(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    path, name = arguments.text("path"), arguments.text("name", "")
    return await service.import_base(arguments.text(_ID, ""), path, name, call.access)


async def _back_up(service: KnowledgeService, arguments: ToolArguments, call: CallContext) -> ToolOutput:
    return await service.back_up(arguments.text("path"), call.access)


_BASE = {"type": "string", "format": "uuid", "description": "対象ナレッジベースのUUID"}
_READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_CREATES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_IMPORTS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
_DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_REINDEXES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


TOOLS: tuple[KnowledgeTool, ...] = (
    KnowledgeTool(
        "search_documents",
        "ナレッジベース検索",
        (
            "Search documents (company rules, policies, handbooks, manuals) for the passages that answer a question "
            "about a subject: how, when, how much. "
            "「金額は？」「日数は？」「方法は？」などの質問の答えがドキュメント（社内文書、契約書、マニュアル）の"
            "どこに書いてあるかを検索する。"
        ),
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
                "maximum": MAX_RESULTS,
                "default": DEFAULT_RESULTS,
                "description": "最大返却件数（1〜50）",
            },
        },
        ("query", _ID),
        results.SearchOutput,
        _READ_ONLY,
        _search,
    ),
    KnowledgeTool(
        "get_knowledge_base_summary",
        "ナレッジベースの概要",
        (
            "Overview and statistics of a whole knowledge base (KB): what this knowledge base is about, how big it "
            "is, the number of its documents, collections and chunks. このナレッジベース（KB）について: 概要、中身、"
            "ドキュメント数、文書の総数、何件あるかなどの統計。"
        ),
        {_ID: _BASE},
        (_ID,),
        results.SummaryOutput,
        _READ_ONLY,
        _summary,
    ),
    KnowledgeTool(
        "normalize_ocr_text",
        "OCRテキストの正規化",
        (
            "Correct scanned OCR text: hyphens misrecognised for the Japanese long vowel mark become ー again. "
            "OCRテキストを正規化し、カタカナの長音符（ー）がハイフンに誤認識された箇所を直す（例: マネ-ジャ- → "
            "マネージャー）。"
        ),
        {"text": _text("正規化対象のOCRテキスト")},
        ("text",),
        results.NormalizedOutput,
        _READ_ONLY,
        _normalize,
    ),
    KnowledgeTool(
        "list_knowledge_bases",
        "ナレッジベース一覧",
        (
            "List the names and ids of all that exist for the caller, to choose one from; other tools take such an "
            "id as knowledge_base_id. どれを使うか選ぶために、名前とIDの一覧を返す。"
        ),
        {
            _ID: _BASE | {"description": "With one: this one and its documents"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": _PAGE},
            "cursor": _text("next_cursor of the previous page"),
        },
        (),
        results.BasesOutput,
        _READ_ONLY,
        _list,
    ),
    KnowledgeTool(
        "create_knowledge_base",
        "ナレッジベース作成",
        (
            "Create a new, empty one under a name of its own and return its id; add_document then fills it with "
            "texts, files or web pages. 空のものを新しく作成する。"
        ),
        {"name": _text("Its name"), "description": _text("What it is about, in a sentence")},
        ("name",),
        results.CreatedOutput,
        _CREATES,
        _create,
    ),
    KnowledgeTool(
        "add_document",
        "ドキュメント追加",
        (
            "Add text, a file or a web page to a knowledge base; it is cut into chunks and takes part in searches at "
            "once. テキスト、ファイル、URLを取り込んで追加する。"
        ),
        {
            _ID: _BASE,
            "text": _text("The text itself; give one of text, path, url"),
            "path": _text("A file or folder of the server's machine"),
            "url": _text("A web page"),
            "data": _text("A file, or a part of one, in base64"),
            "file_name": _text("Its name, such as a.pdf"),
            "upload_id": _text("Of its first part"),
            "more": {"type": "boolean", "description": "Another part follows"},
            "title": _text("Instead of the document's own"),
            "collection": _text("The collection's name"),
            "department": _text("The only one that may see it"),
            "clearance": {"type": "integer", "minimum": 0, "description": "What a reader needs"},
            "fields": {"type": "object", "description": "Free metadata", "additionalProperties": {"type": "string"}},
        },
        (_ID,),
        results.AddedOutput,
        _IMPORTS,
        _add,
    ),
    KnowledgeTool(
        "remove_document",
        "ドキュメント削除",
        (
            "Delete the one whose id is given, for good, with all of its chunks; adding the same again later is "
            "possible. idで指定した一件を完全に削除する。"
        ),
        {"document_id": _text("As search_documents or list_knowledge_bases say it") | {"format": "uuid"}},
        ("document_id",),
        results.RemovedOutput,
        _DELETES,
        _remove,
    ),
    KnowledgeTool(
        "reindex",
        "再インデックス",
        (
            "Build the index of a knowledge base again in the background, for another embedder; searching goes on "
            "meanwhile. 新しい埋め込みモデル用に、検索インデックスを裏で作り直す。"
        ),
        {_ID: _BASE},
        (_ID,),
        results.ReindexOutput,
        _REINDEXES,
        _reindex,
    ),
)
# For programs: a model would pay for their descriptions, so they are not listed.
_UNLISTED: tuple[KnowledgeTool, ...] = (
    KnowledgeTool("read_document", "", "", {}, (), results.ReadOutput, _READ_ONLY, _read),
    KnowledgeTool("export_knowledge_base", "", "", {}, (), results.CopiedOutput, _IMPORTS, _export),
    KnowledgeTool("import_knowledge_base", "", "", {}, (), results.CopiedOutput, _IMPORTS, _import),
    KnowledgeTool("back_up", "", "", {}, (), results.CopiedOutput, _IMPORTS, _back_up),
)
BY_NAME: Mapping[str, KnowledgeTool] = {tool.name: tool for tool in (*TOOLS, *_UNLISTED)}


def tool_definition(tool: KnowledgeTool, settings: Settings) -> Tool:
    """Return the MCP definition; ``knowledge_base_id`` is required only without a default base."""
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
        output_schema=results.schema_of(tool.output),
        annotations=tool.annotations.model_copy(update={"title": tool.title}),
    )
