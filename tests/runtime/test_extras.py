"""What is set on a loaded model holds for the runs after it, outlives the worker, or is refused with a reason."""

from __future__ import annotations

import asyncio
import os
from array import array
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, ImageInput, Input, RunStats, TokenInput
from rkllm_mcp.runtime import extras, frames
from rkllm_mcp.runtime.calls import Calls
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.frames import CallCommand, CallReply
from rkllm_mcp.runtime.worker_process import LogLines, WorkerProcess
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

HEAD = "speed flat\ncontext 4096\nhidden 8\ntemplate chatml"
RULES = """rule
lora legal
say Objection!
rule
user die
say x
fault crash SIGSEGV after 1
rule
prompt ^<<(.*)>>$
say bare
rule
user (.+)
say $1"""
PICTURE = ImageInput("<image>x", array("f", [0.5] * 16), 2)


def text(words: str) -> TokenInput:
    return TokenInput(prompt_of(words))


async def answer(engine: Engine, prompt: Input, **options: Any) -> tuple[str, RunStats]:
    pieces: list[str] = []
    stops = frozenset({IM_END})
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt, GenerationOptions(stop_ids=stops, **options))) as run:
            async for item in run:
                if isinstance(item, RunStats):
                    return "".join(pieces).removesuffix("<|im_end|>"), item
                pieces.append(item.text)
    raise AssertionError("a generation ended without its figures")


async def crash(engine: Engine) -> None:
    with pytest.raises(WorkerDiedError):
        await answer(engine, text("die"))


def adapter(emulator: Emulator) -> Path:
    path = emulator.folder / "legal_lora.rkllm"
    path.write_text("an adapter")
    return path


async def test_a_run_selects_its_adapter_and_a_new_worker_has_it_too(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, HEAD)) as engine:
        await extras.load_lora(engine, adapter(emulator), "legal", scale=0.5)
        assert engine.adapters == ("legal",)
        with pytest.raises(InputRefusedError, match="'legal' is loaded already"):
            await extras.load_lora(engine, adapter(emulator), "legal")
        with pytest.raises(InputRefusedError, match="an adapter needs a name"):
            await extras.load_lora(engine, adapter(emulator), "")
        for _ in range(2):
            assert (await answer(engine, text("x"), lora="legal"))[0] == "Objection!"
            assert (await answer(engine, text("x")))[0] == "x"
            await crash(engine)
        assert engine.supervisor.restarts == 2


async def test_a_cache_made_with_one_adapter_is_not_used_with_another(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        await extras.load_lora(engine, adapter(newest), "legal")
        cold = [(await answer(engine, text("x"), lora=lora))[1].cold for lora in (None, None, "legal", "legal", None)]
    assert cold == [True, False, True, False, True]


async def test_an_adapter_that_a_new_worker_refuses_is_an_error_of_the_runs_after_it(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        path = adapter(newest)
        await extras.load_lora(engine, path, "legal")
        path.unlink()
        await crash(engine)
        with pytest.raises(
            RunRejectedError, match="after its restart it refused the LoRA adapter legal: rkllm_load_lora"
        ):
            await answer(engine, text("x"))


async def test_missing_files_are_refused_before_the_runtime_sees_them(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        for setting in (
            extras.load_lora(engine, "none.rkllm", "a"),
            engine.load_prompt_cache(newest.folder / "none.bin"),
        ):
            with pytest.raises(InputRefusedError, match=r"there is no file .*/none\."):
                await setting


async def test_a_chat_template_replaces_the_models_and_empties_the_cache(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, HEAD)) as engine:
        assert (await answer(engine, PICTURE))[0].endswith("x")
        await extras.set_chat_template(engine, "", "<<", ">>")
        assert await engine.kv_cache_size() in (None, 0)
        for _ in range(2):
            said, stats = await answer(engine, PICTURE)
            assert (said, stats.cold) == ("bare", True)
            await crash(engine)
        with pytest.raises(InputRefusedError, match="NUL"):
            await extras.set_chat_template(engine, "", "\0", "")


async def test_a_cache_that_is_emptied_during_a_run_is_known_to_be_empty_after_it(newest: Emulator) -> None:
    paced = HEAD.replace("flat", "prefill 100000 decode 400")
    async with open_engine(newest.settings(RULES, paced)) as engine, anyio.create_task_group() as tasks:
        async with aclosing(engine.generate(text("x" * 40))) as run:
            await anext(run)
            tasks.start_soon(engine.clear_cache)
            _ = [item async for item in run]
        await engine.kv_cache_size()
        stats = (await answer(engine, text("x" * 40)))[1]
        assert (stats.cold, stats.expected_tokens) == (True, len(prompt_of("x" * 40)))


async def test_a_saved_prefix_is_not_prefilled_again_in_another_process(emulator: Emulator) -> None:
    path = emulator.folder / "prefix.bin"
    prefix, prompt = prompt_of("x" * 100)[:60], prompt_of("x" * 100)
    async with open_engine(emulator.settings(RULES, HEAD, max_new_tokens=30)) as engine:
        with anyio.fail_after(60):
            stats = await engine.save_prompt_cache(prefix, path)
    assert (path.is_file(), stats.generated_tokens) == (True, 1)
    async with open_engine(emulator.settings(RULES, HEAD, max_new_tokens=200)) as engine:
        with anyio.fail_after(60):
            await engine.load_prompt_cache(path)
        said, stats = await answer(engine, TokenInput(prompt), max_new_tokens=200)
        assert (said, stats.cold) == ("x" * 100, False)
        if emulator.version != "1.2.0":
            assert stats.prefilled_tokens == len(prompt) - len(prefix)
        with anyio.fail_after(60):
            await engine.load_prompt_cache(path)  # the last one is released first
            await engine.release_prompt_cache()
            await engine.release_prompt_cache()


async def test_a_file_that_is_not_a_prompt_cache_is_refused_by_the_runtime(newest: Emulator) -> None:
    path = newest.folder / "other.bin"
    path.write_text("something else")
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        with pytest.raises(RunRejectedError, match=r"rkllm_load_prompt_cache returned -1 \(E rkllm: failed"):
            await engine.load_prompt_cache(path)
        await engine.release_prompt_cache()  # there is none, so nothing is asked
        assert (await answer(engine, text("x")))[0] == "x"


async def test_a_complaint_of_a_very_quick_worker_is_noticed(newest: Emulator) -> None:
    reading, writing = os.pipe()
    log = LogLines(reading)

    class Quick(WorkerProcess):
        """Has done what it is told, and complained of it, before the engine goes on."""

        def __init__(self) -> None:
            self.log = log

        def send(self, frame: bytes) -> None:
            os.write(writing, b"E rkllm: no\n")

        def kill(self) -> None:
            raise AssertionError

        async def gone(self) -> int:
            raise AssertionError

    engine = Engine(newest.settings(RULES))
    engine.supervisor.worker = Quick()
    engine.supervisor._settled.set()  # pyright: ignore[reportPrivateUsage]
    asked = [asyncio.ensure_future(engine.call("load_prompt_cache", {})) for _ in range(2)]
    await asyncio.sleep(0)
    refusal = frames.pack(CallReply(failure="it returned -1"))
    engine._on_frames(frames.FrameReader().feed(refusal * 2))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(RunRejectedError, match=r"it returned -1 \(E rkllm: no\)"):
        await asked[0]
    with pytest.raises(RunRejectedError, match="it returned -1"):
        await asked[1]
    log.close()
    os.close(writing)


async def test_a_prompt_cache_that_was_not_written_is_an_error(newest: Emulator) -> None:
    folder = newest.folder / "folder"
    folder.mkdir()
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        with anyio.fail_after(60), pytest.raises(RunRejectedError, match="it wrote no prompt cache"):
            await engine.save_prompt_cache(prompt_of("x"), folder)


async def test_the_log_at_level_2_has_the_prompt_text_in_quotes(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, HEAD, log_level=2)) as engine:
        await answer(engine, replace(PICTURE, text='<image>say "one"'))
        assert engine.supervisor.worker is not None
        lines = [line for line in engine.supervisor.worker.log.lines() if "prompt text" in line]
    system = "<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n"
    user = '<|im_start|>user\\n<image>say "one"<|im_end|>\\n<|im_start|>assistant\\n'
    assert lines == [f'I rkllm: prompt text: "{system}{user}"']


async def test_leaving_a_call_does_not_undo_it(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        await engine.ready()
        with anyio.move_on_after(0):
            await extras.load_lora(engine, adapter(newest), "legal")
        await engine.kv_cache_size()  # answered after it
        assert engine.adapters == ("legal",)


async def test_a_prompt_cache_that_a_new_worker_dies_of_is_not_loaded_into_the_next() -> None:
    calls, sent = Calls(), list[bytes]()
    for name in ("load_lora", "load_prompt_cache"):
        calls.ask(sent.append, CallCommand(name), setting=name)
        calls.on_reply(CallReply())
    calls.restore(sent.append)
    calls.fail(WorkerDiedError(-11, "answering"))
    assert tuple(calls.settings) == ("load_lora",)
    assert len(sent) == 4


async def test_a_reply_to_a_call_that_failed_when_the_model_was_unloaded_is_ignored() -> None:
    calls, sent = Calls(), list[bytes]()
    value = calls.ask(sent.append, CallCommand("load_lora"), setting="load_lora")
    calls.fail(RunRejectedError("its model is not loaded"))
    calls.on_reply(CallReply())
    assert isinstance(value.exception(), RunRejectedError)
    assert (tuple(calls.settings), bool(calls)) == ((), False)


async def test_a_prompt_cache_that_is_gone_when_the_worker_died_costs_time_and_nothing_else(newest: Emulator) -> None:
    path = newest.folder / "prefix.bin"
    async with open_engine(newest.settings(RULES, HEAD)) as engine:
        with anyio.fail_after(60):
            await engine.save_prompt_cache(prompt_of("x")[:4], path)
            await engine.load_prompt_cache(path)
        path.unlink()
        await crash(engine)
        assert (await answer(engine, text("x")))[0] == "x"
        await engine.release_prompt_cache()  # it stands no more
