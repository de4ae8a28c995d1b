"""An engine delivers every token once, in order, one generation at a time, and can be left at any moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, ModelLoadError, PromptTooLongError, RunRejectedError
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.run import TimedToken
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.sampling import Sampling
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

STOP = GenerationOptions(stop_ids=frozenset({IM_END}))
# Long enough that a test can act in the middle of it, short enough for 1.2.0, which cannot be given a limit per run.
LONG = "x" * 400
RULES = f"rule\nuser hello\nsay Hi 東京!\nrule\nuser long\nsay {LONG}\nrule\nuser (.+)\nsay $1"
PACED = "speed prefill 100000 decode 500\ncontext 4096"


async def answer(engine: Engine, text: str, options: GenerationOptions = STOP) -> tuple[list[Token], RunStats]:
    """A whole generation."""
    tokens: list[Token] = []
    stats: list[RunStats] = []
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt_of(text), options)) as run:
            async for item in run:
                if isinstance(item, RunStats):
                    stats.append(item)
                else:
                    assert not stats
                    tokens.append(item)
    assert len(stats) == 1
    return tokens, stats[0]


async def beginning(engine: Engine, text: str, count: int) -> list[Token]:
    """The first ``count`` tokens of a generation that is then left."""
    tokens: list[Token] = []
    async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
        async for item in run:
            assert isinstance(item, Token)
            tokens.append(item)
            if len(tokens) == count:
                break
    return tokens


def text_of(tokens: Sequence[Token]) -> str:
    return "".join(token.text for token in tokens)


async def test_every_token_comes_once_in_order_and_the_figures_come_last(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES)) as engine:
        tokens, stats = await answer(engine, "hello")

    assert [token.id for token in tokens] == [*"Hi 東京!".encode(), IM_END]
    assert text_of(tokens) == "Hi 東京!<|im_end|>"
    assert (stats.finish, stats.generated_tokens, stats.cold) == ("stop", len(tokens), True)
    assert stats.prefilled_tokens == (None if emulator.version == "1.2.0" else len(prompt_of("hello")))
    assert stats.time_to_first_token_ms >= stats.queued_ms >= 0.0


async def test_opening_returns_at_once_and_ready_describes_the_loaded_model(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, context_tokens=1024)) as engine:
        assert (engine.is_ready, engine.version, engine.worker_pid) == (False, "", None)
        await engine.ready()
        assert (engine.is_ready, engine.version) == (True, emulator.version)
        assert engine.supervisor.loaded is not None
        assert engine.supervisor.loaded.emulated
        assert (engine.context_tokens, engine.supervisor.restarts) == (1024, 0)
        assert engine.supervisor.worker is not None
        assert engine.worker_pid == engine.supervisor.worker.pid
        assert f"I rkllm: rkllm-runtime version: {emulator.version}" in engine.supervisor.worker.log.lines()[0]


async def test_a_cleared_cache_is_cold_for_the_next_generation_only(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES)) as engine:
        await answer(engine, "hello")
        size = await engine.kv_cache_size()
        await engine.clear_cache()
        assert await engine.kv_cache_size() == (None if emulator.version == "1.2.0" else 0)
        cold = [(await answer(engine, "hello"))[1].cold for _ in range(2)]
    assert size == (None if emulator.version == "1.2.0" else len(prompt_of("hello")) + len("Hi 東京!".encode()))
    assert cold == [True, False]


@pytest.mark.parametrize("limit", [1, 5, 12])
async def test_an_answer_is_never_longer_than_its_limit(emulator: Emulator, limit: int) -> None:
    async with open_engine(emulator.settings(RULES)) as engine:
        tokens, stats = await answer(engine, "long", GenerationOptions(max_new_tokens=limit))
        after, _ = await answer(engine, "hello")
    assert text_of(tokens) == "x" * limit
    assert (stats.finish, stats.generated_tokens) == ("length", limit)
    assert text_of(after) == "Hi 東京!<|im_end|>"


async def test_the_limit_the_model_was_loaded_with_holds_where_a_run_cannot_have_its_own(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, max_new_tokens=6)) as engine:
        tokens, stats = await answer(engine, "long", GenerationOptions(max_new_tokens=9))
    assert len(tokens) == (9 if emulator.version == "1.3.0" else 6)
    assert stats.finish == "length"


async def test_a_runtime_that_does_not_know_its_stop_token_is_stopped(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, "speed flat\ncontext 4096\nfault ignore-eos")) as engine:
        for _ in range(3):
            tokens, stats = await answer(engine, "hello")
            assert text_of(tokens) == "Hi 東京!<|im_end|>"
            assert stats.finish == "stop"


@pytest.mark.parametrize("cpu", [-1, 32, "4"])
def test_cpus_that_there_cannot_be_are_refused(cpu: Any) -> None:
    with pytest.raises(InputRefusedError, match=f"there is no CPU {cpu!r}; name CPUs by their numbers, 0 to 31"):
        EngineSettings("m.rkllm", cpus=(cpu,))


async def test_sampling_goes_to_the_runtime_where_a_run_can_have_its_own(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    async with open_engine(emulator.settings(RULES, cpus=(4, 5, 6, 7), sampling=Sampling(top_k=9))) as engine:
        await answer(engine, "hello", GenerationOptions(max_new_tokens=50, sampling=Sampling(top_k=3)))
        await answer(engine, "hello", GenerationOptions(max_new_tokens=60))
    calls = emulator.calls()
    (init,) = (call["args"]["param"] for call in calls if call["call"] == "rkllm_init")
    first, second = (call["args"] for call in calls if call["call"] == "rkllm_run")
    assert (init["top_k"], init["extend_param"]["enabled_cpus_mask"]) == (9, 0xF0)
    assert first["input"]["input_ids"] == prompt_of("hello")
    if emulator.version == "1.3.0":
        assert (first["infer"]["sampling_params"]["top_k"], first["infer"]["max_new_tokens"]) == (3, 50)
        assert (second["infer"]["sampling_params"], second["infer"]["max_new_tokens"]) == (None, 60)
    assert [call["call"] for call in calls][-1] == "rkllm_destroy"


async def test_generations_asked_for_together_are_made_in_turn_in_order(emulator: Emulator) -> None:
    order: list[str] = []

    async def ask(engine: Engine, text: str) -> None:
        async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
            async for item in run:
                order.append(text)
                if isinstance(item, RunStats):
                    assert item.queued_ms >= 0.0

    async with open_engine(emulator.settings(RULES)) as engine:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(ask, engine, f"q{number}")
    assert order == [f"q{number}" for number in range(8) for _ in range(len("q0") + 2)]


async def test_a_generation_that_is_left_while_it_waits_never_runs(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    async with open_engine(emulator.settings(RULES, PACED)) as engine:
        async with aclosing(engine.generate(prompt_of("hello"), STOP)) as running:
            await anext(running)
            with anyio.move_on_after(0):
                async with aclosing(engine.generate(prompt_of("left"), STOP)) as waiting:
                    await anext(waiting)
            rest = [item async for item in running]
        assert isinstance(rest[-1], RunStats)
        after, _ = await answer(engine, "next")
    assert text_of(after) == "next<|im_end|>"
    asked = [call["args"]["input"]["input_ids"] for call in emulator.calls() if call["call"] == "rkllm_run"]
    assert asked == [prompt_of("hello"), prompt_of("next")]


@pytest.mark.parametrize("kind", ["scope", "task"])
async def test_a_cancelled_consumer_stops_the_runtime_and_the_next_generation_is_whole(
    emulator: Emulator, kind: str
) -> None:
    begun = asyncio.Event()

    async def consume(engine: Engine) -> None:
        async with aclosing(engine.generate(prompt_of("long"), STOP)) as run:
            async for _ in run:
                begun.set()

    async with open_engine(emulator.settings(RULES, PACED)) as engine:
        with anyio.fail_after(60):
            if kind == "scope":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(consume, engine)
                    await begun.wait()
                    tasks.cancel_scope.cancel()
            else:
                task = asyncio.create_task(consume(engine))
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        tokens, _ = await answer(engine, "hello")
    assert text_of(tokens) == "Hi 東京!<|im_end|>"


async def test_an_abort_during_prefill_takes_effect_when_the_prefill_is_over(newest: Emulator) -> None:
    # 100 tokens at 500 a second: the consumer leaves long before the first token.
    settings = newest.settings(RULES, "speed prefill 500 decode 500\ncontext 4096", leave_timeout_s=10)
    async with open_engine(settings) as engine:
        await engine.ready()
        with anyio.fail_after(60):
            with anyio.move_on_after(0.01):
                async with aclosing(engine.generate(prompt_of("x" * 80), STOP)) as run:
                    await anext(run)
        tokens, stats = await answer(engine, "hello")
    assert text_of(tokens) == "Hi 東京!<|im_end|>"
    assert not stats.cold


async def test_leaving_during_a_long_prefill_does_not_wait_for_its_end(newest: Emulator) -> None:
    settings = newest.settings(RULES, "speed prefill 200 decode 500\ncontext 4096", leave_timeout_s=0)
    async with open_engine(settings) as engine:
        await engine.ready()
        with anyio.move_on_after(0.01):
            async with aclosing(engine.generate(prompt_of("x" * 80), STOP)) as run:
                await anext(run)
        tokens, stats = await answer(engine, "hello")
    assert text_of(tokens) == "Hi 東京!<|im_end|>"
    # The prefill that nobody wants any more had to end first.
    assert stats.queued_ms > 0.0


async def test_nothing_leaks_into_the_next_generation_wherever_the_last_one_was_left(emulator: Emulator) -> None:
    chance = random.Random(42)
    settings = emulator.settings(RULES, "speed prefill 1000000 decode 20000\ncontext 4096")
    async with open_engine(settings) as engine:
        with anyio.fail_after(110):
            for number in range(100):
                left = await beginning(engine, "long", chance.randrange(1, 100))
                assert set(text_of(left)) == {"x"}
                tokens, _ = await answer(engine, f"turn {number}")
                assert text_of(tokens) == f"turn {number}<|im_end|>"
        assert engine.supervisor.restarts == 0


async def test_a_generation_never_iterated_costs_nothing(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES)) as engine:
        await engine.generate(prompt_of("hello"), STOP).aclose()
        tokens, _ = await answer(engine, "hello")
    assert text_of(tokens) == "Hi 東京!<|im_end|>"


async def test_prompts_that_cannot_run_are_refused_before_the_npu_sees_them(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, context_tokens=64)) as engine:
        with pytest.raises(PromptTooLongError) as refusal:
            await answer(engine, "x" * 64)
        assert refusal.value.limit_tokens == 63
        with pytest.raises(InputRefusedError, match="no tokens"):
            await anext(engine.generate([], STOP))


async def test_timed_tokens_are_yielded_on_request(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, timed_tokens=True)) as engine:
        tokens, _ = await answer(engine, "hello")
    times = [token.entered_ns for token in tokens if isinstance(token, TimedToken)]
    assert len(times) == len(tokens)
    assert times == sorted(times)
    assert times[0] > 0


@pytest.mark.parametrize("is_timed", [False, True])
async def test_the_time_in_callbacks_is_counted_on_request_only(newest: Emulator, is_timed: bool) -> None:
    async with open_engine(newest.settings(RULES, timed_callbacks=is_timed)) as engine:
        _, stats = await answer(engine, "hello")
    assert (stats.callback_ms > 0) == is_timed


async def test_closing_the_engine_fails_what_still_generates_and_what_comes_after(newest: Emulator) -> None:
    failed: list[str] = []

    async def consume(engine: Engine, text: str) -> None:
        try:
            await answer(engine, text)
        except RunRejectedError as error:
            failed.append(f"{text}: {error.reason}")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            async with (
                open_engine(newest.settings(RULES, PACED)) as engine,
                aclosing(engine.generate(prompt_of("long"), STOP)) as run,
            ):
                await anext(run)
                tasks.start_soon(consume, engine, "waiting")
                await anext(run)
            await consume(engine, "late")
    assert sorted(failed) == ["late: the engine was closed", "waiting: the engine was closed"]


async def test_a_model_that_cannot_be_loaded_is_an_error_of_ready_and_of_every_generation(emulator: Emulator) -> None:
    async with open_engine(emulator.settings("fault init-fails")) as engine:
        for _ in range(2):
            with anyio.fail_after(60), pytest.raises(ModelLoadError, match=r"did not load .*model\.rkllm"):
                await engine.ready()
            with anyio.fail_after(60), pytest.raises(ModelLoadError):
                await answer(engine, "hello")
        assert (engine.supervisor.restarts, engine.is_ready, engine.worker_pid) == (0, False, None)


async def test_the_runtimes_own_words_are_in_the_error_of_a_load(newest: Emulator) -> None:
    settings = newest.settings(RULES)
    newest.model("").unlink()
    async with open_engine(settings) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError, match=r'It said "E rkllm: failed to open .*\.rkllm'):
            await engine.ready()


async def test_the_reported_reuse_depends_on_no_other_owner(newest: Emulator) -> None:
    head = prompt_of("the front of every prompt")[:12]
    asked = [*head, *prompt_of("a secret of forty tokens or so, which another guesses word for word")]

    async def reported(owner: str | None, prompt: Sequence[int], leave_after: int = 0) -> int:
        """The most that is reported as reused; ``len`` of the prompt without a limit."""
        options = GenerationOptions(max_new_tokens=4, owner=owner)
        own: int | None = 0
        async with aclosing(engine.generate(prompt, options)) as run:
            async for item in run:
                if isinstance(item, RunStats):
                    own = item.own_tokens
                elif leave_after:
                    break
        return len(prompt) if own is None else own

    with anyio.fail_after(60):
        async with open_engine(newest.settings(RULES)) as engine:
            whole = len(asked)
            # With one owner there is no limit, whatever came of the run before.
            assert await reported("", asked) == whole
            await reported("", asked, leave_after=1)
            assert await reported("", asked) == whole
            # Another's prompt is not reported, and one's own only until another's.
            assert await reported("ann", asked) == 0
            assert await reported("ann", asked) == whole
            assert await reported("bob", asked) == 0
            assert await reported("ann", asked) == 0
            # What the service evaluated is no secret.
            await reported(None, head)
            assert await reported("ann", asked) == whole
            assert await reported("bob", asked) == len(head)
            assert engine.count_uncached(asked, "bob") == 1
            assert engine.count_uncached(asked, "ann") == whole - len(head)
            await engine.clear_cache()
            assert await reported("ann", asked) == whole
