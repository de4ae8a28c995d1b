"""The host's own model as a judge of doubtful OCR, asked through MCP in the middle of a call.

To a client of 2026-07-28 a server sends no requests: the call ends with the question, and the client makes the same
call again with the answer. What is asked follows from the text alone, so nothing has to be remembered in between. An
older client is asked by a request of its own, while the call goes on.

Followed: MCP 2026-07-28, multi round-trip requests; 2025-11-25, sampling.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_servers.knowledge.errors import ModelServiceUnavailableError

INPUT_KEY = "judge"
_TIMEOUT_S = 60.0
# What a model says around the lines it was asked for, tokens.
_EXTRA_TOKENS = 64


class InputRequired(Exception):  # noqa: N818 - no failure: the call goes on when the client has asked its model
    """The client has to ask its model before the call can be answered.

    Args:
        request: what to ask.
    """

    def __init__(self, request: CreateMessageRequest) -> None:
        super().__init__("the client is to ask its model")
        self.request = request


class SamplingJudge:
    """The host's model, for one call.

    Args:
        context: of the call.
        params: of the call.
    """

    def __init__(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> None:
        self._context = context
        self._params = params

    async def answer(self, instructions: str, text: str) -> str:
        """What the model makes of a text.

        Raises:
            AskFirst: the client has not asked it yet.
            ModelServiceUnavailableError: it cannot be asked, or answered no text.
        """
        request = CreateMessageRequest(
            params=CreateMessageRequestParams(
                messages=[SamplingMessage(role="user", content=TextContent(type="text", text=text))],
                system_prompt=instructions,
                temperature=0,
                max_tokens=len(text) + _EXTRA_TOKENS,
            )
        )
        if self._context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return _text(await self._request(request))
        response = (self._params.input_responses or {}).get(INPUT_KEY)
        if response is None:
            raise InputRequired(request)
        return _text(response)

    async def _request(self, request: CreateMessageRequest) -> CreateMessageResult:
        try:
            return await self._context.session.send_request(
                request,
                CreateMessageResult,
                request_read_timeout_seconds=_TIMEOUT_S,
                metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
            )
        except MCPError as error:
            raise ModelServiceUnavailableError(error.error.message) from error
        except ValidationError as error:
            raise ModelServiceUnavailableError("the host's answer is none") from error


def sampling_judge(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> SamplingJudge | None:
    """The host's model, where the host offers one."""
    capabilities = context.session.client_capabilities
    return SamplingJudge(context, params) if capabilities and capabilities.sampling is not None else None


def _text(response: object) -> str:
    content = getattr(response, "content", None)
    if not isinstance(content, TextContent):
        raise ModelServiceUnavailableError("the host's model answered no text")
    return content.text
