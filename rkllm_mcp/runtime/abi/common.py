"""What every family of the RKLLM interface shares: constants, and the shape in which a family describes itself.

A family is a set of runtime releases with one binary layout. Its module (``v1_2_0``, ``v1_2_1``, ``v1_3``) reads like
the C header of that family: structs, ``SIGNATURES``, ``STATUS_CHECKS``, then the few functions that fill its structs,
and closes with ``ABI``, the record below, which is all that code above this package sees. C names stand verbatim in
here and nowhere else.

Rules: a module is whole; none builds on the version before it, because a family is only right or wrong as a whole. The
one exception, ``v1_3_1``, is a release of which nothing is known but in what it differs from the one before.
Every function has a status check, ``None`` where its result says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import Array, Structure, Union, c_float, c_int32, c_ubyte, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple

from rkllm_mcp.errors import RkllmMcpError, UnsupportedError
from rkllm_mcp.generation import ImageInput, ImageTags, Sampling, TextInput

# LLMCallState, since 1.2.0
RKLLM_RUN_NORMAL = 0
RKLLM_RUN_WAITING = 1
RKLLM_RUN_FINISH = 2
RKLLM_RUN_ERROR = 3

# RKLLMInputType and RKLLMInferMode; enums are 4-byte ints
RKLLM_INPUT_PROMPT = 0
RKLLM_INPUT_TOKEN = 1
RKLLM_INPUT_EMBED = 2
RKLLM_INPUT_MULTIMODAL = 3
RKLLM_INFER_GENERATE = 0
RKLLM_INFER_GET_LAST_HIDDEN_LAYER = 1
RKLLM_INFER_GET_LOGITS = 2

# What the callback returns where its result is acted on (1.2.1 on; DROP since 1.3.0)
CALLBACK_GO_ON = 0
CALLBACK_PAUSE = 1
CALLBACK_DROP_BUFFER = 2

# -1 leaves it to the runtime how many leading cache entries survive a full context, as Rockchip's own demos do.
N_KEEP_AUTOMATIC = -1

LLMHandle = c_void_p


class RKLLMParamReturn(Structure):
    """Room for the result of rkllm_createDefaultParam.

    The library writes its own RKLLMParam (184 to 208 bytes so far) through a hidden pointer. A result type smaller than
    that overruns the stack, so this one is larger than any, and the family's struct is copied out of it.
    """

    _fields_ = (("raw", c_ubyte * 512),)


@dataclass(eq=False)
class CallFailedError(RkllmMcpError):
    """A C function returned a status other than 0. Callers translate it; it does not leave the runtime package."""

    function: str
    status: int

    def __str__(self) -> str:
        return f"{self.function} returned {self.status}"


class Signature(NamedTuple):
    """The C type of a function: its result and its arguments."""

    restype: Any
    argtypes: tuple[Any, ...]


StatusCheck = Callable[[Any, Any, tuple[Any, ...]], Any]


def zero_is_success(status: int, function: Any, _arguments: tuple[Any, ...]) -> int:
    """A ctypes ``errcheck``: raise CallFailedError unless the status is 0."""
    if status != 0:
        raise CallFailedError(function.__name__, status)
    return status


@dataclass(frozen=True)
class LoadParameters:
    """Every parameter of loading a model, in Python's names."""

    # The ``.rkllm`` file.
    model_path: str
    # The context window, in tokens.
    context_tokens: int
    # The limit of every run, in tokens, where a run does not set its own.
    max_new_tokens: int
    # How the next token is chosen, where a run does not say.
    sampling: Sampling
    # Whether control tokens are kept from the callback.
    skip_special_tokens: bool = False
    # The IOMMU domain to begin with; two models on one board need different ones.
    base_domain_id: int = 0
    # Read the embedding table from storage instead of memory.
    embed_flash: bool = True
    # The CPUs that may be used, bit n for CPU n; None keeps the library's choice.
    cpu_mask: int | None = None
    # Leading cache entries that survive a full context; -1 leaves it to the runtime.
    keep_tokens: int = N_KEEP_AUTOMATIC
    # Never end by itself, where the family can (for measurements).
    ignore_eos: bool = False
    # What stands around images, for the families that are told so when the model is loaded.
    image_tags: ImageTags | None = None
    # A file with one row per token id, for a model exported without its own.
    embedding_table: str | None = None
    # The model was exported without one; only token ids and embeddings can be its input.
    lacks_tokenizer: bool = False


@dataclass(frozen=True)
class InferParameters:
    """Every parameter of one run."""

    # The run's limit, tokens, where the family has one per run.
    max_new_tokens: int
    # How the next token is chosen, where the family lets a run say; None for the model's own.
    sampling: Sampling | None = None
    # What is computed, an RKLLMInferMode.
    mode: int = RKLLM_INFER_GENERATE
    # The name of the adapter to use.
    lora: str | None = None
    # The file to write the evaluated prompt to.
    save_prompt_cache: str | None = None
    # Append to the runs before.
    keep_history: bool = False


class Perf(NamedTuple):
    """What the runtime reports at the end of a run (1.2.1 on)."""

    prefill_ms: float
    prefill_tokens: int
    generate_ms: float
    generate_tokens: int
    memory_mb: float


TokenArray = Array[c_int32]
FloatArray = Array[c_float]


@dataclass(frozen=True)
class Abi:
    """One family, as the code above sees it."""

    # The family's name: the release it begins with.
    name: str
    # The releases that were verified to have this interface.
    versions: tuple[str, ...]
    # Every struct, by its C name.
    structs: Mapping[str, type[Any]]
    # The C type of every public function.
    signatures: Mapping[str, Signature]
    # What a function's result means; None where it means nothing.
    status_checks: Mapping[str, StatusCheck | None]
    # The C type of the result callback.
    callback_type: type[Any]
    # A run's end brings figures.
    has_perf: bool
    # The size of the KV cache can be asked for.
    has_kv_cache_size: bool
    # A run may set its own sampling.
    has_per_run_sampling: bool
    # A run may set its own limit of new tokens.
    has_per_run_token_limit: bool
    # An input says whose turn it is and whether to think.
    has_roles: bool
    # An image input may hold several images and says their size.
    has_image_sizes: bool
    # The runtime's own tool prompt can be set.
    has_function_tools: bool
    # A part of the KV cache can be cleared while a run is paused.
    has_cache_ranges: bool
    # The end token can be ignored.
    has_ignore_eos: bool
    # The callback's result is acted on, so that it can pause a run; before, it was void.
    callback_returns_int: bool
    # The callback may have the library free the rows it has just read.
    can_drop_buffers: bool
    # Memory is lost with every image of a run without history (rknn-llm #529).
    leaks_images: bool
    # (library defaults, parameters) -> RKLLMParam, every field set that this project relies on.
    new_param: Callable[[bytes, LoadParameters], Any]
    # The C types of what the library may ask of the host, tokenizer and embeddings; None where it asks nothing.
    host_callback_types: tuple[type[Any], type[Any]] | None
    # A ``callback_type`` instance, and one of each host callback where the family has them -> the third argument of
    # rkllm_init.
    new_callback: Callable[..., Any]
    # Token ids -> RKLLMInput; like all inputs it does not keep what it points to.
    new_input: Callable[[TokenArray], Any]
    # Text -> RKLLMInput.
    new_text_input: Callable[[TextInput], Any]
    # (rows, how many) -> RKLLMInput.
    new_embedding_input: Callable[[FloatArray, int], Any]
    # (text and counts, rows) -> RKLLMInput.
    new_image_input: Callable[[ImageInput, FloatArray], Any]
    # Parameters of a run -> RKLLMInferParam.
    new_infer_param: Callable[[InferParameters], Any]
    # (keep the system prompt, range or None for all) -> what rkllm_clear_kv_cache is told after the handle.
    clear_arguments: Callable[[bool, tuple[int, int] | None], tuple[Any, ...]]
    # Whether the bytes of rkllm_createDefaultParam look like this family's defaults.
    defaults_fit: Callable[[bytes], bool]
    # RKLLMResult -> its figures, None when the family has none.
    perf_of: Callable[[Any], Perf | None]


# A capability of some families: what it is called, and the release that brought it
_FEATURES = {
    "has_roles": ("roles and no switch for thinking", "1.2.1"),
    "has_image_sizes": ("inputs of several images", "1.2.1"),
    "has_function_tools": ("function tools", "1.2.1"),
    "has_cache_ranges": ("way to clear a part of the KV cache", "1.2.1"),
    "callback_returns_int": ("way to pause a generation", "1.2.1"),
}


def require(abi: Abi, version: str, capability: str) -> None:
    """Refuse what a family cannot do.

    Raises:
        UnsupportedError: with the release that can.
    """
    if not getattr(abi, capability):
        feature, since = _FEATURES[capability]
        raise UnsupportedError(feature, version, since)


def struct(name: str, /, **fields: Any) -> type[Any]:
    """A C struct as data: its fields in order. A member that is a union is anonymous, as in the header."""
    return type(name, (Structure,), _members(fields))


def union(name: str, /, **fields: Any) -> type[Any]:
    """A C union as data."""
    return type(name, (Union,), _members(fields))


def _members(fields: dict[str, Any]) -> dict[str, Any]:
    anonymous = tuple(name for name, kind in fields.items() if isinstance(kind, type) and issubclass(kind, Union))
    return {"_anonymous_": anonymous, "_fields_": tuple(fields.items())}


def struct_table(*structs: type[Any]) -> dict[str, type[Any]]:
    """The structs by their C names."""
    return {struct.__name__: struct for struct in structs}


def fill_sampling(target: Any, sampling: Sampling) -> Any:
    """Set all nine sampling fields, which have the same names wherever a family has them.

    A run's sampling replaces the model's as a whole (SDK guide 1.3.0), so none may be left out.
    """
    target.top_k = sampling.top_k
    target.top_p = sampling.top_p
    target.temperature = sampling.temperature
    target.repeat_penalty = sampling.repeat_penalty
    target.frequency_penalty = sampling.frequency_penalty
    target.presence_penalty = sampling.presence_penalty
    target.mirostat = sampling.mirostat
    target.mirostat_tau = sampling.mirostat_tau
    target.mirostat_eta = sampling.mirostat_eta
    return target


def plausible_sampling(param: Any) -> bool:
    """Whether the sampling fields of a default RKLLMParam hold values that only a right layout would show there."""
    sane = {"top_p": (0.001, 1.0), "temperature": (0.01, 5.0), "repeat_penalty": (0.5, 3.0)}
    return all(low <= getattr(param, name) <= high for name, (low, high) in sane.items())


def plausible_cpus(extend: Any) -> bool:
    """Whether the CPU fields agree with each other: as many bits in the mask as the count says, and at least one."""
    mask: int = extend.enabled_cpus_mask
    return 0 < extend.enabled_cpus_num == mask.bit_count()
