"""The values of one generation: what goes to an engine besides token ids, and what comes back.

A generation yields Token values as the runtime delivers them and closes with one RunStats. The port that providers ask
for is ``Generator`` below; runtime.engine.Engine is its real implementation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Token:
    """One token: its id, and the text it completed (empty while a character is unfinished)."""

    id: int
    text: str


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The fields are the runtime's own; ``top_k=1`` is greedy."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.9
    repeat_penalty: float = 1.1
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


@dataclass(frozen=True)
class GenerationOptions:
    """One generation's limits.

    Args:
        max_new_tokens: after this many tokens the run is ended.
        stop_ids: token ids that end the answer; where the runtime does not end there by itself the run is aborted.
        sampling: per-run sampling where the runtime can (1.3.0 on); None keeps what the model was loaded with.
    """

    max_new_tokens: int = 512
    stop_ids: frozenset[int] = frozenset()
    sampling: Sampling | None = None


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class RunStats:
    """The end of a generation.

    Args:
        finish: ``stop`` when the model ended, ``length`` when ``max_new_tokens`` did.
        prefilled_tokens: prompt tokens evaluated, as the runtime reports; None before 1.2.1, which does not say.
        prefill_ms: as the runtime reports, else measured up to the first callback.
        decode_ms: as the runtime reports, else measured from the first to the last callback.
        generated_tokens: tokens delivered.
        time_to_first_token_ms: from the request to the first token, queueing included.
        queued_ms: how much of that was waiting for other generations.
        memory_mb: peak memory of the process that owns the model, as the runtime reports; None when it does not.
        cold: the KV cache was known to be empty before this run (first run, or the worker was restarted).
    """

    finish: FinishReason
    prefilled_tokens: int | None
    prefill_ms: float
    decode_ms: float
    generated_tokens: int
    time_to_first_token_ms: float
    queued_ms: float = 0.0
    memory_mb: float | None = None
    cold: bool = False


class Generator(Protocol):
    """What a provider needs of an engine."""

    @property
    def context_tokens(self) -> int:
        """The context window that the model was loaded with."""
        ...

    def generate(
        self, tokens: Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[Token | RunStats, None]:
        """Run the model on ``tokens``; leaving early aborts the run."""
        ...
