"""What the engine tells the worker to do, as frames: load a model, run it, call a function of it.

A run's command is a head in JSON and, behind it, its token ids or embeddings as they lie in memory. None of these is
sent often; the reports that are stand in ``frames.py``. Pure: no sockets and no threads here.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rkllm_mcp.generation import EmbeddingInput, ImageInput, ImageTags, Input, Sampling, TextInput, TokenInput
from rkllm_mcp.runtime.abi.common import InferParameters, LoadParameters
from rkllm_mcp.runtime.frames import CALL, LOAD, RUN, frame

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
class RowsWanted:
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
    rows: RowsWanted | None = None
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
        rows=RowsWanted(rows["which"], tuple(rows["columns"])) if rows else None,
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
