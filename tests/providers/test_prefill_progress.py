from __future__ import annotations

import pytest

from rkllm_mcp.generation import RunStats
from rkllm_mcp.providers.prefill_progress import PrefillProgress, PromptProgress


def stats(prefill_ms: float) -> RunStats:
    return RunStats("stop", None, prefill_ms, 0.0, 1, 0.0)


def test_a_prompt_is_being_read_from_its_beginning_to_its_first_token() -> None:
    readings = PrefillProgress()
    assert readings.of("a") is None
    readings.runs["a"] = lambda: 500
    assert readings.of("a") == PromptProgress(500)
    assert readings.of("b") is None
    del readings.runs["a"]
    assert readings.of("a") is None


@pytest.mark.parametrize(("prefilled", "seconds"), [(100, 5.0), (3, None)])
def test_the_last_long_prefill_says_how_long_the_next_takes(prefilled: int, seconds: float | None) -> None:
    readings = PrefillProgress()
    readings.record_run(stats(prefilled * 10.0), prefilled)
    assert readings.estimate(500) == PromptProgress(500, seconds)


def test_the_measured_behaviour_of_the_runtime_comes_first() -> None:
    readings = PrefillProgress(lambda tokens: 7.0 if tokens > 100 else None)
    readings.record_run(stats(1000.0), 100)
    assert (readings.estimate(500).seconds, readings.estimate(50).seconds) == (7.0, 0.5)
