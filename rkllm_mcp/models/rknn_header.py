"""The contents of a ``.rknn`` file, read without Rockchip's library.

    RKNN | format version | length N | … | 64: flatbuffer of N bytes | length | JSON

Seen on files of rknn-toolkit2 2.3 and 2.5. What is not where it was seen is None; nothing of a file is believed beyond
its size.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.messages import as_list, as_mapping

MAGIC = b"RKNN"
# The head of ``native/vision`` models, which only the emulated library can run.
EMULATED = b"RKNN-EMULATOR "
_BODY = 64  # where the flatbuffer begins
_MOST_JSON_BYTES = 64_000_000
_LEAST_BYTES = 72
_VERSION = re.compile(r"\d+\.\d+\.\d+\w*")
_AGAIN = "Copy or download it again."
_COLOURS = 3


@dataclass(frozen=True)
class RknnFile:
    """Metadata of a .rknn file; None for missing or unreadable values."""

    path: Path
    size_bytes: int
    platform: str | None = None  # target SoC, ``RK3588``
    toolkit: str | None = None  # version of rknn-toolkit2
    input_size: tuple[int, int] | None = None  # height and width of its picture, pixels
    tokens: int | None = None  # of a picture
    width: int | None = None  # numbers of a token in one output: the width of the language model
    outputs: int | None = None
    emulated: bool = False


def read_rknn_file(path: Path) -> RknnFile:
    """Read the metadata of a .rknn file; a ModelFileError if it is unreadable, cut off or of another kind."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_BODY)
            if head.startswith(EMULATED):
                text = (head + file.read(_MOST_JSON_BYTES)).decode("utf-8", "replace")
                lines = {words[0]: words[1:] for line in text.splitlines()[1:] if (words := line.split())}
                names = ("input", "cells", "tokens", "width", "outputs")
                numbers = [[int(word) for word in lines.get(name, ()) if word.isdecimal()] for name in names]
                given, cells, counts, widths, outputs = numbers
                counts = counts or ([math.prod(cells)] if cells else [])
                return RknnFile(
                    path,
                    size,
                    platform=(lines.get("platform") or ["rk3588"])[0].upper(),
                    input_size=(given[0], given[1]) if len(given) == 2 else None,
                    tokens=counts[0] if counts else None,
                    width=widths[0] if widths else None,
                    outputs=outputs[0] if outputs else 1,
                    emulated=True,
                )
            if not head.startswith(MAGIC):
                raise ModelFileError(f"{path} is no .rknn file.", "Name the vision encoder of the model.")
            about = _about(file, head, size, path)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}).", "Name a readable .rknn file.") from None
    platforms = [str(name).upper() for name in as_list(about.get("target_platform"))]
    toolkit = _VERSION.search(str(about.get("version", "")))
    shapes: list[tuple[int, ...]] = []
    for tensor in as_list(about.get("norm_tensor")):
        sizes = as_list(as_mapping(tensor).get("size"))
        if sizes and all(isinstance(size, int) and size > 0 for size in sizes):
            shapes.append(tuple(sizes))
    pictures = [shape for shape in shapes if len(shape) == 4 and _COLOURS in (shape[1], shape[3])]
    picture = pictures[0] if len(pictures) == 1 else None
    input_size = None
    if picture is not None:
        input_size = (picture[2], picture[3]) if picture[1] == _COLOURS else (picture[1], picture[2])
    large = [[size for size in shape if size > 1] for shape in shapes if shape is not picture]
    rows = {(row[0], row[1]) for row in large if len(row) == 2}
    tokens, width = next(iter(rows)) if len(rows) == 1 else (None, None)
    return RknnFile(
        path,
        size,
        platform=platforms[0] if len(platforms) == 1 else None,
        toolkit=toolkit.group() if toolkit else None,
        input_size=input_size,
        tokens=tokens,
        width=width,
        outputs=len(shapes) - len(pictures) if rows else None,
    )


def _about(file: BinaryIO, head: bytes, size: int, path: Path) -> Mapping[str, Any]:
    """Return the JSON after the flatbuffer; empty if the layout is another one."""
    if size < _LEAST_BYTES or len(head) < _BODY:
        raise ModelFileError(f"{path} is cut off: it has {size} bytes.", _AGAIN)
    (body,) = struct.unpack_from("<Q", head, 16)
    if body > size:
        raise ModelFileError(f"{path} is cut off: it is shorter than its header requires.", _AGAIN)
    file.seek(_BODY + body)
    length = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]
    if not 0 < length <= min(size - _BODY - body, _MOST_JSON_BYTES):
        return {}
    try:
        return as_mapping(json.loads(file.read(length).rstrip(b"\0")))
    except ValueError:
        return {}
