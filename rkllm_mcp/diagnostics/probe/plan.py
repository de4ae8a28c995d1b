"""All experiments in order: harmless ones, those with other load parameters, dangerous ones.

The plan is shared by the probe process and its parent. A crash or a timeout that is itself a result is listed with the
experiment; any other leaves its facts unsettled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.diagnostics.probe import experiments as safe
from rkllm_mcp.diagnostics.probe import hazards as risky
from rkllm_mcp.diagnostics.probe import sights
from rkllm_mcp.diagnostics.probe.subject import ProbePrompts, ProbeSubject
from rkllm_mcp.runtime.abi.common import Abi, LoadParameters

# A context that no document promises to work: one less than a multiple.
_MULTIPLE = 32


def _hiding_and_keeping(_load: LoadParameters) -> dict[str, Any]:
    return {"skip_special_token": True, "keep_tokens": risky.KEPT_TOKENS, "max_new_tokens": safe.ANSWER_LIMIT}


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    name: str  # its name, on screen and in ``RuntimeProfile.unsettled``
    make: Callable[[ProbeSubject, ProbePrompts], dict[str, Any]]  # makes it; returns facts
    # (parameters of loading) -> those that it needs to be others
    load: Callable[[LoadParameters], dict[str, Any]] = lambda _load: {}
    deadline: float = 1.0  # its limit, in the probe's patience
    # the facts when the model does not load as it needs it
    if_refused: Mapping[str, Any] = field(default_factory=dict[str, Any])
    if_crashed: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the facts when the process dies of it
    if_hung: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the facts when it does not end
    needs: Callable[[Abi], bool] = lambda _abi: True  # whether the interface has its subject


PLAN: tuple[Experiment, ...] = (
    Experiment("callback thread", safe.find_callback_thread),
    # By far the longest: a prompt of 8192 tokens took minutes on a board.
    Experiment("pace", safe.measure_pace, deadline=5.0),
    Experiment("cache", safe.watch_cache),
    Experiment("prompt cache", safe.try_prompt_cache, deadline=2.0),
    Experiment("rows", safe.find_rows),
    Experiment("logits step", safe.measure_logits_steps),
    Experiment("is_running", safe.watch_is_running),
    Experiment("pictures", sights.look_at_pictures, deadline=2.0),
    Experiment("abort", risky.abort_runs, deadline=2.0),
    Experiment("pause", risky.leave_pauses, needs=lambda abi: abi.callback_returns_int),
    Experiment("ending", safe.watch_ending, load=lambda _load: {"max_new_tokens": safe.ANSWER_LIMIT}),
    Experiment(
        "odd context",
        risky.stay_loaded,
        load=lambda load: {"context_tokens": load.context_tokens // _MULTIPLE * _MULTIPLE - _MULTIPLE // 4},
        if_refused={"odd_context": "refused"},
        if_crashed={"odd_context": "crash"},
    ),
    Experiment("hidden tokens", risky.hide_special_tokens, load=_hiding_and_keeping),
    Experiment("leading tokens", risky.keep_leading_tokens, load=_hiding_and_keeping),
    Experiment("busy", risky.run_while_busy, load=_hiding_and_keeping),
    Experiment(
        "role",
        risky.omit_role,
        load=_hiding_and_keeping,
        if_crashed={"null_role": "crash"},
        needs=lambda abi: abi.has_roles,
    ),
    Experiment(
        "asynchronous",
        risky.run_asynchronously,
        load=_hiding_and_keeping,
        if_crashed={"run_async": "crash"},
        if_hung={"run_async": "hangs"},
    ),
    Experiment(
        "overflow",
        risky.overflow,
        load=_hiding_and_keeping,
        if_crashed={"over_long": "crash"},
        if_hung={"over_long": "hangs"},
    ),
)
