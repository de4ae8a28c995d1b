"""What every prompt begins with comes from disk at the second start; whatever goes wrong with it costs time only."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.runtime import prompt_cache
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.prompt_cache import CacheWarmUp, PromptCaches, PromptFiles, subject_of
from tests.support.emulator import IM_END, IM_START, Emulator, prompt_of

pytestmark = pytest.mark.anyio

RULES = "rule\nuser (.+)\nsay $1\nrule\nsay So it begins."
HEAD = [IM_START, *b"system\n", *b"All that this assistant is told, and its tools. " * 20, IM_END, *b"\n"]


class Start:
    """One start of a program with a model: an engine, its prompts on disk, what was said."""

    def __init__(self, engine: Engine, caches: PromptCaches, said: list[str]) -> None:
        self.engine = engine
        self.caches = caches
        self.said = said

    async def warm_up(self, *, awaited: bool = False) -> None:
        with anyio.fail_after(60):
            warm_up = CacheWarmUp(self.engine, self.caches)
            if awaited:
                warm_up.give_way()
            await warm_up.run(HEAD)

    async def ask(self, text: str = "Hi") -> RunStats:
        """The figures of an answer to ``text`` after the head."""
        options = GenerationOptions(stop_ids=frozenset({IM_END}))
        words: list[str] = []
        with anyio.fail_after(60):
            async with aclosing(self.engine.generate([*HEAD, *prompt_of(text)], options)) as run:
                async for item in run:
                    if isinstance(item, RunStats):
                        assert "".join(words) == f"{text}<|im_end|>"
                        return item
                    words.append(item.text)
        raise AssertionError("a generation ended without its figures")


@asynccontextmanager
async def start(
    emulator: Emulator, head: str = "speed flat\ncontext 4096", *, rules: str = RULES, **changes: Any
) -> AsyncGenerator[Start, None]:
    settings = emulator.settings(rules, head, **changes)
    said: list[str] = []
    # Every start is one of the same file, however often it is written.
    os.utime(settings.model_path, ns=(0, 0))
    async with open_engine(settings) as engine:
        with anyio.fail_after(60):
            await engine.ready()
        subject = subject_of(Path(settings.model_path), emulator.library, engine.version, engine.context_tokens)
        files = PromptFiles(emulator.folder / "prompts", 64)
        yield Start(engine, PromptCaches(engine, files, subject, said.append), said)


def new_tokens(text: str = "Hi") -> int:
    return len(prompt_of(text))


async def test_a_cold_start_with_a_saved_prefix_prefills_less_than_a_twentieth_of_it(emulator: Emulator) -> None:
    async with start(emulator) as first:
        await first.warm_up()
        stats = await first.ask()
        assert stats.expected_tokens == new_tokens()
    assert [line.partition(",")[0] for line in first.said] == [
        f"[NPU: {len(HEAD)} tokens of system text and tools are kept in a file"
    ]
    async with start(emulator) as second:
        await second.warm_up()
        stats = await second.ask()
        assert stats.expected_tokens == new_tokens()
        assert not stats.cold
        if emulator.version != "1.2.0":
            assert stats.prefilled_tokens is not None
            assert stats.prefilled_tokens - new_tokens() < 0.05 * len(HEAD)
    assert second.said == [f"[NPU: {len(HEAD)} tokens of system text and tools are loaded from a file]"]


async def test_a_file_is_tried_once_and_believed_from_then_on(
    newest: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(newest.log))
    runs: list[int] = []
    for _ in range(3):
        newest.log.unlink(missing_ok=True)
        async with start(newest) as opened:
            await opened.warm_up()
        runs.append(sum(call["call"] == "rkllm_run" for call in newest.calls()))
    assert runs == [1, 1, 0]


@pytest.mark.parametrize("kind", ["refused", "ignored"])
async def test_a_model_that_cannot_is_asked_once_and_answers_as_ever(emulator: Emulator, kind: str) -> None:
    head = f"speed flat\ncontext 4096\nprompt_cache {kind}"
    said: list[list[str]] = []
    for _ in range(2):
        async with start(emulator, head) as opened:
            await opened.warm_up()
            assert (await opened.ask()).prefilled_tokens in (None, new_tokens())
        said.append(opened.said)
    refusal = "[NPU: prompt caches are not tried again with this model and runtime: the runtime wrote no file]"
    assert said == [[refusal], []]


@pytest.mark.parametrize("kind", ["refused", "ignored"])
async def test_a_file_that_is_refused_or_saves_nothing_is_dropped_and_not_tried_again(
    newest: Emulator, kind: str
) -> None:
    async with start(newest) as opened:
        await opened.warm_up()
    # The same model, as far as its bytes tell, in the hands of a runtime that treats the file differently.
    saved = next((newest.folder / "prompts").glob("*/manifest.json"))
    head = f"speed flat\ncontext 4096\nprompt_cache {kind}"
    async with start(newest, head) as opened:
        _now_belongs_to(saved, opened)
        await opened.warm_up()
        assert (await opened.ask()).prefilled_tokens == new_tokens()
    reason = (
        "loading it saved nothing" if kind == "ignored" else "the runtime failed this call: rkllm_load_prompt_cache"
    )
    assert opened.said[0].startswith(f"[NPU: prompt caches are not tried again with this model and runtime: {reason}")
    assert not saved.exists()
    async with start(newest, head) as opened:
        await opened.warm_up()
    assert opened.said == []


def _now_belongs_to(manifest: Path, opened: Start) -> None:
    fields = {**json.loads(manifest.read_text()), **asdict(opened.caches.subject)}
    manifest.write_text(json.dumps(fields))


async def test_a_file_that_takes_longer_to_read_than_its_prompt_to_evaluate_is_not_read_again(
    newest: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(newest) as first:
        await first.warm_up()
    # As with a slow card, each read takes longer than it saves.
    monkeypatch.setattr(prompt_cache, "_SLOW_BY_MS", -1e9)
    async with start(newest) as second:
        await second.warm_up()
        assert (await second.ask()).prefilled_tokens == new_tokens()
    reason = "[NPU: prompt caches are not tried again with this model and runtime: reading a file took "
    assert [line.startswith(reason) for line in second.said] == [True]
    async with start(newest) as third:
        await third.warm_up()
    assert (third.said, list(newest.folder.rglob("prompt.bin"))) == ([], [])


async def test_a_file_of_another_model_is_dropped_with_the_reason_and_saved_anew(emulator: Emulator) -> None:
    async with start(emulator) as opened:
        await opened.warm_up()
    async with start(emulator, rules=f"{RULES} Again.") as opened:
        await opened.warm_up()
        assert (await opened.ask()).expected_tokens == new_tokens()
    assert opened.said[0] == "[NPU: the prompt cache is dropped: the model file is another one now]"
    assert "are kept in a file" in opened.said[1]


async def test_a_folder_that_cannot_be_written_is_reported_and_costs_nothing_else(newest: Emulator) -> None:
    (newest.folder / "prompts").write_text("in the way")
    async with start(newest) as opened:
        await opened.warm_up()
        await opened.ask()
    assert opened.said == [f"[NPU: no prompt can be kept in {newest.folder}/prompts: File exists]"]


async def test_a_runtime_that_evaluates_a_whole_match_again_is_not_taken_for_one_that_saves_nothing(
    newest: Emulator,
) -> None:
    head = "speed flat\ncontext 4096\nfault full-match all"
    said: list[str] = []
    for _ in range(2):
        async with start(newest, head) as opened:
            await opened.warm_up()
            said += opened.said
    assert "are loaded from a file" in said[1]


async def test_before_1_3_nothing_is_saved_while_a_question_waits(emulator: Emulator) -> None:
    async with start(emulator) as opened:
        await opened.warm_up(awaited=True)
        there = list((emulator.folder / "prompts").glob("*/prompt.bin"))
        assert (len(there), bool(opened.said)) == ((1, True) if opened.engine.limits_each_run else (0, False))


async def test_a_question_ends_a_run_that_saves_and_does_not_end_by_itself(emulator: Emulator) -> None:
    async with start(emulator, rules=f"{RULES}\nfault hang after 3") as opened:
        if opened.engine.limits_each_run:
            return  # there is none
        warm_up = CacheWarmUp(opened.engine, opened.caches)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(warm_up.run, HEAD)
                while not list(emulator.folder.glob("prompts/*")):
                    await anyio.lowlevel.checkpoint()
                warm_up.give_way()
            await opened.ask()
    assert opened.said == []
    assert list((emulator.folder / "prompts").iterdir()) == []


async def test_without_files_the_head_is_evaluated_unless_a_question_is_there(newest: Emulator) -> None:
    for awaited, expected in ((False, new_tokens()), (True, len(HEAD) + new_tokens())):
        async with start(newest) as opened:
            warm_up = CacheWarmUp(opened.engine, None)
            if awaited:
                warm_up.give_way()
            with anyio.fail_after(60):
                await warm_up.run(HEAD)
            assert (await opened.ask()).prefilled_tokens == expected


async def test_a_head_of_a_few_tokens_is_left_alone(newest: Emulator) -> None:
    async with start(newest) as opened:
        await CacheWarmUp(opened.engine, opened.caches).run(HEAD[:31])
        assert await opened.engine.kv_cache_size() == 0


async def test_a_worker_that_dies_takes_the_loaded_prompt_along_to_the_next(newest: Emulator) -> None:
    rules = f"rule\nuser die\nsay x\nfault crash SIGSEGV after 0\n{RULES}"
    prefilled: list[int | None] = []
    for _ in range(2):
        async with start(newest, rules=rules) as opened:
            await opened.warm_up()
            with pytest.raises(WorkerDiedError, match="SIGSEGV"):
                await opened.ask("die")
            prefilled.append((await opened.ask()).prefilled_tokens)
    # What was saved is loaded from the next start on.
    assert prefilled == [len(HEAD) + new_tokens(), new_tokens()]
