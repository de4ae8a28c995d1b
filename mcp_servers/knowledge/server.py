"""The tools over MCP: a call becomes arguments and a caller, an answer becomes a result, a problem a tool error.

Results go out twice, as MCP wants it: structured, and as text for clients that read only text. A problem's result says
the promised words first, then what to do; its status stands in ``_meta``, for whoever wants it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from mcp_servers.knowledge.errors import KnowledgeError
from mcp_servers.knowledge.results import ToolOutput
from mcp_servers.knowledge.sampling import INPUT_KEY, InputRequired, sampling_judge
from mcp_servers.knowledge.service import KnowledgeService
from mcp_servers.knowledge.settings import TextForm, version
from mcp_servers.knowledge.tools import BY_NAME, TOOLS, CallContext, ToolArguments, tool_definition
from mcp_servers.knowledge.types import UNRESTRICTED, Access

logger = logging.getLogger(__name__)

Request: TypeAlias = ServerRequestContext[Any, Any]
AccessOf: TypeAlias = Callable[[Request], Access]

STATUS = "status"
_INTERNAL = 500


def unrestricted_access(_: Request) -> Access:
    """The person at their own machine: everything may be seen."""
    return UNRESTRICTED


def create_server(service: KnowledgeService, access_of: AccessOf = unrestricted_access) -> Server[Any]:
    """The server, ready for a transport or an in-process client.

    Args:
        service: what the tools do.
        access_of: who makes a request.
    """
    tools = [tool_definition(tool, service.settings) for tool in TOOLS]

    async def list_tools(_: Request, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Request, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        try:
            answer = await _call(service, context, params, access_of)
        except KnowledgeError as problem:
            return _error_result(str(problem), problem.status)
        except InputRequired as question:
            return InputRequiredResult(input_requests={INPUT_KEY: question.request})
        except Exception:
            # What it was is for the owner's log; a stranger learns nothing of it.
            logger.exception("The tool %r failed", params.name)
            return _error_result("Something went wrong inside the knowledge server. Its log says what.", _INTERNAL)
        return _result(answer, service.settings.text)

    return Server(
        "rkllm-mcp-knowledge",
        title="ナレッジベース",
        version=version(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _call(
    service: KnowledgeService, context: Request, params: CallToolRequestParams, access_of: AccessOf
) -> ToolOutput:
    tool = BY_NAME.get(params.name)
    if tool is None:
        raise UnknownToolError(params.name)

    async def report(done: int, total: int, message: str) -> None:
        await context.session.report_progress(done, total, message)

    judge = sampling_judge(context, params) if service.settings.models.sampling else None
    return await tool.run(
        service, ToolArguments(params.arguments or {}), CallContext(access_of(context), judge, report)
    )


class UnknownToolError(KnowledgeError):
    """There is no tool of this name."""

    status = 404

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        """What to call instead."""
        return f"There is no tool {self.name!r:.60}. Call one of {', '.join(BY_NAME)}."


def text_contents(answer: ToolOutput, form: TextForm) -> list[str]:
    """An answer for who reads only text: the JSON of it and its sources, or prose where it has some."""
    prose = answer.passages() if form == "passages" else ""
    written = prose or json.dumps(answer.structured(), ensure_ascii=False, separators=(",", ":"))
    # Prose names each source where it belongs.
    sources = "" if prose else answer.sources()
    return [written, sources] if sources else [written]


def _result(answer: ToolOutput, form: TextForm) -> CallToolResult:
    problem = answer.problem()
    if problem:
        failed = _error_result(str(problem), problem.status)
        return failed.model_copy(update={"structured_content": answer.structured()})
    content = [TextContent(type="text", text=text) for text in text_contents(answer, form)]
    return CallToolResult(content=[*content], structured_content=answer.structured())


def _error_result(sentence: str, status: int) -> CallToolResult:
    content = [TextContent(type="text", text=sentence)]
    return CallToolResult(content=[*content], is_error=True, _meta={STATUS: status})


_READ_BYTES = 65536


class StdinLines:
    """The lines of an open file, to be iterated over.

    Args:
        descriptor: the open file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []

    def __aiter__(self) -> StdinLines:
        """Itself."""
        return self

    async def __anext__(self) -> str:
        """The next line, without its end."""
        while not self._lines:
            data = await self._bytes()
            if not data and not self._parts:
                raise StopAsyncIteration
            head, *rest = data.split(b"\n")
            self._parts.append(head)
            if rest or not data:
                whole = b"".join(self._parts)
                self._parts = [rest[-1]] if rest and rest[-1] else []
                # Taken from the end.
                self._lines = [*reversed(rest[:-1]), whole]
        return self._lines.pop().decode("utf-8", "replace")

    async def _bytes(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except OSError:
            # A regular file cannot be waited for, and need not be.
            await anyio.lowlevel.checkpoint()
        return os.read(self._descriptor, _READ_BYTES)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it leaves."""
    lines = cast("Any", StdinLines(sys.stdin.fileno()))
    async with stdio_server(stdin=lines) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
