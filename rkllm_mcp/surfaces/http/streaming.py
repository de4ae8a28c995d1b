"""Streamed HTTP answers (server-sent events, JSON lines), answers in one piece, and their admission to the queue.

    events ─▶ ReplyWriter ─▶ records of a batch ─▶ EventStream.feed ─▶ the connection    ": heartbeat" in silence

The headers are sent with the first record or the first heartbeat, so an early failure has its own status; a later
failure is the last record. A client that disconnects cancels the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rkllm_base.listener import WRITE_BODY
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.completions.reply import Json, Part, Reply, ReplyShape
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.events import EVENT_TYPES, End, Event, Queued, Text, Thinking, Usage, event_to_json, to_json
from rkllm_mcp.protocols import DISCARD_EVENTS, EventSink, Step
from rkllm_mcp.surfaces.http.errors import ClientGoneError, HTTPError, problem_of, unforeseen_message
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, JSON
from rkllm_mcp.surfaces.http.state import (
    OWNER,
    SERVER_SEND,
    chosen_model,
    run_work,
    service_of,
    tenant_of,
)
from rkllm_mcp.tasks import open_task_group

if TYPE_CHECKING:
    from rkllm_mcp.app.tenants import Tenant
    from rkllm_mcp.surfaces.http.state import ServiceState

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


class EventStream(Response):
    """A response that is sent while it is made.

    Args:
        answer: makes the answer and passes its records to ``feed`` or ``write``; cancelled when the client disconnects.
        media: the content type.
        headers: further headers.
        heartbeat: sent in silence; where it is empty, the first one still sends the headers.
        heartbeat_s: the longest silence, seconds.
        stall_s: how long the client may not read, seconds.
        failure: encodes a failure that comes after the headers.
    """

    def __init__(
        self,
        answer: Callable[[EventStream], Awaitable[object]],
        *,
        media: str = EVENT_STREAM,
        headers: Mapping[str, str] | None = None,
        heartbeat: bytes = HEARTBEAT,
        heartbeat_s: float = HEARTBEAT_S,
        stall_s: float = STALL_S,
        failure: Callable[[HTTPError], bytes] = lambda problem: records([to_json(problem.body())]),
    ) -> None:
        # no-transform and X-Accel-Buffering: a proxy that buffers or compresses would delay every record.
        default_headers = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
        media_type = media if media.startswith("audio/") else f"{media}; charset=utf-8"
        super().__init__(None, 200, {**default_headers, **(headers or {})}, media_type)
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
        # Fed and not sent yet.
        self._unsent: list[bytes] = []
        self._has_unsent = asyncio.Event()
        self._is_drained = asyncio.Event()
        # Sends that have not returned, and when the last of them began or returned.
        self._pending = 0
        self._moved_at = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        self._send = send
        self._server_send = scope.get(SERVER_SEND, send)
        # Of a server that can write to the connection without a task.
        self._write_body: Callable[[bytes], bool] | None = scope.get(WRITE_BODY)
        self._moved_at = monotonic()
        async with open_task_group() as tasks:
            self._scope = tasks.cancel_scope
            tasks.start_soon(_when_gone, receive, self._disconnect)
            tasks.start_soon(self._tick)
            tasks.start_soon(self._send_unsent)
            try:
                await self._answer(self)
                await self.drain()
                await self.write(more=False)
            except Exception as error:
                if not self._is_gone:
                    if not (self._has_begun or self._unsent):
                        raise
                    await self.drain()
                    await self.write(self._failure(problem_of(error)), more=False)
            finally:
                self._scope.cancel()

    def feed(self, content: bytes) -> None:
        """Send records: at once if the connection takes them, else as soon as it does."""
        if not content or self._is_gone:
            return
        is_free = self._has_begun and not self._pending and not self._unsent
        if is_free and self._write_body is not None and self._write_body(content):
            self._moved_at = monotonic()
            return
        self._unsent.append(content)
        self._has_unsent.set()

    async def drain(self) -> None:
        """Wait until the connection has taken all records."""
        while self._unsent and not self._is_gone:
            self._is_drained.clear()
            await self._is_drained.wait()

    async def _send_unsent(self) -> None:
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            while self._unsent:
                sent = len(self._unsent)
                await self.write(b"".join(self._unsent))
                del self._unsent[:sent]
            self._is_drained.set()

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
        self._is_drained.set()
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

    def encode() -> bytes:
        return b'%b,"%b":[%b]}' % (
            JSONResponse(fields).body[:-1],
            name.encode(),
            b",".join(JSONResponse(item).body for item in items),
        )

    return Response(await run_work(request, encode), media_type=JSON)


async def while_connected(request: Request, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``work``, which a disconnect cancels; the request's body must have been read."""
    async with open_task_group() as tasks:
        tasks.start_soon(_when_gone, request.receive, tasks.cancel_scope.cancel)
        try:
            return await work()
        finally:
            tasks.cancel_scope.cancel()
    raise ClientGoneError


class EventRecords:
    """The sink of a streamed answer: a record for each event."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self.drain = stream.drain

    def feed(self, batch: Sequence[Event]) -> None:
        """Send the events."""
        self._stream.feed(records(map(event_to_json, batch)))


async def _when_gone(receive: Receive, leave: Callable[[], object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


_TEXT_EVENTS = frozenset({Text, Thinking})


class _Slot(Protocol):
    """A slot of the scheduler."""

    loading: str

    async def wait_for_change(self) -> int | None: ...


@dataclass(eq=False)
class EventList:
    """The sink of an answer in one piece."""

    events: list[Event] = field(default_factory=list[Event])

    def feed(self, batch: Sequence[Event]) -> None:
        """Add the events."""
        self.events += batch

    async def drain(self) -> None:
        """Return at once."""


@dataclass(eq=False)
class ReplyWriter:
    """The sink of one answer; the first records are sent with the first part, and not before.

    Without a ``stream`` the answer is collected for ``ReplyShape.whole``.
    """

    reply: Reply
    shape: ReplyShape
    stream: EventStream | None = None
    _open: Part | None = field(default=None, init=False)
    _has_begun: bool = field(default=False, init=False)

    def feed(self, batch: Sequence[Event]) -> None:
        """Add events to the reply, and send their records."""
        records: list[str] = []
        for event in batch:
            collected = len(self.reply.events)
            part = self.reply.add(event)
            if part is None:
                if len(self.reply.events) > collected:
                    records += [self._begin_reply(), self.shape.other(self.reply.events[-1])]
                continue
            if part is not self._open:
                records += [self._begin_reply(), self._close()]
                self._open = part
            records.append(self.shape.piece(part))
        if self.stream is not None and records:
            self.stream.feed("".join(records).encode("utf-8", "replace"))

    async def drain(self) -> None:
        """Wait until the reader has taken the records."""
        if self.stream is not None:
            await self.stream.drain()

    def finish(self) -> bytes:
        """Return the last records."""
        return f"{self._begin_reply()}{self._close()}{self.shape.finish()}".encode("utf-8", "replace")

    def failure(self, body: Json) -> bytes:
        """Return the last records of an answer that failed."""
        return f"{self._begin_reply()}{self.shape.failure(body)}".encode("utf-8", "replace")

    def _begin_reply(self) -> str:
        has_begun, self._has_begun = self._has_begun, True
        return "" if has_begun else self.shape.begin()

    def _close(self) -> str:
        part, self._open = self._open, None
        return "" if part is None else self.shape.closing(part)


@dataclass(eq=False)
class QueuePlace:
    """The place of a request in the queue before the NPU."""

    request: Request
    slot: _Slot
    model: str | None

    @asynccontextmanager
    async def turn(self, sink: EventSink = DISCARD_EVENTS) -> AsyncGenerator[None, None]:
        """Wait for the turn of the request and for its model, which stays loaded in this block.

        ``sink`` receives the positions of the request and the name of a model that is loaded for it.
        """
        announced = ""
        while (position := await self.slot.wait_for_change()) is not None:
            loading = self.slot.loading
            is_new, announced = loading not in {"", announced}, loading
            sink.feed([status_line("loading", name=loading) if is_new else Queued(position)])
        # Requests that waited together may have used it up one by one.
        service = service_of(self.request)
        await service.quota.check(tenant_of(self.request))
        # How long the chosen model stays after the answer, seconds; None if the request does not say.
        keep_alive_s: float | None = getattr(self.request.state, "keep_alive_s", None)
        with service.tenants.using(keep_alive_s) if self.model is not None else nullcontext():
            yield


@asynccontextmanager
async def queue_place(
    request: Request,
    kind: Literal["answer", "evaluation"] = "answer",
    *,
    model: str | None = "",
    may_load: bool = False,
) -> AsyncGenerator[QueuePlace, None]:
    """Hold a place in the queue before the NPU for a request.

    In the block it will not be refused any more, except that the tokens of the day may be used up. It is refused with
    503 if the service cannot answer now, 429 if its tokens are used up, and by the queue if too many wait.
    """
    service = service_of(request)
    service.check_ready(may_load=may_load)
    await service.quota.check(tenant_of(request))
    service.check_ready(may_load=may_load)
    with service.tenants.scheduler.admit(request.state.key, kind, model) as slot:
        yield QueuePlace(request, slot, model)


@dataclass(eq=False)
class AnswerMeter(Step):
    """The step that counts an answer in metrics, traces and quota; it belongs to the assistant that answers."""

    service: ServiceState
    tenant: Tenant

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Count the events; the cause of an internal error is hidden."""
        for event in batch:
            # Most events are text, which counts nothing.
            if type(event) not in _TEXT_EVENTS and isinstance(event, EVENT_TYPES):
                self.service.metrics.take(event)
                self.service.traces.take(event)
                if isinstance(event, Usage):
                    for name in {OWNER, self.tenant.name}:
                        self.service.usage[name].take(event)
                elif isinstance(event, End) and event.cause is not None and not isinstance(event.cause, RkllmMcpError):
                    # The end of an answer that failed by a mistake of ours says nothing of it to a client.
                    batch = [*batch[:-1], replace(event, error=unforeseen_message())]
        return batch

    async def settle(self) -> None:
        """Count the tokens so far against the quota."""
        if tokens := self.tenant.app.usage.settle():
            await self.service.quota.spend(self.tenant, tokens)


@asynccontextmanager
async def meter_answer(service: ServiceState, tenant: str) -> AsyncGenerator[AnswerMeter, None]:
    """Yield the meter of an answer whose turn has come; the tokens of one that was left are counted, too."""
    # A changed configuration may have replaced the assistant while the request waited.
    meter = AnswerMeter(service, service.tenants.tenant(tenant))
    try:
        yield meter
    finally:
        with anyio.CancelScope(shield=True):
            await meter.settle()


async def load_in_turn(request: Request) -> None:
    """Wait in its turn until the model that a request chose is loaded; see ``queue_place``."""
    async with queue_place(request, model=chosen_model(request), may_load=True) as queue_slot, queue_slot.turn():
        await tenant_of(request).app.model_host.ready()
