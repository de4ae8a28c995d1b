"""RKLLM 1.2.0: the first family with n_keep, logits and keep_history, and the last but one with a void callback.

Layout followed: header of runtime 1.2.0 (2025-04-08).
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
    reserved=c_uint8 * 106,
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

RKLLMLoraAdapter = struct("RKLLMLoraAdapter", lora_adapter_path=c_char_p, lora_adapter_name=c_char_p, scale=c_float)

RKLLMEmbedInput = struct("RKLLMEmbedInput", embed=POINTER(c_float), n_tokens=c_size_t)

RKLLMTokenInput = struct("RKLLMTokenInput", input_ids=POINTER(c_int32), n_tokens=c_size_t)

RKLLMMultiModalInput = struct(
    "RKLLMMultiModalInput",
    prompt=c_char_p,
    image_embed=POINTER(c_float),
    n_image_tokens=c_size_t,
)

RKLLMInputValue = union(
    "RKLLMInputValue",
    prompt_input=c_char_p,
    embed_input=RKLLMEmbedInput,
    token_input=RKLLMTokenInput,
    multimodal_input=RKLLMMultiModalInput,
)

RKLLMInput = struct("RKLLMInput", input_type=c_int, value=RKLLMInputValue)

RKLLMLoraParam = struct("RKLLMLoraParam", lora_adapter_name=c_char_p)

RKLLMPromptCacheParam = struct("RKLLMPromptCacheParam", save_prompt_cache=c_int, prompt_cache_path=c_char_p)

RKLLMInferParam = struct(
    "RKLLMInferParam",
    mode=c_int,
    lora_params=POINTER(RKLLMLoraParam),
    prompt_cache_params=POINTER(RKLLMPromptCacheParam),
    keep_history=c_int,
)

RKLLMResultLastHiddenLayer = struct(
    "RKLLMResultLastHiddenLayer",
    hidden_states=POINTER(c_float),
    embd_size=c_int,
    num_tokens=c_int,
)

RKLLMResultLogits = struct("RKLLMResultLogits", logits=POINTER(c_float), vocab_size=c_int, num_tokens=c_int)

RKLLMResult = struct(
    "RKLLMResult",
    text=c_char_p,
    token_id=c_int32,
    last_hidden_layer=RKLLMResultLastHiddenLayer,
    logits=RKLLMResultLogits,
)

LLMResultCallback = CFUNCTYPE(None, POINTER(RKLLMResult), c_void_p, c_int)

SIGNATURES = {
    "rkllm_createDefaultParam": Signature(RKLLMParamReturn, ()),
    "rkllm_init": Signature(c_int, (POINTER(LLMHandle), POINTER(RKLLMParam), LLMResultCallback)),
    "rkllm_load_lora": Signature(c_int, (LLMHandle, POINTER(RKLLMLoraAdapter))),
    "rkllm_load_prompt_cache": Signature(c_int, (LLMHandle, c_char_p)),
    "rkllm_release_prompt_cache": Signature(c_int, (LLMHandle,)),
    "rkllm_destroy": Signature(c_int, (LLMHandle,)),
    "rkllm_run": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_run_async": Signature(c_int, (LLMHandle, POINTER(RKLLMInput), POINTER(RKLLMInferParam), c_void_p)),
    "rkllm_abort": Signature(c_int, (LLMHandle,)),
    "rkllm_is_running": Signature(c_int, (LLMHandle,)),
    "rkllm_clear_kv_cache": Signature(c_int, (LLMHandle, c_int)),
    "rkllm_set_chat_template": Signature(c_int, (LLMHandle, c_char_p, c_char_p, c_char_p)),
}

STATUS_CHECKS: dict[str, StatusCheck | None] = {
    **dict.fromkeys(SIGNATURES, zero_is_success),
    "rkllm_createDefaultParam": None,  # returns a struct
    "rkllm_is_running": None,  # 0 is running, the header says; wrappers disagree, so nothing relies on it
}

ABI = Abi(
    name="1.2.0",
    versions=("1.2.0",),
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
        RKLLMInferParam,
        RKLLMResultLastHiddenLayer,
        RKLLMResultLogits,
        RKLLMResult,
    ),
    signatures=SIGNATURES,
    status_checks=STATUS_CHECKS,
    callback_type=LLMResultCallback,
    has_perf=False,
    has_kv_cache_size=False,
    has_per_run_sampling=False,
    has_per_run_token_limit=False,
    has_roles=False,
    has_image_sizes=False,
    has_function_tools=False,
    has_cache_ranges=False,
    has_ignore_eos=False,
    callback_returns_int=False,
    can_drop_buffers=False,
    leaks_images=False,
    host_callback_types=None,
)
