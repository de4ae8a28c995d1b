"""What the service knows of a person: the text about them, and all that is stored of their conversations.

The text goes into the system message of every conversation, so only a key that decides for its person changes it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import StreamingResponse

from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.conversations import exports
from rkllm_mcp.memory.exports import row_dict
from rkllm_mcp.schedules.runner import export_schedule
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.owner import check_own
from rkllm_mcp.surfaces.http.route import JSON, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import run_work, service_of, tenant_of

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App

# Some 500 tokens in English: every conversation reads it.
_LONGEST_ABOUT = 2000
_PAGE = 100


class AboutBody(bodies.RequestBody):
    """The text about the person."""

    about: str = Field(max_length=_LONGEST_ABOUT)
    """Goes into the system message of every conversation that begins from now on; empty for none."""


class About(DocumentedModel):
    """The text about the person."""

    about: str = Field(description="Empty for none.")


class Deleted(DocumentedModel):
    """What was deleted."""

    conversations: int


@Route("GET", "/v1/me/about", answers=(RouteResponse(About),))
async def show_about(request: Request) -> About:
    """Read the text about the caller."""
    return About(about=tenant_of(request).app.about)


@Route("PUT", "/v1/me/about", body=AboutBody, answers=(RouteResponse(About),))
async def change_about(request: Request) -> About:
    """Change the text about the caller, which every new conversation gets."""
    app = tenant_of(request).app
    await app.person.save("about", (await bodies.read(request, AboutBody)).about.strip())
    return About(about=app.about)


class PageSettings(bodies.RequestBody):
    """What the caller has chosen on the page; null or left out for what stays, empty for what the browser says."""

    language: Literal["", "en", "ja"] | None = None
    theme: Literal["", "light", "dark"] | None = None
    size: Literal["", "large", "larger", "largest"] | None = None
    proposals: Literal["", "on", "off"] | None = Field(
        None, description="The model proposes what to remember; empty for what the configuration says."
    )
    model: str | None = Field(None, max_length=256, description="The model of its questions; empty for the loaded one.")


@Route("PUT", "/v1/me/settings", body=PageSettings, answers=(RouteResponse(PageSettings),))
async def change_settings(request: Request) -> PageSettings:
    """Change what the caller has chosen on the page, for every browser and board; GET /v1/me has it."""
    app = tenant_of(request).app
    body = await bodies.read(request, PageSettings)
    await app.person.save("page", json.dumps({**app.page_settings, **body.model_dump(exclude_none=True)}))
    return PageSettings.model_validate(app.page_settings)


@Route("GET", "/v1/me/data", answers=(RouteResponse(dict[str, Any], says="A file to keep, and to import again."),))
async def export_data(request: Request) -> StreamingResponse:
    """Write the text about the caller, what is remembered of them, their schedules and conversations as one file."""
    headers = {"Content-Disposition": 'attachment; filename="rkllm-mcp-data.json"'}
    return StreamingResponse(_write_data(request, tenant_of(request).app), media_type=JSON, headers=headers)


async def _write_data(request: Request, app: App) -> AsyncGenerator[bytes]:
    schedules = [export_schedule(schedule) for schedule in await app.store.schedules.all(app.tenant)]
    memories = list(map(row_dict, await app.store.memories.kept()))
    values = {
        "format": exports.DATA_FORMAT,
        "about": app.about,
        "memories": memories,
        "schedules": schedules,
    }
    head = json.dumps(values, ensure_ascii=False)
    yield head[:-1].encode("utf-8", "replace") + b', "conversations": [\n'
    conversations, offset, before = app.store.conversations, 0, b""
    while page := await conversations.latest(app.tenant, _PAGE, offset=offset):
        offset += len(page)
        for summary in page:
            stored = await conversations.get(app.tenant, summary.id)
            if stored is not None and stored.turns:
                text = await run_work(request, exports.as_json, [stored])
                yield before + text.encode("utf-8", "replace")
                before = b","
    yield b"]}\n"


@Route("DELETE", "/v1/me/data", answers=(RouteResponse(Deleted),), problems=(403,))
async def delete_data(request: Request) -> Deleted:
    """Delete the caller's conversations with pictures, schedules, the record of tool calls, and what is known of them.

    Documents, keys, and permissions of tools stay.
    """
    check_own(request, "delete the owner's data")
    service, app = service_of(request), tenant_of(request).app
    for conversation_id in service.open_conversations.ids_of(app):
        # An answer that is saved when it stops would restore the deleted conversation.
        await service.answers.stop(app, conversation_id)
        service.open_conversations.drop(app, conversation_id)
    count = await app.store.conversations.delete_all(app.tenant)
    await app.store.calls.delete_all()
    await app.store.memories.remove(None)
    await app.store.schedules.remove(app.tenant, None)
    for key in ("about", "page"):
        await app.person.save(key, "")
    return Deleted(conversations=count)
