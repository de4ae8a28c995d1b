"""One generation: what is delivered, when the runtime must be told to stop, what its figures say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import FeedTokens, GenerationOptions, Token, TokenInput
from rkllm_mcp.runtime.abi.common import Perf
from rkllm_mcp.runtime.frames import RunCommand, RunEnded, RunReport
from rkllm_mcp.runtime.run import Run, RunState, StopReason

pytestmark = pytest.mark.anyio


def new_run(options: GenerationOptions | None = None, *, timed: bool = False) -> Run:
    return Run(RunCommand(1, TokenInput([7, 8]), options or GenerationOptions()), timed=timed)


def started(
    limit: int = 100,
    stop: tuple[int, ...] = (),
    *,
    runtime_limit: int | None = None,
    timed: bool = False,
    **options: Any,
) -> Run:
    run = new_run(GenerationOptions(max_new_tokens=limit, stop_ids=frozenset(stop), **options), timed=timed)
    run.start(runtime_limit=runtime_limit, is_cold=True)
    return run


async def delivered(run: Run) -> list[Token]:
    tokens: list[Token] = []
    with anyio.fail_after(60):
        while batch := await run.next_batch():
            tokens.extend(batch)
    return tokens


def ended(perf: Perf | None = None, failure: str = "", first_ns: int = 0) -> RunEnded:
    return RunEnded(1, failure, RunReport(first_ns, perf))


async def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    run = started()
    run.add(1, 1, b"\xff\xa5a")
    run.end(ended())
    assert await delivered(run) == [Token(1, "��a")]


async def test_a_stop_token_is_the_last_one_and_the_runtime_is_aborted_only_if_it_goes_on() -> None:
    run = started(stop=(9,))
    run.add(1, 1, b"a")
    run.add(9, 2, b"<end>")
    assert not run.needs_abort
    run.add(1, 3, b"a")
    assert run.needs_abort
    run.end(ended())
    assert await delivered(run) == [Token(1, "a"), Token(9, "<end>")]
    assert (run.stats().finish, run.stats().generated_tokens) == ("stop", 2)


@pytest.mark.parametrize(("runtime_limit", "told"), [(None, False), (2, False), (3, True)])
async def test_at_the_limit_the_runtime_is_aborted_unless_it_ends_there_by_itself(
    runtime_limit: int | None, told: bool
) -> None:
    run = started(limit=2, runtime_limit=runtime_limit)
    run.add(1, 1, b"a")
    assert not run.needs_abort
    run.add(2, 2, b"b")
    assert run.needs_abort == told
    run.add(3, 3, b"c")
    assert run.needs_abort
    run.end(ended())
    assert [token.id for token in await delivered(run)] == [1, 2]
    assert run.stats().finish == "length"


async def test_an_answer_that_ends_before_its_limit_is_a_stop() -> None:
    run = started(limit=2)
    run.add(1, 1, b"a")
    run.end(ended())
    assert run.stats().finish == "stop"


async def test_the_runtimes_figures_are_used_where_it_has_them() -> None:
    run = started()
    run.add(1, 1, b"a")
    run.end(ended(Perf(12.0, 34, 56.0, 7, 890.0)))
    stats = run.stats()
    assert (stats.prefilled_tokens, stats.prefill_ms, stats.decode_ms, stats.memory_mb) == (34, 12.0, 56.0, 890.0)
    assert (stats.cold, stats.generated_tokens) == (True, 1)


async def test_figures_are_measured_where_the_runtime_has_none() -> None:
    run = new_run()
    run.start(runtime_limit=None, is_cold=False)
    # as if both callbacks had come long after the start
    far = 10**19
    run.add(1, far, b"a")
    run.add(2, far + 5_000_000, b"b")
    run.end(ended(first_ns=far))
    stats = run.stats()
    assert (stats.prefilled_tokens, stats.memory_mb, stats.decode_ms, stats.cold) == (None, None, 5.0, False)
    assert stats.time_to_first_token_ms >= stats.prefill_ms > 0.0


async def test_tokens_before_a_failure_are_delivered_and_then_it_is_raised() -> None:
    run = started()
    run.add(1, 1, b"a")
    run.end(ended(failure="rkllm_run returned -1"), "E rkllm: no")
    assert await run.next_batch() == [Token(1, "a")]
    with pytest.raises(RunRejectedError, match=r"rkllm_run returned -1 \(E rkllm: no\)"):
        await run.next_batch()


def arrive(run: Run, token_id: int = 1) -> None:
    run.add(token_id, 1, b"a")
    run.hand_over()


async def arrived(run: Run) -> None:
    """Have a token arrive in a callback of the event loop, as those of a worker do."""
    asyncio.get_running_loop().call_soon(arrive, run)
    await asyncio.sleep(0)


async def waiting(run: Run, feed: FeedTokens) -> asyncio.Task[None]:
    """A task that waits for the first token."""
    task = asyncio.create_task(run.deliver(feed))
    await asyncio.sleep(0)
    return task


async def test_a_token_is_taken_in_the_callback_that_brings_it() -> None:
    run, taken = started(), list[Token]()

    task = await waiting(run, taken.extend)
    seen = list[int]()
    loop = asyncio.get_running_loop()
    loop.call_soon(arrive, run)
    loop.call_soon(lambda: seen.append(len(taken)))
    await asyncio.sleep(0)
    assert seen == [1]
    run.end(ended())
    await task


async def test_what_a_consumer_raises_in_the_callback_is_raised_in_its_task() -> None:
    run = started()

    def refuse(batch: Sequence[Token]) -> None:
        raise ValueError(f"not {batch[0].text}")

    task = await waiting(run, refuse)
    await arrived(run)
    with pytest.raises(ValueError, match="not a"):
        await task


async def test_a_consumer_that_cancels_its_own_task_in_the_callback_ends() -> None:
    run, taken = started(), list[Token]()

    def leave(batch: Sequence[Token]) -> None:
        task.cancel()
        taken.extend(batch)

    task = await waiting(run, leave)
    await arrived(run)
    run.hand_over()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(taken) == 1


async def test_a_failure_after_the_answer_was_complete_does_not_matter() -> None:
    run = started(limit=1, runtime_limit=5)
    run.add(1, 1, b"a")
    run.end(ended(failure="aborted"))
    assert await delivered(run) == [Token(1, "a")]


async def test_a_left_run_delivers_nothing_and_must_stop() -> None:
    run = started()
    run.add(1, 1, b"a")
    run.leave()
    run.add(2, 2, b"b")
    assert run.needs_abort
    run.end(ended())
    assert await delivered(run) == []


async def test_an_error_says_how_many_tokens_had_come() -> None:
    for fails in (True, False):
        run = started()
        run.add(1, 1, b"a")
        if fails:
            run.fail(WorkerDiedError(-9, "answering"))
        else:
            run.end(ended(failure="no"))
        await run.next_batch()
        with pytest.raises((WorkerDiedError, RunRejectedError)) as raised:
            await run.next_batch()
        assert isinstance(raised.value, (WorkerDiedError, RunRejectedError))
        assert raised.value.tokens_delivered == 1


async def test_a_run_that_writes_a_prompt_cache_is_not_aborted_at_its_own_limit() -> None:
    run = started(1, runtime_limit=5, save_prompt_cache="/tmp/x")
    run.add(1, 1, b"a")
    run.add(2, 2, b"b")
    assert not run.needs_abort
    run.leave()
    run.add(3, 3, b"c")
    assert run.needs_abort


@pytest.mark.parametrize("order", ["enough, then the end", "the end, then enough"])
@pytest.mark.parametrize("failure", ["", "the NPU is gone"])
async def test_enough_is_enough_also_when_the_run_has_returned_meanwhile(order: str, failure: str) -> None:
    run = started(limit=2)
    run.add(1, 1, b"a")
    assert await run.next_batch() == [Token(1, "a")]
    steps = [run.finish_early, lambda: run.add(2, 1, b"b"), lambda: run.end(ended(failure=failure))]
    for step in steps if order.startswith("enough") else steps[1:] + steps[:1]:
        step()
    assert await delivered(run) == []
    assert run.stats().finish == "stop"


STOPS: list[tuple[StopReason, Callable[[Run], object], bool, RunState]] = [
    (StopReason.STOP_TOKEN, lambda run: run.add(9, 2, b"b"), False, RunState.DONE),
    (StopReason.LENGTH, lambda run: [run.add(number, 2, b"b") for number in (2, 3)], False, RunState.DONE),
    (StopReason.OVERRUN, lambda run: [run.add(number, 2, b"b") for number in (9, 3)], True, RunState.DONE),
    (StopReason.FINISHED_EARLY, Run.finish_early, True, RunState.DONE),
    (StopReason.CONSUMER_LEFT, Run.leave, True, RunState.DONE),
    (
        StopReason.SILENT,
        lambda run: run.stop_because(StopReason.SILENT, "the next token did not come"),
        True,
        RunState.FAILED,
    ),
    (
        StopReason.INVALID_OUTPUT,
        lambda run: run.stop_because(StopReason.INVALID_OUTPUT, "its tokens mean nothing"),
        True,
        RunState.FAILED,
    ),
]


@pytest.mark.parametrize(("reason", "stop", "needs_abort", "last"), STOPS, ids=[row[0].name for row in STOPS])
async def test_a_run_goes_through_its_states_and_keeps_the_reason_of_its_stop(
    reason: StopReason, stop: Callable[[Run], object], needs_abort: bool, last: RunState
) -> None:
    run = new_run(GenerationOptions(3, frozenset({9})))
    assert (run.state, run.stop_reason) == (RunState.QUEUED, None)
    run.start(runtime_limit=None, is_cold=True)
    assert (run.state, list(run.ids)) == (RunState.PREFILL, [])
    run.add(1, 1, b"a")
    assert (run.state, run.needs_abort) == (RunState.DECODE, False)
    stop(run)
    assert (run.state, run.stop_reason, run.needs_abort) == (RunState.STOPPING, reason, needs_abort)
    run.end(ended())
    assert (run.state, run.stop_reason, run.needs_abort) == (last, reason, False)


@pytest.mark.parametrize("is_complete", [False, True])
async def test_a_run_that_will_never_return_fails_unless_its_answer_is_complete(is_complete: bool) -> None:
    run = started(limit=1 if is_complete else 2)
    run.add(1, 1, b"a")
    run.fail(WorkerDiedError(-9, "answering"))
    assert run.state is (RunState.DONE if is_complete else RunState.FAILED)


async def test_a_character_split_over_tokens_comes_with_the_token_that_completes_it_and_changes_no_other() -> None:
    run = started()
    texts = (b"\xe6", b"\x9d", b"\xb1\xe4\xba\xac", "都".encode(), b"a", b"\xe4", b"\xba", b"\xac")
    for number, text in enumerate(texts, start=1):
        run.add(number, 1, text)
    run.end(ended())
    assert [token.text for token in await delivered(run)] == ["", "", "東京", "都", "a", "", "", "京"]
