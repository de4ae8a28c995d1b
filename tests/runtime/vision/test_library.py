"""The binding of librknnrt.so: layouts, what an encoder is asked, how its outputs are put together, what is refused."""

from __future__ import annotations

import ctypes
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.errors import AbiMismatchError, LibraryNotFoundError, ModelFileError, ModelLoadError, RunRejectedError
from rkllm_mcp.runtime.vision.library import (
    DECLARATIONS,
    EncoderShape,
    NativeEncoder,
    find_encoder_library,
    library_version,
)
from rkllm_mcp.runtime.vision.picture import fitted_pixels
from tests.native.elf import exported_names, soname
from tests.support.emulator import native_build
from tests.support.pictures import RED_ABOVE_BLUE, emulated_encoder

# Sizes and offsets of the vendor's header 2.3.2, compiled elsewhere (../shared/reference/vision.md, 4).
LAYOUT: dict[str, tuple[int, dict[str, int]]] = {
    "rknn_input_output_num": (8, {"n_input": 0, "n_output": 4}),
    "rknn_tensor_attr": (
        376,
        {"index": 0, "n_dims": 4, "dims": 8, "name": 72, "n_elems": 328, "size": 332, "fmt": 336, "type": 340}
        | {"qnt_type": 344, "fl": 348, "zp": 352, "scale": 356, "w_stride": 360, "size_with_stride": 364}
        | {"pass_through": 368, "h_stride": 372},
    ),
    "rknn_input": (32, {"index": 0, "buf": 8, "size": 16, "pass_through": 20, "type": 24, "fmt": 28}),
    "rknn_output": (24, {"want_float": 0, "is_prealloc": 1, "index": 4, "buf": 8, "size": 16}),
    "rknn_sdk_version": (512, {"api_version": 0, "drv_version": 256}),
}
ROW = ("mark", "red", "green", "blue", "cell", "output", "outputs", "lines", "columns")


@pytest.fixture(scope="session")
def library() -> Path:
    """The emulated librknnrt.so."""
    built: Path = native_build().ensure_encoder()
    return built


def calls(log: Path, name: str) -> list[dict[str, Any]]:
    return [call for line in log.read_text().splitlines() if (call := json.loads(line))["call"] == name]


def test_layouts_are_those_of_the_vendors_header() -> None:
    types = DECLARATIONS
    made = {
        name: (ctypes.sizeof(types[name]), {field: getattr(types[name], field).offset for field in members})
        for name, members in types.structs.items()
    }
    assert made == LAYOUT


def test_the_emulated_library_can_replace_the_real_one(library: Path) -> None:
    unused = {"rknn_dup_context", "rknn_wait"}
    assert exported_names(library) == {*DECLARATIONS.functions, *unused}
    assert (soname(library), library_version(library)) == ("librknnrt.so", "2.3.2")


@pytest.mark.parametrize("outputs", [1, 4])
def test_the_rows_of_all_outputs_follow_each_other_token_by_token(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: int
) -> None:
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("RKNN_EMULATOR_LOG", str(log))
    encoder = NativeEncoder(library, emulated_encoder(tmp_path, lines=f"outputs {outputs}"))
    assert encoder.shape == EncoderShape(64, 64, 16, 16, outputs)

    values = array("f", encoder.encode(fitted_pixels(RED_ABOVE_BLUE, 64, 64)))
    encoder.destroy()

    rows = [dict(zip(ROW, values[at : at + 9], strict=True)) for at in range(0, len(values), 16)]
    assert [(row["cell"], row["output"]) for row in rows] == [(t, o) for t in range(16) for o in range(outputs)]
    colours = {row["cell"]: tuple(round(255 * row[name]) for name in ("red", "green", "blue")) for row in rows}
    assert [colours[cell] for cell in (0, 3, 12, 15)] == [(220, 20, 20)] * 2 + [(20, 40, 220)] * 2
    # The published speeds are those of all cores; every output that was got is released.
    assert [call["mask"] for call in calls(log, "rknn_run")] == [7]
    assert [call["unreleased"] for call in calls(log, "rknn_outputs_release")] == [0]
    assert [call["unreleased"] for call in calls(log, "rknn_destroy")] == [0]


@pytest.mark.parametrize(
    ("lines", "kind", "part"),
    [
        ("fault too-old", ModelLoadError, "made for a newer release"),
        ("fault out-of-memory", ModelLoadError, "the NPU has no memory"),
        ("platform rk3576", ModelLoadError, "another SoC"),
        ("tokens 1", ModelFileError, "is no vision encoder for RKLLM: it takes [1, 64, 64, 3] and gives [[1, 1, 16]]"),
    ],
)
def test_an_encoder_that_cannot_be_used_is_refused_in_a_sentence(
    library: Path, tmp_path: Path, lines: str, kind: type[Exception], part: str
) -> None:
    with pytest.raises(kind) as refused:
        NativeEncoder(library, emulated_encoder(tmp_path, lines=lines))
    assert part in str(refused.value)


def test_a_picture_of_another_size_and_a_run_that_fails_are_errors_of_the_picture(
    library: Path, tmp_path: Path
) -> None:
    encoder = NativeEncoder(library, emulated_encoder(tmp_path, lines="fault run-fails"))
    for pixels, part in (
        (bytes(63 * 64 * 3), "rknn_inputs_set returned -8"),
        (bytes(64 * 64 * 3), "rknn_run returned -1"),
    ):
        with pytest.raises(RunRejectedError, match=part):
            encoder.encode(pixels)
    encoder.destroy()


def test_a_library_next_to_the_model_comes_before_the_systems(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = emulated_encoder(tmp_path)
    monkeypatch.setenv("RKNN_LIBRARY", str(library))
    assert find_encoder_library(model) == library
    (tmp_path / "librknnrt.so").write_bytes(b"no library")
    assert find_encoder_library(model) == tmp_path / "librknnrt.so"
    with pytest.raises(AbiMismatchError, match="names no release"):
        NativeEncoder(tmp_path / "librknnrt.so", model)


def test_without_a_library_the_message_says_where_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RKNN_LIBRARY", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LibraryNotFoundError, match="rknn-toolkit2"):
        find_encoder_library(emulated_encoder(tmp_path))
