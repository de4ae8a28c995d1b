"""The ledger only grows, and knows what a prompt should cost."""

from __future__ import annotations

import pytest

from rkllm_mcp.prompt.ledger import CacheExpectation, TokenLedger, common_prefix


def test_what_went_in_and_came_out_stays_in_order() -> None:
    ledger = TokenLedger()
    ledger.append([1, 2])
    ledger.append(iter([3]))
    assert list(ledger.ids) == [1, 2, 3]


def test_rewinding_forgets_only_what_lies_behind() -> None:
    ledger = TokenLedger()
    ledger.append([1, 2, 3])
    ledger.rewind(1)
    assert list(ledger.ids) == [1]
    with pytest.raises(ValueError, match="cannot rewind 1 tokens to 2"):
        ledger.rewind(2)


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 9, 3], [1, 2, 3], 1), ([9], [1], 0)],
)
def test_a_common_prefix_is_counted(left: list[int], right: list[int], shared: int) -> None:
    assert common_prefix(left, right) == shared
    assert common_prefix(right, left) == shared


def test_the_next_prompt_costs_what_is_new_and_the_last_token_that_was_never_evaluated() -> None:
    cache = CacheExpectation()
    first = cache.begin([1, 2, 3], [4, 5])
    assert first.prefill_tokens() == 3
    first.ended()
    for prompt, expected in (([1, 2, 3, 4, 5, 6], 2), ([1, 2, 3, 4], 1), ([1, 2, 9], 1), ([9], 1)):
        following = CacheExpectation()
        following.begin([1, 2, 3], [4, 5])
        assert following.begin(prompt, []).prefill_tokens() == expected


def test_a_run_that_waits_is_expected_to_find_what_the_one_before_it_leaves_in_the_end() -> None:
    cache = CacheExpectation()
    generated: list[int] = []
    before = cache.begin([1, 2, 3], generated)
    waiting = cache.begin([1, 2, 3, 4, 5, 6], [])
    assert waiting.prefill_tokens() == 6
    generated += [4, 5]
    before.ended()
    assert waiting.prefill_tokens() == 2


def test_nothing_is_expected_of_a_cache_after_a_run_that_failed_or_brought_nothing() -> None:
    for generated, failed in (([4, 5], True), ([], False)):
        cache = CacheExpectation()
        cache.begin([1, 2, 3], generated).ended(failed=failed)
        assert cache.begin([1, 2, 3, 4], []).prefill_tokens() == 4


def test_runs_that_are_over_keep_no_others_alive() -> None:
    cache = CacheExpectation()
    for _ in range(3):
        run = cache.begin([1], [2])
        run.ended()
        assert run.before is None
