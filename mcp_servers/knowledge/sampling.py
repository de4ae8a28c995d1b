"""The host's model as judge for uncertain OCR, through MCP sampling.

With protocol 2026-07-28 a server sends no requests: the call ends with InputRequiredResult, and the client repeats it
with the response. The request depends only on the text, so no state is kept between the calls. With older protocols the
server sends ``sampling/createMessage`` during the call.

References: MCP 2026-07-28, multi round-trip requests; MCP 2025-11-25, sampling.
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
# Tokens for text around the requested lines.
_EXTRA_TOKENS = 64


class InputRequired(Exception):  # noqa: N818 - control flow: the client repeats the call with the answer
    """The client must run a sampling request before the call can be answered."""

    def __init__(self, request: CreateMessageRequest) -> None:
        super().__init__("sampling by the client is required")
        self.request = request


class SamplingJudge:
    """Judge that asks the host's model during one tool call."""

    def __init__(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> None:
        self._context = context
        self._params = params

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
            raise ModelServiceUnavailableError("the host's answer is invalid") from error


def sampling_judge(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> SamplingJudge | None:
    """Return a judge if the client supports sampling."""
    capabilities = context.session.client_capabilities
    return SamplingJudge(context, params) if capabilities and capabilities.sampling is not None else None


def _text(response: object) -> str:
    content = getattr(response, "content", None)
    if not isinstance(content, TextContent):
        raise ModelServiceUnavailableError("the host's model did not answer with text")
    return content.text
