"""RKLLM 1.3.1: an input may hold audio. Everything else is 1.3.0's, and is taken from there.

Layout followed: header of runtime 1.3.0 with one block behind ``video``. Nobody here has read the header of 1.3.1
(2026-09-29), but that text gives exactly the SHA-256 that was published of it, 4ad19442…32c57c; so there is no second
difference. This is why the module does not stand for itself like the others: what is known of 1.3.1 is this sentence.
"""

from __future__ import annotations

from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_size_t, c_void_p
from dataclasses import replace
from functools import partial

from rkllm_mcp.runtime.abi import v1_3
from rkllm_mcp.runtime.abi.common import LLMHandle, Signature, struct, struct_table, union

RKLLMMultiModalAudio = struct(
    "RKLLMMultiModalAudio",
    audio_embed=POINTER(c_float),
    n_audio_tokens=c_size_t,
    n_audio=c_size_t,
    audio_start=c_char_p,
    audio_end=c_char_p,
    audio_content=c_char_p,
)

RKLLMMultiModalInput = struct(
    "RKLLMMultiModalInput",
    prompt=c_char_p,
    image=v1_3.RKLLMMultiModalImage,
    video=v1_3.RKLLMMultiModalVideo,
    audio=RKLLMMultiModalAudio,
)

RKLLMInputValue = union(
    "RKLLMInputValue",
    prompt_input=c_char_p,
    embed_input=v1_3.RKLLMEmbedInput,
    token_input=v1_3.RKLLMTokenInput,
    multimodal_input=RKLLMMultiModalInput,
)

RKLLMInput = struct("RKLLMInput", role=c_char_p, enable_thinking=c_bool, input_type=c_int, value=RKLLMInputValue)

_RUN = Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(v1_3.RKLLMInferParam), c_void_p))

ABI = replace(
    v1_3.ABI,
    name="1.3.1",
    versions=("1.3.1",),
    structs={**v1_3.ABI.structs, **struct_table(RKLLMMultiModalInput, RKLLMInput)},
    signatures={**v1_3.SIGNATURES, "rkllm_run": _RUN, "rkllm_run_async": _RUN},
    new_input=partial(v1_3.new_input, kind=RKLLMInput),
    new_text_input=partial(v1_3.new_text_input, kind=RKLLMInput),
    new_embedding_input=partial(v1_3.new_embedding_input, kind=RKLLMInput),
    new_image_input=partial(v1_3.new_image_input, kind=RKLLMInput),
)
