"""Reports survive the way through frames, however the bytes are cut."""

from __future__ import annotations

from array import array

import pytest

from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi.common import Perf
from rkllm_mcp.runtime.frames import (
    CallReply,
    FrameReader,
    LoadFailed,
    ModelLoaded,
    Opened,
    RowsReport,
    RunEnded,
    RunReport,
)

PERF = Perf(12.5, 34, 56.5, 7, 890.25)


def body_of(frame: bytes) -> bytes:
    ((_, body),) = FrameReader().feed(frame)
    return body


def test_every_message_comes_out_as_it_went_in() -> None:
    opened = Opened("1.3.0", "1.2.1")
    assert frames.unpack(frames.Opened, body_of(frames.pack(opened))) == opened
    loaded = ModelLoaded("1.3.0", "1.3.0", emulated=True)
    assert frames.unpack(frames.ModelLoaded, body_of(frames.pack(loaded))) == loaded
    failed = LoadFailed("ModelLoadError", "読めない", "do this")
    assert frames.unpack(frames.LoadFailed, body_of(frames.pack(failed))) == failed
    for ended in (
        RunEnded(7),
        RunEnded(8, "理由", RunReport(2**63, PERF, callback_ns=2**64 - 1)),
        RunEnded(9, "", RunReport(1)),
    ):
        assert frames.unpack_run_ended(body_of(frames.pack_run_ended(ended))) == ended
    assert frames.unpack_numbered(body_of(frames.pack_numbered(frames.ABORT, 2**32 - 1))) == (2**32 - 1, b"")
    for answer in (CallReply(), CallReply(42), CallReply(failure="だめ")):
        assert frames.unpack(frames.CallReply, body_of(frames.pack(answer))) == answer
    values = array("f", [0.5, -1.25, 3.0])
    assert frames.unpack_rows(body_of(frames.pack_rows(4, 3, 17, values.tobytes()))) == RowsReport(4, 3, 17, values)


@pytest.mark.parametrize("text", [b"", b"\xe3\x81", "東京".encode(), b"\0" * 300])
def test_a_token_carries_raw_bytes(text: bytes) -> None:
    assert frames.unpack_token(body_of(frames.pack_token(3, -1, 2**60, text))) == (3, -1, 2**60, text)


def test_frames_are_the_same_however_the_stream_is_cut() -> None:
    sent = [frames.pack_token(1, number, number, b"x" * number) for number in range(40)]
    rows = frames.pack_rows(1, 500, 1, bytes(range(250)) * 8)
    stream = b"".join([*sent[:20], rows, *sent[20:]]) + frames.frame(frames.SHUTDOWN)
    whole = FrameReader().feed(stream)
    assert len(whole) == 42
    for size in (1, 2, 3, 5, 7, 64, 1000):
        reader = FrameReader()
        cut = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
        assert cut == whole
