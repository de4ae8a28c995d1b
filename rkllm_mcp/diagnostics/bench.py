"""The ``bench`` command: prefill, decode and prompt figures of a model on this machine."""

from __future__ import annotations

import re
import statistics
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from rkllm_mcp.app.model_form import model_form
from rkllm_mcp.app.settings import chosen_model, engine_settings
from rkllm_mcp.board.machine import Machine as BoardMachine
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.dialogue import Dialogue, play_dialogue
from rkllm_mcp.diagnostics.probe.prompts import prompts_for
from rkllm_mcp.diagnostics.probe.subject import ProbePrompts
from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.prompt.budget import Budget
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.run import TimedToken


@dataclass(frozen=True)
class MachineFigures:
    """Conditions of a measurement."""

    model: str  # the model's name
    board: str  # the board or machine
    runtime: str  # the runtime's release
    emulated: bool  # the NPU is emulated, so its speed is what a script says
    context_tokens: int  # the context window


@dataclass(frozen=True)
class Loading:
    """Loading the model."""

    load_ms: float  # from the start of the process until the model can be asked
    memory_mb: float | None  # the process's memory then
    peak_memory_mb: float | None  # its peak after everything that was measured


@dataclass
class LengthFigures:
    """One prompt length, from an empty cache."""

    prompt_tokens: int  # how many tokens were prefilled
    prefill_ms: float  # how long that took
    time_to_first_token_ms: float  # from asking to the first token
    decode_tokens: int  # how many tokens were generated after it
    decode_ms_per_token: float | None  # from one to the next; None with fewer than two
    prefill_tokens_per_s: float | None = field(init=False)  # None when it was too quick to be measured
    decode_tokens_per_s: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.prefill_tokens_per_s = self.prompt_tokens / self.prefill_ms * 1000 if self.prefill_ms > 0 else None
        self.decode_tokens_per_s = 1000 / self.decode_ms_per_token if self.decode_ms_per_token else None


@dataclass(frozen=True)
class Delivery:
    """Delay of a token from the runtime's callback to its reader, and the callback's cost, microseconds."""

    tokens: int  # how many were looked at
    mean_us: float  # of the way
    p50_us: float  # the median
    p99_us: float  # what 99 of 100 do not exceed
    max_us: float  # the longest
    blocked_us: float  # how long a callback held up the runtime, on average


@dataclass(frozen=True)
class BusyHost:
    """Decoding during a busy host thread, compared with an idle host."""

    rounds: int  # pairs of runs
    idle_ms_per_token: float  # with a resting host
    busy_ms_per_token: float  # with a busy one
    ratio: float  # busy to idle, the median of the rounds; 1.01 is a slowdown of 1 %


@dataclass(frozen=True)
class PromptFigures:
    """Cost of writing a prompt in the host."""

    tools: int  # how many tools are listed in it
    prompt_tokens: int  # its length
    first_ms: float  # writing it for a new conversation
    next_ms: float  # writing the next question after it


@dataclass(frozen=True)
class Report:
    """All results of one bench; parts that were not measured are None or empty."""

    machine: MachineFigures
    loading: Loading
    lengths: tuple[LengthFigures, ...] = ()
    delivery: Delivery | None = None
    busy: BusyHost | None = None
    prompts: tuple[PromptFigures, ...] = ()
    dialogue: Dialogue | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)


TOOL_COUNTS = (0, 5, 20, 50)
# No real window: the writing is measured.
_WINDOW = Budget(1_000_000, 512)
_RUNS = 3
_TOOL = ToolSpec(
    "look_up",
    "Looks something up for a place and a number of days.",
    {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "A place, as people write it."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "How many days."},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["place"],
    },
)


@dataclass(frozen=True)
class BenchRun:
    """One run, token by token, in ns of CLOCK_MONOTONIC."""

    entered_ns: tuple[int, ...]  # when the runtime called back with each token
    seen_ns: tuple[int, ...]  # when the reader received each token
    stats: RunStats  # the run's own figures


def ms_between(moments_ns: Sequence[int]) -> float | None:
    """The mean distance of moments, ms; None with fewer than two."""
    return (moments_ns[-1] - moments_ns[0]) / (len(moments_ns) - 1) / 1e6 if len(moments_ns) > 1 else None


async def timed_run(
    engine: Engine, prompt: Sequence[int], tokens: int, on_first: Callable[[], None] = lambda: None
) -> BenchRun:
    """Run the model on an empty cache; ``on_first`` is called at the first token."""
    await engine.clear_cache()
    entered: list[int] = []
    received: list[int] = []
    stats: RunStats | None = None
    async with aclosing(engine.generate(prompt, GenerationOptions(max_new_tokens=tokens))) as run:
        async for item in run:
            if isinstance(item, RunStats):
                stats = item
                continue
            received.append(time.monotonic_ns())
            if isinstance(item, TimedToken):
                entered.append(item.entered_ns)
            if len(received) == 1:
                on_first()
    if stats is None:
        raise RuntimeError("a generation ended without its figures")
    return BenchRun(tuple(entered), tuple(received), stats)


LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PREFILL_BUDGET_MS = 60_000.0
# From one length to the next, prefill grows by more than its factor.
_GROWTH = 2.5


async def measure_lengths(
    engine: Engine, prompts: ProbePrompts, decode_tokens: int
) -> AsyncGenerator[LengthFigures, None]:
    """Measure the prompts in turn, generating ``decode_tokens`` after each."""
    before = 0
    for length in LENGTHS:
        prompt = prompts.of_length(length)
        if len(prompt) == before:  # the question alone is longer
            continue
        if len(prompt) + decode_tokens >= engine.context_tokens:
            return
        before = len(prompt)
        run = await timed_run(engine, prompt, decode_tokens)
        yield LengthFigures(
            prompt_tokens=run.stats.prefilled_tokens or len(prompt),
            prefill_ms=run.stats.prefill_ms,
            time_to_first_token_ms=run.stats.time_to_first_token_ms,
            decode_tokens=run.stats.generated_tokens,
            decode_ms_per_token=ms_between(run.entered_ns),
        )
        if run.stats.prefill_ms * _GROWTH > PREFILL_BUDGET_MS:
            return


TOKENS = 96
ROUNDS = 3
# A host that is busy for longer holds up its own shutdown for no better figure.
_BUSY_AT_MOST_S = 6.0
# Fewer tokens tell nothing about their distance.
_FEWEST_TOKENS = 8
# An answer that is over sooner is over before a thread has begun.
_SHORTEST_RUN_MS = 50.0
_NEVER_S = 3600.0
_NS_PER_US = 1e3


async def measure_delivery(engine: Engine, prompt: Sequence[int], tokens: int = TOKENS) -> Delivery:
    """Every token's way from its callback to here."""
    run = await timed_run(engine, prompt, tokens)
    ways = sorted(
        (received - entered) / _NS_PER_US for entered, received in zip(run.entered_ns, run.seen_ns, strict=True)
    )
    return Delivery(
        tokens=len(ways),
        mean_us=statistics.fmean(ways),
        p50_us=ways[len(ways) // 2],
        p99_us=ways[len(ways) * 99 // 100],
        max_us=ways[-1],
        blocked_us=run.stats.callback_ms * 1e3 / max(1, len(ways)),
    )


async def measure_busy_host(
    engine: Engine, prompt: Sequence[int], tokens: int = TOKENS, rounds: int = ROUNDS
) -> BusyHost | None:
    """Decode with an idle and with a busy host in turn; None when the runtime is too quick for it to be seen."""
    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        idle = await timed_run(engine, prompt, tokens)
        pace = ms_between(idle.entered_ns)
        if pace is None or pace * len(idle.entered_ns) < _SHORTEST_RUN_MS:
            return None
        hog = Hog(min(_BUSY_AT_MOST_S, pace * len(idle.entered_ns) / 1000))
        thread = threading.Thread(target=hog.compute, daemon=True)
        # The thread keeps the interpreter until it waits for something by itself.
        before_s = sys.getswitchinterval()
        sys.setswitchinterval(_NEVER_S)
        try:
            # Starting it returns when it ends.
            busy = await timed_run(engine, prompt, tokens, on_first=thread.start)
            if thread.ident is not None:
                thread.join(hog.seconds + _BUSY_AT_MOST_S)
        finally:
            sys.setswitchinterval(before_s)
        during = [moment for moment in busy.entered_ns if hog.began_ns <= moment <= hog.ended_ns]
        busy_pace = ms_between(during)
        if busy_pace is None or len(during) < _FEWEST_TOKENS:
            # A runtime that stood still is as slow as the thread.
            busy_pace = (hog.ended_ns - hog.began_ns) / 1e6 / max(1, len(during))
        pairs.append((pace, busy_pace))
    return BusyHost(
        rounds=len(pairs),
        idle_ms_per_token=statistics.median(idle for idle, _ in pairs),
        busy_ms_per_token=statistics.median(busy for _, busy in pairs),
        ratio=statistics.median(busy / idle for idle, busy in pairs),
    )


@dataclass
class Hog:
    """Work that never yields the interpreter; ``began_ns`` and ``ended_ns`` are its times."""

    seconds: float  # how long
    began_ns: int = 0
    ended_ns: int = 0

    def compute(self) -> None:
        """Do it."""
        self.began_ns = now_ns = time.monotonic_ns()
        until_ns = self.began_ns + int(self.seconds * 1e9)
        while now_ns < until_ns:
            now_ns = time.monotonic_ns()
        self.ended_ns = now_ns


PARTS = ("prefill", "decode", "delivery", "prompt")
# Tokens after each prompt: for prefill alone a few will do.
_DECODE_TOKENS = 32
_FEW_TOKENS = 4
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)
_NS_PER_MS = 1e6


async def measure(
    config: Config, parts: Collection[str] = PARTS, on_step: Callable[[str], None] = lambda _: None
) -> Report:
    """Load the model and measure; a RuntimeUnusableError or GenerationError ends it.

    The part ``prefill`` ends with the ten questions of ``play_dialogue``, for which the model is loaded once more.
    """
    model = chosen_model(config)
    form = model_form(config, model)
    prompts = prompts_for(form)
    settings = replace(engine_settings(config, model), timed_tokens=True, timed_callbacks=True, ignore_eos=True)
    written: list[PromptFigures] = []
    if "prompt" in parts:
        # With more and more tools, the fastest of some tries each.
        on_step("Writing prompts")
        for count in TOOL_COUNTS:
            tools = [replace(_TOOL, name=f"look_up_{number}") for number in range(count)]
            tries: list[PromptFigures] = []
            for _ in range(_RUNS):
                prompt = ConversationPrompt(form.tokenizer, form.template, thinking=form.think)
                messages = [Message("system", "You answer briefly."), Message("user", "What is the weather in Tokyo?")]
                began = time.perf_counter()
                first = prompt.prepare(messages, tools, _WINDOW)
                first_ms = (time.perf_counter() - began) * 1000
                answer = Message("assistant", "It is sunny in Tokyo.")
                prompt.store_answer(answer, form.tokenizer.encode([]))
                messages += [answer, Message("user", "And tomorrow?")]
                began = time.perf_counter()
                prompt.prepare(messages, tools, _WINDOW)
                next_ms = (time.perf_counter() - began) * 1000
                tries.append(PromptFigures(count, len(first.ids), first_ms, next_ms))
            written.append(min(tries, key=lambda figures: figures.first_ms))
    lengths: list[LengthFigures] = []
    delivery: Delivery | None = None
    busy: BusyHost | None = None
    notes: list[str] = []
    began_ns = time.monotonic_ns()
    async with open_engine(settings) as engine:
        on_step(f"Loading model '{model.name}'")
        await engine.ready()
        load_ms = (time.monotonic_ns() - began_ns) / _NS_PER_MS
        memory_mb = _memory_mb(engine, "VmRSS")
        board = (BoardMachine().strings("proc/device-tree/model") or ("",))[0] or "no board"
        loaded = engine.supervisor.loaded
        is_emulated = loaded is not None and loaded.emulated
        machine = MachineFigures(model.name, board, engine.version, is_emulated, engine.context_tokens)
        if {"prefill", "decode"} & set(parts):
            async for figures in measure_lengths(engine, prompts, _DECODE_TOKENS if "decode" in parts else _FEW_TOKENS):
                on_step(f"{figures.prompt_tokens} tokens prefilled in {figures.prefill_ms:.0f} ms")
                lengths.append(figures)
        if "delivery" in parts:
            on_step("Delivery, with an idle and with a busy host in turn")
            delivery = await measure_delivery(engine, prompts.question)
            busy = await measure_busy_host(engine, prompts.question)
            if busy is None:
                notes.append("decoding is too quick here for a busy host to be compared with an idle one")
        peak_mb = _memory_mb(engine, "VmHWM")
    dialogue = await play_dialogue(config, on_step=on_step) if "prefill" in parts else None
    if machine.emulated:
        notes.insert(0, "the NPU is emulated: its speed is what a script says; delivery and prompts are our own cost")
    loading = Loading(load_ms, memory_mb, peak_mb)
    return Report(machine, loading, tuple(lengths), delivery, busy, tuple(written), dialogue, tuple(notes))


def _memory_mb(engine: Engine, field: str) -> float | None:
    """Return the memory of the process that owns the model; None without one."""
    try:
        status = Path(f"/proc/{engine.worker_pid}/status").read_text("ascii", errors="replace")
    except OSError:
        return None
    return next((int(kilobytes) / 1024 for name, kilobytes in _MEMORY.findall(status) if name == field), None)
