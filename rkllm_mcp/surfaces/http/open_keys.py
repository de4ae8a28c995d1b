"""The keys of requests that are open: what they do ends soon after their key was revoked, wherever that was done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

# A key may be revoked by another process, another board or an edit of the configuration, which give no notice.
LOOK_S = 0.5


@dataclass(eq=False)
class OpenKeys:
    """The scopes of what requests do, by key; nothing runs while no request is open for ``LOOK_S``."""

    _open: dict[str, tuple[Callable[[], Awaitable[bool]], set[anyio.CancelScope]]] = field(
        default_factory=dict[str, tuple[Callable[[], Awaitable[bool]], set[anyio.CancelScope]]]
    )
    _timer: asyncio.TimerHandle | None = None
    _look: asyncio.Task[None] | None = None

    @contextmanager
    def ending(self, key: str, is_good: Callable[[], Awaitable[bool]]) -> Generator[anyio.CancelScope, None, None]:
        """Cancel what this block does when ``is_good`` returns False; the scope says whether it did."""
        scope = anyio.CancelScope()
        self._open.setdefault(key, (is_good, set()))[1].add(scope)
        self._arm()
        try:
            with scope:
                yield scope
        finally:
            scopes = self._open[key][1]
            scopes.discard(scope)
            if not scopes:
                del self._open[key]
            if not self._open and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._look is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._begin_look)

    def _begin_look(self) -> None:
        self._timer = None
        self._look = asyncio.create_task(self._look_at_keys(), name="keys of open requests")

    async def _look_at_keys(self) -> None:
        try:
            for is_good, scopes in list(self._open.values()):
                if not await is_good():
                    for scope in scopes:
                        scope.cancel()
        finally:
            self._look = None
            if self._open:
                self._arm()
