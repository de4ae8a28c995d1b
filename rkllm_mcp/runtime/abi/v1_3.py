"""RKLLM 1.3.0: per-run sampling and limits, rkllm_init takes a struct of callbacks, image tags move into the input.

Layout: header of runtime 1.3.0 (2026-06-17). The last block is 1.3.1, whose inputs may hold audio.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char_p,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import replace

from rkllm_mcp.runtime.abi.common import (
    Abi,
    LLMHandle,
    RKLLMParamReturn,
    Signature,
    StatusCheck,
    struct,
    struct_table,
    union,
    zero_is_success,
)

RKLLMExtendParam = struct(
    "RKLLMExtendParam",
    base_domain_id=c_int32,
    embed_flash=c_int8,
    enabled_cpus_num=c_int8,
    enabled_cpus_mask=c_uint32,
    n_batch=c_uint8,
    use_cross_attn=c_int8,
    reserved=c_uint8 * 104,
)

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

RKLLMLoraAdapter = struct("RKLLMLoraAdapter", lora_adapter_path=c_char_p, lora_adapter_name=c_char_p, scale=c_float)

RKLLMEmbedInput = struct("RKLLMEmbedInput", embed=POINTER(c_float), n_tokens=c_size_t)

RKLLMTokenInput = struct("RKLLMTokenInput", input_ids=POINTER(c_int32), n_tokens=c_size_t)

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

RKLLMLoraParam = struct("RKLLMLoraParam", lora_adapter_name=c_char_p)

RKLLMPromptCacheParam = struct("RKLLMPromptCacheParam", save_prompt_cache=c_int, prompt_cache_path=c_char_p)

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

RKLLMResultLastHiddenLayer = struct(
    "RKLLMResultLastHiddenLayer", hidden_states=POINTER(c_float), embd_size=c_int, num_tokens=c_int
)

RKLLMResultLogits = struct("RKLLMResultLogits", logits=POINTER(c_float), vocab_size=c_int, num_tokens=c_int)

RKLLMPerfStat = struct(
    "RKLLMPerfStat",
    prefill_time_ms=c_float,
    prefill_tokens=c_int,
    generate_time_ms=c_float,
    generate_tokens=c_int,
    memory_usage_mb=c_float,
)

RKLLMResult = struct(
    "RKLLMResult",
    text=c_char_p,
    token_id=c_int32,
    last_hidden_layer=RKLLMResultLastHiddenLayer,
    logits=RKLLMResultLogits,
    perf=RKLLMPerfStat,
)

RKLLMCrossAttnParam = struct(
    "RKLLMCrossAttnParam",
    encoder_k_cache=POINTER(c_float),
    encoder_v_cache=POINTER(c_float),
    encoder_mask=POINTER(c_float),
    encoder_pos=POINTER(c_int32),
    num_tokens=c_int,
)

LLMResultCallback = CFUNCTYPE(c_int, POINTER(RKLLMResult), c_void_p, c_int)
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
    "rkllm_createDefaultParam": Signature(RKLLMParamReturn, ()),
    "rkllm_init": Signature(c_int, (POINTER(LLMHandle), POINTER(RKLLMParam), POINTER(RKLLMCallback))),
    "rkllm_load_lora": Signature(c_int, (LLMHandle, POINTER(RKLLMLoraAdapter))),
    "rkllm_load_prompt_cache": Signature(c_int, (LLMHandle, c_char_p)),
    "rkllm_release_prompt_cache": Signature(c_int, (LLMHandle,)),
    "rkllm_destroy": Signature(c_int, (LLMHandle,)),
    "rkllm_run": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_run_async": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_abort": Signature(c_int, (LLMHandle,)),
    "rkllm_is_running": Signature(c_int, (LLMHandle,)),
    "rkllm_clear_kv_cache": Signature(c_int, (LLMHandle, c_int, POINTER(c_int), POINTER(c_int))),
    "rkllm_set_chat_template": Signature(c_int, (LLMHandle, c_char_p, c_char_p, c_char_p)),
    "rkllm_get_kv_cache_size": Signature(c_int, (LLMHandle, POINTER(c_int))),
    "rkllm_set_function_tools": Signature(c_int, (LLMHandle, c_char_p, c_char_p, c_char_p)),
    "rkllm_set_cross_attn_params": Signature(c_int, (LLMHandle, POINTER(RKLLMCrossAttnParam))),
}

STATUS_CHECKS: dict[str, StatusCheck | None] = {
    "rkllm_createDefaultParam": None,  # returns a struct
    "rkllm_init": zero_is_success,
    "rkllm_load_lora": zero_is_success,
    "rkllm_load_prompt_cache": zero_is_success,
    "rkllm_release_prompt_cache": zero_is_success,
    "rkllm_destroy": zero_is_success,
    "rkllm_run": zero_is_success,
    "rkllm_run_async": zero_is_success,
    "rkllm_abort": zero_is_success,
    "rkllm_is_running": None,  # 1 is running; wrappers disagree, so nothing relies on it
    "rkllm_clear_kv_cache": zero_is_success,
    "rkllm_set_chat_template": zero_is_success,
    "rkllm_get_kv_cache_size": zero_is_success,
    "rkllm_set_function_tools": zero_is_success,
    "rkllm_set_cross_attn_params": zero_is_success,
}

ABI = Abi(
    name="1.3.0",
    versions=("1.3.0",),
    structs=struct_table(
        RKLLMExtendParam,
        RKLLMParam,
        RKLLMLoraAdapter,
        RKLLMEmbedInput,
        RKLLMTokenInput,
        RKLLMMultiModalInput,
        RKLLMInput,
        RKLLMLoraParam,
        RKLLMPromptCacheParam,
        RKLLMSamplingParam,
        RKLLMInferParam,
        RKLLMResultLastHiddenLayer,
        RKLLMResultLogits,
        RKLLMPerfStat,
        RKLLMResult,
        RKLLMCrossAttnParam,
        RKLLMCallback,
    ),
    signatures=SIGNATURES,
    status_checks=STATUS_CHECKS,
    callback_type=LLMResultCallback,
    has_perf=True,
    has_kv_cache_size=True,
    has_per_run_sampling=True,
    has_per_run_token_limit=True,
    has_roles=True,
    has_image_sizes=True,
    has_function_tools=True,
    has_cache_ranges=True,
    has_ignore_eos=True,
    callback_returns_int=True,
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
