"""The socket protocol between host and worker: commands and reports."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from rkllm_mcp.generation import EmbeddingInput, ImageInput, ImageTags, Input, Sampling, TextInput, TokenInput
from rkllm_mcp.runtime.abi.common import InferParameters, LoadParameters, Perf

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
class ModelLoaded:
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
class CallReply:
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


def pack_loaded(message: ModelLoaded) -> bytes:
    """The frame of a successful load."""
    return frame(LOADED, json.dumps(asdict(message)).encode())


def unpack_loaded(body: bytes) -> ModelLoaded:
    """The successful load in a body."""
    return ModelLoaded(**json.loads(body))


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


def pack_answer(message: CallReply) -> bytes:
    """The frame that answers a call."""
    return frame(ANSWER, json.dumps(asdict(message)).encode())


def unpack_answer(body: bytes) -> CallReply:
    """The answer in a body."""
    return CallReply(**json.loads(body))


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


_HEAD_LENGTH = struct.Struct("<I")
_NO_FLOATS: array[float] = array("f")

WhichRows = Literal["last", "all"]


@dataclass(frozen=True)
class LoadCommand:
    """Load a library and a model.

    Args:
        library: the library's path.
        abi: the release whose interface to use, or ``auto``.
        parameters: the model's parameters.
        check_memory: refuse a model that cannot fit into the memory that is available.
    """

    library: str
    abi: str
    parameters: LoadParameters
    check_memory: bool = False


@dataclass(frozen=True)
class OutputSelection:
    """What of an evaluation is wanted: the last row or all, whole or only these columns."""

    which: WhichRows = "last"
    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunCommand:
    """Run the model.

    Args:
        run: names the run in its reports.
        prompt: the input.
        infer: the run's parameters.
        rows: what is wanted of an evaluation; None for a generation.
        pause_after: pause after this many tokens; 0 for never.
        clears_before: empty the KV cache first.
        clears_after: empty it when the run is over.
        is_timed: report how long its callbacks keep the runtime.
    """

    run: int
    prompt: Input
    infer: InferParameters
    rows: OutputSelection | None = None
    pause_after: int = 0
    clears_before: bool = False
    clears_after: bool = False
    is_timed: bool = False


@dataclass(frozen=True)
class CallCommand:
    """Call a function of the loaded model by its name in ``model.NativeModel``."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


def pack_load(command: LoadCommand) -> bytes:
    """The frame of a load command."""
    return frame(LOAD, json.dumps(asdict(command)).encode())


def unpack_load(body: bytes) -> LoadCommand:
    """The load command in a body."""
    fields: dict[str, Any] = json.loads(body)
    parameters: dict[str, Any] = fields.pop("parameters")
    parameters["sampling"] = Sampling(**parameters["sampling"])
    parameters["image_tags"] = _tags(parameters["image_tags"])
    return LoadCommand(**fields, parameters=LoadParameters(**parameters))


def pack_call(command: CallCommand) -> bytes:
    """The frame of a call."""
    return frame(CALL, json.dumps(asdict(command)).encode())


def unpack_call(body: bytes) -> CallCommand:
    """The call in a body."""
    return CallCommand(**json.loads(body))


def pack_run(command: RunCommand) -> bytes:
    """The frame of a run command.

    Raises:
        OverflowError: a token is no 32-bit integer.
    """
    prompt, tail = _packed_prompt(command.prompt)
    head = json.dumps(
        {
            "run": command.run,
            "kind": type(command.prompt).__name__,
            "prompt": prompt,
            "infer": asdict(command.infer),
            "rows": asdict(command.rows) if command.rows else None,
            "pause_after": command.pause_after,
            "clears_before": command.clears_before,
            "clears_after": command.clears_after,
            "is_timed": command.is_timed,
        }
    ).encode()
    return frame(RUN, _HEAD_LENGTH.pack(len(head)) + head + tail)


def unpack_run(body: bytes) -> RunCommand:
    """The run command in a body."""
    behind = _HEAD_LENGTH.size + _HEAD_LENGTH.unpack_from(body)[0]
    head: dict[str, Any] = json.loads(body[_HEAD_LENGTH.size : behind])
    infer: dict[str, Any] = head.pop("infer")
    sampling: dict[str, Any] | None = infer.pop("sampling")
    rows: dict[str, Any] | None = head.pop("rows")
    prompt = _unpacked_prompt(head.pop("kind"), head.pop("prompt"), memoryview(body)[behind:])
    return RunCommand(
        **head,
        prompt=prompt,
        infer=InferParameters(**infer, sampling=Sampling(**sampling) if sampling else None),
        rows=OutputSelection(rows["which"], tuple(rows["columns"])) if rows else None,
    )


def _packed_prompt(prompt: Input) -> tuple[dict[str, Any], bytes]:
    """What of an input goes into the head, and what behind it."""
    if isinstance(prompt, TokenInput):
        return {}, array("i", prompt.tokens).tobytes()
    if isinstance(prompt, TextInput):
        return asdict(prompt), b""
    if isinstance(prompt, EmbeddingInput):
        return {"tokens": prompt.tokens}, prompt.values.tobytes()
    fields = asdict(replace(prompt, values=_NO_FLOATS))
    del fields["values"]
    return fields, prompt.values.tobytes()


def _unpacked_prompt(kind: str, fields: dict[str, Any], tail: memoryview) -> Input:
    if kind == TokenInput.__name__:
        ids: array[int] = array("i")
        ids.frombytes(tail)
        return TokenInput(ids)
    if kind == TextInput.__name__:
        return TextInput(**fields)
    values: array[float] = array("f")
    values.frombytes(tail)
    if kind == EmbeddingInput.__name__:
        return EmbeddingInput(values, **fields)
    fields["tags"] = _tags(fields["tags"])
    return ImageInput(**fields, values=values)


def _tags(fields: dict[str, str] | None) -> ImageTags | None:
    return ImageTags(**fields) if fields else None
