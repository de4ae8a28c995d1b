"""The bench: one configuration's model is loaded, measured part by part, and becomes a ``Report``.

On a board these are the board's figures; on the emulated NPU they are the script's speed and our own cost, and the
report says so. Nothing is judged here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from rkllm_mcp.assembly import chosen_model, engine_settings, model_form
from rkllm_mcp.board.machine import Machine as BoardMachine
from rkllm_mcp.config import Config
from rkllm_mcp.measurement.asking import prompts_for
from rkllm_mcp.measurement.delivery import measure_busy_host, measure_delivery
from rkllm_mcp.measurement.figures import BusyHost, Delivery, LengthFigures, Loading, Machine, PromptFigures, Report
from rkllm_mcp.measurement.prompting import measure_prompts
from rkllm_mcp.measurement.speed import measure_lengths
from rkllm_mcp.runtime.engine import Engine, open_engine

PARTS = ("prefill", "decode", "delivery", "prompt")
# Tokens behind each prompt: for prefill alone a few will do.
_DECODE_TOKENS = 32
_FEW_TOKENS = 4
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)
_NS_PER_MS = 1e6


async def measure(
    config: Config, parts: Collection[str] = PARTS, on_step: Callable[[str], None] = lambda _: None
) -> Report:
    """Load the model and measure.

    Args:
        config: which model and runtime.
        parts: of ``PARTS``.
        on_step: is told, a line each, what is being measured.

    Raises:
        RuntimeUnusableError: runtime or model cannot be used.
        GenerationError: a run failed.
    """
    model = chosen_model(config)
    form = model_form(config, model)
    prompts = prompts_for(form)
    settings = replace(engine_settings(config, model), timed_tokens=True, timed_callbacks=True, ignore_eos=True)
    written: tuple[PromptFigures, ...] = ()
    if "prompt" in parts:
        on_step("Writing prompts")
        written = measure_prompts(form)
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
        machine = _machine(model.name, engine)
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
    if machine.emulated:
        notes.insert(0, "the NPU is emulated: its speed is what a script says; delivery and prompts are our own cost")
    return Report(machine, Loading(load_ms, memory_mb, peak_mb), tuple(lengths), delivery, busy, written, tuple(notes))


def _machine(model: str, engine: Engine) -> Machine:
    here = BoardMachine()
    board = (here.strings("proc/device-tree/model") or ("",))[0] or "no board"
    return Machine(model, board, engine.version, engine.is_emulated, engine.context_tokens)


def _memory_mb(engine: Engine, field: str) -> float | None:
    """Memory of the process that owns the model; None when there is none."""
    try:
        status = Path(f"/proc/{engine.worker_pid}/status").read_text("ascii", errors="replace")
    except OSError:
        return None
    return next((int(kilobytes) / 1024 for name, kilobytes in _MEMORY.findall(status) if name == field), None)
