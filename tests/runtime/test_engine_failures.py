"""An engine survives everything that a runtime has been seen to do, says what happened, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import (
    ModelLoadError,
    RkllmMcpError,
    RunRejectedError,
    RuntimeUnusableError,
    UnknownRuntimeError,
    WorkerDiedError,
)
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.runtime.supervisor import load_warnings
from tests.support.clock import standing_clock, turn
from tests.support.demo_app import command_line
from tests.support.emulator import IM_END, Emulator, libraries, prompt_of

pytestmark = pytest.mark.anyio

STOP = GenerationOptions(stop_ids=frozenset({IM_END}))
BAD = "rule\nuser bad\nsay abcdefgh\nfault {}\nrule\nuser (.+)\nsay $1"
PACED = "speed prefill 100000 decode 200\ncontext 4096"


async def answer(engine: Engine, text: str) -> tuple[str, RunStats]:
    pieces: list[str] = []
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
            async for item in run:
                if isinstance(item, RunStats):
                    return "".join(pieces), item
                pieces.append(item.text)
    raise AssertionError("a generation ended without its figures")


async def failing(engine: Engine, text: str, error: type[Exception]) -> tuple[str, Exception]:
    """The text before the failure, and the failure."""
    pieces: list[str] = []
    with anyio.fail_after(60), pytest.raises(error) as raised:
        async with aclosing(engine.generate(prompt_of(text), STOP)) as run:
            async for item in run:
                assert isinstance(item, Token)
                pieces.append(item.text)
    return "".join(pieces), raised.value


def children() -> set[int]:
    """The children of this process, without the database that tests share."""
    tasks = Path("/proc/self/task").iterdir()
    pids = {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
    return {pid for pid in pids if "postgres" not in command_line(pid)}


def descriptors() -> dict[str, str]:
    """Open descriptors and what they are; the one that lists them is closed by then."""
    links = [(path.name, path) for path in Path("/proc/self/fd").iterdir()]
    return {name: str(path.readlink()) for name, path in links if path.is_symlink()}


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGILL", "SIGBUS", "SIGABRT", "SIGFPE", "SIGKILL"])
async def test_a_crash_is_an_error_that_names_the_signal_and_the_next_generation_works(
    emulator: Emulator, name: str
) -> None:
    async with open_engine(emulator.settings(BAD.format(f"crash {name} after 3"))) as engine:
        await engine.ready()
        before = engine.worker_pid
        said, error = await failing(engine, "bad", WorkerDiedError)
        text, stats = await answer(engine, "good")
        assert engine.worker_pid not in (None, before)
        assert engine.supervisor.restarts == 1
    assert isinstance(error, WorkerDiedError)
    assert (said, error.signal_name, error.doing) == ("abc", name, "answering")
    assert f"was killed by {name} while answering" in str(error)
    assert "I rkllm: Enabled cpus num: 4" in error.last_lines
    assert (text, stats.cold) == ("good<|im_end|>", True)


@pytest.mark.parametrize("speed", ["speed flat", PACED])
async def test_an_answer_of_failed_arithmetic_is_an_error_and_not_a_row_of_exclamation_marks(
    emulator: Emulator, speed: str
) -> None:
    async with open_engine(emulator.settings(BAD.format("matmul-fails"), f"{speed}\ncontext 4096")) as engine:
        said, error = await failing(engine, "bad", RunRejectedError)
        assert "its tokens mean nothing (E rkllm: matmul(w8a8) run failed" in str(error)
        assert "abc" not in said
        assert (await answer(engine, "good"))[0] == "good<|im_end|>"


async def test_a_worker_killed_while_nothing_runs_is_replaced_without_an_error(newest: Emulator) -> None:
    async with open_engine(newest.settings(BAD.format("null-text at 1"))) as engine:
        await answer(engine, "one")
        assert engine.worker_pid is not None
        ending = os.pidfd_open(engine.worker_pid)
        os.kill(engine.worker_pid, signal.SIGKILL)
        with anyio.fail_after(60):
            await anyio.wait_readable(ending)
            os.close(ending)
            # The death may be noticed only now: then this generation is the one that hears of it.
            try:
                text, stats = await answer(engine, "two")
            except WorkerDiedError:
                text, stats = await answer(engine, "two")
        assert (text, stats.cold, engine.supervisor.restarts) == ("two<|im_end|>", True, 1)


async def test_generations_that_wait_when_the_worker_dies_are_made_by_the_next_worker(newest: Emulator) -> None:
    answers: list[str] = []

    async def ask(engine: Engine, text: str) -> None:
        answers.append((await answer(engine, text))[0])

    settings = newest.settings(BAD.format("crash SIGSEGV after 2"))
    async with open_engine(settings) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(failing, engine, "bad", WorkerDiedError)
        tasks.start_soon(ask, engine, "one")
        tasks.start_soon(ask, engine, "two")
    assert answers == ["one<|im_end|>", "two<|im_end|>"]


async def test_an_error_of_the_runtime_ends_one_answer_only(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(BAD.format("error after 2"))) as engine:
        said, error = await failing(engine, "bad", RunRejectedError)
        text, _ = await answer(engine, "good")
        assert engine.supervisor.restarts == 0
    assert (said, text) == ("ab", "good<|im_end|>")
    assert "the runtime failed this answer: rkllm_run returned -1" in str(error)


async def test_a_runtime_that_hangs_and_ignores_the_abort_is_killed_and_replaced(emulator: Emulator) -> None:
    settings = emulator.settings(
        BAD.format("hang after 2 ignoring-abort"), decode_abort_timeout_s=0.1, leave_timeout_s=10.0
    )
    async with open_engine(settings) as engine:
        with anyio.fail_after(60):
            async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
                await anext(run)
                await anext(run)
        text, stats = await answer(engine, "good")
        assert (text, stats.cold, engine.supervisor.restarts) == ("good<|im_end|>", True, 1)


@pytest.mark.parametrize("after", ["finish", "error", "nothing"])
async def test_after_an_abort_the_next_generation_works_with_any_report_of_the_runtime(
    emulator: Emulator, after: str
) -> None:
    settings = emulator.settings(BAD.format("null-text at 1"), f"{PACED}\nfault after-abort {after}")
    async with open_engine(settings) as engine:
        for _ in range(5):
            with anyio.fail_after(60):
                async with aclosing(engine.generate(prompt_of("x" * 200), STOP)) as run:
                    await anext(run)
            assert (await answer(engine, "good"))[0] == "good<|im_end|>"
        assert engine.supervisor.restarts == 0


async def test_noise_of_other_layers_on_both_outputs_is_logged_and_harms_nothing(newest: Emulator) -> None:
    async with open_engine(newest.settings(BAD.format("null-text at 1"), "speed flat\nfault log-noise")) as engine:
        assert (await answer(engine, "good"))[0] == "good<|im_end|>"
        assert engine.supervisor.worker is not None
        assert len(engine.supervisor.worker.log.lines()) > 5


async def test_a_crash_while_loading_is_tried_again_and_then_given_up_with_the_signal(newest: Emulator) -> None:
    settings = newest.settings("rule", "speed flat\nfault crash SIGILL at init", reload_pauses_s=(0.0, 0.01))
    async with open_engine(settings) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError, match="was killed by SIGILL while loading the model"):
            await engine.ready()
        assert engine.supervisor.restarts == 2
        await failing(engine, "good", ModelLoadError)


async def test_a_worker_that_dies_again_and_again_before_it_is_asked_anything_is_given_up(newest: Emulator) -> None:
    async with open_engine(newest.settings("rule", reload_pauses_s=(0.0, 0.0))) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError, match="SIGKILL again and again before it was asked"):
            for _ in range(3):
                await engine.ready()
                assert engine.worker_pid is not None
                os.kill(engine.worker_pid, signal.SIGKILL)
                with pytest.raises(WorkerDiedError):
                    await engine.kv_cache_size()
            await engine.ready()
        assert engine.supervisor.restarts == 2
        await engine.supervisor.given_up.wait()
        assert "SIGKILL again and again before it was asked" in str(engine.supervisor.failure)


@standing_clock
async def test_a_worker_that_was_healthy_for_a_minute_before_it_died_is_started_again_each_time(
    newest: Emulator,
) -> None:
    async with open_engine(newest.settings("rule", reload_pauses_s=(0.0, 0.0))) as engine:
        for healthy_s in (61.0, 0.0, 0.0, 61.0, 59.0, 0.0):
            await kill_worker(engine, after_s=healthy_s)
        await engine.ready()
        assert (engine.supervisor.restarts, engine.supervisor.failure) == (6, None)
        await kill_worker(engine, after_s=59.0)
        await engine.supervisor.given_up.wait()
        assert isinstance(engine.supervisor.failure, ModelLoadError)


async def kill_worker(engine: Engine, *, after_s: float) -> None:
    """Kill the worker when it had its model loaded for that long, and return when its death was noticed."""
    await engine.ready()
    await turn(after_s)
    assert engine.worker_pid is not None
    os.kill(engine.worker_pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        await engine.kv_cache_size()


@standing_clock
async def test_a_model_that_takes_minutes_to_load_again_is_waited_for(newest: Emulator) -> None:
    hanging = BAD.format("hang after 1 ignoring-abort")
    settings = newest.settings(hanging, start_timeout_s=300.0, reload_pauses_s=(0.0,), decode_abort_timeout_s=1.0)
    async with open_engine(settings) as engine:
        await engine.ready()
        newest.model("rule", "speed flat\nfault init-slow 60")
        async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
            await anext(run)
            await turn(600.0)
            await turn(1.0)
            with pytest.raises(WorkerDiedError):
                await anext(run)
        while (loading := engine.worker_pid) is None:
            await turn(0.0)
        await turn(200.0)
        assert (engine.supervisor.restarts, engine.is_ready, engine.supervisor.failure) == (1, False, None)
        newest.model("rule")
        os.kill(loading, signal.SIGKILL)


async def test_closing_an_engine_is_not_giving_it_up(newest: Emulator) -> None:
    async with anyio.create_task_group() as tasks:
        async with open_engine(newest.settings("rule")) as engine:
            tasks.start_soon(engine.supervisor.given_up.wait)
            await engine.ready()
        await anyio.wait_all_tasks_blocked()
        assert str(engine.supervisor.failure).startswith("the runtime failed this answer: the engine was closed")
        tasks.cancel_scope.cancel()


async def test_a_model_that_does_not_load_again_is_given_up_with_the_reason(newest: Emulator) -> None:
    settings = newest.settings(BAD.format("crash SIGSEGV after 1"), reload_pauses_s=(0.0,))
    async with open_engine(settings) as engine:
        await engine.ready()
        newest.model("fault init-fails")
        await failing(engine, "bad", WorkerDiedError)
        _, error = await failing(engine, "good", ModelLoadError)
        assert "did not load" in str(error)
        with pytest.raises(ModelLoadError):
            await engine.ready()


async def test_loading_that_takes_too_long_is_given_up_and_the_worker_killed(newest: Emulator) -> None:
    settings = newest.settings("rule", "speed flat\nfault init-slow 60", start_timeout_s=0.2, stop_timeout_s=0.1)
    async with open_engine(settings) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError, match=r"did not finish loading within 0\.2 s"):
            await engine.ready()
    assert children() == set()


async def test_closing_while_the_model_loads_does_not_wait_for_it(newest: Emulator) -> None:
    settings = newest.settings("rule", "speed flat\nfault init-slow 60", stop_timeout_s=0.1)
    with anyio.fail_after(60):
        async with open_engine(settings):
            await anyio.lowlevel.checkpoint()
    assert children() == set()


async def test_a_hung_runtime_does_not_keep_the_engine_open(newest: Emulator) -> None:
    settings = newest.settings(BAD.format("hang after 1 ignoring-abort"), stop_timeout_s=0.1, leave_timeout_s=0.0)
    with anyio.fail_after(60):
        async with open_engine(settings) as engine, aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
            await anext(run)
    assert children() == set()


async def test_a_cancelled_owner_leaves_no_process(newest: Emulator) -> None:
    opened = asyncio.Event()

    async def own() -> None:
        async with open_engine(newest.settings(BAD.format("null-text at 1"))) as engine:
            await engine.ready()
            opened.set()
            await asyncio.Event().wait()

    with anyio.fail_after(60):
        task = asyncio.create_task(own())
        await opened.wait()
        assert len(children()) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert children() == set()


async def test_no_descriptor_and_no_process_is_left(newest: Emulator) -> None:
    async def life(fault: str) -> None:
        async with open_engine(newest.settings(BAD.format(fault), PACED)) as engine:
            async with aclosing(engine.generate(prompt_of("bad"), STOP)) as run:
                try:
                    await anext(run)
                    await anext(run)
                except WorkerDiedError:
                    pass
            assert (await answer(engine, "good"))[0] == "good<|im_end|>"

    with anyio.fail_after(60):
        await life("null-text at 1")  # what is opened once, by asyncio and by imports, is open now
        before = descriptors()
        for fault in ("null-text at 1", "hang after 2", "crash SIGKILL after 1"):
            await life(fault)
    assert descriptors() == before
    assert children() == set()


async def test_the_class_of_a_refusal_survives_the_way_from_the_worker(newest: Emulator) -> None:
    async with open_engine(newest.settings("rule", abi="7.7.7")) as engine:
        with anyio.fail_after(60), pytest.raises(UnknownRuntimeError, match=r"no runtime interface '7\.7\.7'"):
            await engine.ready()


async def test_the_emulator_can_be_asked_for_by_name(newest: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_ABI", "1.2.3")
    settings = EngineSettings(model_path=newest.model("rule\nuser (.+)\nsay $1"), library="emulator")
    async with open_engine(settings) as engine:
        assert (await answer(engine, "good"))[0] == "good<|im_end|>"
        assert engine.version == "1.2.3"
        assert engine.supervisor.loaded is not None
        assert engine.supervisor.loaded.emulated


async def test_an_emulator_that_does_not_exist_is_an_error_of_ready(
    newest: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_ABI", "0.0.1")
    async with open_engine(EngineSettings(model_path=newest.model("rule"), library="emulator")) as engine:
        with anyio.fail_after(60), pytest.raises(RuntimeUnusableError, match=r"no emulated runtime '0\.0\.1'"):
            await engine.ready()


@pytest.mark.parametrize(
    ("version", "abi", "how"),
    [
        ("1.2.3", "1.3.0", "was killed by SIGSEGV while loading the model"),
        ("1.3.0", "1.2.3", "rkllm_init returned -1"),
        ("1.2.3", "1.2.0", "rkllm_run returned -1"),
        ("1.3.0", "1.3.0", ""),
        ("1.3.0", "auto", ""),
    ],
)
async def test_an_interface_chosen_against_the_librarys_own_word_is_blamed_for_what_fails(
    version: str, abi: str, how: str, tmp_path: Path
) -> None:
    emulated = Emulator(version, libraries()[version], tmp_path)
    settings = emulated.settings(BAD.format("error after 1"), abi=abi, reload_pauses_s=())
    async with open_engine(settings) as engine:
        _, error = await failing(engine, "bad", RkllmMcpError)
    assert how in str(error)
    blame = f"abi = '{abi}' overrides what the library says of itself ({version})"
    assert (blame in str(error), "remove abi" in str(error)) == (bool(how), bool(how))


async def test_a_crash_in_a_run_with_a_release_that_is_not_verified_names_the_choice(newest: Emulator) -> None:
    unverified = newest.folder / "librkllmrt.so"
    unverified.write_bytes(newest.library.read_bytes().replace(b"(version: 1.3.1 |", b"(version: 1.3.2 |"))
    settings = replace(newest.settings(BAD.format("crash SIGSEGV after 1")), library=unverified, abi="1.3.1")
    async with open_engine(settings) as engine:
        _, error = await failing(engine, "bad", WorkerDiedError)
    assert "was killed by SIGSEGV while answering" in str(error)
    assert "abi = '1.3.1' overrides what the library says of itself (1.3.2)" in str(error)


async def test_questions_that_kill_every_worker_slow_the_restarts_and_never_end_the_engine(newest: Emulator) -> None:
    settings = newest.settings(BAD.format("crash SIGSEGV after 1"), reload_pauses_s=(0.0, 0.01))
    async with open_engine(settings) as engine:
        for _ in range(5):
            _, error = await failing(engine, "bad", WorkerDiedError)
            assert isinstance(error, WorkerDiedError)
            assert error.tokens_delivered == 1
        assert (await answer(engine, "good"))[0] == "good<|im_end|>"
        assert engine.supervisor.restarts == 5


async def test_a_failure_before_the_first_token_says_that_nothing_was_delivered(emulator: Emulator) -> None:
    for fault, kind in (("crash SIGSEGV after 0", WorkerDiedError), ("error after 0", RunRejectedError)):
        async with open_engine(emulator.settings(BAD.format(fault))) as engine:
            said, error = await failing(engine, "bad", kind)
        assert isinstance(error, (WorkerDiedError, RunRejectedError))
        assert (said, error.tokens_delivered) == ("", 0)


@pytest.mark.parametrize("fault", ["crash SIGSEGV at second-init", "crash SIGSEGV at init-after-failure"])
async def test_a_runtime_that_survives_one_init_per_process_only_is_never_asked_for_two(
    newest: Emulator, fault: str
) -> None:
    rules = BAD.format("crash SIGSEGV after 1")
    async with open_engine(newest.settings(rules, f"speed flat\nfault {fault}")) as engine:
        for _ in range(2):
            await failing(engine, "bad", WorkerDiedError)
            assert (await answer(engine, "good"))[0] == "good<|im_end|>"


@pytest.mark.parametrize("fault", ["out-of-memory at init", "init-null-handle"])
async def test_a_runtime_that_cannot_load_says_why(newest: Emulator, fault: str) -> None:
    async with open_engine(newest.settings("rule", f"speed flat\nfault {fault}")) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError, match="did not load"):
            await engine.ready()


async def test_an_unloaded_model_refuses_at_once_and_answers_again_when_it_is_loaded(newest: Emulator) -> None:
    async with open_engine(newest.settings(BAD.format("null-text at 1"), PACED)) as engine:
        await engine.ready()
        before = engine.worker_pid
        with anyio.fail_after(60), pytest.raises(RunRejectedError, match="its model is not loaded at the moment"):
            async with aclosing(engine.generate(prompt_of("x" * 100), STOP)) as run:
                await anext(run)
                await engine.unload()
                async for _ in run:
                    pass
        assert (engine.worker_pid, engine.supervisor.is_unloaded, engine.supervisor.failure) == (None, True, None)
        assert before not in children()
        await failing(engine, "good", RunRejectedError)
        with pytest.raises(RunRejectedError):
            await engine.ready()
        engine.supervisor.load()
        assert (await answer(engine, "good"))[0] == "good<|im_end|>"
        assert (engine.supervisor.is_unloaded, engine.supervisor.restarts) == (False, 0)


async def test_what_an_unloading_worker_still_replies_disturbs_nothing(newest: Emulator) -> None:
    unhandled = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with open_engine(newest.settings("rule", "speed flat")) as engine:
        await engine.ready()
        worker = engine.worker_pid
        assert worker is not None
        os.kill(worker, signal.SIGSTOP)
        call = asyncio.ensure_future(engine.call("release_prompt_cache", {}))
        await asyncio.sleep(0)  # it is sent
        unloading = asyncio.ensure_future(engine.unload())
        with anyio.fail_after(60):
            with pytest.raises(RunRejectedError, match="not loaded"):
                await call
            os.kill(worker, signal.SIGCONT)
            await unloading
    assert unhandled == []


async def test_a_model_of_a_newer_toolkit_is_refused_with_the_release_it_needs(emulator: Emulator) -> None:
    async with open_engine(emulator.settings("rule", "speed flat\ntoolkit 9.8.7")) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError) as refusal:
            await engine.ready()
    assert "Please update rkllm-runtime to 9.8.7 or higher" in refusal.value.message
    assert refusal.value.remedy.startswith("The model was made by a newer rkllm-toolkit: fetch that runtime ")


async def test_warnings_of_the_runtime_while_it_loads_are_reported(emulator: Emulator) -> None:
    async with open_engine(emulator.settings("rule", "speed flat\nfault driver-version 0.9.2")) as engine:
        with anyio.fail_after(60):
            await engine.ready()
        assert engine.supervisor.warnings == ("Your rknpu driver version is too low, please upgrade to 0.9.7",)


@pytest.mark.parametrize(
    ("made", "warned"),
    [
        ("1.3.0", ()),
        ("1.2.3", ()),
        ("unknown", ()),
        ("1.3.1", ("the model was made by rkllm-toolkit 1.3.1, which is newer than this runtime, 1.3.0",)),
    ],
)
def test_a_newer_model_that_was_not_refused_is_reported(made: str, warned: tuple[str, ...]) -> None:
    lines = [f"I rkllm: rkllm-toolkit version: {made}, max_context_limit: 4096, npu_core_num: 3", "I rkllm: W rkllm: x"]
    assert load_warnings(lines, "1.3.0") == warned
