"""How fast the NPU is, by prompt length: prefill, the first token, and decode behind it.

Each length begins with an empty cache. Lengths grow until the context is full or the next prefill would take longer
than a person waits for a bench.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from rkllm_mcp.measurement.figures import LengthFigures
from rkllm_mcp.measurement.runs import timed_run
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.probe_prompts import ProbePrompts

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PREFILL_BUDGET_MS = 60_000.0
# From one length to the next, prefill grows by more than its factor.
_GROWTH = 2.5


async def measure_lengths(
    engine: Engine, prompts: ProbePrompts, decode_tokens: int
) -> AsyncGenerator[LengthFigures, None]:
    """Measure one length after the other.

    Args:
        engine: made with ``timed_tokens``.
        prompts: what the model is asked.
        decode_tokens: how many tokens are generated behind each prompt.
    """
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
            decode_ms_per_token=run.ms_per_token,
        )
        if run.stats.prefill_ms * _GROWTH > PREFILL_BUDGET_MS:
            return
