"""A runtime that shows no sign of life is told to stop, then killed, and the error says so; a slow one is not."""

from __future__ import annotations

import time
from contextlib import aclosing

import anyio
import anyio.to_thread
import pytest

from rkllm_mcp.errors import RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.settings import SilenceLimits
from rkllm_mcp.runtime.supervisor import PrefillPace, Watchdog
from tests.support.clock import STANDING, Backend, turn
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

STOP = GenerationOptions(stop_ids=frozenset({IM_END}))
RULES = "rule\nuser bad\nsay abcdefgh\nfault {}\nrule\nuser (.+)\nsay $1"
SILENCE = SilenceLimits(prefill_base_s=30.0, prefill_factor=0.0, decode_s=30.0)


@pytest.fixture
def anyio_backend() -> Backend:
    return STANDING


async def answer(engine: Engine, text: str) -> str:
    async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
        return "".join([item.text async for item in run if isinstance(item, Token)])


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, newest: Emulator) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(newest.log))


async def hanging(emulator: Emulator) -> None:
    """Wait until a run hangs in the runtime: an abort before it began would end it in good order."""
    with anyio.fail_after(60):
        while not emulator.log.exists() or not any(call["call"] == "rkllm_run" for call in emulator.calls()):
            await anyio.to_thread.run_sync(time.sleep, 0.01)


async def items_of_silent(
    engine: Engine, emulator: Emulator, count: int, *limits_s: float
) -> list[Token | RunStats | Exception]:
    """What comes of a run that hangs after this many tokens, when those limits have passed."""
    items: list[Token | RunStats | Exception] = []
    is_silent = anyio.Event()

    async def consume() -> None:
        try:
            async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
                async for item in run:
                    items.append(item)
                    if len(items) == count:
                        is_silent.set()
        except (RunRejectedError, WorkerDiedError) as error:
            items.append(error)

    await engine.ready()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        if count:
            await is_silent.wait()
        await hanging(emulator)
        await turn(0)
        for limit_s in limits_s:
            await turn(limit_s)
    return items


@pytest.mark.parametrize(
    ("fault", "said", "awaited"), [("hang after 2", "ab", "the next token"), ("hang in-prefill", "", "the first token")]
)
async def test_a_run_that_falls_silent_is_aborted_and_the_next_one_works(
    newest: Emulator, fault: str, said: str, awaited: str
) -> None:
    async with open_engine(newest.settings(RULES.format(fault), silence=SILENCE)) as engine:
        *before, error = await items_of_silent(engine, newest, len(said), 30.0)
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.supervisor.restarts == 0
    assert isinstance(error, RunRejectedError)
    assert before == [Token(ord(letter), letter) for letter in said]
    assert error.tokens_delivered == len(said)
    assert f"{awaited} did not come within 30 s, and it was aborted" in str(error)


@pytest.mark.parametrize(("fault", "said"), [("after 2", "ab"), ("in-prefill", "")])
async def test_a_run_that_does_not_hear_the_abort_is_killed_with_its_worker(
    newest: Emulator, fault: str, said: str
) -> None:
    settings = newest.settings(RULES.format(f"hang {fault} ignoring-abort"), silence=SILENCE, decode_abort_timeout_s=15)
    async with open_engine(settings) as engine:
        *before, error = await items_of_silent(engine, newest, len(said), 30.0, 15.0)
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.supervisor.restarts == 1
    assert isinstance(error, WorkerDiedError)
    assert before == [Token(ord(letter), letter) for letter in said]
    assert (error.signal_name, error.tokens_delivered) == ("SIGKILL", len(said))
    assert "token did not come within 30 s and it did not stop within 15 s" in str(error)


async def test_an_answer_that_is_complete_is_delivered_though_the_runtime_hangs_after_it(newest: Emulator) -> None:
    settings = newest.settings(
        "rule\nuser bad\nsay ab\nfault hang after 3 ignoring-abort\nfault ignore-eos\nrule\nuser (.+)\nsay $1",
        silence=SILENCE,
        decode_abort_timeout_s=15,
    )
    async with open_engine(settings) as engine:
        items = await items_of_silent(engine, newest, 3, 30.0, 15.0)
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.supervisor.restarts == 1
    assert [item.id for item in items if isinstance(item, Token)] == [*b"ab", IM_END]
    assert isinstance(items[-1], RunStats)


@pytest.mark.parametrize(("forgets", "restarts"), [("once", 0), ("always", 1)])
async def test_an_abort_that_the_runtime_forgets_is_repeated_or_ends_its_process(
    newest: Emulator, forgets: str, restarts: int
) -> None:
    rules = f"rule\nuser bad\nsay {'x' * 300}\nfault abort-forgotten {forgets}\nrule\nuser (.+)\nsay $1"
    paced = "speed prefill 100000 decode 100\ncontext 4096"
    settings = newest.settings(rules, paced, decode_abort_timeout_s=15, leave_timeout_s=0.0)
    async with open_engine(settings) as engine:
        async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
            await anext(run)
        if forgets == "always":
            await turn(15)
        assert await answer(engine, "good") == "good<|im_end|>"
        assert engine.supervisor.restarts == restarts


async def test_a_pause_shorter_than_the_limit_is_not_silence(newest: Emulator) -> None:
    settings = newest.settings(RULES.format("stall after 2 0.2"), silence=SILENCE)
    async with open_engine(settings) as engine:
        said: list[str] = []
        async for item in engine.generate(prompt_of("bad"), STOP):
            if isinstance(item, Token):
                said.append(item.text)
                await turn(29.0 if len(said) == 2 else 0.0)
        assert "".join(said) == "abcdefgh<|im_end|>"
        assert engine.supervisor.restarts == 0


def test_the_limit_of_a_prefill_grows_with_the_prompt_and_follows_measurements() -> None:
    limits = SilenceLimits(prefill_base_s=60.0, prefill_factor=5.0, prefill_tokens_per_s=20.0)
    pace = PrefillPace(limits)
    assert (pace.limit_s(0), pace.limit_s(4000)) == (60.0, 60.0 + 5 * 200)
    pace.record_prefill(63, 1.0)  # too short to say anything
    pace.record_prefill(100, 0.0)
    assert pace.limit_s(4000) == 1060.0
    pace.record_prefill(1000, 1000.0)
    assert pace.limit_s(4000) == 60.0 + 5 * 4
    pace.record_prefill(1000, 500.0)  # a faster run promises nothing
    assert pace.limit_s(4000) == 80.0
    pace.record_prefill(1000, 10_000.0)
    assert pace.limit_s(4000) == 60.0 + 5 * 40


def test_a_profile_is_believed_until_a_run_was_slower() -> None:
    limits = SilenceLimits(prefill_base_s=60.0, prefill_factor=5.0)
    pace = PrefillPace(limits, lambda tokens: tokens / 100)
    assert pace.limit_s(1000) == 110.0
    pace.record_prefill(1000, 100.0)
    assert pace.limit_s(1000) == 110.0
    pace.record_prefill(1000, 20_000.0)
    assert pace.limit_s(1000) == 160.0
    assert PrefillPace(limits, lambda _tokens: None).limit_s(1000) == 60.0 + 5 * 50


async def test_a_watchdog_waits_anew_after_each_sign_of_life_and_barks_once() -> None:
    silences: list[str] = []
    watchdog = Watchdog(silences.append)
    watchdog.feed()  # nothing is expected
    watchdog.start("a sign", 60.0)
    watchdog.start("a token", 10.0)
    for _ in range(3):
        await turn(9.0)
        watchdog.feed()
    await turn(9.0)
    assert silences == []
    await turn(1.0)
    assert silences == ["a token did not come within 10 s"]
    await turn(100.0)
    watchdog.stop()
    assert silences == ["a token did not come within 10 s"]
