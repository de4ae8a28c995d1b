"""Constants, records and constructors that all families of the RKLLM interface share.

A family is a set of releases with one binary layout. C names are used only in this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import Array, c_float, c_int32, pointer
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import Any, NamedTuple

from rkllm_mcp.generation import GenerationOptions, ImageInput, ImageTags
from rkllm_mcp.runtime.abi.declarations import Declarations
from rkllm_mcp.sampling import Sampling

# LLMCallState (since 1.2.0), RKLLMInputType (those in use) and RKLLMInferMode; enums are 4-byte ints
RKLLM_RUN_NORMAL, RKLLM_RUN_WAITING, RKLLM_RUN_FINISH, RKLLM_RUN_ERROR = range(4)
RKLLM_INPUT_TOKEN, RKLLM_INPUT_MULTIMODAL = 1, 3
RKLLM_INFER_GENERATE, RKLLM_INFER_GET_LAST_HIDDEN_LAYER, RKLLM_INFER_GET_LOGITS = range(3)

# Results of the callback (1.2.1 on; DROP since 1.3.0)
CALLBACK_GO_ON, CALLBACK_PAUSE, CALLBACK_DROP_BUFFER = range(3)

# The runtime chooses the number of leading cache entries that stay in a full context, as in Rockchip's demos.
N_KEEP_AUTOMATIC = -1


@dataclass(frozen=True)
class LoadParameters:
    """Parameters of loading a runtime and a model."""

    model_path: str | PathLike[str]  # the ``.rkllm`` file
    library: str | PathLike[str] = "auto"  # path of librkllmrt.so, or ``auto`` to look for it
    abi: str = "auto"  # the release whose interface is used, or ``auto`` for the library's own
    context_tokens: int = 4096  # the context window, tokens
    max_new_tokens: int = 512  # the longest answer, tokens; a run may set a longer one (1.3.0 on)
    sampling: Sampling = field(default_factory=Sampling)  # sampling of runs without their own
    # Keep control tokens from the callback. The default delivers them, so that every id is known.
    skip_special_token: bool = False
    cpus: Sequence[int] = ()  # numbers of the CPUs the runtime may use; empty keeps its own choice
    base_domain_id: int = 0  # the first IOMMU domain; two models on one board need different ones (``with_domains``)
    embed_flash: bool = True  # read the embedding table from storage instead of memory
    keep_tokens: int = N_KEEP_AUTOMATIC  # leading tokens that stay in a full context; -1: the runtime's choice
    ignore_eos: bool = False  # answers never end by themselves (1.3.0 on); for measurements
    image_tags: ImageTags | None = None  # texts around images in the prompt, for runtimes before 1.3.0
    # A file with one row per token id, for a model exported without its own (1.3.0 on).
    embedding_table: str | PathLike[str] | None = None
    lacks_tokenizer: bool = False  # the model was exported without one (1.3.0 on); its tokens then come without text
    check_memory: bool = True  # refuse a model that needs more memory than is available
    # Size of a token in the KV cache, for that check; None counts the smallest known.
    cache_bytes_per_token: int | None = None


class Perf(NamedTuple):
    """Statistics that the runtime reports at the end of a run (1.2.1 on)."""

    prefill_ms: float
    prefill_tokens: int
    generate_ms: float
    generate_tokens: int
    memory_mb: float


# An int32 of the library.
_MOST_TOKENS = 2**31 - 1
TokenArray = Array[c_int32]
FloatArray = Array[c_float]


@dataclass(frozen=True)
class Abi:
    """One family: its declarations and capabilities, and constructors over its structs.

    Inputs do not keep the memory that they point to.
    """

    name: str  # first release of the family
    versions: tuple[str, ...]  # releases that were verified to have this interface
    types: Declarations  # C types by name
    has_perf: bool = False  # a run ends with statistics
    has_kv_cache_size: bool = False
    has_per_run_sampling: bool = False
    has_per_run_token_limit: bool = False
    has_roles: bool = False  # inputs have a role and a switch for thinking
    has_image_sizes: bool = False  # image inputs have a count and a size
    has_cache_ranges: bool = False  # rkllm_clear_kv_cache takes a range of tokens
    has_ignore_eos: bool = False
    callback_returns_int: bool = False  # the callback returns int instead of void and can pause a run
    has_host_callbacks: bool = False  # the host may tokenize and embed in place of the model
    can_drop_buffers: bool = False  # the callback can let the library free the rows that it has read
    leaks_images: bool = False  # every image of a run without history leaks memory (rknn-llm #529)

    def new_param(self, defaults: bytes, load: LoadParameters) -> Any:
        """Return the library's defaults with every field set that this project relies on."""
        param = self.types["RKLLMParam"].from_buffer_copy(defaults)
        param.model_path = os.fsencode(load.model_path)
        param.max_context_len = load.context_tokens
        param.max_new_tokens = load.max_new_tokens
        param.n_keep = load.keep_tokens
        fill_sampling(param, load.sampling)
        param.skip_special_token = load.skip_special_token
        if self.has_ignore_eos:
            param.ignore_eos_token = load.ignore_eos
        param.is_async = False
        if _has_field(param, "img_start"):
            tags = load.image_tags
            param.img_start = tags.start.encode() if tags else b""
            param.img_end = tags.end.encode() if tags else b""
            param.img_content = tags.content.encode() if tags else b""
        extend = param.extend_param
        extend.base_domain_id = load.base_domain_id
        extend.embed_flash = int(load.embed_flash)
        if _has_field(extend, "n_batch"):
            extend.n_batch = 1
            extend.use_cross_attn = 0
        if load.cpus:
            extend.enabled_cpus_mask = sum(1 << cpu for cpu in set(load.cpus))
            extend.enabled_cpus_num = len(set(load.cpus))
        return param

    def new_callback(
        self, result: Any, tokenize: Callable[..., int] | None = None, embed: Callable[..., int] | None = None
    ) -> Any:
        """Return the third argument of rkllm_init: the function pointer, or a pointer to the struct of callbacks.

        Without a function, NULL leaves the tokenizer or the embeddings to the model.
        """
        if not self.has_host_callbacks:
            return result
        tokenizer_type, embed_type = self.types["LLMTokenizerCallback"], self.types["LLMGetEmbedCallback"]
        callbacks = self.types["RKLLMCallback"](
            result_callback=result,
            tokenizer_callback=tokenizer_type() if tokenize is None else tokenizer_type(tokenize),
            embed_callback=embed_type() if embed is None else embed_type(embed),
        )
        return pointer(callbacks)

    def new_input(self, memory: TokenArray | FloatArray, image: ImageInput | None = None) -> Any:
        """Return an input of token ids, to which no template is applied, or of ``image``'s text with these rows."""
        value = self.types["RKLLMInput"](input_type=RKLLM_INPUT_TOKEN if image is None else RKLLM_INPUT_MULTIMODAL)
        if self.has_roles:
            # Set for every kind: it is undocumented if a NULL role is safe.
            value.role = b"user"
            value.enable_thinking = False
        if image is None:
            value.token_input.input_ids = memory
            value.token_input.n_tokens = len(memory)
            return value
        images = value.multimodal_input
        images.prompt = image.text.encode()
        if _has_field(images, "image"):
            # From 1.3.0 on next to video and audio, with its own tags.
            images = images.image
            if image.tags is not None:
                images.image_start = image.tags.start.encode()
                images.image_end = image.tags.end.encode()
                images.image_content = image.tags.content.encode()
        images.image_embed = memory
        images.n_image_tokens = image.tokens_per_image
        if self.has_image_sizes:
            images.n_image = image.images
            images.image_width = image.width
            images.image_height = image.height
        return value

    def new_infer_param(
        self, options: GenerationOptions, mode: int = RKLLM_INFER_GENERATE, *, keeps_history: bool = False
    ) -> Any:
        """Return the parameters of a run in an RKLLMInferMode."""
        types = self.types
        infer = types["RKLLMInferParam"](mode=mode, keep_history=int(keeps_history))
        if self.has_per_run_token_limit:
            infer.max_new_tokens = min(options.max_new_tokens, _MOST_TOKENS)
        if options.lora is not None:
            infer.lora_params = pointer(types["RKLLMLoraParam"](lora_adapter_name=options.lora.encode()))
        if self.has_per_run_sampling and options.sampling is not None:
            infer.sampling_params = pointer(fill_sampling(types["RKLLMSamplingParam"](), options.sampling))
        if options.save_prompt_cache is not None:
            cache = types["RKLLMPromptCacheParam"](
                save_prompt_cache=1, prompt_cache_path=options.save_prompt_cache.encode()
            )
            infer.prompt_cache_params = pointer(cache)
        return infer

    @property
    def clear_arguments(self) -> tuple[int | None, ...]:
        """Arguments of rkllm_clear_kv_cache after the handle that clear all of it: no system prompt kept, no range."""
        return (0, None, None) if self.has_cache_ranges else (0,)

    def defaults_fit(self, raw: bytes) -> bool:
        """Return True if a default RKLLMParam matches this family's layout.

        The layouts differ in the position of the CPU fields and in n_batch, which is 1; before 1.2.1 that byte is
        reserved and 0.
        """
        param = self.types["RKLLMParam"].from_buffer_copy(raw)
        extend = param.extend_param
        sane = {"top_p": (0.001, 1.0), "temperature": (0.01, 5.0), "repeat_penalty": (0.5, 3.0)}
        is_sane = all(low <= getattr(param, name) <= high for name, (low, high) in sane.items())
        mask: int = extend.enabled_cpus_mask
        is_plausible = is_sane and 0 < extend.enabled_cpus_num == mask.bit_count()
        return is_plausible and (extend.n_batch == 1 if _has_field(extend, "n_batch") else extend.reserved[0] == 0)

    def perf_of(self, result: Any) -> Perf | None:
        """Return the statistics at the end of a run; None if the family has none."""
        if not self.has_perf:
            return None
        perf = result.perf
        prefill, generate = perf.prefill_time_ms, perf.generate_time_ms
        return Perf(prefill, perf.prefill_tokens, generate, perf.generate_tokens, perf.memory_usage_mb)


def _has_field(instance: object, name: str) -> bool:
    # On the type: reading a text field of the instance would follow its pointer, which may be garbage.
    return hasattr(type(instance), name)


def fill_sampling(target: Any, sampling: Sampling) -> Any:
    """Set all nine sampling fields, which have the same names in every struct.

    A run's sampling replaces the model's as a whole (SDK guide 1.3.0), so none may be omitted.
    """
    for parameter in fields(sampling):
        setattr(target, parameter.name, getattr(sampling, parameter.name))
    return target
