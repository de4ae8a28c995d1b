"""The structs and signatures of every family are those that a C compiler makes of our header."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from array import array
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.generation import GenerationOptions, ImageInput
from rkllm_mcp.runtime.abi import FAMILIES, UNSUPPORTED_VERSIONS, WORKING_VERSIONS, choose_abi
from rkllm_mcp.runtime.abi.common import Abi, LoadParameters
from rkllm_mcp.runtime.abi.declarations import Declarations
from rkllm_mcp.runtime.library import open_library
from rkllm_mcp.sampling import Sampling
from tests.support.emulator import MACROS, libraries, native_build
from tests.support.shared import REPOSITORY

# Sizes in bytes from the vendor's headers, compiled elsewhere: our own header could be wrong in the same way as we are.
SIZES = {
    "1.2.0": {"RKLLMExtendParam": 120, "RKLLMParam": 208, "RKLLMMultiModalInput": 24, "RKLLMInput": 32}
    | {"RKLLMInferParam": 32, "RKLLMResult": 48},
    "1.2.3": {"RKLLMExtendParam": 120, "RKLLMParam": 208, "RKLLMMultiModalInput": 48, "RKLLMInput": 64}
    | {"RKLLMInferParam": 32, "RKLLMResult": 72, "RKLLMPerfStat": 20, "RKLLMCrossAttnParam": 40},
    "1.3.0": {"RKLLMExtendParam": 120, "RKLLMParam": 184, "RKLLMMultiModalInput": 144, "RKLLMInput": 160}
    | {"RKLLMInferParam": 40, "RKLLMResult": 72, "RKLLMPerfStat": 20, "RKLLMCrossAttnParam": 40}
    | {"RKLLMSamplingParam": 36, "RKLLMCallback": 48},
    "1.3.1": {"RKLLMExtendParam": 120, "RKLLMParam": 184, "RKLLMMultiModalInput": 192, "RKLLMInput": 208}
    | {"RKLLMInferParam": 40, "RKLLMResult": 72, "RKLLMPerfStat": 20, "RKLLMCrossAttnParam": 40}
    | {"RKLLMSamplingParam": 36, "RKLLMCallback": 48},
}

# Exported by the real libraries too, and in no header.
UNDECLARED = {"rkllm_accuracy_analysis", "rkllm_print_timings", "rkllm_print_memorys"}

LOAD = LoadParameters(
    model_path="/models/q.rkllm",
    context_tokens=4096,
    max_new_tokens=300,
    sampling=Sampling(temperature=0.5, top_k=7, top_p=0.25, repeat_penalty=1.5),
    cpus=(4, 5, 6, 7),
)


def abi_of(version: str) -> Abi:
    abi = choose_abi(version)
    assert abi is not None
    return abi


def compiled_layout(version: str, folder: Path) -> dict[str, Any]:
    """What the compiler says of native/include/rkllm_abi.h."""
    source = REPOSITORY / "native" / "tests" / "layout.c"
    program = native_build().compile_program([source], folder / "layout", MACROS[version])
    printed = subprocess.run([program], capture_output=True, check=True, timeout=60).stdout
    layout: dict[str, Any] = json.loads(printed)["structs"]
    return layout


def ctypes_layout(types: Declarations) -> dict[str, Any]:
    return {name: {"size": ctypes.sizeof(types[name]), "fields": fields_of(types[name])} for name in types.structs}


def fields_of(struct: type[Any], prefix: str = "", base: int = 0) -> dict[str, list[int]]:
    """Every field by name; the members of an anonymous union in place of it, those of a named struct also inside it."""
    fields: dict[str, list[int]] = {}
    for name, kind in struct._fields_:
        place = getattr(struct, name)
        if name in getattr(struct, "_anonymous_", ()):
            fields |= fields_of(kind, prefix, base + place.offset)
            continue
        fields[prefix + name] = [base + place.offset, place.size]
        if name in ("image", "video", "audio"):
            fields |= fields_of(kind, f"{prefix}{name}.", base + place.offset)
    return fields


@pytest.mark.parametrize("version", MACROS)
def test_every_offset_and_size_is_the_compilers(version: str, tmp_path: Path) -> None:
    assert ctypes_layout(abi_of(version).types) == compiled_layout(version, tmp_path)


@pytest.mark.parametrize("version", SIZES)
def test_sizes_are_those_of_the_vendors_headers(version: str) -> None:
    types = abi_of(version).types
    assert {name: ctypes.sizeof(types[name]) for name in SIZES[version]} == SIZES[version]


@pytest.mark.parametrize("version", MACROS)
def test_signatures_cover_exactly_the_public_functions_that_the_library_exports(version: str) -> None:
    loaded = ctypes.CDLL(str(libraries()[version]))
    mentioned = {name.decode() for name in re.findall(rb"rkllm_\w+", libraries()[version].read_bytes())}
    exported = {name for name in mentioned if hasattr(loaded, name)}
    assert set(abi_of(version).types.signatures) == exported - UNDECLARED


@pytest.mark.parametrize("abi", FAMILIES, ids=lambda abi: abi.name)
def test_every_function_has_a_status_check_unless_it_returns_another_kind(abi: Abi) -> None:
    unchecked = {name for name, signature in abi.types.signatures.items() if signature.errcheck is None}
    assert unchecked == {"rkllm_createDefaultParam", "rkllm_is_running"}


def test_every_release_belongs_to_one_family_or_is_refused() -> None:
    assert {version: abi_of(version).name for version in WORKING_VERSIONS} == {
        "1.2.0": "1.2.0",
        "1.2.1": "1.2.1",
        "1.2.2": "1.2.1",
        "1.2.3": "1.2.1",
        "1.3.0": "1.3.0",
        "1.3.1": "1.3.1",
    }
    assert [*WORKING_VERSIONS] == sorted(WORKING_VERSIONS)
    assert [choose_abi(version) for version in (*UNSUPPORTED_VERSIONS, "1.3.2", "9.9.9")] == [None] * 11


@pytest.mark.parametrize("abi", FAMILIES, ids=lambda abi: abi.name)
def test_a_parameter_struct_has_every_field_that_was_asked_for(abi: Abi) -> None:
    param = abi.new_param(bytes(512), LOAD)

    assert param.model_path == b"/models/q.rkllm"
    assert (param.max_context_len, param.max_new_tokens, param.n_keep) == (4096, 300, -1)
    assert (param.top_k, param.top_p, param.temperature, param.repeat_penalty) == (7, 0.25, 0.5, 1.5)
    assert (param.mirostat, param.mirostat_tau, round(param.mirostat_eta, 3)) == (0, 5.0, 0.1)
    assert (param.skip_special_token, param.is_async) == (False, False)
    assert (param.extend_param.enabled_cpus_mask, param.extend_param.enabled_cpus_num) == (0xF0, 4)
    assert param.extend_param.embed_flash == 1


@pytest.mark.parametrize("abi", FAMILIES, ids=lambda abi: abi.name)
def test_a_run_keeps_no_history_and_sends_its_ids_as_they_are(abi: Abi) -> None:
    ids = (ctypes.c_int32 * 3)(5, 6, 7)
    value, infer = abi.new_input(ids), abi.new_infer_param(GenerationOptions(9, sampling=Sampling(top_k=1)))

    assert (value.input_type, value.token_input.n_tokens, value.token_input.input_ids[:3]) == (1, 3, [5, 6, 7])
    assert (infer.mode, infer.keep_history) == (0, 0)
    if abi.has_per_run_sampling:
        assert infer.sampling_params.contents.top_k == 1
    if abi.has_per_run_token_limit:
        assert infer.max_new_tokens == 9


@pytest.mark.parametrize(
    ("version", "fitting"),
    [("1.2.0", ["1.2.0"]), ("1.2.3", ["1.2.1"]), ("1.3.0", ["1.3.0", "1.3.1"]), ("1.3.1", ["1.3.0", "1.3.1"])],
)
def test_default_parameters_fit_their_own_family_and_no_other_of_another_layout(
    version: str, fitting: list[str]
) -> None:
    library = open_library(libraries()[version])
    assert [abi.name for abi in FAMILIES if abi.defaults_fit(library.default_param)] == fitting


def test_every_input_of_1_3_1_has_its_own_layout_and_holds_no_audio() -> None:
    abi, rows = abi_of("1.3.1"), (ctypes.c_float * 8)()
    image = abi.new_input(rows, ImageInput("<image>", array("f", rows), 1))
    inputs = [image, abi.new_input((ctypes.c_int32 * 1)(5))]

    assert {type(value) for value in inputs} == {abi.types["RKLLMInput"]}
    assert ctypes.sizeof(image) == SIZES["1.3.1"]["RKLLMInput"]
    assert (image.multimodal_input.audio.n_audio, bool(image.multimodal_input.audio.audio_embed)) == (0, False)
    assert (image.multimodal_input.video.n_video, image.multimodal_input.image.n_image) == (0, 1)
    for name in ("rkllm_run", "rkllm_run_async"):
        assert abi.types.signatures[name].argtypes[1] == ctypes.POINTER(abi.types["RKLLMInput"])


@pytest.mark.parametrize("abi", FAMILIES, ids=lambda abi: abi.name)
def test_defaults_of_another_layout_are_copied_without_following_their_pointers(abi: Abi) -> None:
    size = ctypes.sizeof(abi.types["RKLLMParam"])
    assert len(bytes(abi.new_param(b"\xff" * size, LOAD))) == size
