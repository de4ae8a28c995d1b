"""What the caller wants remembered in all conversations: list, add, change, remove, export, import.

Rows go into prompts, so they are read and changed with a key that decides for its person.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.errors import UsageError
from rkllm_mcp.memory.exports import memories_as_text, memories_from_json, row_dict
from rkllm_mcp.memory.person import change_row, erase_row, keep_row
from rkllm_mcp.records import LONGEST_ROW, MOST_ROWS, MemoryRow
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import JSON, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import service_of, tenant_of
from rkllm_mcp.text import language_of_header

_Text = Annotated[str, Field(min_length=1, max_length=LONGEST_ROW)]
_MISSING = "nothing is remembered under {!r}; GET /v1/memory lists the ids"


class MemoryQuery(bodies.RequestBody):
    """Which rows."""

    search: Annotated[str, Field(max_length=256)] = ""
    """Only rows with these words."""


class MemoryExportQuery(bodies.RequestBody):
    """In which form."""

    format: Literal["json", "markdown"] = "json"
    """json can be imported again."""


class NewMemory(bodies.RequestBody):
    """Something to remember."""

    text: _Text
    """One sentence in the person's words, or the id of a proposal. Passwords, keys and card numbers are refused."""
    always: bool = False
    """Every conversation begins with it; otherwise it is recalled for questions that it fits."""
    conversation: Annotated[str, Field(max_length=64)] = ""
    """The conversation that it comes from."""


class ChangedMemory(bodies.RequestBody):
    """Changes of a row; what is not given stays."""

    text: _Text | None = None
    """The new text; the old one is erased."""
    always: bool | None = None
    """Every conversation begins with it."""
    keep: bool | None = None
    """true: a proposal of the model is used from now on."""


class MemoryItem(DocumentedModel):
    """Something that is remembered."""

    id: str
    text: str
    language: str
    always: bool = Field(description="Every conversation begins with it.")
    state: Literal["kept", "proposed"] = Field(description="A proposed one is not used before PATCH with keep.")
    conversation: str = Field(description="Where it was said; empty where it was typed elsewhere.")
    created: str = Field(description="ISO 8601.")
    used: str = Field(description="When it was recalled last, ISO 8601; empty for never.")


class MemoryList(DocumentedModel):
    """What is remembered."""

    memories: list[MemoryItem]
    count: int = Field(description="How many there are without the search.")
    limit: int = Field(description="The most that are kept.")
    enabled: bool = Field(description="memory of [agent] in the configuration.")
    proposes: bool | None = Field(description="The model proposes what to remember; null for one that cannot.")


class RemovedMemories(DocumentedModel):
    """What was removed."""

    removed: int


class ImportedMemories(DocumentedModel):
    """What was imported."""

    added: int
    known: int = Field(description="Rows that were there.")


@Route("GET", "/v1/memory", query=MemoryQuery, answers=(RouteResponse(MemoryList),))
async def list_memories(request: Request) -> object:
    """List what the caller wants remembered, the oldest first."""
    app, search = tenant_of(request).app, bodies.query(request, MemoryQuery).search.casefold()
    rows = await app.store.memories.all()
    matching = [row_dict(row) for row in rows if search in row.text.casefold()]
    return {
        "memories": matching,
        "count": len(rows),
        "limit": MOST_ROWS,
        "enabled": app.config.agent.memory,
        "proposes": app.wants_proposals if app.makes_proposals else None,
    }


@Route("POST", "/v1/memory", body=NewMemory, answers=(RouteResponse(MemoryItem, status=201),), problems=(409,))
async def add_memory(request: Request) -> object:
    """Remember something; a row with the same text stays the only one."""
    body = await bodies.read(request, NewMemory)
    row, _ = await _keep_memory(request, body.text, source=body.conversation, is_pinned=body.always)
    return row_dict(row)


@Route("PATCH", "/v1/memory/{id}", body=ChangedMemory, answers=(RouteResponse(MemoryItem),), problems=(404, 409))
async def change_memory(request: Request) -> object:
    """Change a row, or agree to a proposal."""
    body, memories = await bodies.read(request, ChangedMemory), tenant_of(request).app.store.memories
    row_id, language = request.path_params["id"], language_of_header(request.headers.get("accept-language", "")) or "en"
    try:
        changed = await change_row(
            memories, row_id, language, text=body.text, is_pinned=body.always, is_kept=body.keep is True
        )
    except UsageError as error:
        raise HTTPError(409, str(error), param="text") from None
    if changed is None:
        raise HTTPError(404, _MISSING.format(row_id), param="id")
    before, row = changed
    if before.text != row.text:
        _erase_open(request, [before])
    return row_dict(row)


@Route("DELETE", "/v1/memory/{id}", answers=(RouteResponse(status=204, says="It is gone."),), problems=(404,))
async def remove_memory(request: Request) -> None:
    """Delete a row for good, also where it was recalled in conversations.

    What a person typed stays in its conversation, and older backups keep everything.
    """
    row_id = request.path_params["id"]
    removed = await tenant_of(request).app.store.memories.remove([row_id])
    if not removed:
        raise HTTPError(404, _MISSING.format(row_id), param="id")
    _erase_open(request, removed)


@Route("DELETE", "/v1/memory", answers=(RouteResponse(RemovedMemories),))
async def clear_memories(request: Request) -> RemovedMemories:
    """Delete all rows for good, also where they were recalled in conversations."""
    removed = await tenant_of(request).app.store.memories.remove(None)
    _erase_open(request, removed)
    return RemovedMemories(removed=len(removed))


@Route(
    "GET",
    "/v1/memory/export",
    query=MemoryExportQuery,
    answers=(RouteResponse(dict[str, Any], says="To be imported again."), RouteResponse(media="text/markdown")),
)
async def export_memories(request: Request) -> Response:
    """Write all rows as a file, without proposals."""
    rows = await tenant_of(request).app.store.memories.kept()
    form = bodies.query(request, MemoryExportQuery).format
    is_json = form == "json"
    headers = {"Content-Disposition": f'attachment; filename="memory.{"json" if is_json else "md"}"'}
    text = memories_as_text(rows, form)
    return Response(text, media_type=JSON if is_json else "text/markdown; charset=utf-8", headers=headers)


class MemoryFile(bodies.LenientBody):
    """An export of a memory."""

    format: Literal["rkllm-mcp memory 1", "rkllm-mcp data 1"]
    """As the export says."""
    memories: list[dict[str, Any]] = Field(max_length=MOST_ROWS)
    """Rows with their text, and always."""


@Route("POST", "/v1/memory:import", body=MemoryFile, answers=(RouteResponse(ImportedMemories),), problems=(409,))
async def import_memories(request: Request) -> ImportedMemories:
    """Add the rows of an export; those that are there already stay."""
    body = await bodies.read(request, MemoryFile)
    try:
        entries = memories_from_json(json.dumps(body.model_dump()))
    except UsageError as error:
        raise HTTPError(409, str(error), param="memories") from None
    added = 0
    for entry in entries:
        _, is_new = await _keep_memory(request, entry.text, is_pinned=entry.always)
        added += is_new
    return ImportedMemories(added=added, known=len(entries) - added)


async def _keep_memory(
    request: Request, text: str, *, source: str = "", is_pinned: bool = False
) -> tuple[MemoryRow, bool]:
    memories = tenant_of(request).app.store.memories
    language = language_of_header(request.headers.get("accept-language", "")) or "en"
    try:
        return await keep_row(memories, text, language, source=source, is_pinned=is_pinned)
    except UsageError as error:
        raise HTTPError(409, str(error), param="text") from None


def _erase_open(request: Request, rows: Sequence[MemoryRow]) -> None:
    """Remove rows from the open conversations as well."""
    app, service = tenant_of(request).app, service_of(request)
    conversations = service.open_conversations
    for row in rows:
        service.conversation_cache.forget_text(app.tenant, row.text)
    for conversation_id in conversations.ids_of(app):
        if (opened := conversations.get_open(app, conversation_id)) is not None:
            for row in rows:
                erase_row(opened, row.text)
