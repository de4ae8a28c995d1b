"""Engine settings, and the IOMMU domains of several models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rkllm_mcp.errors import InputRefusedError, ModelLoadError
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.scheduler import MAX_SKIPS

if TYPE_CHECKING:
    from rkllm_mcp.runtime.profile import RuntimeProfile


@dataclass(frozen=True)
class SilenceLimits:
    """Longest silence of the runtime before it counts as hung."""

    prefill_base_s: float = 60.0  # before the first token, for any prompt, seconds
    prefill_factor: float = 5.0  # added for the prompt: this many times its expected prefill
    # Expected speed before any measurement. The slowest report is 36 (a 1.7B model at 8192 tokens, rkllama
    # #169); larger models are slower.
    prefill_tokens_per_s: float = 20.0
    decode_s: float = 60.0  # between two tokens
    call_s: float = 120.0  # for calls other than runs


# enabled_cpus_mask is a uint32.
_MASK_BITS = 32


@dataclass(frozen=True)
class EngineSettings(LoadParameters):
    """Model, runtime and limits of an engine; ``library`` may also be ``emulator``."""

    log_level: int = 0  # 0 quiet, 1 timing and memory, 2 prompts and tokens as well (RKLLM_LOG_LEVEL)
    start_timeout_s: float = 120.0  # time limit for loading, seconds
    # Pauses before a worker that died while loading is started again, seconds; then the engine gives up.
    reload_pauses_s: Sequence[float] = (0.0, 0.5, 2.0)
    healthy_s: float = 60.0  # a worker that had its model loaded for this long resets the count of deaths, seconds
    # How often a waiting run may be skipped for one that reuses more of the KV cache; 0 keeps the order of arrival.
    max_skips: int = MAX_SKIPS
    leave_timeout_s: float = 2.0  # longest wait for the runtime to return after a consumer left, seconds
    # Longest silence of the runtime before a run is aborted. An abort during prefill, which the runtime does not
    # interrupt, may take as long as the prefill.
    silence: SilenceLimits = field(default_factory=SilenceLimits)
    # Time limit for an abort after the first token; then the worker is killed, seconds.
    decode_abort_timeout_s: float = 15.0
    stop_timeout_s: float = 5.0  # time limit for the worker's shutdown before it is killed, seconds
    profile: RuntimeProfile | None = None  # measurements of this runtime with this model; None without any
    timed_tokens: bool = False  # yield ``run.TimedToken``, for measurements
    # Measure the time in callbacks (``RunStats.callback_ms``), which makes each slightly longer.
    timed_callbacks: bool = False

    def __post_init__(self) -> None:
        """Refuse CPU numbers outside the mask."""
        for cpu in cast("tuple[object, ...]", self.cpus):
            if not isinstance(cpu, int) or not 0 <= cpu < _MASK_BITS:
                raise InputRefusedError(f"there is no CPU {cpu!r}; name CPUs by their numbers, 0 to {_MASK_BITS - 1}")

    def load_parameters(self) -> LoadParameters:
        """Return the parameters of rkllm_init."""
        values = {parameter.name: getattr(self, parameter.name) for parameter in fields(LoadParameters)}
        values["model_path"], values["library"] = str(Path(self.model_path).expanduser().absolute()), str(self.library)
        if self.embedding_table is not None:
            values["embedding_table"] = str(Path(self.embedding_table).expanduser().absolute())
        return LoadParameters(**values)


DOMAINS = 16
DOMAIN_BYTES = 4_000_000_000


def with_domains(settings: Sequence[EngineSettings]) -> list[EngineSettings]:
    """Return the settings of a board's models with separate domains, one engine for each, or raise a ModelLoadError."""
    placed: list[EngineSettings] = []
    free = total = 0
    for engine in settings:
        size = 0  # of a missing file, which loading reports
        with suppress(OSError):
            size = Path(engine.model_path).expanduser().stat().st_size
        placed.append(replace(engine, base_domain_id=free))
        free += max(1, -(-size // DOMAIN_BYTES))
        total += size
    if free > DOMAINS:
        problem = f"{len(settings)} models of {total // 1_000_000} MB need {free} IOMMU domains"
        raise ModelLoadError(
            f"{problem}, and the driver has {DOMAINS}.",
            "Load fewer or smaller models at once.",
        )
    return placed
