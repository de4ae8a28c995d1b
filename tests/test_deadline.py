"""``protocols.Deadline``: a limit that is passed down, bound to scopes, paused and lifted."""

from __future__ import annotations

import math
from contextlib import ExitStack

import anyio
import pytest

from rkllm_mcp.protocols import CallContext, Deadline

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_pauses_that_overlap_stop_the_limit_until_the_last_one_ends() -> None:
    clock = Clock()
    deadline = Deadline(10.0, clock)
    scope = deadline.bind(anyio.CancelScope())
    clock.now += 4
    with ExitStack() as second:
        with deadline.pause():
            second.enter_context(deadline.pause())
            clock.now += 60
        assert (deadline.elapsed_s, deadline.left_s, scope.deadline) == (4.0, 6.0, math.inf)
        clock.now += 60
    assert (deadline.elapsed_s, deadline.left_s, scope.deadline) == (4.0, 6.0, clock.now + 6)
    clock.now += 7
    assert (deadline.elapsed_s, deadline.left_s) == (11.0, 0.0)


async def test_a_scope_that_is_bound_later_has_the_time_that_is_left_and_a_lifted_limit_cancels_none() -> None:
    clock = Clock()
    deadline = Deadline(10.0, clock)
    clock.now += 3
    scopes = [deadline.bind(anyio.CancelScope()) for _ in range(2)]
    assert [scope.deadline for scope in scopes] == [110.0, 110.0]
    deadline.lift()
    assert [scope.deadline for scope in scopes] == [math.inf, math.inf]


async def test_a_pause_of_a_call_stops_every_limit_around_it() -> None:
    clock = Clock()
    outer, inner = Deadline(10.0, clock), Deadline(5.0, clock)
    context = inner.within(outer.within(CallContext()))
    with context.pause():
        clock.now += 60
    clock.now += 1
    assert (outer.left_s, inner.left_s) == (9.0, 4.0)
