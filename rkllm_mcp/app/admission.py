"""Admission queue for the NPU: round robin between API keys, FIFO within a key.

    enter(key) ─▶ Slot ─▶ changed() -> 3, 2, 1, None (admitted) ─▶ leaving the ``with`` block admits the next one

``parallel`` requests run at once, and ``queue`` may wait for each key; beyond that ``QueueFullError`` estimates when
the request would be admitted, from its place in the round and the durations of recent answers. A request that leaves
frees its slot at once, in any state.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

import anyio

# Recent answers whose durations are averaged.
MEASURED = 16
# The shortest time after which a retry makes sense, seconds.
SHORTEST_WAIT_S = 1.0


@dataclass(eq=False)
class QueueFullError(Exception):
    """The queue of this key is full.

    Args:
        waiting: number of requests in it.
        retry_after_s: expected time until this request would be admitted if it could wait, seconds.
    """

    waiting: int
    retry_after_s: float

    def __str__(self) -> str:
        return f"{self.waiting} requests wait already; ask again in {math.ceil(self.retry_after_s)} seconds"


class AdmissionClosedError(Exception):
    """The queue admits no more requests."""


@dataclass(eq=False)
class Slot:
    """One request, waiting or admitted; a context manager that leaves the queue at its end."""

    key: str
    _admission: AdmissionQueue = field(repr=False)
    position: int = 0
    begun: float | None = None
    _changed: anyio.Event = field(default_factory=anyio.Event, repr=False)
    _reported: int | None = field(default=None, repr=False)
    _is_closed: bool = field(default=False, repr=False)

    async def changed(self) -> int | None:
        """Wait for a new position: the number of answers that end before this one begins; None once admitted.

        The first call returns at once, and a later one returns the latest position.

        Raises:
            AdmissionClosedError: the queue was closed before it was admitted.
        """
        while self.begun is None and self._reported == self.position and not self._is_closed:
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._is_closed:
            raise AdmissionClosedError
        if self.begun is not None:
            return None
        self._reported = self.position
        return self.position

    async def turn(self) -> None:
        """Wait until the request is admitted."""
        while await self.changed() is not None:
            pass

    def notify(self, *, is_closed: bool = False) -> None:
        """Wake the request that waits in ``changed``; called by the queue."""
        self._is_closed = is_closed
        self._changed.set()

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self)


class AdmissionQueue:
    """The admission queue.

    Args:
        parallel: number of requests that run at once.
        queue: number of requests that may wait for each key.
        clock: a monotonic clock, seconds.
    """

    def __init__(self, parallel: int = 1, queue: int = 32, clock: Callable[[], float] = time.monotonic) -> None:
        self._parallel = parallel
        self._queue = queue
        self._clock = clock
        # Keys with waiting requests, the next one first.
        self._waiting: OrderedDict[str, deque[Slot]] = OrderedDict()
        self._running: set[Slot] = set()
        self._durations: deque[float] = deque(maxlen=MEASURED)
        self._is_closed = False
        self._idle = anyio.Event()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """Number of admitted requests."""
        return len(self._running)

    def resize(self, parallel: int, queue: int) -> None:
        """Change the limits; admitted and waiting requests stay."""
        self._parallel, self._queue = parallel, queue
        self._advance()

    def close(self) -> None:
        """Admit no more requests; admitted ones stay, waiting ones are refused."""
        self._is_closed = True
        for slot in self._in_order():
            slot.notify(is_closed=True)
        self._waiting.clear()

    async def idle(self) -> None:
        """Wait until no request is admitted."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    def enter(self, key: str) -> Slot:
        """Enter the queue; the slot's ``with`` block leaves it.

        Raises:
            QueueFullError: too many requests of this key wait.
            AdmissionClosedError: the queue is closed.
        """
        if self._is_closed:
            raise AdmissionClosedError
        slot = Slot(key, self)
        waiting = self._waiting.get(key, deque[Slot]())
        if len(self._running) >= self._parallel and len(waiting) >= self._queue:
            raise QueueFullError(len(waiting), self.expected_wait_s(key))
        waiting.append(slot)
        self._waiting[key] = waiting
        self._advance()
        return slot

    def leave(self, slot: Slot) -> None:
        """Leave the queue, waiting or admitted; a second call does nothing."""
        if slot in self._running:
            self._running.remove(slot)
            self._durations.append(self._clock() - (slot.begun or 0.0))
            if not self._running:
                self._idle.set()
        else:
            waiting = self._waiting.get(slot.key)
            if waiting is None or slot not in waiting:
                return
            waiting.remove(slot)
            if not waiting:
                del self._waiting[slot.key]
        self._advance()

    def expected_wait_s(self, key: str) -> float:
        """Return the time until one more request of ``key`` would be admitted if no more come, seconds."""
        now = self._clock()
        ages = [now - slot.begun for slot in self._running if slot.begun is not None]
        # Before the first answer ends, its age is the only measure.
        mean = sum(self._durations) / len(self._durations) if self._durations else max(ages, default=0.0)
        # An answer that has run longer than the mean is expected to exceed it twice as far in the end.
        ends = sorted(abs(mean - age) for age in ages)[-self._parallel :]
        free = [0.0] * (self._parallel - len(ends)) + ends
        for _ in range(self._ahead_of(key)):
            heapq.heapreplace(free, free[0] + mean)
        return max(SHORTEST_WAIT_S, free[0])

    def _ahead_of(self, key: str) -> int:
        """Count the waiting requests that are admitted before one more of ``key``."""
        own = len(self._waiting.get(key, ()))
        ahead, is_before = 0, True
        for other, waiting in self._waiting.items():
            if other == key:
                is_before = False
                ahead += own
            else:
                # A key that comes later in the round has had one turn less.
                ahead += min(len(waiting), own + is_before)
        return ahead

    def _advance(self) -> None:
        """Admit requests while slots are free, and notify the others of their positions."""
        while self._waiting and len(self._running) < self._parallel:
            key, waiting = next(iter(self._waiting.items()))
            slot = waiting.popleft()
            # A key whose request was admitted goes to the end of the round.
            del self._waiting[key]
            if waiting:
                self._waiting[key] = waiting
            slot.begun, slot.position = self._clock(), 0
            self._running.add(slot)
            slot.notify()
        for position, slot in enumerate(self._in_order(), 1):
            if slot.position != position:
                slot.position = position
                slot.notify()

    def _in_order(self) -> Iterator[Slot]:
        """Yield the waiting requests in the order of their admission if no more come."""
        lines = [tuple(waiting) for waiting in self._waiting.values()]
        for turn in range(max(map(len, lines), default=0)):
            yield from (line[turn] for line in lines if turn < len(line))
