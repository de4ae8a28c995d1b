"""The day of bench/prefill_economy, as a promise: each token is prefilled once."""

from __future__ import annotations

from bench.prefill_economy import Setting, measure
from rkllm_mcp.prompt.families import TEMPLATES
from tests.support.demo_model import demo_vocabulary


def test_a_day_of_conversations_prefills_each_token_once() -> None:
    ways, once, cold_start = measure(Setting(demo_vocabulary(), TEMPLATES["qwen3"]))
    tokens = {way.name: way.prefilled for way in ways}
    assert tokens["ours"] <= 1.02 * once
    assert cold_start < 0.05
    assert min(tokens, key=lambda name: tokens[name]) == "ours"
