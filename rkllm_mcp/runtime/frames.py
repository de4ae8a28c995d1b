"""The language between the engine and the worker: what the worker reports becomes frames of bytes, and back.

A frame is a length (4 bytes, of what follows), a kind (1 byte) and a body; both ends are on one machine, so numbers are
its own. One stream socket carries commands (``commands.py``) one way and reports the other, in order, so a run's
``RunEnded`` is behind all of its tokens and rows.
Pure: no sockets and no threads here. Token frames are the hot path; they are packed and read with one ``struct`` each.
Rows are bytes as the library has them, copied once.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from rkllm_mcp.runtime.abi.common import Perf

# engine -> worker
LOAD: Final = 1
RUN: Final = 2
ABORT: Final = 3
CALL: Final = 4
SHUTDOWN: Final = 6
# worker -> engine
LOADED: Final = 32
LOAD_FAILED: Final = 33
TOKEN: Final = 34
RUN_ENDED: Final = 35
ANSWER: Final = 36
OPENED: Final = 37
ROWS: Final = 38

_HEAD = struct.Struct("<IB")
_TOKEN_BODY = struct.Struct("<IiQ")
_TOKEN_FRAME = struct.Struct("<IBIiQ")
_TOKEN_FRAME_REST = _TOKEN_FRAME.size - 4
_RUN_ID = struct.Struct("<I")
_ENDED_BODY = struct.Struct("<I??QQQfifif")
_ROWS_BODY = struct.Struct("<III")

_NO_PERF = Perf(0.0, 0, 0.0, 0, 0.0)


@dataclass(frozen=True)
class Opened:
    """The library is loaded and typed, the model is next: which release it says it is, and the interface in use."""

    version: str
    abi: str


@dataclass(frozen=True)
class Loaded:
    """The model is loaded: the runtime's release, its interface, and whether it is the emulated one."""

    version: str
    abi: str
    emulated: bool


@dataclass(frozen=True)
class LoadFailed:
    """The model is not loaded: the error's class, what happened and what to do."""

    error: str
    message: str
    remedy: str


@dataclass(frozen=True)
class RunEnded:
    """A run returned.

    Args:
        run: which.
        failure: why it failed; empty when it did not.
        first_ns: CLOCK_MONOTONIC when the first callback was entered; 0 without one.
        last_ns: the same of the last callback.
        perf: the runtime's figures; None where it gave none.
        is_paused: it only paused.
        callback_ns: how long its callbacks kept the runtime, ns.
    """

    run: int
    failure: str
    first_ns: int
    last_ns: int
    perf: Perf | None
    is_paused: bool = False
    callback_ns: int = 0


@dataclass(frozen=True)
class RowsReport:
    """Rows of hidden states or logits: of which run, floats in a row, how many the runtime gave, and those wanted."""

    run: int
    width: int
    given: int
    values: array[float]


@dataclass(frozen=True)
class Answer:
    """What a call gave: its value where it has one, or why it failed."""

    value: int | None = None
    failure: str = ""


def frame(kind: int, body: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(len(body) + 1, kind) + body


def pack_abort(run: int) -> bytes:
    """The frame that aborts a run, and only that one."""
    return frame(ABORT, _RUN_ID.pack(run))


def unpack_abort(body: bytes) -> int:
    """The run to abort."""
    return int(_RUN_ID.unpack(body)[0])


def pack_opened(message: Opened) -> bytes:
    """The frame of a library that was opened."""
    return frame(OPENED, json.dumps(asdict(message)).encode())


def unpack_opened(body: bytes) -> Opened:
    """The opened library in a body."""
    return Opened(**json.loads(body))


def pack_loaded(message: Loaded) -> bytes:
    """The frame of a successful load."""
    return frame(LOADED, json.dumps(asdict(message)).encode())


def unpack_loaded(body: bytes) -> Loaded:
    """The successful load in a body."""
    return Loaded(**json.loads(body))


def pack_load_failed(message: LoadFailed) -> bytes:
    """The frame of a failed load."""
    return frame(LOAD_FAILED, json.dumps(asdict(message)).encode())


def unpack_load_failed(body: bytes) -> LoadFailed:
    """The failed load in a body."""
    return LoadFailed(**json.loads(body))


def pack_token(run: int, token_id: int, entered_ns: int, text: bytes) -> bytes:
    """The frame of one token: its run, its id, when its callback was entered, and the bytes it completed."""
    return _TOKEN_FRAME.pack(_TOKEN_FRAME_REST + len(text), TOKEN, run, token_id, entered_ns) + text


def unpack_token(body: bytes) -> tuple[int, int, int, bytes]:
    """Run, id, time of the callback and bytes of the token in a body."""
    run, token_id, entered_ns = _TOKEN_BODY.unpack_from(body)
    return run, token_id, entered_ns, body[_TOKEN_BODY.size :]


def pack_rows(run: int, width: int, given: int, values: bytes) -> bytes:
    """The frame of the rows of a run; ``values`` are float32."""
    return frame(ROWS, _ROWS_BODY.pack(run, width, given) + values)


def unpack_rows(body: bytes) -> RowsReport:
    """The rows in a body."""
    run, width, given = _ROWS_BODY.unpack_from(body)
    values: array[float] = array("f")
    values.frombytes(memoryview(body)[_ROWS_BODY.size :])
    return RowsReport(run, width, given, values)


def pack_run_ended(message: RunEnded) -> bytes:
    """The frame of a run's end."""
    perf, times = message.perf or _NO_PERF, (message.first_ns, message.last_ns, message.callback_ns)
    head = _ENDED_BODY.pack(message.run, message.perf is not None, message.is_paused, *times, *perf)
    return frame(RUN_ENDED, head + message.failure.encode())


def unpack_run_ended(body: bytes) -> RunEnded:
    """The run's end in a body."""
    run, has_perf, is_paused, first_ns, last_ns, callback_ns, *figures = _ENDED_BODY.unpack_from(body)
    perf = Perf(*figures) if has_perf else None
    return RunEnded(run, body[_ENDED_BODY.size :].decode(), first_ns, last_ns, perf, is_paused, callback_ns)


def pack_answer(message: Answer) -> bytes:
    """The frame that answers a call."""
    return frame(ANSWER, json.dumps(asdict(message)).encode())


def unpack_answer(body: bytes) -> Answer:
    """The answer in a body."""
    return Answer(**json.loads(body))


class FrameReader:
    """Bytes as they arrive become whole frames."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._missing = 0

    def feed(self, received: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that are complete now, as (kind, body); consume them all before feeding again."""
        if self._missing > len(received):
            # In the middle of a large frame: joined once, when it is whole.
            self._rest.append(received)
            self._missing -= len(received)
            return
        data = b"".join((*self._rest, received)) if self._rest else received
        position, end, missing = 0, len(data), 0
        while end - position >= _HEAD.size:
            length, kind = _HEAD.unpack_from(data, position)
            following = position + 4 + length
            if following > end:
                missing = following - end
                break
            yield kind, data[position + _HEAD.size : following]
            position = following
        self._rest = [data[position:]] if position < end else []
        self._missing = missing
