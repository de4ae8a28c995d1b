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
    pointer,
)
from typing import Any

from rkllm_mcp.generation import ImageInput, TextInput
from rkllm_mcp.runtime.abi.common import (
    RKLLM_INPUT_EMBED,
    RKLLM_INPUT_MULTIMODAL,
    RKLLM_INPUT_PROMPT,
    RKLLM_INPUT_TOKEN,
    Abi,
    FloatArray,
    InferParameters,
    LLMHandle,
    LoadParameters,
    Perf,
    RKLLMParamReturn,
    Signature,
    StatusCheck,
    TokenArray,
    fill_sampling,
    plausible_cpus,
    plausible_sampling,
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
    "rkllm_createDefaultParam": None,  # returns a struct
    "rkllm_init": zero_is_success,
    "rkllm_load_lora": zero_is_success,
    "rkllm_load_prompt_cache": zero_is_success,
    "rkllm_release_prompt_cache": zero_is_success,
    "rkllm_destroy": zero_is_success,
    "rkllm_run": zero_is_success,
    "rkllm_run_async": zero_is_success,
    "rkllm_abort": zero_is_success,
    "rkllm_is_running": None,  # 0 is running, the header says; wrappers disagree, so nothing relies on it
    "rkllm_clear_kv_cache": zero_is_success,
    "rkllm_set_chat_template": zero_is_success,
}


def new_param(defaults: bytes, load: LoadParameters) -> Any:
    """The library's defaults with every field set that this project relies on."""
    param = RKLLMParam.from_buffer_copy(defaults)
    param.model_path = load.model_path.encode()
    param.max_context_len = load.context_tokens
    param.max_new_tokens = load.max_new_tokens
    param.n_keep = load.keep_tokens
    fill_sampling(param, load.sampling)
    param.skip_special_token = load.skip_special_tokens
    param.is_async = False
    tags = load.image_tags
    param.img_start = tags.start.encode() if tags else b""
    param.img_end = tags.end.encode() if tags else b""
    param.img_content = tags.content.encode() if tags else b""
    param.extend_param.base_domain_id = load.base_domain_id
    param.extend_param.embed_flash = int(load.embed_flash)
    if load.cpu_mask is not None:
        param.extend_param.enabled_cpus_mask = load.cpu_mask
        param.extend_param.enabled_cpus_num = load.cpu_mask.bit_count()
    return param


def new_callback(result_callback: Any) -> Any:
    """The function pointer itself."""
    return result_callback


def new_input(ids: TokenArray) -> Any:
    """Token ids, used as they are: no template is applied to them. ``ids`` must live as long as the run."""
    value = RKLLMInput(input_type=RKLLM_INPUT_TOKEN)
    value.token_input.input_ids = ids
    value.token_input.n_tokens = len(ids)
    return value


def new_text_input(text: TextInput) -> Any:
    """Text, to which the runtime applies its template; this family knows neither roles nor thinking."""
    value = RKLLMInput(input_type=RKLLM_INPUT_PROMPT)
    value.prompt_input = text.text.encode()
    return value


def new_embedding_input(rows: FloatArray, tokens: int) -> Any:
    """Embeddings in place of tokens. ``rows`` must live as long as the run."""
    value = RKLLMInput(input_type=RKLLM_INPUT_EMBED)
    value.embed_input.embed = rows
    value.embed_input.n_tokens = tokens
    return value


def new_image_input(image: ImageInput, rows: FloatArray) -> Any:
    """Text with one image, whose size this family does not ask for. ``rows`` must live as long as the run."""
    value = RKLLMInput(input_type=RKLLM_INPUT_MULTIMODAL)
    value.multimodal_input.prompt = image.text.encode()
    value.multimodal_input.image_embed = rows
    value.multimodal_input.n_image_tokens = image.tokens_per_image
    return value


def new_infer_param(run: InferParameters) -> Any:
    """One run's parameters; this family has no limit and no sampling per run."""
    infer = RKLLMInferParam(mode=run.mode, keep_history=int(run.keep_history))
    if run.lora is not None:
        infer.lora_params = pointer(RKLLMLoraParam(lora_adapter_name=run.lora.encode()))
    if run.save_prompt_cache is not None:
        cache = RKLLMPromptCacheParam(save_prompt_cache=1, prompt_cache_path=run.save_prompt_cache.encode())
        infer.prompt_cache_params = pointer(cache)
    return infer


def clear_arguments(keep_system: bool, _span: tuple[int, int] | None) -> tuple[Any, ...]:
    """What rkllm_clear_kv_cache is told after the handle; this family cannot clear a part."""
    return (int(keep_system),)


def defaults_fit(raw: bytes) -> bool:
    """Whether a default RKLLMParam looks like this family's: the byte that became n_batch is still reserved and 0."""
    param = RKLLMParam.from_buffer_copy(raw)
    return plausible_sampling(param) and plausible_cpus(param.extend_param) and param.extend_param.reserved[0] == 0


def perf_of(_result: Any) -> Perf | None:
    """This family prints its figures and does not return them."""
    return None


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
    new_param=new_param,
    host_callback_types=None,
    new_callback=new_callback,
    new_input=new_input,
    new_text_input=new_text_input,
    new_embedding_input=new_embedding_input,
    new_image_input=new_image_input,
    new_infer_param=new_infer_param,
    clear_arguments=clear_arguments,
    defaults_fit=defaults_fit,
    perf_of=perf_of,
)
