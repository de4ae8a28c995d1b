"""The tools: their definitions from ``tools.json``, their results and the functions that run them.

The input schemas are specified word for word. They are short because a model reads every token of them, so ``explain``,
``collection`` and ``fields`` of ``search_documents``, ``wait`` of ``reindex`` and ``offset`` of ``add_document`` are
accepted but not listed. Hosts rank tools by the words of the descriptions: the three that answer questions use the
words of the questions (tests/tools/test_knowledge_choice.py), the others are kept short.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mcp_types import Tool

from mcp_servers.knowledge import results
from mcp_servers.knowledge.results import ToolOutput
from mcp_servers.knowledge.service import CallContext, KnowledgeService
from mcp_servers.knowledge.settings import Settings
from mcp_servers.knowledge.validation import BASE, ToolArguments
from mcp_servers.program import QUESTION_ARGUMENT, TEXTS, TUNING


class KnowledgeTool(NamedTuple):
    """A tool: its result and the function that runs it."""

    output: type[ToolOutput]
    run: Callable[[KnowledgeService, ToolArguments, CallContext], Awaitable[ToolOutput]]


BY_NAME: Mapping[str, KnowledgeTool] = {
    "search_documents": KnowledgeTool(results.SearchOutput, KnowledgeService.search),
    "get_knowledge_base_summary": KnowledgeTool(results.SummaryOutput, KnowledgeService.summary),
    "normalize_ocr_text": KnowledgeTool(results.NormalizedOutput, KnowledgeService.normalize),
    "list_knowledge_bases": KnowledgeTool(results.BasesOutput, KnowledgeService.bases),
    "create_knowledge_base": KnowledgeTool(results.CreatedOutput, KnowledgeService.create),
    "add_document": KnowledgeTool(results.AddedOutput, KnowledgeService.add),
    "remove_document": KnowledgeTool(results.RemovedOutput, KnowledgeService.remove),
    "reindex": KnowledgeTool(results.ReindexOutput, KnowledgeService.reindex),
    # For programs: a model would pay for their descriptions, so they are not listed.
    "read_passages": KnowledgeTool(results.PassagesOutput, KnowledgeService.passages),
    "read_document": KnowledgeTool(results.ReadOutput, KnowledgeService.read),
    "export_knowledge_base": KnowledgeTool(results.CopiedOutput, KnowledgeService.export_base),
    "import_knowledge_base": KnowledgeTool(results.CopiedOutput, KnowledgeService.import_base),
    "back_up": KnowledgeTool(results.CopiedOutput, KnowledgeService.back_up),
}
LISTED: tuple[dict[str, Any], ...] = tuple(json.loads(Path(__file__).with_name("tools.json").read_text("utf-8")))


def tool_definitions(settings: Settings) -> list[Tool]:
    """Return the MCP definitions; ``knowledge_base_id`` is required only without a default base."""
    definitions: list[Tool] = []
    for entry in copy.deepcopy(LISTED):
        properties, required, texts = entry.pop("properties"), entry.pop("required"), entry.pop("texts")
        if settings.default_base and BASE in required:
            required.remove(BASE)
        if "max_results" in properties:
            properties["max_results"]["default"] = settings.default_results
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        entry["annotations"]["title"] = entry["title"]
        meta: dict[str, Any] = {TEXTS: texts}
        if entry["name"] == "search_documents":
            meta[QUESTION_ARGUMENT] = "query"
        # A small model would invent another base than the default one.
        optional = {BASE, "threshold"} & properties.keys() - set(required)
        if settings.default_base and optional:
            meta[TUNING] = sorted(optional)
        output = results.plain_schema(BY_NAME[entry["name"]].output.model_json_schema(mode="serialization"))
        definition = {**entry, "inputSchema": schema, "outputSchema": output, "_meta": meta}
        definitions.append(Tool.model_validate(definition))
    return definitions
