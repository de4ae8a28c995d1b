"""RKLLM 1.2.1 to 1.2.3: roles and thinking in the input, figures in the result, a callback whose result is acted on.

Layout followed: headers of runtime 1.2.1, 1.2.2 and 1.2.3 (2025-06-25 to 2025-11-24): structs and functions have the
same layout in them, while their texts differ. 1.2.1b1 is not of this family: it has this multimodal input but 1.2.0's
everything else. What is not here is that of 1.2.0.
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
    c_void_p,
)
from dataclasses import replace

from rkllm_mcp.runtime.abi import v1_2_0
from rkllm_mcp.runtime.abi.common import LLMHandle, Signature, struct, struct_table, union, zero_is_success
from rkllm_mcp.runtime.abi.v1_2_0 import (
    RKLLMEmbedInput,
    RKLLMInferParam,
    RKLLMResultLastHiddenLayer,
    RKLLMResultLogits,
    RKLLMTokenInput,
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
    is_async=c_bool,
    img_start=c_char_p,
    img_end=c_char_p,
    img_content=c_char_p,
    extend_param=RKLLMExtendParam,
)

RKLLMMultiModalInput = struct(
    "RKLLMMultiModalInput",
    prompt=c_char_p,
    image_embed=POINTER(c_float),
    n_image_tokens=c_size_t,
    n_image=c_size_t,
    image_width=c_size_t,
    image_height=c_size_t,
)

RKLLMInputValue = union(
    "RKLLMInputValue",
    prompt_input=c_char_p,
    embed_input=RKLLMEmbedInput,
    token_input=RKLLMTokenInput,
    multimodal_input=RKLLMMultiModalInput,
)

RKLLMInput = struct("RKLLMInput", role=c_char_p, enable_thinking=c_bool, input_type=c_int, value=RKLLMInputValue)

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

SIGNATURES = {
    **v1_2_0.SIGNATURES,
    "rkllm_init": Signature(c_int, (POINTER(LLMHandle), POINTER(RKLLMParam), LLMResultCallback)),
    "rkllm_run": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_run_async": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_clear_kv_cache": Signature(c_int, (LLMHandle, c_int, POINTER(c_int), POINTER(c_int))),
    "rkllm_get_kv_cache_size": Signature(c_int, (LLMHandle, POINTER(c_int))),
    "rkllm_set_function_tools": Signature(c_int, (LLMHandle, c_char_p, c_char_p, c_char_p)),
    "rkllm_set_cross_attn_params": Signature(c_int, (LLMHandle, POINTER(RKLLMCrossAttnParam))),
}

ABI = replace(
    v1_2_0.ABI,
    name="1.2.1",
    versions=("1.2.1", "1.2.2", "1.2.3"),
    structs={
        **v1_2_0.ABI.structs,
        **struct_table(
            RKLLMExtendParam,
            RKLLMParam,
            RKLLMMultiModalInput,
            RKLLMInput,
            RKLLMPerfStat,
            RKLLMResult,
            RKLLMCrossAttnParam,
        ),
    },
    signatures=SIGNATURES,
    status_checks={**dict.fromkeys(SIGNATURES, zero_is_success), **v1_2_0.STATUS_CHECKS},
    callback_type=LLMResultCallback,
    has_perf=True,
    has_kv_cache_size=True,
    has_roles=True,
    has_image_sizes=True,
    has_function_tools=True,
    has_cache_ranges=True,
    callback_returns_int=True,
)
