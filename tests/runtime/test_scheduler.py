"""Which waiting run goes next: what the cache holds, and nobody for ever last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkllm_mcp.generation import common_prefix
from rkllm_mcp.runtime.scheduler import MAX_SKIPS, WORTHWHILE_TOKENS, RunQueue

HEAD = list(range(100))
LONG = WORTHWHILE_TOKENS


@dataclass(eq=False)
class Run:
    name: str
    tokens: Sequence[int] = field(default_factory=list[int])


def waiting(*runs: Run) -> RunQueue[Run]:
    queue = RunQueue[Run]()
    for run in runs:
        queue.append(run)
    return queue


def test_what_reuses_no_more_keeps_its_place() -> None:
    queue = waiting(Run("a", [*HEAD, 1]), Run("b", [*HEAD, 2]), Run("c", HEAD))
    assert [queue.take(HEAD).name for _ in range(3)] == ["a", "b", "c"]


def test_the_conversation_in_the_cache_goes_first() -> None:
    mine = [*HEAD, *range(200, 200 + LONG)]
    queue = waiting(Run("new", [*HEAD, 1]), Run("mine", [*mine, 5]))
    assert queue.take(mine).name == "mine"
    assert queue.take(mine).name == "new"


def test_a_few_tokens_are_not_worth_breaking_the_order() -> None:
    mine = [*HEAD, *range(200, 200 + LONG - 1)]
    assert waiting(Run("new", HEAD), Run("mine", mine)).take(mine).name == "new"


def test_nobody_is_overtaken_for_ever() -> None:
    mine = [*HEAD, *range(200, 300)]
    queue = waiting(Run("other", HEAD))
    order: list[str] = []
    for _ in range(MAX_SKIPS + 2):
        queue.append(Run("mine", mine))
        order.append(queue.take(mine).name)
    assert order == ["mine"] * MAX_SKIPS + ["other", "mine"]


def test_a_run_that_leaves_is_not_taken() -> None:
    gone, stays = Run("gone"), Run("stays")
    queue = waiting(gone, stays)
    assert queue.remove(gone)
    assert not queue.remove(gone)
    assert queue.clear() == [stays]
    with pytest.raises(IndexError):
        queue.take(HEAD)


@given(st.lists(st.lists(st.integers(0, 2), max_size=80), min_size=1, max_size=12), st.lists(st.integers(0, 2)))
def test_every_run_is_taken_once_and_in_bounded_time(prompts: list[list[int]], cached: list[int]) -> None:
    runs = [Run(str(index), prompt) for index, prompt in enumerate(prompts)]
    queue = waiting(*runs)
    taken = [int(queue.take(cached).name) for _ in runs]
    assert sorted(taken) == list(range(len(runs)))
    for place, index in enumerate(taken):
        overtakers = [later for later in taken[:place] if later > index]
        # Each of those before it may have let that many go first.
        assert len(overtakers) <= MAX_SKIPS


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_a_common_prefix_is_common_and_ends_where_it_must(left: list[int], right: list[int]) -> None:
    length = common_prefix(left, right)
    assert left[:length] == right[:length]
    assert length == min(len(left), len(right)) or left[length] != right[length]
