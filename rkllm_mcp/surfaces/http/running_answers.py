"""Answers of conversations between their acceptance and their end, and detached ones that go on without a reader.

    events of a detached answer, numbered ─▶ any reader with the same key, from any number on

The last events of a detached answer stay for readers that come back late, and its whole text with them.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.errors import StoreError
from rkllm_mcp.events import Approval, Elicitation, Event, Prefill, Text, event_to_json, to_json
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App

# Detached answers that one key may have at a time, and the longest that each may take, waiting included, seconds.
DETACHED_PER_KEY = 2
DETACHED_S = 1800.0
# A detached answer's request for approval is refused after this time, seconds.
DETACHED_APPROVAL_S = 300.0
# Events of one answer that a reader can still be sent one by one; ended answers that can still be read.
EVENTS_KEPT = 2048
ENDED_KEPT = 16
# The pause between two writes of events for readers at other boards.
PUBLISH_INTERVAL_S = 1.0
# Readers that one key may have at a time, of all its detached answers.
READERS_PER_KEY = 16
# These say how many seconds are left, so they are encoded when they are sent; all others once for all readers.
_TIMED = (Approval, Elicitation, Prefill)


@dataclass(eq=False)
class _NumberedEvent:
    """An event of an answer, and its record once a reader was sent it."""

    number: int
    event: Event
    _record: bytes = b""

    def record(self) -> bytes:
        """Return the event as a record of an event stream, with its number as id."""
        if self._record:
            return self._record
        record = _record(self.number, event_to_json(self.event))
        if not isinstance(self.event, _TIMED):
            self._record = record
        return record


def _record(number: int, value: str) -> bytes:
    # A model may write half of a surrogate pair, which UTF-8 cannot represent.
    return f"id: {number}\ndata: {value}\n\n".encode("utf-8", "replace")


@dataclass(eq=False)
class RunningAnswer:
    """An answer that is accepted: it waits for its turn, runs, or has ended and can still be read."""

    conversation: str
    tenant: str
    key: str  # label of the key that asked for it
    is_detached: bool = False
    request_key: str = ""  # name of its request's Idempotency-Key in the store; empty without one
    assistant: App | None = None  # set when its turn has come
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    failure: HTTPError | None = None  # the reason why it was refused
    _events: deque[_NumberedEvent] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    _text: list[str] = field(default_factory=list[str])
    _count: int = 0
    _news: anyio.Event = field(default_factory=anyio.Event)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def feed(self, batch: Sequence[Event]) -> None:
        """Number the events and store them for readers."""
        for event in batch:
            self._count += 1
            self._events.append(_NumberedEvent(self._count, event))
            if isinstance(event, Text):
                self._text.append(event.text)
        self._news.set()
        self._news = anyio.Event()

    async def drain(self) -> None:
        """Return at once: readers come and go."""

    def finish(self) -> None:
        """Note the end of the answer."""
        self.done.set()
        self._news.set()
        self._news = anyio.Event()

    async def publish(self, app: App) -> None:
        """Store the events for readers at other boards, if there are any, as they come, until the answer ends."""
        if (leases := app.store.leases) is None:
            return
        whose = (self.tenant, self.conversation, self._id, self.key)
        published, is_over = -1, False
        while not is_over:
            is_over = self.done.is_set()
            new = {record.number: event_to_json(record.event) for record in self._events if record.number > published}
            if new or is_over or published < 0:
                with suppress(StoreError):
                    await leases.add_events(whose, new, is_end=is_over)
                    published = max(new, default=max(0, published))
            with anyio.move_on_after(0 if is_over else PUBLISH_INTERVAL_S):
                await self.done.wait()

    async def read(self, after: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write the events after number ``after`` as records as they come, until the answer ends.

        If that number is older than the stored events, the whole text so far is sent in their place.

        Raises:
            HTTPError: the answer was refused.
        """
        if self._events and after + 1 < self._events[0].number:
            after = self._count
            await write(_record(after, to_json({"kind": "text", "text": "".join(self._text), "whole": True})))
        while True:
            news = self._news
            if self._events and after < self._count:
                # Their numbers are consecutive.
                events = islice(self._events, max(0, after + 1 - self._events[0].number), None)
                after = self._count
                await write(b"".join([event.record() for event in events]))
            elif self.done.is_set():
                break
            else:
                await news.wait()
        if self.failure is not None:
            raise self.failure


async def read_elsewhere(
    app: App, conversation: str, key: str, after: int, write: Callable[[bytes], Awaitable[None]]
) -> None:
    """Write the events of the answer of a conversation at another board, of this key, until it ends.

    Raises:
        HTTPError: no such answer exists, or its board died.
    """
    leases = app.store.leases
    while leases is not None and (events := await leases.events(app.tenant, conversation, key, after)) is not None:
        records, is_over = events
        if records:
            after = records[-1][0]
            await write(b"".join([_record(number, event) for number, event in records]))
        if is_over:
            return
        await leases.wait_for_change(conversation)
    message = "the board that answered was lost; GET /v1/conversations/{id} has what is stored"
    raise HTTPError(502, message, code="board_lost")


@dataclass(eq=False)
class RunningAnswers:
    """The running answers of a service, by tenant and conversation."""

    _running: dict[tuple[str, str], RunningAnswer] = field(default_factory=dict[tuple[str, str], RunningAnswer])
    _ended: dict[tuple[str, str], RunningAnswer] = field(default_factory=dict[tuple[str, str], RunningAnswer])
    _readers: Counter[str] = field(default_factory=Counter[str])

    @contextmanager
    def reading(self, key: str) -> Generator[None, None, None]:
        """Count a reader of a detached answer; 429 if the key has too many."""
        if self._readers[key] >= READERS_PER_KEY:
            message = f"{READERS_PER_KEY} readers of this key follow detached answers already; close one of them"
            raise HTTPError(429, message, code="too_many_readers", retry_after_s=10.0)
        self._readers[key] += 1
        try:
            yield
        finally:
            self._readers -= Counter({key: 1})

    @contextmanager
    def running(self, answer: RunningAnswer) -> Generator[None, None, None]:
        """Hold an answer, which its scope ends; 409 if the conversation has one, 429 if the key has too many."""
        key = (answer.tenant, answer.conversation)
        if key in self._running:
            raise answer_under_way()
        detached = (running for running in self._running.values() if running.is_detached)
        of_key = sum((running.tenant, running.key) == (answer.tenant, answer.key) for running in detached)
        if answer.is_detached and of_key >= DETACHED_PER_KEY:
            message = f"{DETACHED_PER_KEY} detached answers of this key run already; wait for one, or cancel it"
            raise HTTPError(429, message, param="detached", code="too_many_detached", retry_after_s=10.0)
        self._running[key] = answer
        self._ended.pop(key, None)
        try:
            with answer.scope:
                yield
        finally:
            del self._running[key]
            if answer.is_detached:
                self._ended[key] = answer
                while len(self._ended) > ENDED_KEPT:
                    del self._ended[next(iter(self._ended))]
            answer.finish()

    async def check_elsewhere(self, app: App, conversation: str) -> None:
        """Refuse what another board's answer in the conversation does not allow, with 409."""
        with suppress(StoreError):  # while the database is away, nothing is known of others
            leases = app.store.leases
            if leases is not None and await leases.is_held(app.tenant, conversation, elsewhere=True):
                raise answer_under_way()

    def find(self, tenant: str, conversation: str) -> RunningAnswer | None:
        """Return the running answer of a conversation, if any."""
        return self._running.get((tenant, conversation))

    def find_detached(self, tenant: str, key: str, conversation: str) -> RunningAnswer | None:
        """Return the detached answer of a conversation that this key may read, ended or not, if any."""
        owner = (tenant, conversation)
        answer = self._running.get(owner) or self._ended.get(owner)
        return answer if answer is not None and answer.is_detached and answer.key == key else None

    def cancel(self, app: App, conversation: str) -> bool:
        """End the answer of a conversation, waiting or running; False if none exists, or its ``End`` is decided."""
        answer = self.find(app.tenant, conversation)
        if answer is None:
            return app.answers.cancel(conversation)
        # A changed configuration may have replaced ``app``.
        if answer.assistant is not None:
            return answer.assistant.answers.cancel(conversation)
        answer.scope.cancel()
        return True

    async def stop(self, app: App, conversation: str) -> None:
        """End the answer of a conversation, if any, and wait until it is over; nothing of it can be read any more."""
        await app.answers.stop(conversation)
        if (answer := self.find(app.tenant, conversation)) is not None:
            answer.scope.cancel()
            await answer.done.wait()
        self._ended.pop((app.tenant, conversation), None)


def answer_under_way() -> HTTPError:
    """Return the error for a conversation in which an answer is under way, at this board or another."""
    message = "this conversation has an answer under way; wait for it, or cancel it"
    return HTTPError(409, message, param="conversation", code="answer_under_way", retry_after_s=RETRY_AFTER_S)
