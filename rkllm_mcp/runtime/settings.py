"""What an engine is told: which model, which library, how long each thing may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from rkllm_mcp.generation import Sampling
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.hosting import WorkerKind
from rkllm_mcp.runtime.library import AUTOMATIC


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
        leave_timeout_s: the longest that leaving a generation waits for the runtime to return, seconds.
        prefill_abort_timeout_s: how long an abort may take during prefill, which the runtime does not interrupt (8192
            tokens took 226 s on a board, rkllama #169); then the worker is killed.
        decode_abort_timeout_s: the same once tokens came.
        stop_timeout_s: how long the worker may take to end before it is killed, seconds.
        base_domain_id: the IOMMU domain to begin with; two models on one board need different ones.
        embed_flash: read the embedding table from storage instead of memory.
        worker: ``process``, or ``inline`` for threads of this process, where a crash is everybody's.
        timed_tokens: yield ``run.TimedToken``, for measurements.
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
    leave_timeout_s: float = 2.0
    prefill_abort_timeout_s: float = 300.0
    decode_abort_timeout_s: float = 15.0
    stop_timeout_s: float = 5.0
    base_domain_id: int = 0
    embed_flash: bool = True
    worker: WorkerKind = "process"
    timed_tokens: bool = False

    def load_parameters(self) -> LoadParameters:
        """What of this goes to rkllm_init."""
        return LoadParameters(
            model_path=str(Path(self.model_path).expanduser().absolute()),
            context_tokens=self.context_tokens,
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            skip_special_tokens=self.skip_special_token,
            base_domain_id=self.base_domain_id,
            embed_flash=self.embed_flash,
            cpu_mask=sum(1 << cpu for cpu in set(self.cpus)) or None,
        )
