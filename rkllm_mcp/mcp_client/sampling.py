"""Sampling: a server asks the host's model during a call, with approval, a token limit and a place in the NPU queue.

While the server asks, the answer that made the call waits for the call and leaves the model free. Without an active
call a request is refused; so are tools and content other than text. A callback never raises.

Follows MCP 2025-11-25 (a separate request) and 2026-07-28 (inside the call), client features, sampling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rkllm_mcp.config.servers import MCPServerConfig
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.mcp_client.timeouts import active_call
from rkllm_mcp.messages import Message
from rkllm_mcp.protocols import CallContext, Sampler, SamplingAnswer, SamplingRequest

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp_types import CreateMessageRequestParams, CreateMessageResult, CreateMessageResultWithTools, ErrorData


# A server that needs no approval must not occupy the NPU without limit during one call.
MOST_PER_CALL = 10
# MCP's example of a rejection by the user; the code has no other meaning.
_REFUSED = -1
_ENDINGS = {"end": "endTurn", "stop": "stopSequence", "length": "maxTokens"}

# Decides about a server's request during a call; asks the call's approver where necessary. Runs outside the time limit.
ApproveSampling: TypeAlias = Callable[[MCPServerConfig, SamplingRequest, CallContext], Awaitable[bool]]


class SamplingRefusedError(Exception):
    """A sampling request that is refused; ``code`` and the message are sent to the server."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class SamplingGate:
    """Sampling callback of one server: checks the request, asks for approval, runs the model.

    ``in_flight`` are the active calls of the connection, whose users are asked; ``note`` receives a line about each
    refusal.
    """

    def __init__(
        self,
        spec: MCPServerConfig,
        sampler: Sampler,
        approve: ApproveSampling,
        in_flight: Sequence[CallContext],
        note: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._sampler = sampler
        self._approve = approve
        self._in_flight = in_flight
        self._note = note
        self._counts: list[tuple[CallContext, int]] = []

    async def answer(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Handle ``sampling/createMessage``; the callback of an ``mcp.Client``."""
        from mcp_types import INTERNAL_ERROR, CreateMessageResult, ErrorData, TextContent

        del context
        try:
            answer = await self._answer(params)
        except SamplingRefusedError as error:
            self._note(f"(its sampling request was refused: {error})")
            return ErrorData(code=error.code, message=str(error))
        except Exception as error:  # noqa: BLE001  (a callback that raises would break the call it belongs to)
            self._note(f"(its sampling request failed: {error})")
            reason = str(error) if isinstance(error, RkllmMcpError) else "the model could not answer"
            return ErrorData(code=INTERNAL_ERROR, message=reason)
        return CreateMessageResult(
            role="assistant",
            content=TextContent(type="text", text=answer.text),
            model=answer.model,
            stop_reason=_ENDINGS[answer.ending],
        )

    async def _answer(self, params: CreateMessageRequestParams) -> SamplingAnswer:
        request = _request(self._spec.name, params)
        call = active_call(self._in_flight)
        if call is None:
            raise SamplingRefusedError(_REFUSED, "the model can only be asked during a call")
        self._count(call)
        with call.pause():
            if not await self._approve(self._spec, request, call):
                raise SamplingRefusedError(_REFUSED, "the owner of this assistant did not allow it")
            return await self._sampler.sample(request)

    def _count(self, call: CallContext) -> None:
        asked = 1 + next((count for other, count in self._counts if other is call), 0)
        running = [pair for pair in self._counts if pair[0] is not call and any(pair[0] is c for c in self._in_flight)]
        self._counts = [*running, (call, asked)]
        if asked > MOST_PER_CALL:
            raise SamplingRefusedError(_REFUSED, f"the model can be asked {MOST_PER_CALL} times during one call")


def _request(server: str, params: CreateMessageRequestParams) -> SamplingRequest:
    from mcp_types import INVALID_PARAMS

    if params.tools or params.tool_choice:
        raise SamplingRefusedError(INVALID_PARAMS, "this host does not support tools in sampling; ask without tools")
    messages = tuple(Message(entry.role, _text(entry.content_as_list)) for entry in params.messages)
    if not messages or params.max_tokens < 1:
        raise SamplingRefusedError(INVALID_PARAMS, "at least one message and max_tokens of at least 1 are required")
    return SamplingRequest(
        server=server,
        messages=messages,
        system=params.system_prompt or "",
        max_tokens=params.max_tokens,
        stop=tuple(text for text in params.stop_sequences or () if text),
    )


def _text(blocks: Sequence[Any]) -> str:
    from mcp_types import INVALID_PARAMS, TextContent

    if not all(isinstance(block, TextContent) for block in blocks):
        raise SamplingRefusedError(INVALID_PARAMS, "this host's model reads text only; describe the rest in words")
    return "\n".join(block.text for block in blocks)
