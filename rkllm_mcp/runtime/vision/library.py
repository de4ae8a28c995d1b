"""Find, check and load librknnrt.so, and run a vision encoder on it.

Runs in its own process: releases that are older than a model have thrown C++ exceptions, which end a process
(kiln, docs/TROUBLESHOOTING). The layout is that of 2.3.2; its release and the model's are compared by the library.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from ctypes import addressof, byref, c_float, c_uint64, c_void_p, sizeof
from pathlib import Path
from typing import Any, NamedTuple

from rkllm_mcp.errors import (
    AbiMismatchError,
    LibraryNotFoundError,
    ModelFileError,
    ModelLoadError,
    RunRejectedError,
    RuntimeUnusableError,
)
from rkllm_mcp.runtime.abi.declarations import CallFailedError, Declarations
from rkllm_mcp.runtime.library import USUAL_FOLDERS, runtime_folder

LIBRARY_NAME = "librknnrt.so"
LIBRARY_VARIABLE = "RKNN_LIBRARY"

_MARKER = re.compile(rb"librknnrt version: (\d+\.\d+\.\d+[^ \0]*) ?\(([^)\0]{1,64})")
# The head of ``native/vision`` models, which only the emulated library can run.
EMULATED_HEADER = b"RKNN-EMULATOR "

_QUERY_IN_OUT_NUM, _QUERY_INPUT_ATTR, _QUERY_OUTPUT_ATTR = 0, 1, 2
_UINT8, _NHWC, _NCHW = 3, 1, 0
# All cores of the RK3588, those of the RK3576, then the runtime's own choice, which is one core.
_CORE_MASKS = (7, 3)
_CHANNELS = 3
_FLOAT_BYTES = sizeof(c_float)
# More than any encoder of rknn-llm gives: 784 tokens of 4 x 2560 floats are 32 MB.
_MOST_BYTES = 256_000_000

_NEWER = "Install a newer librknnrt.so, or put one beside the encoder's file."
# Reasons of rknn_init by status (rknn_api.h 2.3.2), with the remedy.
_REASONS: dict[int, tuple[str, str]] = {
    -3: ("the NPU is not available", "Check that its driver is loaded and that you may open its device."),
    -4: ("the NPU has no memory for it", "End other programs or models, or choose a smaller model."),
    -6: ("librknnrt.so does not accept the file: it is damaged, or made for a newer release", _NEWER),
    -10: ("library and driver do not fit each other", "Update the NPU's driver, or librknnrt.so."),
    -11: ("it was converted for another driver", "Update the NPU's driver, or convert it again."),
    -12: ("it was converted for another driver", "Update the NPU's driver, or convert it again."),
    -13: ("it was converted for another SoC", "Choose the encoder for this board."),
}


class EncoderShape(NamedTuple):
    """Properties of a loaded encoder, as the library reports them."""

    width: int  # of the input, pixels
    height: int
    tokens: int  # of a picture
    row: int  # floats per token and output: the width of the language model
    outputs: int  # of several, the rows of a token follow each other


# Declarations of librknnrt.so.
_RKNN = json.loads((Path(__file__).parents[1] / "abi" / "rknn.json").read_text("utf-8"))
DECLARATIONS = Declarations(_RKNN["structs"], _RKNN["callbacks"], _RKNN["functions"])


def library_version(path: Path) -> str | None:
    """Return the release that a library file names, without loading it; None for a file without the marker."""
    try:
        marker = _MARKER.search(path.read_bytes())
    except OSError:
        return None
    return marker.group(1).decode() if marker else None


def is_emulated_encoder(path: Path) -> bool:
    """Return True if a .rknn file is a text for the emulated library."""
    try:
        with path.open("rb") as file:
            return file.read(len(EMULATED_HEADER)) == EMULATED_HEADER
    except OSError:
        return False


def find_encoder_library(model: Path) -> Path:
    """Return the library to load for an encoder.

    Some models need another release than the system has, so a copy next to the model comes first; then $RKNN_LIBRARY,
    the folder of 'runtime pull', LD_LIBRARY_PATH and the usual folders.

    Raises:
        LibraryNotFoundError: no library exists.
    """
    explicit = os.environ.get(LIBRARY_VARIABLE, "")
    searched = [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *USUAL_FOLDERS]
    candidates = [
        model.parent / LIBRARY_NAME,
        *([Path(explicit).expanduser()] if explicit else []),
        runtime_folder() / "rknn" / LIBRARY_NAME,
        *(Path(folder).expanduser() / LIBRARY_NAME for folder in searched),
    ]
    for path in candidates:
        if path.is_file():
            return path.resolve()
    raise LibraryNotFoundError(
        f"{LIBRARY_NAME} was not found, which the vision encoder {model.name} needs.",
        f"Copy it from Rockchip's rknn-toolkit2 (rknpu2/runtime/Linux) to {model.parent} or /usr/lib, "
        f"or name it in ${LIBRARY_VARIABLE}.",
    )


class NativeEncoder:
    """A loaded encoder; its methods belong to one thread, as the library promises nothing about several.

    Raises:
        RuntimeUnusableError: the library or the model cannot be loaded, or the model is not a vision encoder.
    """

    def __init__(self, library: Path, model: Path) -> None:
        if library_version(library) is None:
            raise AbiMismatchError(f"{library} is no librknnrt.so: it names no release.", "Copy the library again.")
        self._types = DECLARATIONS
        try:
            self._functions = ctypes.CDLL(str(library))
            for name, signature in self._types.signatures.items():
                function = getattr(self._functions, name)
                function.restype, function.argtypes = signature.restype, signature.argtypes
                function.errcheck = signature.errcheck
        except (OSError, AttributeError) as error:
            raise RuntimeUnusableError(f"{library} cannot be loaded: {error}.", "Copy librknnrt.so again.") from None
        self._context = c_uint64()
        try:
            # A size of 0: the pointer is a path.
            self._functions.rknn_init(byref(self._context), os.fsencode(model), 0, 0, None)
        except CallFailedError as error:
            reason, remedy = _REASONS.get(error.status, (f"rknn_init returned {error.status}", _NEWER))
            raise ModelLoadError(f"The vision encoder {model} cannot be loaded: {reason}.", remedy) from None
        try:
            self.shape = self._shape(model)
        except CallFailedError as error:
            raise ModelFileError(f"{model} does not describe itself: {error}.", "Convert it again.") from None
        self.use_cores()
        self._buffers = [(c_float * (self.shape.tokens * self.shape.row))() for _ in range(self.shape.outputs)]

    def encode(self, pixels: bytes) -> bytes:
        """Return the float32 rows of a picture, token by token; ``pixels`` are RGB lines of the encoder's size.

        Raises:
            RunRejectedError: the library refused it.
        """
        source = (ctypes.c_uint8 * len(pixels)).from_buffer_copy(pixels)
        source_input = self._types["rknn_input"](buf=addressof(source), size=len(pixels), type=_UINT8, fmt=_NHWC)
        outputs = (self._types["rknn_output"] * self.shape.outputs)()
        for index, buffer in enumerate(self._buffers):
            outputs[index].want_float, outputs[index].is_prealloc, outputs[index].index = 1, 1, index
            outputs[index].buf, outputs[index].size = addressof(buffer), sizeof(buffer)
        try:
            self._functions.rknn_inputs_set(self._context, 1, byref(source_input))
            self._functions.rknn_run(self._context, None)
            self._functions.rknn_outputs_get(self._context, self.shape.outputs, outputs, None)
            # All of them: Rockchip's demo releases the first of four.
            self._functions.rknn_outputs_release(self._context, self.shape.outputs, outputs)
        except CallFailedError as error:
            raise RunRejectedError(f"the vision encoder failed: {error}") from None
        if len(self._buffers) == 1:
            return bytes(self._buffers[0])
        views = [memoryview(buffer).cast("B") for buffer in self._buffers]
        size = self.shape.row * _FLOAT_BYTES
        starts = range(0, self.shape.tokens * size, size)
        return b"".join(view[start : start + size] for start in starts for view in views)

    def use_cores(self, masks: Sequence[int] = _CORE_MASKS) -> bool:
        """Use the cores of the first mask that the library accepts; False if it refuses them all.

        From the beginning it uses as many cores as the NPU has.
        """
        for mask in masks:
            with suppress(CallFailedError):
                self._functions.rknn_set_core_mask(self._context, mask)
                return True
        return False

    def destroy(self) -> None:
        """Free the model."""
        self._functions.rknn_destroy(self._context)

    def _query(self, command: int, struct: Any) -> Any:
        self._functions.rknn_query(self._context, command, ctypes.cast(byref(struct), c_void_p), sizeof(struct))
        return struct

    def _shape(self, model: Path) -> EncoderShape:
        counts = self._query(_QUERY_IN_OUT_NUM, self._types["rknn_input_output_num"]())
        input_attributes = self._query(_QUERY_INPUT_ATTR, self._types["rknn_tensor_attr"]())
        outputs = [
            self._query(_QUERY_OUTPUT_ATTR, self._types["rknn_tensor_attr"](index=index))
            for index in range(counts.n_output)
        ]
        dims = list(input_attributes.dims[: input_attributes.n_dims])
        is_picture = (
            counts.n_input == 1 and len(dims) == 4 and dims[3 if input_attributes.fmt == _NHWC else 1] == _CHANNELS
        )
        # Tokens and floats per token of each output; None for one that is not a vision encoder's. Exports differ in
        # leading and trailing dimensions of 1; the first larger one counts the tokens.
        rows: set[tuple[int, int] | None] = set()
        for attr in outputs:
            large: list[int] = [size for size in attr.dims[: attr.n_dims] if size > 1]
            rows.add((large[0], large[1]) if len(large) == 2 and large[0] * large[1] == attr.n_elems else None)
        if not is_picture or len(rows) != 1 or None in rows:
            raise ModelFileError(
                f"{model} is no vision encoder for RKLLM: it takes {dims} and gives "
                f"{[list(attr.dims[: attr.n_dims]) for attr in outputs]}.",
                "Choose the encoder that was exported with the language model.",
            )
        height, width = dims[2:] if input_attributes.fmt == _NCHW else dims[1:3]
        tokens, row = next(shape for shape in rows if shape)
        if tokens * row * len(outputs) * _FLOAT_BYTES > _MOST_BYTES:
            raise ModelFileError(f"{model} gives {tokens} x {row} numbers a picture, too many.", "Choose another one.")
        return EncoderShape(width, height, tokens, row, len(outputs))
