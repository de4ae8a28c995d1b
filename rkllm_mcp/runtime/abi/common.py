"""What every family of the RKLLM interface shares: constants, and the shape in which a family describes itself.

A family is a set of runtime releases with one binary layout. Its module (``v1_2_0``, ``v1_2_1``, ``v1_3``) reads like
the C header of that family: structs, ``SIGNATURES``, ``STATUS_CHECKS``, then the few functions that fill its structs,
and closes with ``ABI``, the record below, which is all that code above this package sees. C names stand verbatim in
here and nowhere else.

Rules: a module is whole; none builds on the version before it, because a family is only right or wrong as a whole.
Every function has a status check, ``None`` where its result says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import Array, Structure, Union, c_int32, c_ubyte, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import Sampling

# LLMCallState, since 1.2.0
RKLLM_RUN_NORMAL = 0
RKLLM_RUN_WAITING = 1
RKLLM_RUN_FINISH = 2
RKLLM_RUN_ERROR = 3

# RKLLMInputType and RKLLMInferMode; enums are 4-byte ints
RKLLM_INPUT_PROMPT = 0
RKLLM_INPUT_TOKEN = 1
RKLLM_INFER_GENERATE = 0

# The runtime's defaults for what this project never changes (SDK guide 1.3.0, tables 3-11 and 3-12)
MIROSTAT_OFF = 0
MIROSTAT_TAU = 5.0
MIROSTAT_ETA = 0.1

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
    """Every parameter of loading a model, in Python's names.

    Args:
        model_path: the ``.rkllm`` file.
        context_tokens: the context window, in tokens.
        max_new_tokens: the limit of every run, in tokens, where a run does not set its own.
        sampling: how the next token is chosen, where a run does not say.
        skip_special_tokens: whether control tokens are kept from the callback.
        base_domain_id: the IOMMU domain to begin with; two models on one board need different ones.
        embed_flash: read the embedding table from storage instead of memory.
        cpu_mask: the CPUs that may be used, bit n for CPU n; None keeps the library's choice.
    """

    model_path: str
    context_tokens: int
    max_new_tokens: int
    sampling: Sampling
    skip_special_tokens: bool = False
    base_domain_id: int = 0
    embed_flash: bool = True
    cpu_mask: int | None = None


class Perf(NamedTuple):
    """What the runtime reports at the end of a run (1.2.1 on)."""

    prefill_ms: float
    prefill_tokens: int
    generate_ms: float
    generate_tokens: int
    memory_mb: float


TokenArray = Array[c_int32]


@dataclass(frozen=True)
class Abi:
    """One family, as the code above sees it.

    Args:
        name: the family's name: the release it begins with.
        versions: the releases that were verified to have this interface.
        structs: every struct, by its C name.
        signatures: the C type of every public function.
        status_checks: what a function's result means; None where it means nothing.
        callback_type: the C type of the result callback.
        has_perf: a run's end brings figures.
        has_kv_cache_size: the size of the KV cache can be asked for.
        has_per_run_sampling: a run may set its own sampling.
        has_per_run_token_limit: a run may set its own limit of new tokens.
        callback_returns_int: the callback's result is acted on; before, it was void.
        new_param: (library defaults, parameters) -> RKLLMParam, every field set that this project relies on.
        new_callback: a ``callback_type`` instance -> the third argument of rkllm_init.
        new_input: token ids -> RKLLMInput.
        new_infer_param: (limit of new tokens, sampling or None) -> RKLLMInferParam.
        clear_all: the arguments, after the handle, of an rkllm_clear_kv_cache that clears everything.
        defaults_fit: whether the bytes of rkllm_createDefaultParam look like this family's defaults.
        perf_of: RKLLMResult -> its figures, None when the family has none.
    """

    name: str
    versions: tuple[str, ...]
    structs: Mapping[str, type[Any]]
    signatures: Mapping[str, Signature]
    status_checks: Mapping[str, StatusCheck | None]
    callback_type: type[Any]
    has_perf: bool
    has_kv_cache_size: bool
    has_per_run_sampling: bool
    has_per_run_token_limit: bool
    callback_returns_int: bool
    new_param: Callable[[bytes, LoadParameters], Any]
    new_callback: Callable[[Any], Any]
    new_input: Callable[[TokenArray], Any]
    new_infer_param: Callable[[int, Sampling | None], Any]
    clear_all: tuple[Any, ...]
    defaults_fit: Callable[[bytes], bool]
    perf_of: Callable[[Any], Perf | None]


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
    target.mirostat = MIROSTAT_OFF
    target.mirostat_tau = MIROSTAT_TAU
    target.mirostat_eta = MIROSTAT_ETA
    return target


def plausible_sampling(param: Any) -> bool:
    """Whether the sampling fields of a default RKLLMParam hold values that only a right layout would show there."""
    sane = {"top_p": (0.001, 1.0), "temperature": (0.01, 5.0), "repeat_penalty": (0.5, 3.0)}
    return all(low <= getattr(param, name) <= high for name, (low, high) in sane.items())


def plausible_cpus(extend: Any) -> bool:
    """Whether the CPU fields agree with each other: as many bits in the mask as the count says, and at least one."""
    mask: int = extend.enabled_cpus_mask
    return 0 < extend.enabled_cpus_num == mask.bit_count()
