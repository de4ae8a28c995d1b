"""An attack of ``bench.abuse``, the services that attacks run against, and what an attack has at hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.load_clients import Run
from bench.load_service import KEYS, LoadedService

PATIENCE_S = 60.0
# An attack slows down other work on a quiet machine with two cores by this much; where more slows it down, ``/healthz``
# may take longer by as much.
OWN_SLOWDOWN = 4.0


@contextmanager
def plain_world(folder: Path) -> Generator[str, None, None]:
    """The service of ``bench.load_service`` as it is."""
    del folder
    yield ""


# What surrounds a service, such as servers that it connects to: a context manager that gets the folder of the service
# before it is started, and yields lines for the end of its configuration. Attacks of one world share a service.
World = Callable[[Path], AbstractContextManager[str]]


@dataclass
class Scene:
    """What an attack has at hand."""

    service: LoadedService
    run: Run
    folder: Path  # of the service

    def find(self, finding: str) -> None:
        """Note what should not have happened."""
        self.run.tally.find(finding)

    @asynccontextmanager
    async def client(self, key: str = KEYS[-1], patience_s: float = PATIENCE_S) -> AsyncGenerator[httpx2.AsyncClient]:
        """Open an HTTP client with a key, by default one that no friendly client has."""
        headers: Mapping[str, str] = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx2.Limits(max_connections=None)
        client = httpx2.AsyncClient(
            base_url=self.service.url, headers=headers, timeout=patience_s, verify=False, limits=limits
        )
        async with client:
            yield client

    async def storm(
        self, count: int, act: Callable[[int], Coroutine[Any, Any, Any]], within_s: float = PATIENCE_S
    ) -> None:
        """Carry out an act this many times at once, and leave those that are not over in time."""
        with anyio.move_on_after(within_s):
            async with anyio.create_task_group() as tasks:
                for number in range(count):
                    tasks.start_soon(act, number)


@dataclass(frozen=True)
class Attack:
    """What a guest does, and what it may cost.

    The limits are those of a quiet machine with two cores; friendly clients are to be answered during each attack.
    """

    name: str  # a few words
    act: Callable[[Scene], Awaitable[None]]
    world: World = plain_world
    host_mb: float = 150.0  # what the service itself may take more, at its highest
    all_mb: float = 600.0  # what all its processes may take more, at their highest
    healthz_s: float = 1.0  # the longest that ``/healthz`` may take
