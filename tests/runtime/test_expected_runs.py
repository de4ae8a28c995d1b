"""Conversations share one KV cache: a run that is announced is waited for, as long as that pays and nobody starves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.generation import GenerationOptions, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.scheduler import LONGEST_HOLD_S, MAX_SKIPS, WORTHWHILE_TOKENS, RunQueue
from tests.support.clock import STANDING, Backend, turn
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

ECHO = "rule\nuser (.+)\nsay $1"
STOP = GenerationOptions(stop_ids=frozenset({IM_END}))


@pytest.fixture
def anyio_backend() -> Backend:
    return STANDING


@dataclass
class Run:
    tokens: Sequence[int]
    skipped: int = 0


@pytest.mark.parametrize(("s_per_token", "hold_s"), [(0.001, 0.6), (60.0, LONGEST_HOLD_S), (0.0, 0.0)])
async def test_an_announced_run_is_waited_for_as_long_as_switching_would_cost(
    s_per_token: float, hold_s: float
) -> None:
    mine = list(range(1000))
    other = Run([*mine[:400], 7])
    resumed: list[bool] = []
    queue = RunQueue[Run](MAX_SKIPS, lambda tokens: tokens * s_per_token, lambda: resumed.append(True))
    queue.expect([*mine, 1])
    queue.runs.append(other)
    if hold_s:
        assert queue.next(mine) is None
        await turn(hold_s - 0.01)
        assert (queue.next(mine), resumed) == (None, [])
        await turn(0.02)
        assert resumed == [True]
    assert queue.next(mine) is other


@pytest.mark.parametrize(
    ("upcoming", "cached"),
    [
        ([*range(100), 7], list(range(100))),  # it reuses as much
        ([7], [8, 9]),  # nothing of the announced run is in the cache
        ([*range(101 - WORTHWHILE_TOKENS), 777], list(range(100))),  # too little to wait for
    ],
)
async def test_nothing_is_held_where_that_saves_nothing(upcoming: list[int], cached: list[int]) -> None:
    queue, run = RunQueue[Run](MAX_SKIPS, lambda _: 1.0), Run(upcoming)
    queue.expect(list(range(100)))
    queue.runs.append(run)
    assert queue.next(cached) is run


async def ask(engine: Engine, text: str, done: list[str]) -> None:
    async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
        async for item in run:
            assert isinstance(item, Token) or item.finish == "stop"
    done.append(text)


async def prepared(engine: Engine) -> None:
    """Let the engine see how slow prefill is, and fill the cache."""
    done: list[str] = []
    await ask(engine, "a" * 300, done)


SLOW = "speed prefill 2000 decode 20000\ncontext 4096"


async def test_others_wait_for_the_announced_run_and_go_on_after_it(newest: Emulator) -> None:
    done: list[str] = []
    async with open_engine(newest.settings(ECHO, SLOW)) as engine:
        with anyio.fail_after(60):
            await prepared(engine)
            engine.expect(prompt_of("a" * 300)[:-11])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, engine, "b" * 300, done)
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                tasks.start_soon(ask, engine, "a" * 310, done)
    assert done == ["a" * 310, "b" * 300]


async def test_an_announced_run_that_never_comes_keeps_others_for_a_moment_only(newest: Emulator) -> None:
    done: list[str] = []
    async with open_engine(newest.settings(ECHO, SLOW)) as engine:
        with anyio.fail_after(60):
            await prepared(engine)
            engine.expect(prompt_of("a" * 300)[:-11])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, engine, "b" * 300, done)
                await turn(0)
                await turn(LONGEST_HOLD_S)
    assert done == ["b" * 300]


async def test_an_engine_that_holds_runs_back_can_be_closed_and_can_lose_its_worker(newest: Emulator) -> None:
    done: list[str] = []
    async with open_engine(newest.settings(ECHO, SLOW)) as engine:
        with anyio.fail_after(60):
            await prepared(engine)
            engine.expect(prompt_of("a" * 300)[:-11])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, engine, "b" * 300, done)
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert (done, engine.supervisor.restarts) == ([], 0)


@pytest.mark.parametrize("is_the_announced", [True, False])
async def test_others_go_on_at_once_when_the_announced_run_is_taken_back(
    newest: Emulator, is_the_announced: bool
) -> None:
    done: list[str] = []
    async with open_engine(newest.settings(ECHO, SLOW)) as engine:
        with anyio.fail_after(60):
            await prepared(engine)
            announced = prompt_of("a" * 300)[:-11]
            engine.expect(announced)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, engine, "b" * 300, done)
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                engine.cancel_expected(announced if is_the_announced else list(announced))
                # What reuses more would go first, were the other not under way already.
                tasks.start_soon(ask, engine, "a" * 310, done)
    other, announced_one = "b" * 300, "a" * 310
    assert done == ([other, announced_one] if is_the_announced else [announced_one, other])
