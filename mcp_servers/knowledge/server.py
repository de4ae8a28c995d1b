"""MCP server: tool calls -> tools -> MCP results, and the stdio transport.

A result is sent as structured content and as text for clients that read only text. The text of an error begins with the
specified words; its HTTP status is in ``_meta.status``.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_servers.knowledge.errors import KnowledgeError, ModelServiceUnavailableError
from mcp_servers.knowledge.importing.documents import MEGABYTE
from mcp_servers.knowledge.results import SearchOutput
from mcp_servers.knowledge.service import CallContext, KnowledgeService
from mcp_servers.knowledge.settings import Settings
from mcp_servers.knowledge.tools import BY_NAME, LISTED, tool_definitions
from mcp_servers.knowledge.types import MAX_CLEARANCE, UNRESTRICTED, Access
from mcp_servers.knowledge.validation import ToolArguments
from mcp_servers.program import ERROR, version
from rkllm_base.lines import Lines

logger = logging.getLogger(__name__)

INPUT_KEY = "judge"
# In ``_meta`` of a call that a host makes for every question.
AUTOMATIC = "io.github.rkllm-mcp/automatic"
_TIMEOUT_S = 60.0
# Hosts end a connection with a message of more than 32 MB: text of 3 bytes a character, once plain and once as JSON.
_MAX_ANSWER = 5_000_000
# Tokens for text around the requested lines.
_EXTRA_TOKENS = 64


class InputRequired(Exception):  # noqa: N818 - control flow: the client repeats the call with the answer
    """The client must run a sampling request before the call can be answered."""

    def __init__(self, request: CreateMessageRequest) -> None:
        super().__init__("sampling by the client is required")
        self.request = request


@dataclass(frozen=True)
class SamplingJudge:
    """Judge for uncertain OCR that asks the host's model during one tool call, through MCP sampling.

    With protocol 2026-07-28 a server sends no requests: the call ends with InputRequiredResult, and the client repeats
    it with the response. The request depends only on the text, so no state is kept between the calls. With older
    protocols the server sends ``sampling/createMessage`` during the call.
    """

    context: ServerRequestContext[Any, Any]
    params: CallToolRequestParams

    async def answer(self, instructions: str, text: str) -> str:
        """Return the model's answer.

        Raises InputRequired if the client must run the request first, ModelServiceUnavailableError if it fails.
        """
        request = CreateMessageRequest(
            params=CreateMessageRequestParams(
                messages=[SamplingMessage(role="user", content=TextContent(type="text", text=text))],
                system_prompt=instructions,
                temperature=0,
                max_tokens=len(text) + _EXTRA_TOKENS,
            )
        )
        if self.context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            try:
                response = await self.context.session.send_request(
                    request,
                    CreateMessageResult,
                    request_read_timeout_seconds=_TIMEOUT_S,
                    metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
                )
            except MCPError as error:
                raise ModelServiceUnavailableError(error.error.message) from error
            except ValidationError as error:
                raise ModelServiceUnavailableError("the host's answer is invalid") from error
        else:
            response = (self.params.input_responses or {}).get(INPUT_KEY)
            if response is None:
                raise InputRequired(request)
        content = getattr(response, "content", None)
        if not isinstance(content, TextContent):
            raise ModelServiceUnavailableError("the host's model did not answer with text")
        return content.text


Request: TypeAlias = ServerRequestContext[Any, Any]
AccessOf: TypeAlias = Callable[[Request], Access]

STATUS = "status"


def stdio_access(settings: Settings) -> Access:
    """Return the access over stdio: that of the tenant for whom the host started this server, or of the owner."""
    if not settings.tenant:
        return UNRESTRICTED
    is_shared = settings.tenant_documents == "shared"
    return Access(settings.tenant, None, MAX_CLEARANCE, settings.tenant_role, sees_shared=is_shared)


def create_server(service: KnowledgeService, access_of: AccessOf = lambda _: UNRESTRICTED) -> Server[Any]:
    """Create the MCP server; ``access_of`` returns the access of a request, else it is that of the owner."""
    tools = tool_definitions(service.settings)

    async def list_tools(_: Request, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Request, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        tool = BY_NAME.get(params.name)
        if tool is None:
            names = ", ".join(tool["name"] for tool in LISTED)
            return _error_result(KnowledgeError("UnknownTool", name=params.name, tools=names))
        capabilities = context.session.client_capabilities
        has_sampling = capabilities is not None and capabilities.sampling is not None
        judge = SamplingJudge(context, params).answer if service.settings.models.sampling and has_sampling else None
        is_automatic = (params.meta or {}).get(AUTOMATIC) is True
        try:
            call = CallContext(access_of(context), judge, context.session.report_progress, is_automatic)
            answer = await tool.run(service, ToolArguments(params.arguments or {}), call)
        except KnowledgeError as problem:
            return _error_result(problem)
        except InputRequired as question:
            return InputRequiredResult(input_requests={INPUT_KEY: question.request})
        except Exception:
            # Details go to the log only: they may contain private data.
            logger.exception("The tool %r failed", params.name)
            return _error_result(KnowledgeError("Internal"))
        problem = answer.problem()
        if problem:
            failed = _error_result(problem)
            return failed.model_copy(update={"structured_content": answer.structured_content()})
        texts = [json.dumps(answer.structured_content(), ensure_ascii=False, separators=(",", ":"))]
        if isinstance(answer, SearchOutput):
            # Prose if requested and available, which has the citations already; else JSON and the sources.
            prose = answer.passages() if service.settings.text == "passages" else ""
            sources = " ".join(passage.metadata.citation for passage in answer.results)
            texts = [prose] if prose else [*texts, f"Sources: {sources}" if sources else ""]
        content = [TextContent(type="text", text=text) for text in texts if text]
        characters = sum(len(block.text) for block in content)
        if characters > _MAX_ANSWER:
            return _error_result(KnowledgeError("AnswerTooLarge", megabytes=characters // MEGABYTE))
        return CallToolResult(content=[*content], structured_content=answer.structured_content())

    return Server(
        "rkllm-mcp-knowledge",
        title="ナレッジベース",
        version=version(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _error_result(problem: KnowledgeError) -> CallToolResult:
    content = [TextContent(type="text", text=str(problem))]
    return CallToolResult(content=[*content], is_error=True, _meta={ERROR: problem.details(), STATUS: problem.status})


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output until it disconnects."""
    # The SDK would read in a thread, which no signal ends while the client says nothing.
    lines = cast("Any", Lines(sys.stdin.fileno()))
    async with stdio_server(stdin=lines) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
