"""The language between the engine and the worker: typed messages become frames of bytes, and frames become messages.

A frame is a length (4 bytes, of what follows), a kind (1 byte) and a body; both ends are on one machine, so token ids
are its own 32-bit integers. One stream
socket carries commands one way and reports the other, in order, so a run's ``RunEnded`` is behind all of its tokens.
Pure: no sockets and no threads here. Token frames are the hot path; they are packed and read with one ``struct`` each.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rkllm_mcp.generation import Sampling
from rkllm_mcp.runtime.abi.common import LoadParameters, Perf

# engine -> worker
LOAD: Final = 1
RUN: Final = 2
ABORT: Final = 3
CLEAR_CACHE: Final = 4
CACHE_SIZE: Final = 5
SHUTDOWN: Final = 6
# worker -> engine
LOADED: Final = 32
LOAD_FAILED: Final = 33
TOKEN: Final = 34
RUN_ENDED: Final = 35
ANSWER: Final = 36

_HEAD = struct.Struct("<IB")
_TOKEN_BODY = struct.Struct("<IiQ")
_TOKEN_FRAME = struct.Struct("<IBIiQ")
_TOKEN_FRAME_REST = _TOKEN_FRAME.size - 4
_RUN_BODY = struct.Struct("<Ii?fiffff")
_RUN_ID = struct.Struct("<I")
_ENDED_BODY = struct.Struct("<I?QQfifif")
_ANSWER_BODY = struct.Struct("<i")

_NO_PERF = Perf(0.0, 0, 0.0, 0, 0.0)


@dataclass(frozen=True)
class LoadCommand:
    """Load a library and a model: the library's path, the ABI or ``auto``, and the model's parameters."""

    library: str
    abi: str
    parameters: LoadParameters


@dataclass(frozen=True)
class RunCommand:
    """Run the model on ``tokens``; ``run`` names the run in its reports."""

    run: int
    max_new_tokens: int
    sampling: Sampling | None
    tokens: array[int]


@dataclass(frozen=True)
class Loaded:
    """The model is loaded: the runtime's release, its interface and what that cannot do."""

    version: str
    abi: str
    has_kv_cache_size: bool
    has_per_run_token_limit: bool
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
    """

    run: int
    failure: str
    first_ns: int
    last_ns: int
    perf: Perf | None


def frame(kind: int, body: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(len(body) + 1, kind) + body


def pack_load(command: LoadCommand) -> bytes:
    """The frame of a load command."""
    return frame(LOAD, json.dumps(asdict(command)).encode())


def unpack_load(body: bytes) -> LoadCommand:
    """The load command in a body."""
    fields: dict[str, Any] = json.loads(body)
    parameters: dict[str, Any] = fields["parameters"]
    parameters["sampling"] = Sampling(**parameters["sampling"])
    return LoadCommand(fields["library"], fields["abi"], LoadParameters(**parameters))


def pack_run(run: int, tokens: Sequence[int], max_new_tokens: int, sampling: Sampling | None) -> bytes:
    """The frame of a run command.

    Raises:
        OverflowError: a token is no 32-bit integer.
    """
    chosen = sampling or Sampling()
    head = _RUN_BODY.pack(
        run,
        max_new_tokens,
        sampling is not None,
        chosen.temperature,
        chosen.top_k,
        chosen.top_p,
        chosen.repeat_penalty,
        chosen.frequency_penalty,
        chosen.presence_penalty,
    )
    return frame(RUN, head + array("i", tokens).tobytes())


def unpack_run(body: bytes) -> RunCommand:
    """The run command in a body."""
    run, limit, has_sampling, temperature, top_k, *rest = _RUN_BODY.unpack_from(body)
    sampling = Sampling(temperature, top_k, *rest) if has_sampling else None
    return RunCommand(run, limit, sampling, array("i", body[_RUN_BODY.size :]))


def pack_abort(run: int) -> bytes:
    """The frame that aborts a run, and only that one."""
    return frame(ABORT, _RUN_ID.pack(run))


def unpack_abort(body: bytes) -> int:
    """The run to abort."""
    return int(_RUN_ID.unpack(body)[0])


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


def pack_run_ended(message: RunEnded) -> bytes:
    """The frame of a run's end."""
    perf = message.perf or _NO_PERF
    head = _ENDED_BODY.pack(message.run, message.perf is not None, message.first_ns, message.last_ns, *perf)
    return frame(RUN_ENDED, head + message.failure.encode())


def unpack_run_ended(body: bytes) -> RunEnded:
    """The run's end in a body."""
    run, has_perf, first_ns, last_ns, *figures = _ENDED_BODY.unpack_from(body)
    perf = Perf(*figures) if has_perf else None
    return RunEnded(run, body[_ENDED_BODY.size :].decode(), first_ns, last_ns, perf)


def pack_answer(value: int) -> bytes:
    """The frame that answers CLEAR_CACHE (a status) or CACHE_SIZE (tokens)."""
    return frame(ANSWER, _ANSWER_BODY.pack(value))


def unpack_answer(body: bytes) -> int:
    """The value in an answer's body."""
    return int(_ANSWER_BODY.unpack(body)[0])


class FrameReader:
    """Bytes as they arrive become whole frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that are complete now, as (kind, body); consume them all before feeding again."""
        data = self._rest + received if self._rest else received
        position, end = 0, len(data)
        while end - position >= _HEAD.size:
            length, kind = _HEAD.unpack_from(data, position)
            following = position + 4 + length
            if following > end:
                break
            yield kind, data[position + _HEAD.size : following]
            position = following
        self._rest = data[position:]
