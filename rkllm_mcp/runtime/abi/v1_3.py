"""RKLLM 1.3.0: per-run sampling and limits, rkllm_init takes a struct of callbacks, image tags move into the input.

Layout: header of runtime 1.3.0 (2026-06-17); what is not here is that of 1.2.1. The last block is 1.3.1, whose inputs
may hold audio.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_uint64,
    c_void_p,
)
from dataclasses import replace

from rkllm_mcp.runtime.abi import v1_2_1
from rkllm_mcp.runtime.abi.common import LLMHandle, Signature, struct, struct_table, union
from rkllm_mcp.runtime.abi.v1_2_0 import RKLLMEmbedInput, RKLLMLoraParam, RKLLMPromptCacheParam, RKLLMTokenInput
from rkllm_mcp.runtime.abi.v1_2_1 import LLMResultCallback, RKLLMExtendParam

RKLLMParam = struct(
    "RKLLMParam",
    model_path=c_char_p,
    max_context_len=c_int32,
    max_new_tokens=c_int32,
    top_k=c_int32,
    n_keep=c_int32,
    top_p=c_float,
    temperature=c_float,
    repeat_penalty=c_float,
    frequency_penalty=c_float,
    presence_penalty=c_float,
    mirostat=c_int32,
    mirostat_tau=c_float,
    mirostat_eta=c_float,
    skip_special_token=c_bool,
    ignore_eos_token=c_bool,
    is_async=c_bool,
    extend_param=RKLLMExtendParam,
)

RKLLMMultiModalImage = struct(
    "RKLLMMultiModalImage",
    image_embed=POINTER(c_float),
    n_image_tokens=c_size_t,
    n_image=c_size_t,
    image_start=c_char_p,
    image_end=c_char_p,
    image_content=c_char_p,
    image_width=c_size_t,
    image_height=c_size_t,
)

RKLLMMultiModalVideo = struct(
    "RKLLMMultiModalVideo",
    video_embed=POINTER(c_float),
    n_frame_tokens=c_size_t,
    n_frame_per_video=c_size_t,
    n_video=c_size_t,
    video_start=c_char_p,
    video_end=c_char_p,
    video_content=c_char_p,
    frame_width=c_size_t,
    frame_height=c_size_t,
)

RKLLMMultiModalInput = struct(
    "RKLLMMultiModalInput", prompt=c_char_p, image=RKLLMMultiModalImage, video=RKLLMMultiModalVideo
)

RKLLMInputValue = union(
    "RKLLMInputValue",
    prompt_input=c_char_p,
    embed_input=RKLLMEmbedInput,
    token_input=RKLLMTokenInput,
    multimodal_input=RKLLMMultiModalInput,
)

RKLLMInput = struct("RKLLMInput", role=c_char_p, enable_thinking=c_bool, input_type=c_int, value=RKLLMInputValue)

RKLLMSamplingParam = struct(
    "RKLLMSamplingParam",
    top_k=c_int32,
    top_p=c_float,
    temperature=c_float,
    repeat_penalty=c_float,
    frequency_penalty=c_float,
    presence_penalty=c_float,
    mirostat=c_int32,
    mirostat_tau=c_float,
    mirostat_eta=c_float,
)

RKLLMInferParam = struct(
    "RKLLMInferParam",
    mode=c_int,
    lora_params=POINTER(RKLLMLoraParam),
    prompt_cache_params=POINTER(RKLLMPromptCacheParam),
    sampling_params=POINTER(RKLLMSamplingParam),
    keep_history=c_int,
    max_new_tokens=c_int32,
)

LLMTokenizerCallback = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32)
LLMGetEmbedCallback = CFUNCTYPE(c_int, c_void_p, POINTER(c_int32), c_uint64, c_void_p, c_uint64)


RKLLMCallback = struct(
    "RKLLMCallback",
    result_callback=LLMResultCallback,
    result_userdata=c_void_p,
    tokenizer_callback=LLMTokenizerCallback,
    tokenizer_userdata=c_void_p,
    embed_callback=LLMGetEmbedCallback,
    embed_userdata=c_void_p,
)

SIGNATURES = {
    **v1_2_1.SIGNATURES,
    "rkllm_init": Signature(c_int, (POINTER(LLMHandle), POINTER(RKLLMParam), POINTER(RKLLMCallback))),
    "rkllm_run": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_run_async": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
}

# rkllm_is_running: 1 is running; wrappers disagree, so nothing relies on it.
ABI = replace(
    v1_2_1.ABI,
    name="1.3.0",
    versions=("1.3.0",),
    structs={
        **v1_2_1.ABI.structs,
        **struct_table(
            RKLLMParam, RKLLMMultiModalInput, RKLLMInput, RKLLMSamplingParam, RKLLMInferParam, RKLLMCallback
        ),
    },
    signatures=SIGNATURES,
    has_per_run_sampling=True,
    has_per_run_token_limit=True,
    has_ignore_eos=True,
    can_drop_buffers=True,
    leaks_images=True,
    host_callback_types=(LLMTokenizerCallback, LLMGetEmbedCallback),
)

# RKLLM 1.3.1: the header of 1.3.0 with one block behind ``video``. Its header (2026-09-29) was not read, but that text
# has the published SHA-256, 4ad19442…32c57c, so this is the only difference.

RKLLMMultiModalAudio = struct(
    "RKLLMMultiModalAudio",
    audio_embed=POINTER(c_float),
    n_audio_tokens=c_size_t,
    n_audio=c_size_t,
    audio_start=c_char_p,
    audio_end=c_char_p,
    audio_content=c_char_p,
)

RKLLMMultiModalInput131 = struct(
    "RKLLMMultiModalInput",
    prompt=c_char_p,
    image=RKLLMMultiModalImage,
    video=RKLLMMultiModalVideo,
    audio=RKLLMMultiModalAudio,
)

RKLLMInputValue131 = union(
    "RKLLMInputValue",
    prompt_input=c_char_p,
    embed_input=RKLLMEmbedInput,
    token_input=RKLLMTokenInput,
    multimodal_input=RKLLMMultiModalInput131,
)

RKLLMInput131 = struct("RKLLMInput", role=c_char_p, enable_thinking=c_bool, input_type=c_int, value=RKLLMInputValue131)

_RUN = Signature(c_int, (LLMHandle, POINTER(RKLLMInput131), POINTER(RKLLMInferParam), c_void_p))

ABI_1_3_1 = replace(
    ABI,
    name="1.3.1",
    versions=("1.3.1",),
    structs={**ABI.structs, **struct_table(RKLLMMultiModalInput131, RKLLMInput131)},
    signatures={**SIGNATURES, "rkllm_run": _RUN, "rkllm_run_async": _RUN},
)
