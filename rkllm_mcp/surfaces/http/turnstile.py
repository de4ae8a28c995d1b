"""The queue before the NPU: who may answer next, fair between keys, in order within each.

    enter(key) ─▶ Place ─▶ changed() -> 3, 2, 1, None (its turn) ─▶ leaving the ``with`` lets the next one in

Between keys it goes round: one answer each, however many somebody has waiting. ``parallel`` are let in at once, and
``queue`` may wait for each key; over it ``QueueFullError`` says when there will be a place, from what answers have
taken so far. Whoever leaves, in whatever state, frees its place at once. It knows neither HTTP nor models; the only
outside is the clock.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

import anyio

# How many of the latest answers tell what one takes.
MEASURED = 16
# The shortest time after which it makes sense to ask again, seconds.
SHORTEST_WAIT_S = 1.0


@dataclass(eq=False)
class QueueFullError(Exception):
    """There are as many waiting for this key as may.

    Args:
        waiting: how many those are.
        retry_after_s: when there will probably be a place, seconds.
    """

    waiting: int
    retry_after_s: float

    def __str__(self) -> str:
        return f"{self.waiting} requests wait already; ask again in {math.ceil(self.retry_after_s)} seconds"


class TurnstileClosedError(Exception):
    """Nobody is let in any more."""


@dataclass(eq=False)
class Slot:
    """A place in the queue, and then a turn; a context manager that gives it back."""

    key: str
    _turnstile: Turnstile = field(repr=False)
    position: int = 0
    begun: float | None = None
    _news: anyio.Event = field(default_factory=anyio.Event, repr=False)
    _told: int | None = field(default=None, repr=False)
    _is_closed: bool = field(default=False, repr=False)

    async def changed(self) -> int | None:
        """Wait for news: how many answers end before this one begins; None once it is its turn.

        The first call tells the position at once, and every later one the latest, whatever was missed in between.

        Raises:
            TurnstileClosedError: it will never be its turn.
        """
        while self.begun is None and self._told == self.position and not self._is_closed:
            self._news = anyio.Event()
            await self._news.wait()
        if self._is_closed:
            raise TurnstileClosedError
        if self.begun is not None:
            return None
        self._told = self.position
        return self.position

    async def positions(self) -> AsyncGenerator[int, None]:
        """Every position until it is its turn; consume it under ``aclosing``."""
        while (position := await self.changed()) is not None:
            yield position

    async def turn(self) -> None:
        """Wait until it is its turn."""
        while await self.changed() is not None:
            pass

    def tell(self, *, is_closed: bool = False) -> None:
        """Wake whoever waits for news; the turnstile does this."""
        self._is_closed = is_closed
        self._news.set()

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turnstile.leave(self)


class Turnstile:
    """Lets answers in.

    Args:
        parallel: how many at once.
        queue: how many may wait for each key.
        clock: seconds that only grow.
    """

    def __init__(self, parallel: int = 1, queue: int = 8, clock: Callable[[], float] = time.monotonic) -> None:
        self._parallel = parallel
        self._queue = queue
        self._clock = clock
        # The keys that have somebody waiting, the next one first.
        self._waiting: OrderedDict[str, deque[Slot]] = OrderedDict()
        self._running: set[Slot] = set()
        self._durations: deque[float] = deque(maxlen=MEASURED)
        self._is_closed = False
        self._idle = anyio.Event()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """How many have their turn."""
        return len(self._running)

    def resize(self, parallel: int, queue: int) -> None:
        """Put other limits in force; whoever is in stays, and whoever waits."""
        self._parallel, self._queue = parallel, queue
        self._advance()

    def close(self) -> None:
        """Let nobody in any more; whoever has a turn keeps it, whoever waits is sent away."""
        self._is_closed = True
        for place in self._in_order():
            place.tell(is_closed=True)
        self._waiting.clear()

    async def idle(self) -> None:
        """Wait until nobody has a turn."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    def enter(self, key: str) -> Slot:
        """Take a place; leave it by its ``with`` block.

        Raises:
            QueueFullError: too many wait for this key.
            TurnstileClosedError: nobody is let in any more.
        """
        if self._is_closed:
            raise TurnstileClosedError
        place = Slot(key, self)
        waiting = self._waiting.get(key, deque[Slot]())
        if len(self._running) >= self._parallel and len(waiting) >= self._queue:
            raise QueueFullError(len(waiting), self.expected_wait_s(key))
        waiting.append(place)
        self._waiting[key] = waiting
        self._advance()
        return place

    def leave(self, place: Slot) -> None:
        """Give a place back, or a turn; a second time does nothing."""
        if place in self._running:
            self._running.remove(place)
            self._durations.append(self._clock() - (place.begun or 0.0))
            if not self._running:
                self._idle.set()
        else:
            waiting = self._waiting.get(place.key)
            if waiting is None or place not in waiting:
                return
            waiting.remove(place)
            if not waiting:
                del self._waiting[place.key]
        self._advance()

    def expected_wait_s(self, key: str) -> float:
        """When one more could wait for ``key``, seconds: once the first of those who wait for it has its turn."""
        first = next(iter(self._waiting.get(key, ())), None)
        # Whoever has nobody waiting comes behind the first of every other key.
        ends_before = first.position if first else len(self._waiting) + 1
        now = self._clock()
        age = max((now - place.begun for place in self._running if place.begun is not None), default=0.0)
        mean = sum(self._durations) / len(self._durations) if self._durations else 0.0
        # An answer that still runs takes at least what it has taken.
        return max(SHORTEST_WAIT_S, ends_before * max(mean, age) / self._parallel - age)

    def _advance(self) -> None:
        """Let in whoever may, and tell the others where they stand."""
        while self._waiting and len(self._running) < self._parallel:
            key, waiting = next(iter(self._waiting.items()))
            place = waiting.popleft()
            # Whoever had a turn goes to the end of the round.
            del self._waiting[key]
            if waiting:
                self._waiting[key] = waiting
            place.begun, place.position = self._clock(), 0
            self._running.add(place)
            place.tell()
        for position, place in enumerate(self._in_order(), 1):
            if place.position != position:
                place.position = position
                place.tell()

    def _in_order(self) -> Iterator[Slot]:
        """Those who wait, in the order in which they would come in if nobody else came."""
        lines = [tuple(waiting) for waiting in self._waiting.values()]
        for turn in range(max(map(len, lines), default=0)):
            yield from (line[turn] for line in lines if turn < len(line))
