"""A generation can be paused and resumed, and while it is, it answers nobody else."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, RunRejectedError, UnsupportedError
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.profile import RuntimeProfile
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

RULES = "rule\nuser (.+)\nsay $1"
STOP = frozenset({IM_END})
PROFILE = RuntimeProfile("id", "id", "1.3.0", "1.3.0", True, "2026-11-22", {"pause_left_by": ["clear"]})


async def answer(engine: Engine, text: str, **options: Any) -> tuple[str, RunStats]:
    pieces: list[str] = []
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt_of(text), GenerationOptions(stop_ids=STOP, **options))) as run:
            async for item in run:
                if isinstance(item, Token):
                    pieces.append(item.text)
                else:
                    return "".join(pieces), item
    raise AssertionError("a generation ended without its figures")


async def test_a_paused_generation_goes_on_where_it_was(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES)) as engine:
        if emulator.version == "1.2.0":
            with pytest.raises(UnsupportedError, match=r"no way to pause a generation; it takes 1\.2\.1"):
                await answer(engine, "hello", pause_after_tokens=2)
            assert (await answer(engine, "hello"))[0] == "hello<|im_end|>"
            return
        said, stats = await answer(engine, "hello", pause_after_tokens=2)
        assert (said, stats.finish, engine.is_paused) == ("he", "paused", True)
        said, stats = await answer(engine, "whatever", resume=True, pause_after_tokens=1)
        assert (said, stats.finish, engine.is_paused) == ("l", "paused", True)
        said, stats = await answer(engine, "whatever", resume=True)
        assert (said, stats.finish, engine.is_paused) == ("lo<|im_end|>", "stop", False)
        assert (await answer(engine, "next"))[0] == "next<|im_end|>"
        assert engine.restarts == 0


async def test_another_question_during_a_pause_is_answered_by_a_new_worker(newest: Emulator) -> None:
    # Whether a cleared cache ends a pause is not documented; here it does not.
    async with open_engine(newest.settings(RULES, "speed flat\ncontext 4096\nfault leave-pause never")) as engine:
        for _ in range(2):
            await answer(engine, "hello", pause_after_tokens=2)
            said, stats = await answer(engine, "other")
            assert (said, stats.cold, engine.is_paused) == ("other<|im_end|>", True, False)
        assert engine.restarts == 2


async def test_where_clearing_is_known_to_end_a_pause_the_worker_stays(newest: Emulator) -> None:
    async with open_engine(replace(newest.settings(RULES), profile=PROFILE)) as engine:
        await answer(engine, "hello", pause_after_tokens=2)
        said, stats = await answer(engine, "other")
        assert (said, stats.cold, engine.restarts) == ("other<|im_end|>", True, 0)


async def test_a_part_of_the_cache_can_be_cleared_during_a_pause_only(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES)) as engine:
        with pytest.raises(InputRefusedError, match="only during a pause"):
            await engine.clear_cache(span=(0, 4))
        if emulator.version == "1.2.0":
            return
        await answer(engine, "hello", pause_after_tokens=2)
        before = await engine.kv_cache_size()
        await engine.clear_cache(span=(4, 6))
        after = await engine.kv_cache_size()
        with pytest.raises(RunRejectedError, match="failed this call: rkllm_clear_kv_cache returned -1"):
            await engine.clear_cache(span=(6, 4))
    assert before is not None
    assert after == before - 2


async def test_a_paused_generation_that_is_left_waiting_is_not_the_next_ones(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES)) as engine:
        await answer(engine, "hello", pause_after_tokens=1)
        with anyio.move_on_after(0):
            await answer(engine, "left")
        assert (await answer(engine, "next"))[0] == "next<|im_end|>"
