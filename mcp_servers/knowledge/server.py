"""The tools over MCP: a call becomes arguments and a caller, an answer becomes a result, a problem a tool error.

Results go out twice, as MCP wants it: structured, and as text for clients that read only text. A problem's result says
the promised words first, then what to do; its status stands in ``_meta``, for whoever wants it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from mcp_servers.knowledge.answers import Answer
from mcp_servers.knowledge.arguments import Arguments
from mcp_servers.knowledge.problems import KnowledgeProblem
from mcp_servers.knowledge.sampling import QUESTION, AskFirst, host_judge
from mcp_servers.knowledge.service import Service
from mcp_servers.knowledge.settings import TextForm, version
from mcp_servers.knowledge.tools import BY_NAME, TOOLS, Caller, shown
from mcp_servers.knowledge.values import EVERYONE, Access

logger = logging.getLogger(__name__)

Request: TypeAlias = ServerRequestContext[Any, Any]
AccessOf: TypeAlias = Callable[[Request], Access]

STATUS = "status"
_INTERNAL = 500


def everyone(_: Request) -> Access:
    """The person at their own machine: everything may be seen."""
    return EVERYONE


def create_server(service: Service, access_of: AccessOf = everyone) -> Server[Any]:
    """The server, ready for a transport or an in-process client.

    Args:
        service: what the tools do.
        access_of: who makes a request.
    """
    tools = [shown(tool, service.settings) for tool in TOOLS]

    async def list_tools(_: Request, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Request, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        try:
            answer = await _answer(service, context, params, access_of)
        except KnowledgeProblem as problem:
            return _failed(str(problem), problem.status)
        except AskFirst as question:
            return InputRequiredResult(input_requests={QUESTION: question.request})
        except Exception:
            # What it was is for the owner's log; a stranger learns nothing of it.
            logger.exception("The tool %r failed", params.name)
            return _failed("Something went wrong inside the knowledge server. Its log says what.", _INTERNAL)
        return _result(answer, service.settings.text)

    return Server(
        "rkllm-mcp-knowledge",
        title="ナレッジベース",
        version=version(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answer(service: Service, context: Request, params: CallToolRequestParams, access_of: AccessOf) -> Answer:
    tool = BY_NAME.get(params.name)
    if tool is None:
        raise UnknownToolError(params.name)

    async def tell(done: int, total: int, message: str) -> None:
        await context.session.report_progress(done, total, message)

    judge = host_judge(context, params) if service.settings.models.sampling else None
    return await tool.run(service, Arguments(params.arguments or {}), Caller(access_of(context), judge, tell))


class UnknownToolError(KnowledgeProblem):
    """There is no tool of this name."""

    status = 404

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        """What to call instead."""
        return f"There is no tool {self.name!r:.60}. Call one of {', '.join(BY_NAME)}."


def text_of(answer: Answer, form: TextForm) -> list[str]:
    """An answer for who reads only text: the JSON of it and its sources, or prose where it has some."""
    prose = answer.passages() if form == "passages" else ""
    written = prose or json.dumps(answer.facts(), ensure_ascii=False, separators=(",", ":"))
    # Prose names each source where it belongs.
    sources = "" if prose else answer.sources()
    return [written, sources] if sources else [written]


def _result(answer: Answer, form: TextForm) -> CallToolResult:
    problem = answer.problem()
    if problem:
        failed = _failed(str(problem), problem.status)
        return failed.model_copy(update={"structured_content": answer.facts()})
    content = [TextContent(type="text", text=text) for text in text_of(answer, form)]
    return CallToolResult(content=[*content], structured_content=answer.facts())


def _failed(sentence: str, status: int) -> CallToolResult:
    content = [TextContent(type="text", text=sentence)]
    return CallToolResult(content=[*content], is_error=True, _meta={STATUS: status})
