"""An event loop whose clock stands still until the test turns it: what a limit does, on a machine of any speed.

    @pytest.fixture
    def anyio_backend() -> Backend:
        return STANDING

Sockets, processes and threads go on as ever; only what waits for time to pass waits for ``turn``. So nothing that is
merely slow is ever late, and nobody has to wait for what is to be late.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

Backend = tuple[str, dict[str, Any]]
# A test that takes longer hangs: from then on the clock is far ahead, and whatever waits with a limit ends.
_LONGEST_TEST_S = 180.0
_FAR_AHEAD_S = 86_400.0
# Of the loop: a timer that is due, the task that it wakes, what that one wakes in turn, and so on.
_ROUNDS = 20


class StandingLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.turned_s = 0.0
        super().__init__()

    def time(self) -> float:
        """The clock of everything that runs in this loop, seconds."""
        hangs = time.monotonic() - self._began_s > _LONGEST_TEST_S
        return self._began_s + self.turned_s + (_FAR_AHEAD_S if hangs else 0.0)


STANDING: Backend = ("asyncio", {"loop_factory": StandingLoop})
# For one test of a module.
standing_clock = pytest.mark.parametrize("anyio_backend", [STANDING], ids=["standing clock"])


async def turn(seconds: float, rounds: int = _ROUNDS) -> None:
    """Let this much time pass for the loop that runs this, and let what waited for it go on for this many rounds."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StandingLoop)
    loop.turned_s += seconds
    for _ in range(rounds):
        await asyncio.sleep(0)
