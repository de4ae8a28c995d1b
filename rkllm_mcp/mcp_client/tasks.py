"""Calls that a server runs as a task: polled until the result arrives, cancelled when the caller gives up.

    tools/call ─▶ task ─▶ tasks/get … ─▶ completed: the result of the call
                             └─ input_required ─▶ the callbacks of the client ─▶ tasks/update

Each change of a task's state is reported as progress of its call. Importing this module imports the SDK.

Follows the extension ``io.modelcontextprotocol/tasks`` for 2026-07-28 (SEP-2663), where the server decides to make a
task of a call, and tasks of 2025-11-25, where a tool may require one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import anyio
import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError

from rkllm_mcp.protocols import NO_CONTEXT, CallContext

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import ClientSession


IDENTIFIER = "io.modelcontextprotocol/tasks"
# Default polling interval, and bounds of the server's pollInterval, seconds.
_INTERVAL_S = 1.0
_SHORTEST_INTERVAL_S = 0.05
_LONGEST_INTERVAL_S = 30.0
# Limit for tasks/cancel, seconds.
_CANCEL_TIMEOUT_S = 2.0

_Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskCreated(types.Result):
    """First result of a call when the server makes a task of it (2026-07-28)."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: _Status = "working"
    status_message: str | None = None
    poll_interval_ms: int | None = None


class _State(types.Result):
    """State of a task in ``tasks/get``, both protocol revisions."""

    status: _Status
    status_message: str | None = None
    poll_interval_ms: int | None = None
    poll_interval: int | None = None  # the name until 2025-11-25
    input_requests: dict[str, types.InputRequest] | None = None
    result: dict[str, Any] | None = None
    error: types.ErrorData | None = None


class _LegacyStart(types.CallToolResult):
    """Result of a call that asked for a task: the task, or the tool's result if the server made none."""

    task: types.Task | None = None


class _Get(types.GetTaskRequest):
    # The Mcp-Name header of tasks/* is the task id; load balancers route by it.
    name_param = "taskId"


class _Cancel(types.CancelTaskRequest):
    name_param = "taskId"


class _UpdateParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any]


class _Update(types.Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class Tasks(ClientExtension):
    """Client extension that lets servers of 2026-07-28 make tasks of calls, and polls each to its result.

    ``find_call`` returns the call that a task belongs to; ``limit_s`` bounds one task, seconds.
    """

    identifier = IDENTIFIER

    def __init__(self, find_call: Callable[[], CallContext | None], limit_s: float) -> None:
        self._find_call = find_call
        self._limit_s = limit_s

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the result type that the extension adds to ``tools/call``."""
        return (ResultClaim(result_type="task", model=TaskCreated, resolve=self._finish),)

    async def _finish(self, created: TaskCreated, claim: ClaimContext) -> types.CallToolResult:
        context = self._find_call() or NO_CONTEXT
        seed = _State(
            status=created.status, status_message=created.status_message, poll_interval_ms=created.poll_interval_ms
        )
        return await _TaskRun(claim.session, created.task_id, context).wait(seed, self._limit_s)


async def call_as_task(
    client: Client, tool: str, arguments: Mapping[str, Any], context: CallContext, limit_s: float
) -> types.CallToolResult:
    """Call a tool that requires a task (servers up to 2025-11-25); ``limit_s`` bounds the task, seconds."""
    params = types.CallToolRequestParams(
        name=tool, arguments=dict(arguments), task=types.TaskMetadata(ttl=int(limit_s * 1000))
    )
    started = await client.session.send_request(types.CallToolRequest(params=params), _LegacyStart)
    if started.task is None:
        return started
    task = started.task
    seed = _State(status=task.status, status_message=task.status_message, poll_interval=task.poll_interval)
    return await _TaskRun(client.session, task.task_id, context, is_legacy=True).wait(seed, limit_s)


@dataclass
class _TaskRun:
    """One task, polled until it ends."""

    session: ClientSession
    task_id: str
    context: CallContext
    # Of 2025-11-25: its result is requested, and its input requests arrive as ordinary server requests.
    is_legacy: bool = False
    answered: set[str] = field(default_factory=set[str])  # keys of its input requests
    reports: int = 0
    reported: tuple[str, str | None] | None = None

    async def wait(self, state: _State, limit_s: float) -> types.CallToolResult:
        """Return the call's result; cancelling the caller also cancels the task."""
        is_over = False
        try:
            # A task has its own limit, so the limit of the call is paused.
            with self.context.pause(), anyio.move_on_after(limit_s):
                result = await self._result(state)
                is_over = True
                return result
        except MCPError as error:
            # An error response from the server ends the task; a lost connection does not.
            is_over = error.code != types.CONNECTION_CLOSED
            raise
        finally:
            if not is_over:
                await self._cancel()
        return _failure(f"the task did not finish within {limit_s:g} s and was cancelled; task_timeout_s allows more")

    async def _result(self, state: _State) -> types.CallToolResult:
        # An older server's input requests arrive as ordinary requests, while its result is waited for.
        running = ("working",) if self.is_legacy else ("working", "input_required")
        while state.status in running:
            await self._report(state)
            responses: dict[str, Any] = {}
            for key, input_request in (state.input_requests or {}).items():
                if key in self.answered:
                    continue
                self.answered.add(key)
                input_context = ClientRequestContext(session=self.session, request_id=key, meta=None)
                response = await self.session.dispatch_input_request(input_context, input_request)
                if isinstance(response, types.ErrorData):
                    await self._cancel()
                    raise MCPError.from_error_data(response)
                responses[key] = response.model_dump(by_alias=True, mode="json", exclude_none=True)
            if responses:
                params = _UpdateParams(task_id=self.task_id, input_responses=responses)
                await self.session.send_request(_Update(params=params), types.EmptyResult)
            else:
                interval_ms = state.poll_interval_ms if state.poll_interval_ms is not None else state.poll_interval
                interval_s = _INTERVAL_S if interval_ms is None else interval_ms / 1000
                await anyio.sleep(min(max(interval_s, _SHORTEST_INTERVAL_S), _LONGEST_INTERVAL_S))
            request = _Get(params=types.GetTaskRequestParams(task_id=self.task_id))
            state = await self.session.send_request(request, _State)
        await self._report(state)
        if state.status == "failed" and not self.is_legacy:
            message = state.status_message or "the task failed"
            raise MCPError.from_error_data(state.error or types.ErrorData(code=types.INTERNAL_ERROR, message=message))
        if state.status == "cancelled" or (state.result is None and not self.is_legacy):
            because = f": {state.status_message}" if state.status_message else ""
            return _failure(f"the server has cancelled the task{because}")
        if self.is_legacy:
            # tasks/result returns when the task has ended; in between the server sends its input requests.
            payload = types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(task_id=self.task_id))
            return await self.session.send_request(payload, types.CallToolResult)
        return types.CallToolResult.model_validate({"content": [], **(state.result or {})}, by_name=False)

    async def _report(self, state: _State) -> None:
        """Report a changed state as progress; the status message is preferred to the status."""
        news = (state.status, state.status_message)
        if self.context.on_progress is None or news == self.reported:
            return
        self.reported = news
        self.reports += 1
        await self.context.on_progress(self.reports, None, state.status_message or state.status.replace("_", " "))

    async def _cancel(self) -> None:
        request = _Cancel(params=types.CancelTaskRequestParams(task_id=self.task_id))
        with anyio.move_on_after(_CANCEL_TIMEOUT_S, shield=True):
            try:
                await self.session.send_request(request, types.EmptyResult)
            except MCPError:
                return  # the task or the connection has already ended


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
