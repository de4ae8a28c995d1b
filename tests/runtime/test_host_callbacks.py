"""A model without tokenizer or embeddings is given what it asks for, where the runtime asks."""

from __future__ import annotations

import struct
from array import array
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.generation import GenerationOptions, ImageInput, Input, Token, TokenInput
from rkllm_mcp.runtime.engine import Engine, open_engine
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

HEAD = "speed flat\ncontext 4096\nhidden 4\nwithout {}"
RULES = "rule\nuser (.+)\nsay $1"


def table(folder: Path, rows: int = 259) -> Path:
    """A row per id: its number, then zeroes."""
    path = folder / "embeddings.bin"
    path.write_bytes(b"".join(struct.pack("4f", token, 0, 0, 0) for token in range(rows)))
    return path


async def ids(engine: Engine, prompt: Input) -> list[Token]:
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt, GenerationOptions(stop_ids=frozenset({IM_END})))) as run:
            return [item async for item in run if isinstance(item, Token)]


async def test_embeddings_come_from_the_table_where_the_model_has_none(newest: Emulator) -> None:
    settings = newest.settings(RULES, HEAD.format("embedding"), embedding_table=table(newest.folder))
    async with open_engine(settings) as engine:
        assert [token.id for token in await ids(engine, TokenInput(prompt_of("hi")))] == [*b"hi", IM_END]


async def test_a_table_that_lacks_a_row_fails_the_run(newest: Emulator) -> None:
    settings = newest.settings(RULES, HEAD.format("embedding"), embedding_table=table(newest.folder, rows=10))
    async with open_engine(settings) as engine:
        with pytest.raises(RunRejectedError):
            await ids(engine, TokenInput(prompt_of("hi")))


async def test_a_model_without_tokenizer_runs_on_ids_and_refuses_text(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, HEAD.format("tokenizer"), lacks_tokenizer=True)) as engine:
        assert await ids(engine, TokenInput(prompt_of("hi"))) == [Token(token, "") for token in (*b"hi", IM_END)]
        with pytest.raises(RunRejectedError):
            await ids(engine, ImageInput("<image>hi", array("f", [0.5] * 4), 1))
        assert await ids(engine, TokenInput(prompt_of("hi")))


@pytest.mark.parametrize("content", [None, b""])
async def test_a_table_that_cannot_be_read_is_an_error_of_loading(newest: Emulator, content: bytes | None) -> None:
    path = newest.folder / "embeddings.bin"
    if content is not None:
        path.write_bytes(content)
    async with open_engine(newest.settings(RULES, embedding_table=path)) as engine:
        with anyio.fail_after(60), pytest.raises(ModelLoadError, match=r"embedding table .* cannot be read"):
            await engine.ready()


async def test_a_runtime_without_host_callbacks_refuses_a_model_like_that(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, lacks_tokenizer=True)) as engine:
        with anyio.fail_after(60):
            if emulator.version == "1.3.0":
                await engine.ready()
                return
            with pytest.raises(ModelLoadError, match=r"cannot use a model without tokenizer.*1\.3\.0 or newer"):
                await engine.ready()
