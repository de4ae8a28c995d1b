"""RKLLM 1.3.0: per-run sampling and limits, rkllm_init takes a struct of callbacks, image tags move into the input.

Layout followed: header of runtime 1.3.0 (2026-06-17). The functions that fill an input take its struct, because that
struct is all in which 1.3.1 (``v1_3_1``) differs.
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


def new_param(defaults: bytes, load: LoadParameters) -> Any:
    """The library's defaults with every field set that this project relies on."""
    param = RKLLMParam.from_buffer_copy(defaults)
    param.model_path = load.model_path.encode()
    param.max_context_len = load.context_tokens
    param.max_new_tokens = load.max_new_tokens
    param.n_keep = load.keep_tokens
    fill_sampling(param, load.sampling)
    param.skip_special_token = load.skip_special_tokens
    param.ignore_eos_token = load.ignore_eos
    param.is_async = False
    param.extend_param.base_domain_id = load.base_domain_id
    param.extend_param.embed_flash = int(load.embed_flash)
    param.extend_param.n_batch = 1
    param.extend_param.use_cross_attn = 0
    if load.cpu_mask is not None:
        param.extend_param.enabled_cpus_mask = load.cpu_mask
        param.extend_param.enabled_cpus_num = load.cpu_mask.bit_count()
    return param


def new_callback(result: Any, tokenize: Any = None, embed: Any = None) -> Any:
    """A pointer to the struct of callbacks; NULL leaves the tokenizer and the embeddings to the model."""
    tokenize, embed = tokenize or LLMTokenizerCallback(), embed or LLMGetEmbedCallback()
    return pointer(RKLLMCallback(result_callback=result, tokenizer_callback=tokenize, embed_callback=embed))


def new_input(ids: TokenArray, kind: type[Any] = RKLLMInput) -> Any:
    """Token ids, used as they are: no template is applied to them. ``ids`` must live as long as the run."""
    value = kind(input_type=RKLLM_INPUT_TOKEN)
    value.role = b"user"  # whether NULL is safe here is not documented
    value.enable_thinking = False
    value.token_input.input_ids = ids
    value.token_input.n_tokens = len(ids)
    return value


def new_text_input(text: TextInput, kind: type[Any] = RKLLMInput) -> Any:
    """Text, to which the runtime applies its template."""
    value = kind(input_type=RKLLM_INPUT_PROMPT)
    value.role = text.role.encode()
    value.enable_thinking = bool(text.thinking)
    value.prompt_input = text.text.encode()
    return value


def new_embedding_input(rows: FloatArray, tokens: int, kind: type[Any] = RKLLMInput) -> Any:
    """Embeddings in place of tokens. ``rows`` must live as long as the run."""
    value = kind(input_type=RKLLM_INPUT_EMBED)
    value.role = b"user"  # whether NULL is safe here is not documented
    value.enable_thinking = False
    value.embed_input.embed = rows
    value.embed_input.n_tokens = tokens
    return value


def new_image_input(image: ImageInput, rows: FloatArray, kind: type[Any] = RKLLMInput) -> Any:
    """Text with images, and what stands around them; no video and no audio. ``rows`` must live as long as the run."""
    value = kind(input_type=RKLLM_INPUT_MULTIMODAL)
    value.role = image.role.encode()
    value.enable_thinking = bool(image.thinking)
    value.multimodal_input.prompt = image.text.encode()
    images = value.multimodal_input.image
    images.image_embed = rows
    images.n_image_tokens = image.tokens_per_image
    images.n_image = image.images
    if image.tags is not None:
        images.image_start = image.tags.start.encode()
        images.image_end = image.tags.end.encode()
        images.image_content = image.tags.content.encode()
    images.image_width = image.width
    images.image_height = image.height
    return value


def new_infer_param(run: InferParameters) -> Any:
    """One run's parameters."""
    infer = RKLLMInferParam(mode=run.mode, keep_history=int(run.keep_history), max_new_tokens=run.max_new_tokens)
    if run.lora is not None:
        infer.lora_params = pointer(RKLLMLoraParam(lora_adapter_name=run.lora.encode()))
    if run.save_prompt_cache is not None:
        cache = RKLLMPromptCacheParam(save_prompt_cache=1, prompt_cache_path=run.save_prompt_cache.encode())
        infer.prompt_cache_params = pointer(cache)
    if run.sampling is not None:
        infer.sampling_params = pointer(fill_sampling(RKLLMSamplingParam(), run.sampling))
    return infer


def clear_arguments(keep_system: bool, span: tuple[int, int] | None) -> tuple[Any, ...]:
    """What rkllm_clear_kv_cache is told after the handle; a range is one start and one end per batch."""
    if span is None:
        return (int(keep_system), None, None)
    return (int(keep_system), (c_int * 1)(span[0]), (c_int * 1)(span[1]))


def defaults_fit(raw: bytes) -> bool:
    """Whether a default RKLLMParam looks like this family's: one batch, CPUs 28 bytes earlier than before."""
    param = RKLLMParam.from_buffer_copy(raw)
    return plausible_sampling(param) and plausible_cpus(param.extend_param) and param.extend_param.n_batch == 1


def perf_of(result: Any) -> Perf | None:
    """The figures at the end of a run."""
    perf = result.perf
    prefill, generate = perf.prefill_time_ms, perf.generate_time_ms
    return Perf(prefill, perf.prefill_tokens, generate, perf.generate_tokens, perf.memory_usage_mb)


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
    new_param=new_param,
    host_callback_types=(LLMTokenizerCallback, LLMGetEmbedCallback),
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
