"""Answers that take their time: records to a client as they come, and an end to the work when the client leaves.

    records ─▶ one at a time ─▶ client        ": heartbeat" in between while nothing comes

Rules: the headers go out with the first record or the first heartbeat, so what fails at once is still a status of its
own; afterwards the failure is the last record. Whoever leaves cancels the work, and the answer is over when the work
is. The work is never further ahead of the client than the connection's buffer; a client that takes nothing for long
counts as gone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rkllm_mcp.app.assistant import Assistant
from rkllm_mcp.app.tenants import Tenant
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.events import EVENT_TYPES, End, Queued, Usage
from rkllm_mcp.surfaces.http.errors import ClientGoneError, HTTPError, as_told, problem_of
from rkllm_mcp.surfaces.http.route import EVENT_STREAM
from rkllm_mcp.surfaces.http.state import ServiceState, service_of, stopping, tenant_of
from rkllm_mcp.surfaces.http.turnstile import QueueFullError, Slot, Turnstile, TurnstileClosedError

# Proxies give up a silent connection after 30 to 60 seconds, impatient clients after 15.
HEARTBEAT_S = 5.0
HEARTBEAT = b": heartbeat\n\n"
# The first one brings the headers, and the page wants to know the conversation's id soon, seconds.
FIRST_HEARTBEAT_S = 1.0
# A client that has taken nothing for so long is not there any more, seconds.
STALL_S = 60.0
DONE = b"data: [DONE]\n\n"

T = TypeVar("T")


def record(value: Any) -> bytes:
    """One record of an event stream: a JSON value."""
    return b"data: " + as_json(value) + b"\n\n"


def as_json(value: Any) -> bytes:
    """A JSON value in one line, as it goes over the wire."""
    # A model may write half of a surrogate pair, and UTF-8 has no room for that.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def event_stream(
    records: AsyncGenerator[bytes, None],
    *,
    headers: Mapping[str, str] | None = None,
    heartbeat_s: float = HEARTBEAT_S,
    stall_s: float = STALL_S,
    failure: Callable[[HTTPError], bytes] | None = None,
) -> Response:
    """An answer in server-sent events.

    Args:
        records: what is sent, as ``record`` makes it; closed in any case.
        headers: headers of the answer.
        heartbeat_s: the longest silence, seconds.
        stall_s: how long a client may take nothing, seconds.
        failure: how a failure in the middle is written; as ``{"error": …}`` when None.
    """
    rhythm = _HeartbeatTimer(heartbeat_s, HEARTBEAT, stall_s)
    return _Stream(records, EVENT_STREAM, headers, rhythm, failure or (lambda problem: record(problem.detail())))


def line_stream(
    lines: AsyncGenerator[bytes, None],
    media: str,
    *,
    headers: Mapping[str, str] | None = None,
    failure: Callable[[HTTPError], bytes] | None = None,
) -> Response:
    """An answer in lines, such as Ollama's JSON; there is no heartbeat, since nothing may stand between the lines."""

    def last_line(problem: HTTPError) -> bytes:
        return as_json({"error": problem.message}) + b"\n"

    return _Stream(lines, media, headers, _HeartbeatTimer(heartbeat=b""), failure or last_line)


async def while_connected(request: Request, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work of an answer in one piece, unless the client leaves; its body must have been read.

    Raises:
        ClientGoneError: it has left, and the work has been stopped.
    """
    result: list[T] = []
    failure: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_gone, request.receive, tasks.cancel_scope)
        try:
            result.append(await work())
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]
    if not result:
        raise ClientGoneError
    return result[0]


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


@dataclass(frozen=True)
class _HeartbeatTimer:
    """What silence is filled with, and how long either side may be silent, seconds."""

    heartbeat_s: float = HEARTBEAT_S
    heartbeat: bytes = HEARTBEAT
    stall_s: float = STALL_S


class _Stream(Response):
    """The response that sends as it goes."""

    def __init__(
        self,
        records: AsyncGenerator[bytes, None],
        media: str,
        headers: Mapping[str, str] | None,
        rhythm: _HeartbeatTimer,
        failure: Callable[[HTTPError], bytes],
    ) -> None:
        # no-transform and X-Accel-Buffering: a proxy that collects or compresses would hold every record back.
        own = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
        super().__init__(None, 200, {**own, **(headers or {})}, f"{media}; charset=utf-8")
        # The length is not known.
        del self.headers["content-length"]
        self._records = records
        self._rhythm = rhythm
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        del scope
        failure: Exception | None = None
        writer = _Writer(send, self.status_code, self.raw_headers, self._rhythm.stall_s)
        async with aclosing(self._records):
            try:
                await self._answer(receive, writer)
            except Exception as error:  # noqa: BLE001  (told below, or raised as it is)
                failure = error
        if failure is None or writer.is_gone:
            return
        if not writer.has_begun:
            raise failure
        await writer.end(self._failure(problem_of(failure)))

    async def _answer(self, receive: Receive, writer: _Writer) -> None:
        failure: list[Exception] = []
        put, take = anyio.create_memory_object_stream[bytes](0)
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                writer.is_gone = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave)
            tasks.start_soon(self._produce, put, failure)
            with take:
                await self._deliver(take, writer)
            tasks.cancel_scope.cancel()
        if failure:
            raise failure[0]
        if not writer.is_gone:
            await writer.end()

    async def _produce(self, put: ObjectSendStream[bytes], failure: list[Exception]) -> None:
        """Hand over every record; the generator's own task, from its first step to its last."""
        async with put, aclosing(self._records):
            try:
                async for each in self._records:
                    await put.send(each)
            except anyio.BrokenResourceError:
                pass
            except Exception as error:  # noqa: BLE001  (raised by ``_answer``, outside of the group)
                failure.append(error)

    async def _deliver(self, take: ObjectReceiveStream[bytes], writer: _Writer) -> None:
        while not writer.is_gone:
            each: bytes | None = None
            patience_s = self._rhythm.heartbeat_s
            if not writer.has_begun:
                patience_s = min(patience_s, FIRST_HEARTBEAT_S)
            with anyio.move_on_after(patience_s) as silence:
                try:
                    each = await take.receive()
                except anyio.EndOfStream:
                    return
            if each is not None:
                await writer.write(each)
            elif silence.cancelled_caught:
                await writer.write(self._rhythm.heartbeat)


class _Writer:
    """The client's side of an answer that has begun or not."""

    def __init__(self, send: Send, status: int, headers: list[tuple[bytes, bytes]], stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._start = {"type": "http.response.start", "status": status, "headers": headers}
        self.has_begun = False
        self.is_gone = False

    async def write(self, content: bytes) -> None:
        """Send; waits for a client that is slow, and gives up one that takes nothing."""
        await self._sent(content, more=True)

    async def end(self, content: bytes = b"") -> None:
        """Send what comes last."""
        await self._sent(content, more=False)

    async def _sent(self, content: bytes, *, more: bool) -> None:
        with anyio.move_on_after(self._stall_s) as patience:
            try:
                if not self.has_begun:
                    self.has_begun = True
                    await self._send(self._start)
                if content or not more:
                    await self._send({"type": "http.response.body", "body": content, "more_body": more})
            except OSError:
                self.is_gone = True
        if patience.cancelled_caught:
            self.is_gone = True


# An event, or whatever else a kind of answer consists of
_T = TypeVar("_T")


@contextmanager
def queued(request: Request, turnstile: Turnstile, *, may_load: bool = False) -> Generator[Slot, None, None]:
    """A place in a queue for whoever sent the request.

    Args:
        request: who asks.
        turnstile: the queue.
        may_load: the model may still be loading; its engine lets runs wait.

    Raises:
        Problem: 503 the service cannot answer now; 429 too many wait.
    """
    service_of(request).check_ready(may_load=may_load)
    try:
        place = turnstile.enter(request.state.key)
    except QueueFullError as error:
        raise HTTPError(429, str(error), retry_after_s=error.retry_after_s) from None
    with place:
        try:
            yield place
        except TurnstileClosedError:
            raise stopping() from None


async def in_turn(
    request: Request,
    answering: Callable[[Assistant], AsyncGenerator[_T, None]],
    placed: Callable[[], object] | None = None,
    *,
    may_load: bool = False,
) -> AsyncGenerator[_T | Queued | End, None]:
    """The events of an answer once it is its turn, and where it stands before; consume it under ``aclosing``.

    Args:
        request: who asks.
        answering: begins the answer; called when it is its turn, with the assistant that is there then: a changed
            configuration may have replaced it meanwhile.
        placed: is called once the request has its place and will not be refused any more.
        may_load: it waits while the model loads; else that is a refusal.

    Raises:
        Problem: before the first event: 503 the service cannot answer now; 429 too many wait. At any time: 429 today's
            tokens are used up.
    """
    service, tenant = service_of(request), tenant_of(request)
    service.check_ready(may_load=may_load)
    await service.allowances.check(tenant)
    with queued(request, service.turnstile, may_load=may_load) as place:
        if placed is not None:
            placed()
        while (position := await place.changed()) is not None:
            yield Queued(position)
        # Those who waited together may have used it up one after the other.
        await service.allowances.check(tenant)
        app = tenant_of(request).app
        async with aclosing(_counted(service, tenant, app.bill.settle, answering(app))) as events:
            async for event in events:
                yield event


async def evaluated(request: Request, work: Callable[[], Awaitable[_T]], cost: Callable[[], Awaitable[int]]) -> _T:
    """What an evaluation comes to, once it is its turn.

    Args:
        request: who asks; leaving it ends the work.
        work: evaluates.
        cost: how many tokens that is, also where somebody leaves before its end; asked where there is a limit.

    Raises:
        Problem: 503 the service cannot answer now; 429 too many wait, or today's tokens are used up.
        RkllmMcpError: it cannot be evaluated, which costs nothing.
    """
    service, tenant = service_of(request), tenant_of(request)
    await service.allowances.check(tenant)

    async def in_its_turn() -> _T:
        with queued(request, service.evaluations) as place:
            await place.turn()
            # Those who waited together may have used it up one after the other.
            await service.allowances.check(tenant)
            is_counted = service.allowances.limit(tenant) is not None
            try:
                return await work()
            except RkllmMcpError:
                is_counted = False
                raise
            finally:
                if is_counted:
                    with anyio.CancelScope(shield=True):
                        await service.allowances.spend(tenant, await cost())

    return await while_connected(request, in_its_turn)


async def _counted(
    service: ServiceState, tenant: Tenant, cost: Callable[[], int], events: AsyncGenerator[_T, None]
) -> AsyncGenerator[_T | End, None]:
    """The same events; what they cost is counted, also where somebody leaves before that is told."""

    async def settle() -> None:
        if tokens := cost():
            await service.allowances.spend(tenant, tokens)

    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, EVENT_TYPES):
                    service.metrics.take(event)
                    service.traces.take(event)
                if isinstance(event, Usage):
                    service.count(tenant.name, event)
                    await settle()
                yield as_told(event)
    finally:
        with anyio.CancelScope(shield=True):
            await settle()
