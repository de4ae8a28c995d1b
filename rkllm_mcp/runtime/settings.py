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
from rkllm_mcp.runtime.scheduler import PATIENCE_RUNS

if TYPE_CHECKING:
    from rkllm_mcp.runtime.worker_process import WorkerKind


@dataclass(frozen=True)
class SilenceLimits:
    """How long the runtime may be silent.

    Args:
        prefill_base_s: before the first token, however short the prompt, seconds.
        prefill_patience: and so many times what the prompt should take.
        prefill_tokens_per_s: the speed to expect before any was measured. The slowest report is 36 (a 1.7B model at
            8192 tokens, rkllama #169); larger models are slower.
        decode_s: between two tokens.
        call_s: for everything that is not a run.
    """

    prefill_base_s: float = 60.0
    prefill_patience: float = 5.0
    prefill_tokens_per_s: float = 20.0
    decode_s: float = 60.0
    call_s: float = 120.0


# enabled_cpus_mask is a uint32.
_MASK_BITS = 32


@dataclass(frozen=True)
class EngineSettings:
    """What an engine runs and how.

    Args:
        model_path: the ``.rkllm`` file.
        library: path of librkllmrt.so, or ``auto`` to look for it, or ``emulator``.
        abi: the release whose interface to use whatever the library says, or ``auto``.
        context_tokens: the context window, tokens.
        max_new_tokens: the longest answer, tokens; a run may set a longer one where the runtime can (1.3.0 on).
        sampling: how the next token is chosen where a run does not say.
        skip_special_token: keep control tokens from the callback. The default delivers them, so that every id is known.
        cpus: numbers of the CPUs the runtime may use; empty keeps its own choice.
        log_level: 0 quiet, 1 timing and memory, 2 prompts and tokens as well (RKLLM_LOG_LEVEL).
        start_timeout_s: the longest that loading may take, seconds.
        reload_pauses_s: a worker that dies while it loads is tried again after these pauses, seconds; then the engine
            gives up.
        healthy_s: a worker that had its model loaded for so long before it died does not count towards that, nor do
            the deaths before it, seconds.
        patience_runs: how often a run that waits may be overtaken by one that reuses more of the KV cache; 0 keeps the
            order asked.
        leave_timeout_s: the longest that leaving a generation waits for the runtime to return, seconds.
        silence: how long the runtime may show no sign of life before a run is aborted. An abort during prefill, which
            the runtime does not interrupt, may take as long as that prefill may.
        decode_abort_timeout_s: how long an abort may take once tokens came; then the worker is killed.
        stop_timeout_s: how long the worker may take to end before it is killed, seconds.
        base_domain_id: the IOMMU domain to begin with; two models on one board need different ones
            (``domains.with_domains``).
        embed_flash: read the embedding table from storage instead of memory.
        keep_tokens: leading tokens that survive in a full context; -1 leaves it to the runtime.
        ignore_eos: answers never end by themselves, where the runtime can (1.3.0 on); for measurements.
        image_tags: what stands around images in the prompt, for runtimes before 1.3.0.
        embedding_table: a file with one row per token id, for a model exported without its own (1.3.0 on).
        lacks_tokenizer: the model was exported without one (1.3.0 on); its tokens then come without text.
        check_memory: refuse a model that needs more memory than is available.
        profile: what was measured of this runtime with this model; None when nothing was.
        worker: ``process``, or ``inline`` for threads of this process, where a crash is everybody's.
        timed_tokens: yield ``run.TimedToken``, for measurements.
        timed_callbacks: account for the time in callbacks (``RunStats.callback_ms``), which costs each a little more.
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
    patience_runs: int = PATIENCE_RUNS
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
    profile: RuntimeProfile | None = None
    worker: WorkerKind = "process"
    timed_tokens: bool = False
    timed_callbacks: bool = False

    def __post_init__(self) -> None:
        """Refuse CPUs that there cannot be.

        Raises:
            InputRefusedError: a number outside the mask that the library takes.
        """
        for cpu in self.cpus:
            if not _is_cpu(cpu):
                raise InputRefusedError(f"there is no CPU {cpu!r}; name CPUs by their numbers, 0 to {_MASK_BITS - 1}")

    def load_parameters(self) -> LoadParameters:
        """What of this goes to rkllm_init."""
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
    """The domain that each model begins in.

    Args:
        sizes: the models' sizes, bytes.

    Raises:
        ModelLoadError: there are not enough domains.
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
    """The settings of several models for one board, each with a domain of its own; for ``open_engine`` one by one.

    Raises:
        ModelLoadError: there are not enough domains.
    """
    sizes = [_size(Path(each.model_path)) for each in settings]
    return [replace(each, base_domain_id=base) for each, base in zip(settings, assign_domains(sizes), strict=True)]


def _size(model: Path) -> int:
    try:
        return model.expanduser().stat().st_size
    except OSError:
        return 0  # the engine says that it is missing
