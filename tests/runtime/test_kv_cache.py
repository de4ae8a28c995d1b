"""What is known of the KV cache after a run, and what its owners may learn of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rkllm_mcp.generation import GenerationOptions, TokenInput
from rkllm_mcp.runtime.frames import RunCommand
from rkllm_mcp.runtime.kv_cache import CacheState
from rkllm_mcp.runtime.run import Run, RunState

PROMPT, ANSWER = (1, 2, 3), (7, 8, 9)
OPTIONS = GenerationOptions(16)


def command_of(
    options: GenerationOptions = OPTIONS, prompt: Sequence[int] = PROMPT, *, clears_after: bool = False
) -> RunCommand:
    return RunCommand(1, TokenInput(prompt), options, clears_after=clears_after)


def after(
    cache: CacheState,
    command: RunCommand,
    *,
    state: RunState = RunState.DONE,
    ids: Sequence[int] = ANSWER,
) -> CacheState:
    """The cache after a run with this command, its end and its tokens."""
    run = Run(command)
    cache.is_cold = False
    run.ids.extend(ids)
    run.state = state
    cache.after(run, command)
    return cache


def test_the_cache_holds_the_prompt_and_all_tokens_of_the_answer_but_the_last() -> None:
    cache = after(CacheState(), command_of())
    assert list(cache.ids) == [1, 2, 3, 7, 8]
    assert not cache.is_cold
    assert cache.count_uncached([1, 2, 3, 7, 8, 9, 10]) == 2


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.DONE])
def test_the_content_after_a_run_that_did_not_end_well_is_unknown(state: RunState) -> None:
    assert list(after(CacheState(), command_of(), state=state).ids) == []


def test_the_content_after_a_run_without_a_token_is_unknown() -> None:
    cache = after(CacheState(), command_of())
    assert list(after(cache, command_of(), ids=()).ids) == []


def test_a_model_that_reuses_no_prefix_has_no_known_content() -> None:
    assert list(after(CacheState(reuses_prefix=False), command_of()).ids) == []


def test_reuse_of_another_owners_prompt_is_not_reported_and_of_the_services_own_is() -> None:
    cache = after(CacheState(), command_of(replace(OPTIONS, owner=None)))
    assert cache.count_uncached([1, 2, 3, 4], "ann") == 1
    cache = after(cache, command_of(replace(OPTIONS, owner="ben")))
    assert cache.count_uncached([1, 2, 3, 7, 8, 4], "ben") == 1
    # The service's own last prompt is known to every owner, the answer to ben is not.
    assert cache.count_uncached([1, 2, 3, 7, 8, 4], "ann") == 3


def test_a_failed_run_adds_its_owner_and_a_whole_run_replaces_all_others() -> None:
    ann, ben = (command_of(replace(OPTIONS, owner=name)) for name in ("ann", "ben"))
    cache = after(after(CacheState(), ann), ben, ids=())
    assert (cache.own_tokens(PROMPT, "ann"), cache.own_tokens(PROMPT, "ben")) == (0, 0)
    cache = after(cache, ben)
    assert (cache.own_tokens(PROMPT, "ann"), cache.own_tokens(PROMPT, "ben")) == (0, None)


def test_a_failed_prompt_of_the_service_does_not_count_as_known_to_every_owner() -> None:
    service, ben = replace(OPTIONS, owner=None), replace(OPTIONS, owner="ben")
    cache = after(CacheState(), command_of(service))
    cache = after(after(cache, command_of(service, (5, 6)), ids=()), command_of(ben))
    assert (cache.own_tokens(PROMPT, "ann"), cache.own_tokens((5, 6), "ann")) == (3, 0)


def test_a_prompt_cache_of_an_unknown_owner_is_reported_to_nobody() -> None:
    cache = CacheState()
    cache.on_load()
    assert cache.count_uncached(PROMPT, "a") == len(PROMPT)
    assert cache.own_tokens(PROMPT, "a") == 0
    cache.on_load(PROMPT, "a")
    assert cache.own_tokens(PROMPT, "a") is None
