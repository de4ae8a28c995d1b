"""Long prefixes of several programs share one KV cache; whatever goes wrong with their files costs time only."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.generation import GenerationOptions
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.prompt_cache import EXCHANGED_TOKENS, PrefixExchange, PromptFiles
from tests.support.emulator import IM_END, IM_START, Emulator, prompt_of

pytestmark = pytest.mark.anyio

RULES = "rule\nuser (.+)\nsay $1\nrule\nsay So it begins."
SMALL = prompt_of("A title, please.")


def long_prefix(words: bytes) -> list[int]:
    return [IM_START, *b"system\n", *(words * (EXCHANGED_TOKENS // len(words) + 2)), IM_END, *b"\n"]


FIRST, SECOND = long_prefix(b"All that one program is told. "), long_prefix(b"Rules of another program. ")


class Board:
    """An engine with its stored prompts and the prompts that it evaluates."""

    def __init__(self, engine: Engine, files: PromptFiles, model: Path) -> None:
        self.engine = engine
        self.files = files
        self.exchange = PrefixExchange(engine, model, files)

    async def prefilled(self, prefix: Sequence[int], owner: str = "", question: Sequence[int] = SMALL) -> int:
        """Ask a question after a prefix; return the tokens that were evaluated."""
        prompt = [*prefix, *question]
        with anyio.fail_after(60):
            await self.exchange.exchange(prompt, len(prefix), owner)
            options = GenerationOptions(stop_ids=frozenset({IM_END}), owner=owner)
            stats = await self.engine.prefill(prompt, options)
        assert stats.prefilled_tokens is not None
        return stats.prefilled_tokens

    @property
    def entries(self) -> int:
        return len(list(self.files.folder.glob("*/prompt.bin")))


@asynccontextmanager
async def board(
    emulator: Emulator, head: str = "speed flat\ncontext 8192", *, limit_mb: int = 64, rules: str = RULES
) -> AsyncGenerator[Board, None]:
    settings = emulator.settings(rules, head)
    # Every start is one of the same file, however often it is written.
    os.utime(settings.model_path, ns=(0, 0))
    async with open_engine(settings) as engine:
        with anyio.fail_after(60):
            await engine.ready()
        yield Board(engine, PromptFiles(emulator.folder / "prompts", limit_mb), Path(settings.model_path))


NEW = len(SMALL)


@pytest.mark.parametrize("layout", ["own", "reported"])
async def test_each_program_pays_for_its_prefix_once(newest: Emulator, layout: str) -> None:
    async with board(newest, f"speed flat\ncontext 8192\nfault cache-file {layout}") as opened:
        order = [FIRST, (), SECOND, (), FIRST, SECOND, (), FIRST]
        costs = [await opened.prefilled(prefix) for prefix in order]
    # Of the empty prefix all but the first token is new.
    assert costs == [len(FIRST) + NEW, NEW - 1, len(SECOND) + NEW - 1, NEW - 1, NEW, NEW, NEW - 1, NEW]


async def test_the_next_start_loads_the_prefix(newest: Emulator) -> None:
    async with board(newest) as opened:
        for prefix in (FIRST, ()):
            await opened.prefilled(prefix)
    async with board(newest) as opened:
        assert await opened.prefilled(FIRST) == NEW


async def test_no_other_tenant_gets_the_prefix(newest: Emulator) -> None:
    async with board(newest) as opened:
        for prefix in (FIRST, ()):
            await opened.prefilled(prefix, "ann")
        assert await opened.prefilled(FIRST, "bob") > len(FIRST)
        assert opened.entries == 1


@pytest.mark.parametrize("kind", ["refused", "ignored"])
async def test_a_runtime_that_cannot_keep_prompts_is_tried_once(
    newest: Emulator, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(newest.log))
    async with board(newest, f"speed flat\ncontext 8192\nprompt_cache {kind}") as opened:
        costs = [await opened.prefilled(prefix) for prefix in (FIRST, (), FIRST, (), FIRST)]
    assert costs[::2] == [len(FIRST) + NEW, *[len(FIRST) + NEW - 1] * 2]
    # One run more than there are questions.
    assert sum(call["call"] == "rkllm_run" for call in newest.calls()) == 6
    assert not (newest.folder / "prompts" / "refusals.json").exists()


async def test_a_prefix_that_is_too_large_is_saved_once_and_a_shorter_one_still_is(newest: Emulator) -> None:
    async with board(newest, limit_mb=0) as opened:
        for prefix in (FIRST, (), FIRST, ()):
            await opened.prefilled(prefix)
        assert (opened.entries, await opened.prefilled(FIRST)) == (0, len(FIRST) + NEW - 1)


async def test_prefixes_that_never_come_again_are_not_saved_for_ever(newest: Emulator) -> None:
    async with board(newest) as opened:
        for minute in range(6):
            await opened.prefilled(long_prefix(b"It is 12:0%d. " % minute))
            await opened.prefilled(())
        assert opened.entries == 3
        # One that does come again is saved, and what was loaded ends the caution.
        last = long_prefix(b"It is 12:05. ")
        assert [await opened.prefilled(prefix) for prefix in (last, (), last)][2] == NEW
        await opened.prefilled(FIRST)
        await opened.prefilled(())
        assert opened.entries == 5


async def test_a_long_question_waits_for_the_small_one_and_loads_its_prefix(newest: Emulator) -> None:
    rules = f"rule\nuser slow\nsay {'word ' * 40}\n{RULES}"
    async with board(newest, "speed prefill 100000 decode 200\ncontext 8192", rules=rules) as opened:
        for prefix in (FIRST, ()):
            await opened.prefilled(prefix)
        costs = dict[str, int]()

        async def ask(name: str, *arguments: Any) -> None:
            costs[name] = await opened.prefilled(*arguments)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "small", (), "", prompt_of("slow"))
            while opened.engine.is_idle:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(ask, "long", FIRST)
    assert costs["long"] == NEW


@pytest.mark.parametrize("fault", ["crash SIGSEGV after 0", "error after 0"])
async def test_a_run_that_saves_and_fails_is_the_last_one(newest: Emulator, fault: str) -> None:
    rules = f"rule\nuser title\nsay x\nrule\nsay x\nfault {fault}"
    async with board(newest, rules=rules) as opened:
        costs = [await opened.prefilled(prefix) for prefix in (FIRST, (), FIRST, ())]
    assert costs[2] >= len(FIRST)
    assert opened.engine.supervisor.restarts == ("crash" in fault)
