"""A consumer that has enough: the run ends at once, and unlike one that is left it gives its figures."""

from __future__ import annotations

import anyio
import pytest

from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.runtime.engine import Engine, open_engine
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio
STOP_IDS = frozenset({IM_END})
RULES = f"rule\nuser long\nsay {'x' * 400}\nrule\nuser hang\nsay hello\nfault hang after 3\nrule\nuser (.+)\nsay $1"


async def taken(engine: Engine, text: str, count: int, limit: int = 512) -> tuple[int, RunStats]:
    """Have enough after ``count`` tokens; how many came, and the figures."""
    came = 0
    with anyio.fail_after(60):
        async with engine.generation(prompt_of(text), GenerationOptions(limit, STOP_IDS)) as run:
            while batch := await run.next_batch():
                came = min(came + len(batch), count)
                if came == count:
                    run.finish_early()
            return came, run.stats()


async def test_the_run_ends_when_it_is_enough_and_its_figures_come(emulator: Emulator) -> None:
    settings = emulator.settings(RULES, head="speed prefill 100000 decode 500\ncontext 4096")
    async with open_engine(settings) as engine:
        came, stats = await taken(engine, "long", 5)
        assert (came, stats.finish) == (5, "stop")
        assert 5 <= stats.generated_tokens < 100
        # What came is in the KV cache, and the next run is an ordinary one.
        came, stats = await taken(engine, "next", 1000)
        assert (came, stats.finish) == (len("next") + 1, "stop")


async def test_a_run_that_hangs_is_stopped_for_it(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES)) as engine:
        assert (await taken(engine, "hang", 3))[0] == 3
        assert (await taken(engine, "next", 1000))[0] == 5


async def test_enough_at_the_last_token_changes_nothing_but_the_reason(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES)) as engine:
        came, stats = await taken(engine, "long", 4, limit=4)
        assert (came, stats.finish, stats.generated_tokens) == (4, "stop", 4)
        came, stats = await taken(engine, "abc", 4)
        assert (came, stats.finish, stats.generated_tokens) == (4, "stop", 4)
