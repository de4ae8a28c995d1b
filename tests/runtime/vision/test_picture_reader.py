"""A picture is decoded in its own process: what a decoder takes, and its death, cost a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PIL import Image

from bench.probe import highest_mb, reset_highest
from bench.tally import processes, resident_mb
from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.runtime.vision.encoder import read_picture
from rkllm_mcp.runtime.vision.picture import fitted_pixels
from tests.support.pictures import RED_ABOVE_BLUE, bomb_png, saved

pytestmark = pytest.mark.anyio


async def test_a_picture_is_the_same_as_in_this_process_and_leaves_no_process() -> None:
    before = processes()
    assert await read_picture(RED_ABOVE_BLUE, 64, 48) == fitted_pixels(RED_ABOVE_BLUE, 64, 48)
    assert processes() <= before


async def test_a_decoder_without_memory_costs_a_sentence_and_the_next_picture_is_read() -> None:
    large = saved(Image.new("RGB", (6000, 6000)), compress_level=1)
    with pytest.raises(InputRefusedError, match=r"needs more memory|cannot be read"):
        await read_picture(large, 64, 64, memory_bytes=150 * 2**20)
    assert len(await read_picture(RED_ABOVE_BLUE, 64, 64)) == 64 * 64 * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: bomb_png(1, 39_000_000),
        lambda: bomb_png(39_000_000, 1, bits=1, colour=0),
        lambda: bomb_png(3_900_000, 10, bits=16, colour=6),
        lambda: bomb_png(20_000, 2_000, bits=16, colour=6),
        lambda: saved(Image.new("P", (8000, 5000)), "GIF"),
    ],
    ids=["a column", "a line", "16 bits", "the longest side", "GIF"],
)
async def test_this_process_takes_little_memory_for_any_picture(make: Callable[[], bytes]) -> None:
    data = make()
    reset_highest()
    before = resident_mb()
    try:
        pixels = await read_picture(data, 64, 64)
    except InputRefusedError as refusal:
        assert "a side may have 20,000" in str(refusal)
    else:
        assert len(pixels) == 64 * 64 * 3
    assert highest_mb() - before < 20
