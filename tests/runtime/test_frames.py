"""Messages survive the way through frames, however the bytes are cut."""

from __future__ import annotations

import pytest

from rkllm_mcp.generation import Sampling
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi.common import LoadParameters, Perf
from rkllm_mcp.runtime.frames import FrameReader, LoadCommand, Loaded, LoadFailed, RunEnded

LOAD = LoadCommand(
    "/usr/lib/librkllmrt.so", "auto", LoadParameters("/モデル.rkllm", 4096, 512, Sampling(0.7, 1), cpu_mask=240)
)
PERF = Perf(12.5, 34, 56.5, 7, 890.25)


def body_of(frame: bytes) -> bytes:
    ((_, body),) = FrameReader().feed(frame)
    return body


def test_every_message_comes_out_as_it_went_in() -> None:
    assert frames.unpack_load(body_of(frames.pack_load(LOAD))) == LOAD
    loaded = Loaded("1.3.0", "1.3.0", has_kv_cache_size=True, has_per_run_token_limit=False, emulated=True)
    assert frames.unpack_loaded(body_of(frames.pack_loaded(loaded))) == loaded
    failed = LoadFailed("ModelLoadError", "読めない", "do this")
    assert frames.unpack_load_failed(body_of(frames.pack_load_failed(failed))) == failed
    for ended in (RunEnded(7, "", 0, 0, None), RunEnded(8, "理由", 2**63, 2**64 - 1, PERF)):
        assert frames.unpack_run_ended(body_of(frames.pack_run_ended(ended))) == ended
    assert frames.unpack_abort(body_of(frames.pack_abort(2**32 - 1))) == 2**32 - 1
    assert frames.unpack_answer(body_of(frames.pack_answer(-1))) == -1


@pytest.mark.parametrize("sampling", [None, Sampling(0.5, 3, 0.25, 1.5, 0.125, -0.5)])
def test_a_run_carries_its_tokens_its_limit_and_its_sampling(sampling: Sampling | None) -> None:
    command = frames.unpack_run(body_of(frames.pack_run(9, [0, 1, 2**31 - 1], 64, sampling)))
    assert (command.run, list(command.tokens), command.max_new_tokens) == (9, [0, 1, 2**31 - 1], 64)
    assert command.sampling == sampling


@pytest.mark.parametrize("text", [b"", b"\xe3\x81", "東京".encode(), b"\0" * 300])
def test_a_token_carries_raw_bytes(text: bytes) -> None:
    assert frames.unpack_token(body_of(frames.pack_token(3, -1, 2**60, text))) == (3, -1, 2**60, text)


def test_a_token_that_is_no_32_bit_number_is_refused() -> None:
    with pytest.raises(OverflowError):
        frames.pack_run(1, [2**31], 1, None)


def test_frames_are_the_same_however_the_stream_is_cut() -> None:
    sent = [frames.pack_token(1, number, number, b"x" * number) for number in range(40)]
    stream = b"".join(sent) + frames.frame(frames.SHUTDOWN)
    whole = list(FrameReader().feed(stream))
    assert len(whole) == 41
    for size in (1, 2, 3, 5, 7, 64, 1000):
        reader = FrameReader()
        cut = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
        assert cut == whole
