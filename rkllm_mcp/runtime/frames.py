"""The socket protocol between host and worker: commands and reports."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar

from rkllm_mcp.generation import GenerationOptions, ImageInput, ImageTags, Input, TokenInput
from rkllm_mcp.runtime.abi.common import RKLLM_INFER_GET_LAST_HIDDEN_LAYER, LoadParameters, Perf
from rkllm_mcp.sampling import Sampling

# engine -> worker
LOAD: Final = 1
RUN: Final = 2
ABORT: Final = 3
CALL: Final = 4
SHUTDOWN: Final = 6
LOAD_ENCODER: Final = 7
ENCODE: Final = 8
# worker -> engine
LOADED: Final = 32
LOAD_FAILED: Final = 33
TOKEN: Final = 34
RUN_ENDED: Final = 35
REPLY: Final = 36
OPENED: Final = 37
ROWS: Final = 38
ENCODER_LOADED: Final = 39
ENCODED: Final = 40
ENCODE_FAILED: Final = 41

_HEAD = struct.Struct("<IB")
_TOKEN_BODY = struct.Struct("<IiQ")
_TOKEN_FRAME = struct.Struct("<IBIiQ")
_TOKEN_FRAME_REST = _TOKEN_FRAME.size - 4
_NUMBER = struct.Struct("<I")
_ENDED_BODY = struct.Struct("<I?QQfifif")
_ROWS_BODY = struct.Struct("<III")

_T = TypeVar("_T")
_NO_PERF = Perf(0.0, 0, 0.0, 0, 0.0)


@dataclass(frozen=True)
class Opened:
    """The library is loaded and the model is next: release in the library's marker, and interface in use."""

    version: str
    abi: str


@dataclass(frozen=True)
class ModelLoaded:
    """The model is loaded: release, interface, and True for the emulated runtime."""

    version: str
    abi: str
    emulated: bool


@dataclass(frozen=True)
class LoadFailed:
    """The model is not loaded: class of the error, message and remedy."""

    error: str
    message: str
    remedy: str


@dataclass(frozen=True)
class RunReport:
    """Statistics of a returned run."""

    # CLOCK_MONOTONIC at the entry of the first callback; 0 without one.
    first_ns: int = 0
    # Statistics of the runtime; None if the family has none or no FINISH came.
    perf: Perf | None = None
    # Total duration of the callbacks of a TimedRun, ns, without the wait for the GIL.
    callback_ns: int = 0


@dataclass(frozen=True)
class RunEnded:
    """End of a run; ``failure`` is its reason, empty without one."""

    run: int
    failure: str = ""
    report: RunReport = field(default_factory=RunReport)


@dataclass(frozen=True)
class RowsReport:
    """Rows of hidden states or logits: run, floats per row, rows that the runtime returned, selected values."""

    run: int
    width: int
    given: int
    values: array[float]


@dataclass(frozen=True)
class CallReply:
    """Result of a call: its value, if any, or the reason of the failure."""

    value: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class EncoderLoad:
    """Load a vision encoder: paths of librknnrt.so and of the .rknn file."""

    library: str
    path: str


@dataclass(frozen=True)
class EncoderLoaded:
    """The encoder is loaded: release of the library, and the fields of its ``EncoderShape``."""

    version: str
    shape: Sequence[int]


@dataclass(frozen=True)
class EncodeFailed:
    """A picture was not encoded, for this reason."""

    number: int
    failure: str


def frame(kind: int, body: bytes = b"") -> bytes:
    """Return one frame."""
    return _HEAD.pack(len(body) + 1, kind) + body


def pack(message: Message) -> bytes:
    """Return the frame of a message whose body is JSON."""
    return frame(_KINDS[type(message)], json.dumps(asdict(message)).encode())


def unpack(message: type[_T], body: bytes) -> _T:
    """Return the message of a body that ``pack`` made; ``unpack_load`` is for a load command."""
    return message(**json.loads(body))


def pack_numbered(kind: int, number: int, content: bytes = b"") -> bytes:
    """Return a frame of a number and bytes: a run to abort, the pixels of a picture to encode, or its float32 rows."""
    return frame(kind, _NUMBER.pack(number) + content)


def unpack_numbered(body: bytes) -> tuple[int, bytes]:
    """Return number and bytes of a body that ``pack_numbered`` made."""
    return int(_NUMBER.unpack_from(body)[0]), body[_NUMBER.size :]


def pack_token(run: int, token_id: int, entered_ns: int, text: bytes) -> bytes:
    """Return the frame of a token: run, id, entry time of its callback, and the bytes it completed."""
    return _TOKEN_FRAME.pack(_TOKEN_FRAME_REST + len(text), TOKEN, run, token_id, entered_ns) + text


def unpack_token(body: bytes) -> tuple[int, int, int, bytes]:
    """Return run, id, callback time and bytes of a token."""
    run, token_id, entered_ns = _TOKEN_BODY.unpack_from(body)
    return run, token_id, entered_ns, body[_TOKEN_BODY.size :]


def pack_rows(run: int, width: int, row_count: int, values: bytes) -> bytes:
    """Return the frame of the rows of a run; ``values`` are float32."""
    return frame(ROWS, _ROWS_BODY.pack(run, width, row_count) + values)


def unpack_rows(body: bytes) -> RowsReport:
    """Return the rows of a body."""
    run, width, row_count = _ROWS_BODY.unpack_from(body)
    values: array[float] = array("f")
    values.frombytes(memoryview(body)[_ROWS_BODY.size :])
    return RowsReport(run, width, row_count, values)


def pack_run_ended(message: RunEnded) -> bytes:
    """Return the frame of a run's end."""
    report, perf = message.report, message.report.perf
    times = (report.first_ns, report.callback_ns)
    head = _ENDED_BODY.pack(message.run, perf is not None, *times, *(perf or _NO_PERF))
    return frame(RUN_ENDED, head + message.failure.encode())


def unpack_run_ended(body: bytes) -> RunEnded:
    """Return the run's end of a body."""
    run, has_perf, first_ns, callback_ns, *figures = _ENDED_BODY.unpack_from(body)
    report = RunReport(first_ns, Perf(*figures) if has_perf else None, callback_ns)
    return RunEnded(run, body[_ENDED_BODY.size :].decode(), report)


@dataclass(eq=False)
class FrameReader:
    """Split received bytes into frames."""

    _incomplete: list[bytes] = field(default_factory=list[bytes])
    _missing: int = 0

    def feed(self, received: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that are complete now, as (kind, body)."""
        if self._missing > len(received):
            # In the middle of a large frame, which is joined once, at its end.
            self._incomplete.append(received)
            self._missing -= len(received)
            return []
        data = b"".join((*self._incomplete, received)) if self._incomplete else received
        position, end, missing = 0, len(data), 0
        complete: list[tuple[int, bytes]] = []
        while end - position >= _HEAD.size:
            length, kind = _HEAD.unpack_from(data, position)
            following = position + 4 + length
            if following > end:
                missing = following - end
                break
            complete.append((kind, data[position + _HEAD.size : following]))
            position = following
        self._incomplete = [data[position:]] if position < end else []
        self._missing = missing
        return complete


_HEAD_LENGTH = struct.Struct("<I")
_NO_FLOATS: array[float] = array("f")

WhichRows = Literal["last", "all"]


@dataclass(frozen=True)
class OutputSelection:
    """Selected output of an evaluation: the last row or all rows, with all columns or these, in an RKLLMInferMode."""

    which: WhichRows = "last"
    columns: tuple[int, ...] = ()
    mode: int = RKLLM_INFER_GET_LAST_HIDDEN_LAYER


@dataclass(frozen=True)
class RunCommand:
    """Run the model."""

    # Identifies the run in its reports.
    run: int
    prompt: Input
    options: GenerationOptions
    # Output of an evaluation; None for a generation.
    rows: OutputSelection | None = None
    # Clear the KV cache before the run.
    clears_before: bool = False
    # Clear it after the run.
    clears_after: bool = False
    # Report the duration of the callbacks.
    is_timed: bool = False
    # Set keep_history of the run.
    keeps_history: bool = False


@dataclass(frozen=True)
class CallCommand:
    """Call a method of ``model.NativeModel`` by name."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


Message: TypeAlias = (
    Opened
    | ModelLoaded
    | LoadFailed
    | CallReply
    | LoadParameters
    | CallCommand
    | EncoderLoad
    | EncoderLoaded
    | EncodeFailed
)
_KINDS: Mapping[type[Message], int] = {
    Opened: OPENED,
    ModelLoaded: LOADED,
    LoadFailed: LOAD_FAILED,
    CallReply: REPLY,
    LoadParameters: LOAD,
    CallCommand: CALL,
    EncoderLoad: LOAD_ENCODER,
    EncoderLoaded: ENCODER_LOADED,
    EncodeFailed: ENCODE_FAILED,
}


def unpack_load(body: bytes) -> LoadParameters:
    """Return the parameters of a load command."""
    fields: dict[str, Any] = json.loads(body)
    fields["sampling"] = Sampling(**fields["sampling"])
    fields["image_tags"] = ImageTags(**fields["image_tags"]) if fields["image_tags"] else None
    fields["cpus"] = tuple(fields["cpus"])
    return LoadParameters(**fields)


# The host applies these; the worker has no use for them.
_HOST_OPTIONS = frozenset({"stop_ids", "owner"})


def pack_run(command: RunCommand) -> bytes:
    """Return the frame of a run command.

    Raises:
        OverflowError: a token is no 32-bit integer.
    """
    prompt = command.prompt
    if isinstance(prompt, TokenInput):
        fields, tail = dict[str, Any](), array("i", prompt.tokens).tobytes()
    else:
        fields, tail = asdict(replace(prompt, values=_NO_FLOATS)), prompt.values.tobytes()
        del fields["values"]
    head = json.dumps(
        {
            "run": command.run,
            "kind": type(prompt).__name__,
            "prompt": fields,
            "options": {name: value for name, value in asdict(command.options).items() if name not in _HOST_OPTIONS},
            "rows": asdict(command.rows) if command.rows else None,
            "clears_before": command.clears_before,
            "clears_after": command.clears_after,
            "is_timed": command.is_timed,
            "keeps_history": command.keeps_history,
        }
    ).encode()
    return frame(RUN, _HEAD_LENGTH.pack(len(head)) + head + tail)


def unpack_run(body: bytes) -> RunCommand:
    """Return the run command of a body."""
    head_end = _HEAD_LENGTH.size + _HEAD_LENGTH.unpack_from(body)[0]
    head: dict[str, Any] = json.loads(body[_HEAD_LENGTH.size : head_end])
    options: dict[str, Any] = head.pop("options")
    sampling: dict[str, Any] | None = options.pop("sampling")
    rows: dict[str, Any] | None = head.pop("rows")
    fields: dict[str, Any] = head.pop("prompt")
    if head.pop("kind") == TokenInput.__name__:
        ids: array[int] = array("i")
        ids.frombytes(memoryview(body)[head_end:])
        prompt = TokenInput(ids)
    else:
        values: array[float] = array("f")
        values.frombytes(memoryview(body)[head_end:])
        fields["tags"] = ImageTags(**fields["tags"]) if fields["tags"] else None
        fields["digests"] = tuple(fields["digests"])
        prompt = ImageInput(**fields, values=values)
    return RunCommand(
        **head,
        prompt=prompt,
        options=GenerationOptions(**options, sampling=Sampling(**sampling) if sampling else None),
        rows=OutputSelection(rows["which"], tuple(rows["columns"]), rows["mode"]) if rows else None,
    )
