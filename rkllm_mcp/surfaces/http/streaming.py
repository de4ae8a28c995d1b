"""Streamed HTTP answers (server-sent events, JSON lines), answers in one piece, and their admission to the queue.

    events ─▶ records of a batch ─▶ EventStream.write ─▶ one ASGI send        ": heartbeat" while nothing is sent

The headers are sent with the first record or the first heartbeat, so an early failure has a status of its own; a later
failure is the last record. A client that disconnects cancels the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rkllm_mcp.errors import QueueFullError, RkllmMcpError, SchedulerClosedError
from rkllm_mcp.events import EVENT_TYPES, End, Queued, Status, Text, Thinking, Usage, to_json
from rkllm_mcp.surfaces.http.errors import ClientGoneError, HTTPError, as_told, problem_of
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, JSON
from rkllm_mcp.surfaces.http.state import (
    SERVER_SEND,
    ServiceState,
    chosen_keep_alive,
    chosen_model,
    run_work,
    service_of,
    stopping,
    tenant_of,
)
from rkllm_mcp.tasks import open_task_group

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import Assistant
    from rkllm_mcp.app.environment import AuxiliaryModel
    from rkllm_mcp.app.tenants import Tenant

# Proxies drop a silent connection after 30 to 60 seconds, some clients after 15.
HEARTBEAT_S = 5.0
HEARTBEAT = b": heartbeat\n\n"
# The first heartbeat brings the headers, and the page needs the conversation's id soon, seconds.
FIRST_HEARTBEAT_S = 1.0
# A client that has not read for this long is treated as disconnected, seconds.
STALL_S = 60.0
# Interval at which a stream with a client that does not read compares its timestamps, seconds.
TICK_S = 1.0
# Heartbeats are due at multiples of this part of the longest silence, so that those of many streams leave together.
_HEARTBEAT_GRID = 0.1

T = TypeVar("T")
# Sends bytes of an answer; returns when the connection has taken them.
Write: TypeAlias = Callable[[bytes], Awaitable[None]]


def records(values: Iterable[str]) -> bytes:
    """Encode JSON values, one line each, as records of an event stream."""
    return "".join([f"data: {value}\n\n" for value in values]).encode("utf-8", "replace")


def lines(values: Iterable[str]) -> bytes:
    """Encode JSON values as lines."""
    # A model may write half of a surrogate pair, which UTF-8 cannot represent.
    return "".join([f"{value}\n" for value in values]).encode("utf-8", "replace")


def _error_record(problem: HTTPError) -> bytes:
    return records([to_json(problem.detail())])


class EventStream(Response):
    """A response that is sent while it is made.

    Args:
        answer: makes the answer and passes it to ``write``; cancelled when the client disconnects.
        media: the content type.
        headers: further headers.
        heartbeat: sent in silence; where it is empty, the first one still sends the headers.
        heartbeat_s: the longest silence, seconds.
        stall_s: how long the client may not read, seconds.
        failure: encodes a failure that comes after the headers.
    """

    def __init__(
        self,
        answer: Callable[[Write], Awaitable[None]],
        *,
        media: str = EVENT_STREAM,
        headers: Mapping[str, str] | None = None,
        heartbeat: bytes = HEARTBEAT,
        heartbeat_s: float = HEARTBEAT_S,
        stall_s: float = STALL_S,
        failure: Callable[[HTTPError], bytes] = _error_record,
    ) -> None:
        # no-transform and X-Accel-Buffering: a proxy that buffers or compresses would delay every record.
        own = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
        super().__init__(None, 200, {**own, **(headers or {})}, f"{media}; charset=utf-8")
        # The length is not known.
        del self.headers["content-length"]
        self._answer = answer
        self._heartbeat = heartbeat
        self._heartbeat_s = heartbeat_s
        self._stall_s = stall_s
        self._failure = failure
        self._scope = anyio.CancelScope()
        self._has_begun = False
        self._is_gone = False
        # A failure before the headers, which has a status of its own.
        self._failure_before: Exception | None = None
        # Sends that have not returned, and when the last of them began or returned.
        self._pending = 0
        self._moved_at = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        self._send = send
        self._server_send = scope.get(SERVER_SEND, send)
        self._moved_at = monotonic()
        async with anyio.create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            tasks.start_soon(_when_gone, receive, self._disconnect)
            tasks.start_soon(self._tick)
            # In a task of its own: a token resumes every coroutine from the task's first to the one that waits.
            tasks.start_soon(self._run)
        if self._failure_before is not None:
            raise self._failure_before

    async def _run(self) -> None:
        try:
            await self._answer(self.write)
            await self.write(more=False)
        except Exception as error:  # noqa: BLE001  (the last record, or raised outside of the group)
            if not self._is_gone:
                if self._has_begun:
                    await self.write(self._failure(problem_of(error)), more=False)
                else:
                    self._failure_before = error
        self._scope.cancel()

    async def write(self, content: bytes = b"", *, more: bool = True) -> None:
        """Send records as one message; waits while the connection's buffer is full.

        Several tasks may write at once: a message is passed to the connection whole and in order.
        """
        if self._is_gone:
            await anyio.lowlevel.checkpoint()
            return
        if not self._pending:
            self._moved_at = monotonic()
        self._pending += 1
        try:
            if not self._has_begun:
                self._has_begun = True
                start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                await self._send(start)
            if content or not more:
                await self._server_send({"type": "http.response.body", "body": content, "more_body": more})
        except OSError:
            self._disconnect()
        finally:
            self._pending -= 1
            self._moved_at = monotonic()

    def _disconnect(self) -> None:
        """Treat the client as gone: cancel the answer."""
        self._is_gone = True
        self._scope.cancel()

    async def _tick(self) -> None:
        """Send heartbeats, and disconnect a client that does not read."""
        while True:
            if self._pending:
                due = self._moved_at + self._stall_s
            else:
                longest_s = self._heartbeat_s if self._has_begun else min(FIRST_HEARTBEAT_S, self._heartbeat_s)
                due = self._moved_at + longest_s
                # Waking up costs more than a heartbeat.
                due -= due % (longest_s * _HEARTBEAT_GRID)
            rest_s = due - monotonic()
            if rest_s > 0:
                # Until something is due, and no more often: hundreds of streams may wait for their turn.
                await anyio.sleep(min(rest_s, TICK_S) if self._pending else rest_s)
            elif self._pending:
                self._disconnect()
                return
            else:
                with anyio.move_on_after(self._stall_s) as sending:
                    await self.write(self._heartbeat)
                if sending.cancelled_caught:
                    self._disconnect()


async def list_response(request: Request, fields: Mapping[str, Any], name: str, items: Iterable[Any]) -> Response:
    """Return a JSON object of ``fields`` and the list ``name``, encoded one by one; see ``state.run_work``.

    Encoding holds the interpreter's lock, and thousands of vectors are megabytes of digits.
    """

    def encoded() -> bytes:
        return b'%b,"%b":[%b]}' % (
            JSONResponse(fields).body[:-1],
            name.encode(),
            b",".join(JSONResponse(item).body for item in items),
        )

    return Response(await run_work(request, encoded), media_type=JSON)


def line_stream(answer: Callable[[Write], Awaitable[None]], media: str) -> Response:
    """Make a response in lines, such as Ollama's JSON, which have no heartbeat between them."""

    def last_line(problem: HTTPError) -> bytes:
        return lines([to_json({"error": problem.message})])

    return EventStream(answer, media=media, heartbeat=b"", failure=last_line)


async def while_connected(request: Request, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``work``, which a disconnect cancels; the request's body must have been read."""
    async with open_task_group() as tasks:
        tasks.start_soon(_when_gone, request.receive, tasks.cancel_scope.cancel)
        try:
            return await work()
        finally:
            tasks.cancel_scope.cancel()
    raise ClientGoneError


async def _when_gone(receive: Receive, leave: Callable[[], object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


# An event, or another part of which a kind of answer consists.
_T = TypeVar("_T")
_Emit: TypeAlias = Callable[[Sequence[_T]], Awaitable[None]]
_TEXT_EVENTS = frozenset({Text, Thinking})


@asynccontextmanager
async def _admitted(
    request: Request,
    kind: Literal["answer", "evaluation"] = "answer",
    *,
    model: str | None = "",
    on_wait: Callable[[int, str], Awaitable[None]] | None = None,
    placed: Callable[[], Awaitable[object]] | None = None,
    may_load: bool = False,
) -> AsyncGenerator[None, None]:
    """Wait for the turn of a request before the NPU and for its model, and hold its slot.

    It is refused with 503 if the service cannot answer now, 429 if too many wait or its tokens are used up.
    """
    service, tenant = service_of(request), tenant_of(request)
    service.check_ready(may_load=may_load)
    await service.quota.check(tenant)
    service.check_ready(may_load=may_load)
    try:
        with service.tenants.scheduler.admit(request.state.key, kind, model) as slot:
            if placed is not None:
                await placed()
            while (position := await slot.changed()) is not None:
                if on_wait is not None:
                    await on_wait(position, slot.loading)
            # Requests that waited together may have used it up one after the other.
            await service.quota.check(tenant)
            with nullcontext() if model is None else service.tenants.using(chosen_keep_alive(request)):
                yield
    except QueueFullError as error:
        raise HTTPError(429, str(error), retry_after_s=error.retry_after_s) from None
    except SchedulerClosedError:
        raise stopping() from None


async def in_turn(
    request: Request,
    answering: Callable[[Assistant, _Emit[_T]], Awaitable[None]],
    emit: _Emit[_T | Queued | Status | End],
    placed: Callable[[], Awaitable[object]] | None = None,
    *,
    may_load: bool = False,
) -> None:
    """Emit the positions of a request in the queue, and then the events of its answer by the model it chose.

    ``answering`` is called when its turn has come, with the assistant in use then: a changed configuration may have
    replaced it meanwhile. ``placed`` is called once the request has its place and will not be refused any more, except
    that the tokens of the day may be used up. See ``_admitted`` for refusals and ``may_load``.
    """
    service, tenant = service_of(request), tenant_of(request)

    told = ""

    async def on_wait(position: int, loading: str) -> None:
        nonlocal told
        is_news, told = loading not in {"", told}, loading
        await emit([Status(f"[NPU: Loading model '{loading}']") if is_news else Queued(position)])

    model = chosen_model(request)
    async with _admitted(request, model=model, on_wait=on_wait, placed=placed, may_load=may_load):
        app = tenant_of(request).app

        async def settle() -> None:
            if tokens := app.usage.settle():
                await service.quota.spend(tenant, tokens)

        try:
            await answering(app, _counted(service, tenant, settle, emit))
        finally:
            # Tokens of an answer that was left before its Usage are counted too.
            with anyio.CancelScope(shield=True):
                await settle()


async def loaded(request: Request) -> None:
    """Wait until the model that a request chose is loaded, in its turn; see ``_admitted``."""
    async with _admitted(request, model=chosen_model(request), may_load=True):
        await tenant_of(request).app.model_host.ready()


def _counted(
    service: ServiceState, tenant: Tenant, settle: Callable[[], Awaitable[None]], emit: _Emit[_T | End]
) -> _Emit[_T]:
    """Return a function that counts the events of an answer in metrics, traces and quota, and forwards them."""

    async def forward(events: Sequence[_T]) -> None:
        seen: Sequence[_T | End] = events
        for event in events:
            # Most events are text, which counts nothing.
            if type(event) not in _TEXT_EVENTS and isinstance(event, EVENT_TYPES):
                service.metrics.take(event)
                service.traces.take(event)
                if isinstance(event, Usage):
                    service.count(tenant.name, event)
                    await settle()
                elif isinstance(event, End):
                    seen = [*events[:-1], as_told(event)]
        await emit(seen)

    return forward


async def evaluated(
    request: Request,
    name: str | None,
    work: Callable[[AuxiliaryModel], Awaitable[_T]],
    cost: Callable[[], Awaitable[int]],
) -> _T:
    """Return what ``work`` evaluates with a configured model, or the chat model, once the request's turn has come.

    ``cost`` counts its tokens, also of an evaluation that was cancelled; it is called where there is a quota. What
    cannot be evaluated costs nothing. See ``_admitted`` for refusals.
    """
    service, tenant = service_of(request), tenant_of(request)

    async def in_its_turn() -> _T:
        is_auxiliary = (name or "") in tenant.app.model_host.auxiliary_models
        async with _admitted(request, "evaluation", model=None if is_auxiliary else ""):
            # Counted before, since that can be cancelled.
            tokens = await cost() if service.quota.limit(tenant) is not None else 0
            try:
                return await work(tenant_of(request).app.model_host.evaluator(name))
            except RkllmMcpError:
                tokens = 0
                raise
            finally:
                if tokens:
                    with anyio.CancelScope(shield=True):
                        await service.quota.spend(tenant, tokens)

    return await while_connected(request, in_its_turn)
