"""Engine settings, and the IOMMU domains of several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from rkllm_mcp.errors import InputRefusedError, ModelLoadError
from rkllm_mcp.generation import ImageTags, Sampling
from rkllm_mcp.runtime.abi.common import N_KEEP_AUTOMATIC, LoadParameters
from rkllm_mcp.runtime.library import AUTOMATIC
from rkllm_mcp.runtime.profile import RuntimeProfile
from rkllm_mcp.runtime.scheduler import MAX_SKIPS

if TYPE_CHECKING:
    from rkllm_mcp.runtime.worker_process import WorkerKind


@dataclass(frozen=True)
class SilenceLimits:
    """Longest silence of the runtime before it counts as hung."""

    # Before the first token, for any prompt, seconds.
    prefill_base_s: float = 60.0
    # Added for the prompt: this many times its expected prefill.
    prefill_factor: float = 5.0
    # Expected speed before any measurement. The slowest report is 36 (a 1.7B model at 8192 tokens, rkllama
    # #169); larger models are slower.
    prefill_tokens_per_s: float = 20.0
    # Between two tokens.
    decode_s: float = 60.0
    # For calls other than runs.
    call_s: float = 120.0


# enabled_cpus_mask is a uint32.
_MASK_BITS = 32


@dataclass(frozen=True)
class EngineSettings:
    """Model, runtime and limits of an engine.

    Args:
        model_path: the ``.rkllm`` file.
        library: path of librkllmrt.so, or ``auto`` to look for it, or ``emulator``.
        abi: the release whose interface is used, or ``auto`` for the library's own.
        context_tokens: the context window, tokens.
        max_new_tokens: the longest answer, tokens; a run may set a longer one (1.3.0 on).
        sampling: sampling of runs without their own.
        skip_special_token: keep control tokens from the callback. The default delivers them, so that every id is known.
        cpus: numbers of the CPUs the runtime may use; empty keeps its own choice.
        log_level: 0 quiet, 1 timing and memory, 2 prompts and tokens as well (RKLLM_LOG_LEVEL).
        start_timeout_s: time limit for loading, seconds.
        reload_pauses_s: pauses before a worker that died while loading is started again, seconds; then the engine
            gives up.
        healthy_s: a worker that had its model loaded for this long resets the count of deaths, seconds.
        max_skips: how often a waiting run may be skipped for one that reuses more of the KV cache; 0 keeps the order
            of arrival.
        leave_timeout_s: longest wait for the runtime to return after a consumer left, seconds.
        silence: longest silence of the runtime before a run is aborted. An abort during prefill, which the runtime
            does not interrupt, may take as long as the prefill.
        decode_abort_timeout_s: time limit for an abort after the first token; then the worker is killed, seconds.
        stop_timeout_s: time limit for the worker's shutdown before it is killed, seconds.
        base_domain_id: the first IOMMU domain; two models on one board need different ones (``with_domains``).
        embed_flash: read the embedding table from storage instead of memory.
        keep_tokens: leading tokens that stay in a full context; -1: the runtime's choice.
        ignore_eos: answers never end by themselves (1.3.0 on); for measurements.
        image_tags: texts around images in the prompt, for runtimes before 1.3.0.
        embedding_table: a file with one row per token id, for a model exported without its own (1.3.0 on).
        lacks_tokenizer: the model was exported without one (1.3.0 on); its tokens then come without text.
        check_memory: refuse a model that needs more memory than is available.
        cache_bytes_per_token: size of a token in the KV cache, for that check; None counts the smallest known.
        profile: measurements of this runtime with this model; None without any.
        worker: ``process``, or ``inline`` for threads of this process, where a crash ends the host.
        timed_tokens: yield ``run.TimedToken``, for measurements.
        timed_callbacks: measure the time in callbacks (``RunStats.callback_ms``), which makes each slightly longer.
    """

    model_path: str | PathLike[str]
    library: str | PathLike[str] = AUTOMATIC
    abi: str = AUTOMATIC
    context_tokens: int = 4096
    max_new_tokens: int = 512
    sampling: Sampling = field(default_factory=Sampling)
    skip_special_token: bool = False
    cpus: Sequence[int] = ()
    log_level: int = 0
    start_timeout_s: float = 120.0
    reload_pauses_s: Sequence[float] = (0.0, 0.5, 2.0)
    healthy_s: float = 60.0
    max_skips: int = MAX_SKIPS
    leave_timeout_s: float = 2.0
    silence: SilenceLimits = field(default_factory=SilenceLimits)
    decode_abort_timeout_s: float = 15.0
    stop_timeout_s: float = 5.0
    base_domain_id: int = 0
    embed_flash: bool = True
    keep_tokens: int = N_KEEP_AUTOMATIC
    ignore_eos: bool = False
    image_tags: ImageTags | None = None
    embedding_table: str | PathLike[str] | None = None
    lacks_tokenizer: bool = False
    check_memory: bool = True
    cache_bytes_per_token: int | None = None
    profile: RuntimeProfile | None = None
    worker: WorkerKind = "process"
    timed_tokens: bool = False
    timed_callbacks: bool = False

    def __post_init__(self) -> None:
        """Refuse CPU numbers outside the mask.

        Raises:
            InputRefusedError: a number outside the mask that the library takes.
        """
        for cpu in self.cpus:
            if not _is_cpu(cpu):
                raise InputRefusedError(f"there is no CPU {cpu!r}; name CPUs by their numbers, 0 to {_MASK_BITS - 1}")

    def load_parameters(self) -> LoadParameters:
        """Return the parameters of rkllm_init."""
        return LoadParameters(
            model_path=_absolute(self.model_path),
            context_tokens=self.context_tokens,
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            skip_special_tokens=self.skip_special_token,
            base_domain_id=self.base_domain_id,
            embed_flash=self.embed_flash,
            cpu_mask=sum(1 << cpu for cpu in set(self.cpus)) or None,
            keep_tokens=self.keep_tokens,
            ignore_eos=self.ignore_eos,
            image_tags=self.image_tags,
            embedding_table=None if self.embedding_table is None else _absolute(self.embedding_table),
            lacks_tokenizer=self.lacks_tokenizer,
        )


def _is_cpu(number: object) -> bool:
    return isinstance(number, int) and 0 <= number < _MASK_BITS


def _absolute(path: str | PathLike[str]) -> str:
    return str(Path(path).expanduser().absolute())


DOMAINS = 16
DOMAIN_BYTES = 4_000_000_000


def assign_domains(sizes: Sequence[int]) -> list[int]:
    """Return the first domain of each model, given the models' sizes in bytes.

    Raises:
        ModelLoadError: the driver has too few domains.
    """
    bases: list[int] = []
    free = 0
    for size in sizes:
        bases.append(free)
        free += max(1, -(-size // DOMAIN_BYTES))
    if free > DOMAINS:
        total_mb = sum(sizes) // 1_000_000
        raise ModelLoadError(
            f"{len(sizes)} models of {total_mb} MB need {free} IOMMU domains, and the driver has {DOMAINS}.",
            "Load fewer or smaller models at once.",
        )
    return bases


def with_domains(settings: Sequence[EngineSettings]) -> list[EngineSettings]:
    """Return the settings of several models for one board, each with its own domain; open one engine for each.

    Raises:
        ModelLoadError: the driver has too few domains.
    """
    sizes = [_size(Path(each.model_path)) for each in settings]
    return [replace(each, base_domain_id=base) for each, base in zip(settings, assign_domains(sizes), strict=True)]


def _size(model: Path) -> int:
    try:
        return model.expanduser().stat().st_size
    except OSError:
        return 0  # loading reports the missing file
