"""What a bench measured: plain values, ready for a table, for JSON and for a plot."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Machine:
    """What was measured: figures without this are none.

    Args:
        model: the model's name.
        board: the board or machine.
        runtime: the runtime's release.
        emulated: the NPU is emulated, so its speed is what a script says.
        context_tokens: the context window.
    """

    model: str
    board: str
    runtime: str
    emulated: bool
    context_tokens: int


@dataclass(frozen=True)
class Loading:
    """Loading the model.

    Args:
        load_ms: from the start of the process until the model can be asked.
        memory_mb: the process's memory then.
        peak_memory_mb: its peak after everything that was measured.
    """

    load_ms: float
    memory_mb: float | None
    peak_memory_mb: float | None


@dataclass(frozen=True)
class LengthFigures:
    """One prompt length, from an empty cache.

    Args:
        prompt_tokens: how many tokens were prefilled.
        prefill_ms: how long that took.
        time_to_first_token_ms: from asking to the first token.
        decode_tokens: how many tokens were generated behind it.
        decode_ms_per_token: from one to the next; None with fewer than two.
    """

    prompt_tokens: int
    prefill_ms: float
    time_to_first_token_ms: float
    decode_tokens: int
    decode_ms_per_token: float | None

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prompt tokens per second; None when it was too quick to be measured."""
        return self.prompt_tokens / self.prefill_ms * 1000 if self.prefill_ms > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Generated tokens per second."""
        return 1000 / self.decode_ms_per_token if self.decode_ms_per_token else None


@dataclass(frozen=True)
class Delivery:
    """The way of a token from the runtime's callback to whoever awaits it, and what the callback costs, microseconds.

    Args:
        tokens: how many were looked at.
        mean_us: of the way.
        p50_us: the median.
        p99_us: what 99 of 100 do not exceed.
        max_us: the longest.
        blocked_us: how long a callback kept the runtime, on average.
    """

    tokens: int
    mean_us: float
    p50_us: float
    p99_us: float
    max_us: float
    blocked_us: float


@dataclass(frozen=True)
class BusyHost:
    """Decoding while a thread of the host never yields the interpreter, beside decoding while the host rests.

    Args:
        rounds: pairs of runs.
        idle_ms_per_token: with a resting host.
        busy_ms_per_token: with a busy one.
        ratio: busy to idle, the median of the rounds; 1.01 is a slowdown of 1 %.
    """

    rounds: int
    idle_ms_per_token: float
    busy_ms_per_token: float
    ratio: float


@dataclass(frozen=True)
class PromptFigures:
    """What it takes the host to write a prompt.

    Args:
        tools: how many tools are listed in it.
        prompt_tokens: its length.
        first_ms: writing it for a new conversation.
        next_ms: writing the next question behind it.
    """

    tools: int
    prompt_tokens: int
    first_ms: float
    next_ms: float


@dataclass(frozen=True)
class Report:
    """Everything that one bench measured; what was not asked for is None or empty."""

    machine: Machine
    loading: Loading
    lengths: tuple[LengthFigures, ...] = ()
    delivery: Delivery | None = None
    busy: BusyHost | None = None
    prompts: tuple[PromptFigures, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
