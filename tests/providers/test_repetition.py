"""An answer that repeats itself is ended with a sentence."""

from __future__ import annotations

import pytest

from rkllm_mcp.events import Text
from rkllm_mcp.providers.rkllm import RepetitionWatch
from rkllm_mcp.sampling import Sampling, SamplingByPurpose
from tests.providers.test_rkllm_options import Asked

pytestmark = pytest.mark.anyio


def _ended_after(ids: list[int]) -> int | None:
    watch = RepetitionWatch()
    return next((count for count, token in enumerate(ids, 1) if watch.add(token)), None)


@pytest.mark.parametrize("period", [1, 7, 29, 30, 31, 80])
def test_four_times_the_same_thirty_tokens_are_a_loop_with_any_period(period: int) -> None:
    start = list(range(1000, 1050))
    needed = 30 + max(3, -(-90 // period)) * period
    assert _ended_after([*start, *(list(range(period)) * 200)]) == len(start) + needed


def test_what_only_looks_alike_is_not_a_loop() -> None:
    assert _ended_after(list(range(2000))) is None
    rows = [token for row in range(100) for token in (*range(20), 5000 + row)]
    assert _ended_after(rows) is None
    apart = [token for gap in range(20) for token in (*range(30), *range(100, 130 + gap))]
    assert _ended_after(apart) is None


@pytest.mark.parametrize(("words", "sentence"), [("and so ", "repeated itself"), ("です。", "繰り返し")])
async def test_the_answer_ends_with_a_sentence_in_its_language(words: str, sentence: str) -> None:
    asked = Asked(words * 2000)
    events = await asked.respond(max_new_tokens=4000)
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert sentence in text
    assert len(text) < len(words) * 300


async def test_rounds_that_may_call_are_sampled_apart() -> None:
    low, high, thinking = Sampling(0.2), Sampling(0.7), Sampling(0.6)
    asked = Asked(*["Yes."] * 3, template="qwen3", sampling=SamplingByPurpose(high, thinking, low))
    await asked.respond()
    await asked.respond(tool_choice="none")
    await asked.respond(thinking=True)
    assert [options.sampling for options in asked.engine.options] == [low, high, thinking]
