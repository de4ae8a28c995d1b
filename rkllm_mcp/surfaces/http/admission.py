"""Admission of requests whose cost a client chooses: memory for their bodies, and one core for the work on them.

    Content-Length ─▶ hold ─▶ body ─▶ run(key, piece) ─▶ one thread, round robin between keys, FIFO within a key

A body is read when it has room, so a waiting client costs a socket buffer. Its room is held until its request is over,
because parsed texts are as long as the body. Long work is run in pieces: the next piece of a key waits for one piece of
every other key at most, and cancelled work ends with its piece.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import math
import os
import shutil
import tempfile
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from rkllm_mcp.errors import QueueFullError
from rkllm_mcp.tasks import run_costly

T = TypeVar("T")

# Shorter bodies are not counted: as much of any request waits in the buffers of its connection.
UNCOUNTED_BYTES = 65_536
_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES = -3, 1 << 20  # of mallopt(3)
# Bodies of the longest size that one key, and all keys together, may have in memory.
BODIES_PER_KEY = 2
BODIES = 8
# Requests of one key that wait for memory, and the longest that each waits, seconds.
WAITING_PER_KEY = 64
WAIT_S = 30.0
# The files in front may be large and their network slow, seconds.
UPLOAD_WAIT_S = 300.0
# Files that one key, and all keys together, may send at a time; further ones wait, unread.
UPLOADS_PER_KEY = 2
UPLOADS = 4
# An upload leaves this much of the folder for temporary files to others.
FREE_BYTES = 64 * 2**20
# Memory is given back to the system this long after a large body was done with, seconds.
TRIM_AFTER_S = 2.0


@dataclass(eq=False)
class Room:
    """An amount that is limited for each key and in total; requests wait until theirs fits."""

    taken: Counter[str] = field(default_factory=Counter[str], init=False)
    _waiting: Counter[str] = field(default_factory=Counter[str], init=False)
    _freed: anyio.Event = field(default_factory=anyio.Event, init=False)

    async def take(self, key: str, amount: int, per_key: int, total: int, wait_s: float = math.inf) -> None:
        """Wait until ``amount`` more fits, and take it.

        Raises:
            QueueFullError: too many requests of the key wait, or this one has waited for ``wait_s``.
        """
        if self._waiting[key] >= WAITING_PER_KEY:
            raise QueueFullError(self._waiting[key], WAIT_S)
        self._waiting[key] += 1
        try:
            with anyio.fail_after(wait_s):
                while self.taken[key] + amount > per_key or self.taken.total() + amount > total:
                    await self._freed.wait()
        except TimeoutError:
            raise QueueFullError(self._waiting[key], WAIT_S) from None
        finally:
            self._waiting -= Counter({key: 1})
        self.taken[key] += amount

    def give_back(self, key: str, amount: int) -> None:
        """Free an amount that was taken."""
        self.taken -= Counter({key: amount})
        self._freed.set()
        self._freed = anyio.Event()


@dataclass(eq=False)
class HeldBody:
    """Room for one body; ``shrink(0)`` gives all of it back, and may be called more than once."""

    _admission: Admission = field(repr=False)
    key: str
    size: int

    def shrink(self, size: int) -> None:
        """Give back the room above ``size`` bytes, when the body has turned out to be shorter."""
        size = size if size > UNCOUNTED_BYTES else 0
        freed, self.size = self.size - size, min(self.size, size)
        if freed > 0:
            self._admission.bodies.give_back(self.key, freed)
            if self._admission.trim_timer is None:
                loop = asyncio.get_running_loop()
                self._admission.trim_timer = loop.call_later(TRIM_AFTER_S, self._admission.trim)


class Admission:
    """Memory, disk space and processor time of all requests of a service, by API key."""

    def __init__(self) -> None:
        # Freed blocks of a megabyte and more go back to the system at once, as one message of a server may be. Once a
        # large block was freed, glibc would keep all up to its size, 32 MiB at most, for later.
        if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
        self.bodies = Room()  # bytes of bodies in memory
        self.uploads = Room()  # files that are received
        self._turns: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        self._owners = set[str]()
        self._is_busy = False
        self.trim_timer: asyncio.TimerHandle | None = None

    async def hold(self, key: str, size: int, limit: int) -> HeldBody:
        """Wait for the room of a body of ``size`` bytes; ``limit`` is the longest body of the service.

        Raises:
            QueueFullError: too many requests of the key wait, or this one has waited for ``WAIT_S``.
        """
        if size <= UNCOUNTED_BYTES:
            return HeldBody(self, key, 0)
        await self.bodies.take(key, size, BODIES_PER_KEY * limit, BODIES * limit, WAIT_S)
        return HeldBody(self, key, size)

    @asynccontextmanager
    async def receiving(self, key: str, size: int) -> AsyncGenerator[None, None]:
        """Wait until one more file may be received, and hold its place.

        Raises:
            QueueFullError: too many files of the key wait, or this one has waited for ``UPLOAD_WAIT_S``.
            OSError: ENOSPC, the folder for temporary files has no space for ``size`` bytes.
        """
        await self.uploads.take(key, 1, UPLOADS_PER_KEY, UPLOADS, UPLOAD_WAIT_S)
        try:
            folder = tempfile.gettempdir()
            # The others are on their way to the same folder and may all be as long.
            if shutil.disk_usage(folder).free < size * self.uploads.taken.total() + FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
            yield
        finally:
            self.uploads.give_back(key, 1)

    async def run(self, key: str, function: Callable[[], T], *, is_owners: bool = False) -> tuple[T, float]:
        """Return the result of ``function``, run in a thread in its key's turn, and the seconds that it took.

        The work of the owner's own keys goes before all other work that waits.

        Cancelling it while it waits takes it out of the round; a function that runs is waited for.
        """

        def time_call() -> tuple[T, float]:
            began = time.monotonic()
            return function(), time.monotonic() - began

        if self._is_busy:
            turn = anyio.Event()
            self._turns.setdefault(key, deque()).append(turn)
            if is_owners:
                self._owners.add(key)
                self._turns.move_to_end(key, last=False)
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():
                    self._pass_turn()
                else:
                    self._turns[key].remove(turn)
                    if not self._turns[key]:
                        del self._turns[key]
                raise
        self._is_busy = True
        try:
            # After the prompt of an answer at most, which takes the same thread.
            return await run_costly(time_call)
        finally:
            self._pass_turn()

    def _pass_turn(self) -> None:
        """Pass the turn on to the next key of the round."""
        if not self._turns:
            self._is_busy = False
            return
        key, turns = self._turns.popitem(last=False)
        turns.popleft().set()
        if turns:
            self._turns[key] = turns
            if key in self._owners:
                self._turns.move_to_end(key, last=False)

    def trim(self) -> None:
        """Give memory back to the system that is not used any more.

        Errors that went through task groups refer to themselves and so keep the texts of their requests until they are
        collected. Freed memory is kept by glibc for the arena of each thread.
        """
        self.trim_timer = None
        gc.collect()
        if (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            malloc_trim(0)
