"""The one queue before the NPU: which request is admitted, and which run of the admitted ones goes next.

    admit(key, kind) ─▶ Slot ─▶ wait_for_change() -> 2, 1, None (admitted) ─▶ its runs ─▶ RunQueue of an engine ─▶ NPU

* Admission is round robin between API keys and FIFO within a key. Leaving the ``with`` block of a slot, in any state,
  admits the next request. Embeddings and reranking are a kind with its own place: a tool of an answer may need
  them, and would wait for the answer that waits for the tool.
* What an answer causes runs on its slot: rounds, the search for tools, sampling requests of servers.
* A request may need another model than the loaded one. Loading is a job of this queue: it begins when no admitted
  request uses the loaded model. Requests for the loaded model go before one for another, ``MAX_PASSED`` times or for
  ``LONGEST_PASSED_S``, so that two models in use at once do not take turns with each answer.
* One KV cache serves every conversation of an engine, and a run prefills only the part of its prompt that the cache
  does not hold. So the run that reuses most goes next; after ``max_skips`` skips a run goes before all others, in order
  of arrival. After a tool call the next run of the same conversation reuses most, and arrives a moment later. It can be
  expected: other runs are then held for at most the time that prefilling the lost part again takes.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import anyio

from rkllm_mcp.errors import QueueFullError, RkllmMcpError, SchedulerClosedError
from rkllm_mcp.generation import common_prefix

# ``answer``: a request of the chat model, until its answer is complete; ``evaluation``: texts to embed or to rerank.
Kind: TypeAlias = Literal["answer", "evaluation"]

# Recent requests of a kind whose durations are averaged.
MEASURED = 16
# The shortest time after which a retry makes sense, seconds.
SHORTEST_WAIT_S = 1.0
# Evaluations that may wait where one answer may. Each takes a fraction of its time, and programs that store a document
# request all of its passages at once: Open WebUI does, and gives up after one refusal.
EVALUATIONS_PER_ANSWER = 32
# A request for another model is passed at most this often, and after this time not any more, seconds.
MAX_PASSED = 8
LONGEST_PASSED_S = 30.0
# A run is skipped at most this often.
MAX_SKIPS = 4
# Upper limit of the hold for an expected run.
LONGEST_HOLD_S = 2.0
# Smaller savings do not change the order; 32 are prefilled in 50 ms at 643 tokens per second.
WORTHWHILE_TOKENS = 32


@dataclass(eq=False)
class Slot:
    """One request, waiting or admitted; a context manager that leaves the queue at its end."""

    key: str
    kind: Kind
    _scheduler: Scheduler = field(repr=False)
    model: str | None = ""  # the model that it needs: empty for the loaded one, None for none
    position: int = 0
    loading: str = ""  # the model that is being loaded for it
    admitted_at: float | None = None
    passed: int = 0  # requests for the loaded model that came later and went before it
    passed_at: float = 0.0
    _changed: anyio.Event = field(default_factory=anyio.Event, repr=False)
    _reported: tuple[int, str] | None = field(default=None, repr=False)
    _failure: RkllmMcpError | None = field(default=None, repr=False)

    async def wait_for_change(self) -> int | None:
        """Wait for a new position: the number of requests that end before this one begins; None once admitted.

        The first call returns at once, and a later one returns the latest position; also when ``loading`` changes. A
        SchedulerClosedError if the queue was closed meanwhile, another error if its model could not be loaded.
        """
        while self.admitted_at is None and self._reported == (self.position, self.loading) and self._failure is None:
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._failure is not None:
            raise copy(self._failure)
        if self.admitted_at is not None:
            return None
        self._reported = (self.position, self.loading)
        return self.position

    async def wait_until_admitted(self) -> None:
        """Wait until the request is admitted."""
        while await self.wait_for_change() is not None:
            pass

    def notify(self, failure: RkllmMcpError | None = None) -> None:
        """Wake the request that waits in ``wait_for_change``, with the reason if it is refused; called by the queue."""
        self._failure = failure
        self._changed.set()

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_error: object) -> None:
        self._scheduler.leave(self)


@dataclass
class _Requests:
    """The requests of one kind: a round of keys that wait, those admitted, and recent durations."""

    parallel: int
    queue: int
    # Keys with waiting requests, the next one first.
    waiting: OrderedDict[str, deque[Slot]] = field(default_factory=OrderedDict[str, deque[Slot]])
    running: set[Slot] = field(default_factory=set[Slot])
    durations: deque[float] = field(default_factory=lambda: deque[float](maxlen=MEASURED))

    def in_order(self) -> Iterator[Slot]:
        """Yield the waiting requests in the order of their admission if no more come."""
        lines = [tuple(waiting) for waiting in self.waiting.values()]
        for turn in range(max(map(len, lines), default=0)):
            yield from (line[turn] for line in lines if turn < len(line))

    def remove(self, slot: Slot) -> bool:
        """Remove a waiting request; return False if it does not wait."""
        waiting = self.waiting.get(slot.key)
        if waiting is None or slot not in waiting:
            return False
        waiting.remove(slot)
        if not waiting:
            del self.waiting[slot.key]
        return True


class Scheduler:
    """Admission to the NPU: one for all surfaces, tenants and models of a process.

    ``parallel`` answers run at once, and ``queue`` may wait for each key; of evaluations ``EVALUATIONS_PER_ANSWER``
    times as many. ``clock`` is monotonic, in seconds.
    """

    def __init__(self, parallel: int = 1, queue: int = 32, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: dict[Kind, _Requests] = {"answer": _Requests(1, 0), "evaluation": _Requests(1, 0)}
        self._is_closed = False
        self._idle = anyio.Event()
        self._load: Callable[[str], object] | None = None
        self._home = self._loaded = ""
        # The model that is being loaded, empty while one is unloaded; None at other times.
        self._loading: str | None = None
        self._load_began = self._load_s = 0.0
        self.resize(parallel, queue)

    def use_models(self, home: str, load: Callable[[str], object] | None) -> None:
        """Admit requests for other models from now on; ``load`` starts to load one, and None means that there is one.

        ``load`` does not wait, and ``on_load`` is called at the end. ``home`` is the loaded model, also of requests
        that name none while none is loaded.
        """
        self._home, self._load = home, load
        self.on_load(home)

    def on_load(self, model: str, failure: RkllmMcpError | None = None) -> None:
        """Go on with ``model``, empty if none is loaded; ``failure`` is why it is not the one that was to be loaded."""
        requested, self._loading, self._loaded = self._loading, None, model
        if requested and failure is None:
            self._load_s = self._clock() - self._load_began
        for slot in [slot for slot in self._waiting() if slot.loading]:
            slot.loading = ""
            if failure is not None:
                self._requests[slot.kind].remove(slot)
                slot.notify(failure)
        self._advance()

    def hold(self) -> bool:
        """Admit no request for a model until ``on_load`` is called; return False, without effect, if one is there."""
        running = (slot for requests in self._requests.values() for slot in requests.running)
        is_used = any(slot.model is not None for slot in (*running, *self._waiting()))
        if is_used or self._loading is not None:
            return False
        self._loading = ""
        return True

    def waiting(self, kind: Kind = "answer") -> int:
        """Return the number of waiting requests."""
        return sum(map(len, self._requests[kind].waiting.values()))

    def running(self, kind: Kind = "answer") -> int:
        """Return the number of admitted requests."""
        return len(self._requests[kind].running)

    def resize(self, parallel: int, queue: int) -> None:
        """Change the limits; admitted and waiting requests stay."""
        answers, evaluations = self._requests["answer"], self._requests["evaluation"]
        answers.parallel, answers.queue = parallel, queue
        evaluations.queue = queue * EVALUATIONS_PER_ANSWER
        self._advance()

    def close(self) -> None:
        """Admit no more requests; admitted ones stay, waiting ones are refused."""
        self._is_closed = True
        for requests in self._requests.values():
            for slot in requests.in_order():
                slot.notify(SchedulerClosedError())
            requests.waiting.clear()

    async def idle(self) -> None:
        """Wait until no request is admitted."""
        while any(requests.running for requests in self._requests.values()):
            self._idle = anyio.Event()
            await self._idle.wait()

    def admit(self, key: str = "", kind: Kind = "answer", model: str | None = "") -> Slot:
        """Enter the queue; the slot's ``with`` block leaves it. A QueueFullError if too many requests of ``key`` wait.

        ``kind`` determines the limits. ``model`` is the one that it needs, empty for the loaded one, None for a request
        that uses no chat model. A SchedulerClosedError if the queue is closed.
        """
        if self._is_closed:
            raise SchedulerClosedError
        requests = self._requests[kind]
        slot = Slot(key, kind, self, model)
        waiting = requests.waiting.get(key, deque[Slot]())
        if len(requests.running) >= requests.parallel and len(waiting) >= requests.queue:
            raise QueueFullError(len(waiting), self.expected_wait_s(key, kind))
        waiting.append(slot)
        requests.waiting[key] = waiting
        if self._loading and self._model_of(slot) == self._loading:
            slot.loading = self._loading
        self._advance()
        return slot

    def leave(self, slot: Slot) -> None:
        """Leave the queue, waiting or admitted; a second call does nothing."""
        requests = self._requests[slot.kind]
        if slot in requests.running:
            requests.running.remove(slot)
            requests.durations.append(self._clock() - (slot.admitted_at or 0.0))
            self._idle.set()
        elif not requests.remove(slot):
            return
        self._advance()

    def expected_wait_s(self, key: str, kind: Kind = "answer") -> float:
        """Return the time until one more request of ``key`` would be admitted if no more come, seconds."""
        requests, now = self._requests[kind], self._clock()
        ages = [now - slot.admitted_at for slot in requests.running if slot.admitted_at is not None]
        # Before the first request ends, its age is the only measure.
        mean = sum(requests.durations) / len(requests.durations) if requests.durations else max(ages, default=0.0)
        # A request that has run longer than the mean is expected to exceed it twice as far in the end.
        ends = sorted(abs(mean - age) for age in ages)[-requests.parallel :]
        free = [0.0] * (requests.parallel - len(ends)) + ends
        # Of the waiting requests, those of the same key go before it. Each other key has as many turns before it, and
        # one more if it comes earlier in the round.
        queued, keys = len(requests.waiting.get(key, ())), [*requests.waiting]
        position = keys.index(key) if key in keys else len(keys)
        turns = (
            min(len(requests.waiting[other]), queued + (turn < position))
            for turn, other in enumerate(keys)
            if other != key
        )
        for _ in range(queued + sum(turns)):
            heapq.heapreplace(free, free[0] + mean)
        load_s = self._load_s if self._loading is not None or self._stranger() is not None else 0.0
        return max(SHORTEST_WAIT_S, free[0] + load_s)

    def _waiting(self) -> Iterator[Slot]:
        return (slot for requests in self._requests.values() for slot in requests.in_order())

    def _model_of(self, slot: Slot) -> str | None:
        return slot.model or (self._loaded or self._home if slot.model == "" else None)

    def _stranger(self) -> Slot | None:
        """Return the first waiting request for another model."""
        if self._load is not None:
            for slot in self._waiting():
                if slot.model is not None and self._model_of(slot) != self._loaded:
                    return slot
        return None

    def _advance(self) -> None:
        """Admit requests while there is room, start to load a model, and notify the others of their positions."""
        for requests in self._requests.values():
            while len(requests.running) < requests.parallel and (slot := self._next_slot(requests)) is not None:
                # A key whose request was admitted goes to the end of the round.
                requests.remove(slot)
                if slot.key in requests.waiting:
                    requests.waiting.move_to_end(slot.key)
                slot.admitted_at, slot.position = self._clock(), 0
                requests.running.add(slot)
                slot.notify()
        # Another model is loaded once the loaded one is not used.
        running = (slot for requests in self._requests.values() for slot in requests.running)
        is_used = self._loading is not None or any(slot.model is not None for slot in running)
        stranger = None if is_used else self._stranger()
        if self._load is not None and stranger is not None and (model := self._model_of(stranger)):
            self._loading, self._load_began = model, self._clock()
            for slot in self._waiting():
                if self._model_of(slot) == model:
                    slot.loading = model
                    slot.notify()
            self._load(model)
        for requests in self._requests.values():
            for position, slot in enumerate(requests.in_order(), 1):
                if slot.position != position:
                    slot.position = position
                    slot.notify()

    def _next_slot(self, requests: _Requests) -> Slot | None:
        """Return the request to admit now; None if all have to wait for a model."""
        if self._load is None:
            return next(requests.in_order(), None)
        stranger, answers = self._stranger(), self._requests["answer"]
        is_due = False  # True if a request for another model is not passed any more
        if stranger is not None:
            is_late = stranger.passed > 0 and self._clock() - stranger.passed_at >= LONGEST_PASSED_S
            is_due = is_late or stranger.passed >= MAX_PASSED
        # A running answer may need an evaluation to end, before another model is loaded.
        is_held = self._loading is not None or (is_due and (requests is answers or not answers.running))
        is_behind = stranger is not None and stranger.kind != "evaluation" and requests is not answers
        for slot in requests.in_order():
            is_behind = is_behind or slot is stranger
            if slot.model is not None and (is_held or self._model_of(slot) != self._loaded):
                continue
            if stranger is not None and is_behind and slot.model is not None:
                stranger.passed_at = stranger.passed_at if stranger.passed else self._clock()
                stranger.passed += 1
            return slot
        return None


class Prompted(Protocol):
    """The part of a run that the queue needs."""

    tokens: Sequence[int]  # ids of the prompt; empty for other inputs
    skipped: int  # runs that went before this one out of turn


_Run = TypeVar("_Run", bound=Prompted)


@dataclass(eq=False)
class RunQueue(Generic[_Run]):
    """Runs of one engine that wait; the one that reuses most of the KV cache goes first."""

    _max_skips: int = MAX_SKIPS  # at most as many runs go before a waiting one; 0 keeps the order of arrival
    _cost_s: Callable[[int], float] = lambda _: 0.0  # the seconds that prefilling this many tokens takes
    _resume: Callable[[], None] = lambda: None  # called when a hold for an expected run ends
    runs: list[_Run] = field(default_factory=list[_Run])  # in the order of their arrival
    expected_tokens: Sequence[int] = ()  # prefix of the expected run; empty without one
    _expected_at: float = 0.0  # the event loop's clock when it was announced
    _hold: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of waiting runs."""
        return len(self.runs)

    def next(self, cached: Sequence[int]) -> _Run | None:
        """Remove and return the run to start now; None if none waits or all are held for the expected run.

        ``cached`` holds the ids known to be in the KV cache, from its start.
        """
        runs, chosen = self.runs, 0
        if not runs:
            return None
        if runs[0].skipped < self._max_skips:
            if len(runs) > 1:
                reused = [common_prefix(run.tokens, cached) for run in runs]
                best = max(range(len(reused)), key=lambda index: (reused[index], -index))
                chosen = best if reused[best] >= reused[0] + WORTHWHILE_TOKENS else 0
            if self.expected_tokens:
                # What the chosen run would replace of the expected run's prefix in the cache.
                lost = common_prefix(self.expected_tokens, cached) - common_prefix(runs[chosen].tokens, cached)
                hold_s = min(self._cost_s(lost), LONGEST_HOLD_S) if lost >= WORTHWHILE_TOKENS else 0.0
                loop = asyncio.get_running_loop()
                if loop.time() < self._expected_at + hold_s:
                    if self._hold is not None:
                        self._hold.cancel()
                    self._hold = loop.call_at(self._expected_at + hold_s, self._resume)
                    return None
        for run in runs[:chosen]:
            run.skipped += 1
        return runs.pop(chosen)

    def expect(self, tokens: Sequence[int]) -> None:
        """Expect a run soon whose prompt begins with these tokens."""
        self.expected_tokens, self._expected_at = tokens, asyncio.get_running_loop().time()

    def clear_expected(self) -> None:
        """Expect no run any more."""
        self.expected_tokens = ()
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
