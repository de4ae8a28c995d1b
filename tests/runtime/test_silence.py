"""A runtime that shows no sign of life is told to stop, then killed, and the error says so; a slow one is not."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import anyio
import pytest

from rkllm_mcp.errors import RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.watchdog import PrefillPace, SilenceLimits, Watchdog
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

STOP = GenerationOptions(stop_ids=frozenset({IM_END}))
RULES = "rule\nuser bad\nsay abcdefgh\nfault {}\nrule\nuser (.+)\nsay $1"
SHORT = SilenceLimits(prefill_base_s=0.3, prefill_patience=0.0, decode_s=0.3, call_s=20.0)


async def answer(engine: Engine, text: str) -> str:
    with anyio.fail_after(20):
        async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
            return "".join([item.text async for item in run if isinstance(item, Token)])


async def failing(engine: Engine) -> tuple[str, RunRejectedError | WorkerDiedError]:
    """The text before the failure, and the failure."""
    pieces: list[str] = []
    with anyio.fail_after(20), pytest.raises((RunRejectedError, WorkerDiedError)) as raised:
        async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
            async for item in run:
                assert isinstance(item, Token)
                pieces.append(item.text)
    assert isinstance(raised.value, (RunRejectedError, WorkerDiedError))
    return "".join(pieces), raised.value


@pytest.mark.parametrize(
    ("fault", "said", "awaited"), [("hang after 2", "ab", "the next token"), ("hang in-prefill", "", "the first token")]
)
async def test_a_run_that_falls_silent_is_aborted_and_the_next_one_works(
    newest: Emulator, fault: str, said: str, awaited: str
) -> None:
    async with open_engine(newest.settings(RULES.format(fault), silence=SHORT)) as engine:
        before, error = await failing(engine)
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.restarts == 0
    assert (before, error.tokens_delivered) == (said, len(said))
    assert f"{awaited} did not come within 0.3 s, and it was aborted" in str(error)


@pytest.mark.parametrize("fault", ["hang after 2 ignoring-abort", "hang in-prefill ignoring-abort"])
async def test_a_run_that_does_not_hear_the_abort_is_killed_with_its_worker(newest: Emulator, fault: str) -> None:
    settings = newest.settings(RULES.format(fault), silence=SHORT, decode_abort_timeout_s=0.1)
    async with open_engine(settings) as engine:
        before, error = await failing(engine)
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.restarts == 1
    assert isinstance(error, WorkerDiedError)
    assert (error.signal_name, error.tokens_delivered) == ("SIGKILL", len(before))
    assert "token did not come within 0.3 s and it did not stop within 0.1 s" in str(error)


async def test_an_answer_that_is_complete_is_delivered_though_the_runtime_hangs_behind_it(newest: Emulator) -> None:
    settings = newest.settings(
        "rule\nuser bad\nsay ab\nfault hang after 3 ignoring-abort\nfault ignore-eos\nrule\nuser (.+)\nsay $1",
        silence=SHORT,
        decode_abort_timeout_s=0.1,
    )
    async with open_engine(settings) as engine:
        with anyio.fail_after(20):
            items = [item async for item in engine.generate(prompt_of("bad"), STOP)]
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.restarts == 1
    assert [item.id for item in items if isinstance(item, Token)] == [*b"ab", IM_END]
    assert isinstance(items[-1], RunStats)


async def test_an_abort_that_the_runtime_forgets_is_repeated_or_ends_its_process(newest: Emulator) -> None:
    rules = "rule\nuser bad\nsay " + "x" * 300 + "\nfault abort-forgotten {}\nrule\nuser (.+)\nsay $1"
    paced = "speed prefill 100000 decode 100\ncontext 4096"
    for forgets, restarts in (("once", 0), ("always", 1)):
        settings = newest.settings(rules.format(forgets), paced, decode_abort_timeout_s=0.2, leave_timeout_s=0.0)
        async with open_engine(settings) as engine:
            with anyio.fail_after(20):
                async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
                    await anext(run)
            assert await answer(engine, "good") == "good<|im_end|>"
            assert engine.restarts == restarts


async def test_a_pause_shorter_than_the_limit_is_no_silence(newest: Emulator) -> None:
    settings = newest.settings(
        RULES.format("stall after 2 0.2"), silence=SilenceLimits(prefill_base_s=9.0, decode_s=5.0)
    )
    async with open_engine(settings) as engine:
        assert await answer(engine, "bad") == "abcdefgh<|im_end|>"
        assert engine.restarts == 0


def test_the_limit_of_a_prefill_grows_with_the_prompt_and_follows_what_was_measured() -> None:
    limits = SilenceLimits(prefill_base_s=60.0, prefill_patience=5.0, prefill_tokens_per_s=20.0)
    pace = PrefillPace(limits)
    assert (pace.limit_s(0), pace.limit_s(4000)) == (60.0, 60.0 + 5 * 200)
    pace.measured(63, 1.0)  # too short to say anything
    pace.measured(100, 0.0)
    assert pace.limit_s(4000) == 1060.0
    pace.measured(1000, 1000.0)
    assert pace.limit_s(4000) == 60.0 + 5 * 4
    pace.measured(1000, 500.0)  # a faster run promises nothing
    assert pace.limit_s(4000) == 80.0
    pace.measured(1000, 10_000.0)
    assert pace.limit_s(4000) == 60.0 + 5 * 40


def test_a_profile_is_believed_until_a_run_was_slower() -> None:
    limits = SilenceLimits(prefill_base_s=60.0, prefill_patience=5.0)
    pace = PrefillPace(limits, lambda tokens: tokens / 100)
    assert pace.limit_s(1000) == 110.0
    pace.measured(1000, 100.0)
    assert pace.limit_s(1000) == 110.0
    pace.measured(1000, 20_000.0)
    assert pace.limit_s(1000) == 160.0
    assert PrefillPace(limits, lambda _tokens: None).limit_s(1000) == 60.0 + 5 * 50


async def test_a_watchdog_waits_anew_after_each_sign_of_life_and_barks_once() -> None:
    silences: list[str] = []
    barked = asyncio.Event()

    def bark(silence: str) -> None:
        silences.append(silence)
        barked.set()

    watchdog = Watchdog(bark)
    watchdog.heard()  # nothing is expected
    watchdog.expect("a sign", 60.0)
    watchdog.expect("a token", 0.02)
    watchdog.heard()
    with anyio.fail_after(5):
        await barked.wait()
    watchdog.rest()
    assert silences == ["a token did not come within 0.02 s"]
