"""Tools of a tenant: lists, switches, direct calls, documents, permanent decisions, and the call history."""

from __future__ import annotations

import base64
import errno
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rkllm_mcp.app.assistant import NO_RIGHT
from rkllm_mcp.completions.api import Tokens
from rkllm_mcp.config.section import DocumentedModel, Right
from rkllm_mcp.config.servers import is_knowledge
from rkllm_mcp.errors import QueueFullError
from rkllm_mcp.generation import AnswerOptions, ApprovalMode
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.protocols import CallContext, FixedApprover
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError
from rkllm_mcp.surfaces.http.openai import count_text
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import MEBIBYTE, id_prefix, run_work, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import EventRecords, EventStream, while_connected
from rkllm_mcp.text import Language, language_of_header, stamp
from rkllm_mcp.toolcalls.results import result_text

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App

_FORM_BYTES = 65_536  # a form's own bytes: boundaries, names and short fields
_PART_BYTES = 1_000_000
# The tools of the knowledge server for documents, and the right that each needs.
_KNOWLEDGE_TOOLS: Mapping[str, Right] = {
    "list_knowledge_bases": "tools",
    "search_documents": "tools",
    "read_passages": "tools",
    "create_knowledge_base": "write",
    "remove_document": "write",
}


class ToolShown(DocumentedModel):
    """A tool."""

    name: str = Field(description="The name that the model is shown.")
    title: str = Field(description="The server's name of the tool for people; empty without one.")
    qualified_name: str = Field(description="mcp__server__tool, which no other tool has.")
    server: str
    description: str
    input_schema: dict[str, Any] = Field(description="JSON Schema of the arguments.")
    enabled: bool = Field(description="True if it is enabled.")
    tokens: int = Field(
        description="What it costs in the list of tools at the front of a prompt; 0 if it is not there."
    )
    on_demand: bool = Field(description="The model finds it with find_tools instead of reading it in the list.")
    read_only: bool | None = Field(description="The server says that it changes nothing; null when it does not say.")
    destructive: bool | None = Field(description="The server says that it may destroy something.")


class ToolsResponse(DocumentedModel):
    """All tools."""

    tools: list[ToolShown]
    tokens: int = Field(description="What those that are switched on cost together.")


class SwitchResult(DocumentedModel):
    """A switch as it is now."""

    name: str
    enabled: bool


class CallBody(bodies.RequestBody):
    """A call by hand."""

    arguments: dict[str, Any] = Field(default_factory=dict[str, Any], description="What the tool is given.")
    tokens: Tokens = Field(default_factory=dict[str, str])
    """Secrets for headers of servers, by name; used for this call and kept nowhere."""
    approve: bool = Field(False, description="The yes to a call that may change something.")
    stream: bool = False
    """Answer with a stream of events, the last one tool_result; a call that needs a yes is put on it and waits."""


class Called(DocumentedModel):
    """Result of a call."""

    id: str
    name: str
    is_error: bool
    text: str
    seconds: float
    truncated: bool


class Record(DocumentedModel):
    """A call that was made."""

    name: str
    server: str
    conversation: str = Field(description="The conversation's id; empty when it belonged to none.")
    started: str = Field(description="ISO 8601.")
    seconds: float
    is_error: bool
    error: str = Field(description="The first line of why; empty when it did not fail.")
    ruling: str = Field(description="How it came to be allowed or refused.")
    arguments: str = Field(description="As compact JSON, secrets replaced, cut where it is long.")


class History(DocumentedModel):
    """Calls, the newest first."""

    calls: list[Record]


class HistoryQueryBody(bodies.RequestBody):
    """Filter of the call history."""

    limit: int = Field(100, ge=1, le=1000, description="At most so many.")
    server: str | None = Field(None, description="Of this server alone.")
    errors: bool = Field(False, description="Those alone that failed or were refused.")
    conversation: str | None = Field(None, description="Of this conversation alone.")


SWITCHED = (RouteResponse(SwitchResult),)


@Route("GET", "/v1/tools", answers=(RouteResponse(ToolsResponse),))
async def list_tools(request: Request) -> dict[str, Any]:
    """List the tools."""
    app = tenant_of(request).app
    language = language_of_header(request.headers.get("accept-language", ""))
    enabled, disabled = app.toolbox.tools(), app.toolbox.tools(disabled=True)

    def build_list() -> dict[str, Any]:
        tools = [shown_tool(app, tool, language, enabled=True) for tool in enabled]
        tools += [shown_tool(app, tool, language, enabled=False) for tool in disabled]
        return {"tools": tools, "tokens": app.model_host.listing.cost_of_all(enabled)}

    # Their tokens are counted.
    return await run_work(request, build_list)


@Route("POST", "/v1/tools/{name}:enable", answers=SWITCHED, problems=(404,))
async def enable(request: Request) -> SwitchResult:
    """Switch a tool on."""
    return await _switch(request, is_on=True)


@Route("POST", "/v1/tools/{name}:disable", answers=SWITCHED, problems=(404,))
async def disable(request: Request) -> SwitchResult:
    """Switch a tool off."""
    return await _switch(request, is_on=False)


@Route(
    "POST",
    "/v1/tools/{name}:call",
    body=CallBody,
    answers=(
        RouteResponse(Called, says="What it came to; a tool that failed is no failure of the request."),
        RouteResponse(dict[str, Any], media=EVENT_STREAM, says="One event in each record, when stream is true."),
    ),
    problems=(403, 404),
)
async def call(request: Request) -> object:
    """Call a tool by hand."""
    body = await bodies.read(request, CallBody)
    app, may_approve = tenant_of(request).app, "approve" in request.state.rights
    yes = "send approve: true to allow it" if may_approve else NO_RIGHT
    asker = FixedApprover("once") if body.approve and may_approve else FixedApprover("deny", yes)
    context = CallContext(asker=asker, tokens=body.tokens)

    async def stream_call(stream: EventStream) -> None:
        approvals: ApprovalMode = "no_right" if not may_approve else "grant" if body.approve else "ask"
        language = language_of_header(request.headers.get("accept-language", ""))
        prefix = id_prefix(request)
        options = AnswerOptions(approvals=approvals, id_prefix=prefix, tokens=body.tokens, language=language)
        async with app.toolbox.attending(body.tokens):
            tool = _tool(app, request.path_params["name"])
            await app.call_tool(tool, body.arguments, EventRecords(stream), options)

    if body.stream:
        return EventStream(stream_call)

    async def call_tool() -> dict[str, Any]:
        async with app.toolbox.attending(body.tokens):
            tool = _tool(app, request.path_params["name"])
            result = await app.toolbox.call(ToolCall("call_1", tool.name, body.arguments), context)
        if result.ruling == "refused":
            message = f"{tool.name} was not run, because it may change something; {yes}"
            raise HTTPError(403, message, code="needs_approval")
        return shown(Called, result, id=result.call_id, text=result.shown, seconds=round(result.seconds, 3))

    return await while_connected(request, call_tool)


class AttachmentForm(DocumentedModel):
    """A file for a question."""

    file: str = Field(description="The file, with its name.", json_schema_extra={"format": "binary"})


class UploadForm(AttachmentForm):
    """A file for a knowledge base."""

    knowledge_base: str = Field(default="", description="Id or name; needless if there is only one, or a default.")
    title: str = Field(default="", description="Instead of the document's own.")
    collection: str = Field(default="", description="The collection's name.")


@Route(
    "POST",
    "/v1/documents",
    body=UploadForm,
    body_media="multipart/form-data",
    answers=(RouteResponse(status=201, says="The result of the knowledge server's add_document."),),
    problems=(404, 507),
)
async def add_document(request: Request) -> dict[str, Any]:
    """Add a file to a knowledge base."""
    return await _upload(request, "add_document")


class Attachment(DocumentedModel):
    """The text of a file."""

    title: str
    text: str
    warnings: list[str] = Field(description="Sentences about possible losses.")
    pages: list[int] = Field(description="Index of the first character of each page; empty for a file without pages.")
    tokens: int | None = Field(
        description="Tokens of the text, estimated for several windows of text; null where a remote service answers."
    )


@Route(
    "POST",
    "/v1/attachments",
    body=AttachmentForm,
    body_media="multipart/form-data",
    answers=(RouteResponse(Attachment),),
    problems=(404, 507),
)
async def attach(request: Request) -> dict[str, Any]:
    """Read the text of a file for a question."""
    read = await _upload(request, "read_document")
    tokens = await count_text(request, read["text"])
    attachment = {name: read[name] for name in ("title", "text", "warnings")}
    return attachment | {"pages": read.get("pages", []), "tokens": tokens}


class KnowledgeBody(bodies.RequestBody):
    """A call of the knowledge server."""

    arguments: dict[str, Any] = Field(default_factory=dict[str, Any], description="What the tool is given.")


@Route(
    "POST",
    "/v1/knowledge/{tool}",
    body=KnowledgeBody,
    answers=(RouteResponse(dict[str, Any], says="The structured result of the knowledge server's tool."),),
    problems=(403, 404),
)
async def ask_knowledge(request: Request) -> dict[str, Any]:
    """List, search or read documents, make a knowledge base, or remove a document."""
    body = await bodies.read(request, KnowledgeBody)
    tool = request.path_params["tool"]
    if tool not in _KNOWLEDGE_TOOLS:
        raise HTTPError(404, f"there is no {tool!r}; there are {', '.join(_KNOWLEDGE_TOOLS)}", param="tool")
    if _KNOWLEDGE_TOOLS[tool] not in request.state.rights:
        raise HTTPError(403, f"this key may not use {tool}; it lacks the right '{_KNOWLEDGE_TOOLS[tool]}'")
    async with _knowledge(request) as call:
        return _structured_content(await call(tool, body.arguments), "arguments")


async def _upload(request: Request, tool: str) -> dict[str, Any]:
    """Send the file of a form to a tool of the knowledge server; return the structured result."""
    service = service_of(request)
    limit = service.config.service.upload_mb * MEBIBYTE
    advice = f"the file is larger than {limit / MEBIBYTE:g} MB; send a smaller one, or raise upload_mb in [service]"
    too_large = HTTPError(413, advice, param="file")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit + _FORM_BYTES:
        raise too_large
    size = int(length) if length.isdecimal() else limit
    try:
        async with (
            _knowledge(request) as call,
            service.admission.receiving(request.state.key, size),
            bodies.limit_body(request, limit + _FORM_BYTES, problem=too_large).form(max_files=1, max_fields=10) as form,
        ):
            file = form.get("file")
            if not isinstance(file, UploadFile) or not file.filename:
                raise HTTPError(422, "file: is missing; send multipart/form-data with a file", param="file")
            fields = {name: form.get(name) for name in UploadForm.model_fields}
            form_values = {name: value for name, value in fields.items() if isinstance(value, str) and value}
            form_values["knowledge_base_id"] = form_values.pop("knowledge_base", "*")
            # In parts, of which the last one has the result.
            size, facts = file.size or 0, dict[str, Any]()
            while True:
                data = base64.b64encode(await file.read(_PART_BYTES)).decode()
                more = facts.get("received", 0) + _PART_BYTES < size
                part = {"data": data, "file_name": file.filename, "upload_id": facts.get("upload_id", ""), "more": more}
                facts = _structured_content(await call(tool, {**form_values, **part}), "file")
                if not more:
                    return facts
    except HTTPException as error:
        raise HTTPError(400, f"the body is not a form: {error.detail}; send multipart/form-data") from None
    except QueueFullError:
        message = "too many files of this key are on their way; wait for their answers, or send fewer at once"
        raise HTTPError(429, message, retry_after_s=RETRY_AFTER_S) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = "the board has no space for this file; free some in its folder for temporary files"
        raise HTTPError(507, message, code="no_space") from None


@asynccontextmanager
async def _knowledge(request: Request) -> AsyncGenerator[Callable[..., Awaitable[dict[str, Any]]], None]:
    """Yield the function that calls a tool of the knowledge server."""
    toolbox = tenant_of(request).app.toolbox
    server = next((connection for connection in toolbox.connections if is_knowledge(connection.spec)), None)
    if server is None:
        message = "there is no knowledge server; the owner adds one to [[servers]] in the configuration"
        raise HTTPError(404, message, code="no_knowledge_server")
    async with toolbox.attending({}):
        await server.available()
        yield server.call


def _structured_content(result: dict[str, Any], param: str) -> dict[str, Any]:
    if result["isError"]:
        raise HTTPError(422, result_text(result).replace("_base_id", "_base"), param=param, code="document_refused")
    return cast("dict[str, Any]", result.get("structuredContent") or {})


@Route("GET", "/v1/tools/history", query=HistoryQueryBody, answers=(RouteResponse(History),))
async def history(request: Request) -> dict[str, Any]:
    """List the recorded calls."""
    wish = bodies.query(request, HistoryQueryBody)
    calls = await tenant_of(request).app.store.calls.latest(
        wish.limit, server=wish.server, errors_only=wish.errors, conversation=wish.conversation
    )
    return {"calls": [shown(Record, call, name=call.tool, started=stamp(call.at - call.seconds)) for call in calls]}


class Permission(DocumentedModel):
    """A permanent decision about a tool."""

    server: str
    tool: str
    kind: str
    """always, never, configured by always_allow; or conversation, valid for the conversation that was asked for."""


class Permissions(DocumentedModel):
    """All permanent decisions."""

    permissions: list[Permission]


class PermissionQuery(bodies.RequestBody):
    """The decisions to list."""

    conversation: str = Field("", description="Those as well that are valid for this conversation alone.")


class ToolName(bodies.RequestBody):
    """A tool of a server."""

    server: str = Field(description="The server's name; empty for tools without one.")
    tool: str = Field(description="The server's own name of it.")
    conversation: str = Field("", description="Of the decision for this conversation alone, instead of that for good.")


@Route("GET", "/v1/approvals/lasting", query=PermissionQuery, answers=(RouteResponse(Permissions),))
async def list_permissions(request: Request) -> dict[str, Any]:
    """List the permanent decisions about calls."""
    app, conversation = tenant_of(request).app, bodies.query(request, PermissionQuery).conversation
    decisions = [(server, tool, grant.kind) for server, tool, grant in await app.store.grants.all()]
    decisions += [(*of, "conversation") for of in app.toolbox.conversation_grants.of(conversation) if conversation]
    return {"permissions": [{"server": server, "tool": tool, "kind": kind} for server, tool, kind in decisions]}


@Route(
    "DELETE",
    "/v1/approvals/lasting",
    query=ToolName,
    answers=(RouteResponse(status=204, says="It is forgotten."),),
    problems=(404,),
)
async def forget_permission(request: Request) -> None:
    """Ask again before the calls of a tool."""
    wish, app = bodies.query(request, ToolName), tenant_of(request).app
    grants = app.toolbox.conversation_grants
    if wish.conversation and (wish.server, wish.tool) in grants.of(wish.conversation):
        grants.forget(wish.conversation, wish.server, wish.tool)
    elif wish.conversation or not await app.store.grants.forget(wish.server, wish.tool):
        raise HTTPError(404, f"no decision about {wish.tool!r} is stored; GET /v1/approvals/lasting lists them")


async def _switch(request: Request, *, is_on: bool) -> SwitchResult:
    app = tenant_of(request).app
    name = request.path_params["name"]
    tool = app.toolbox.resolve_starting(name) or _tool(app, name)
    app.toolbox.switches.turn(tool.server, tool.wire_name, is_on=is_on)
    await app.store.flush()
    return SwitchResult(name=tool.name, enabled=is_on)


def _tool(app: App, name: str) -> ToolSpec:
    tool = app.toolbox.resolve(name)
    if tool is None:
        near = app.toolbox.suggest(name)
        advice = f"did you mean {near!r}?" if near else "GET /v1/tools lists them"
        raise HTTPError(404, f"there is no tool {name!r}; {advice}", param="name")
    return tool


def shown_tool(app: App, tool: ToolSpec, language: Language | None, *, enabled: bool) -> dict[str, Any]:
    """Return a tool as ``ToolShown`` in a language, if its server has texts in it, with its cost."""
    tokens = 0 if tool.on_demand else app.model_host.listing.cost(tool)
    translated = tool.in_language(language) if language else tool
    return shown(ToolShown, translated, input_schema=dict(translated.input_schema), enabled=enabled, tokens=tokens)
