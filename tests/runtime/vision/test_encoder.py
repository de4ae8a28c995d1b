"""The encoder's process: loaded once, asked once for each picture, and lost without losing anything."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, ModelLoadError, RunRejectedError, WorkerDiedError
from rkllm_mcp.messages import Picture
from rkllm_mcp.runtime.vision.encoder import VisionEncoder
from tests.support.pictures import BLUE_ABOVE_RED, RED_ABOVE_BLUE, emulated_encoder

pytestmark = pytest.mark.anyio
FIRST, SECOND = Picture.of(RED_ABOVE_BLUE), Picture.of(BLUE_ABOVE_RED)


@asynccontextmanager
async def encoder_in(folder: Path, lines: str = "outputs 1") -> AsyncGenerator[VisionEncoder, None]:
    with anyio.fail_after(60):
        async with aclosing(VisionEncoder(emulated_encoder(folder, lines=lines))) as encoder:
            yield encoder


async def test_a_picture_is_encoded_once_however_often_it_is_sent(tmp_path: Path) -> None:
    async with encoder_in(tmp_path, "outputs 4") as encoder:
        assert encoder.worker is None
        first = await encoder.encode(FIRST)
        assert (first.tokens, len(first.values), encoder.version) == (16, 16 * 4 * 16, "2.3.2")
        worker = encoder.worker
        async with anyio.create_task_group() as group:
            for picture in (FIRST, SECOND, FIRST, SECOND):
                group.start_soon(encoder.encode, picture)
        assert await encoder.encode(FIRST) is first
        assert (encoder.runs, encoder.worker) == (2, worker)
    assert encoder.worker is None


async def test_a_picture_that_cannot_be_read_leaves_the_encoder_ready(tmp_path: Path) -> None:
    async with encoder_in(tmp_path) as encoder:
        with pytest.raises(InputRefusedError, match="SVG"):
            await encoder.encode(Picture.of(b"<svg/>"))
        await encoder.encode(FIRST)


@pytest.mark.parametrize("place", ["inputs", "run", "outputs"])
async def test_an_exception_in_the_library_costs_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with encoder_in(tmp_path) as encoder:
        with monkeypatch.context() as faulty:
            faulty.setenv("RKNN_EMULATOR_FAULTS", f"throw at {place}")
            with pytest.raises(WorkerDiedError, match=r"SIGABRT.*std::out_of_range"):
                await encoder.encode(FIRST)
        assert (await encoder.encode(FIRST)).tokens == 16


async def test_a_process_that_is_killed_in_between_costs_no_picture(tmp_path: Path) -> None:
    async with encoder_in(tmp_path) as encoder:
        await encoder.encode(FIRST)
        assert encoder.worker is not None
        os.kill(encoder.worker.pid, signal.SIGKILL)
        await encoder.encode(SECOND)
        assert encoder.runs == 2


async def test_the_pictures_after_one_that_was_given_up_get_their_own_answers(tmp_path: Path) -> None:
    async with encoder_in(tmp_path, "seconds 0.3") as encoder:
        await encoder.shape()
        with anyio.move_on_after(0.1):
            await encoder.encode(FIRST)
        second = await encoder.encode(SECOND)
        # Blue above: the third number of the first cell.
        assert round(second.values[3] * 255) == 220


@pytest.mark.parametrize(
    ("lines", "kind", "part"),
    [
        ("fault too-old", ModelLoadError, "made for a newer release"),
        ("platform rk3562", ModelLoadError, "another SoC"),
        ("fault run-fails", RunRejectedError, "rknn_run returned -1"),
    ],
)
async def test_faults_are_sentences(tmp_path: Path, lines: str, kind: type[Exception], part: str) -> None:
    async with encoder_in(tmp_path, lines) as encoder:
        for _ in range(2):
            with pytest.raises(kind, match=part):
                await encoder.encode(FIRST)
