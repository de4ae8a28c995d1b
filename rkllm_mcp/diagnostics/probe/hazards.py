"""The experiments that a runtime may not survive, or not answer: aborts, pauses, and calls that documents forbid.

The same rules as in ``probe_experiments``. They run where a death costs one fact.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from rkllm_mcp.diagnostics.probe.experiments import (
    ANSWER_LIMIT,
    LIMIT,
    PATIENCE_S,
    Facts,
    InconclusiveError,
    base_prompt,
    beside,
    cold,
    require_completed,
    spares,
)
from rkllm_mcp.diagnostics.probe.subject import Observed, ProbePrompts, ProbeSubject
from rkllm_mcp.runtime.abi.common import (
    CALLBACK_GO_ON,
    CALLBACK_PAUSE,
    RKLLM_RUN_ERROR,
    RKLLM_RUN_FINISH,
    RKLLM_RUN_WAITING,
)

# Leading entries that the experiment on n_keep asks the runtime to keep.
KEPT_TOKENS = 64
# A prefill shorter than this is over before an abort can be seen to cut it.
_PREFILL_MS = 60.0
_PREFILL_LENGTHS = (256, 1024, 4096)
_PAUSE_AT = 3
_COMPARED = 4
_KEPT_OF_ANSWER = 3
# Of a shorter answer, a late abort and a forgotten one leave the same.
_LONG_ENOUGH = 8
# A short answer takes a second on a slow board.
_ASYNC_S = 3.0
_NS_PER_MS = 1e6


def abort_runs(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Test aborts: when idle, between tokens, and during prefill."""
    facts: Facts = {"abort_idle_status": subject.call("rkllm_abort")}
    complete = require_completed(cold(subject, prompts.question, LIMIT))
    called_ns: list[int] = []

    def abort() -> int:
        status = subject.call("rkllm_abort")
        called_ns.append(time.monotonic_ns())
        return status

    observed, status = beside(subject, prompts.question, abort)
    if status is not None and len(complete.ids) >= _LONG_ENOUGH:
        further = len(observed.ids) - 2
        forgotten = len(observed.ids) >= len(complete.ids)
        last_state = observed.states[-1] if observed.states else RKLLM_RUN_WAITING
        facts |= {
            "abort_status": observed.status,
            "abort_ends_with": {RKLLM_RUN_FINISH: "finish", RKLLM_RUN_ERROR: "error"}.get(last_state, "nothing"),
            "abort_in_decode": "forgotten" if forgotten else "honoured",
            "abort_in_decode_tokens": further,
            "abort_in_decode_ms": round((observed.ended_ns - called_ns[0]) / _NS_PER_MS, 3),
        }
        if not forgotten:
            # A run that goes on with the first tokens of the aborted one, as a correction does.
            again = require_completed(subject.run([*prompts.question, *complete.ids[:_KEPT_OF_ANSWER]], 2))
            first_ms = ((again.times_ns[0] if again.times_ns else again.ended_ns) - again.began_ns) / _NS_PER_MS
            facts["restart_ms"] = round((observed.ended_ns - called_ns[0]) / _NS_PER_MS + first_ms, 3)
            if again.evaluated_tokens is not None:
                facts["restart_evaluates"] = again.evaluated_tokens
    for tokens in _PREFILL_LENGTHS:
        if tokens + LIMIT >= subject.load.context_tokens:
            break
        prompt = prompts.of_length(tokens)
        complete = require_completed(cold(subject, prompt, LIMIT))
        whole_ms = (complete.times_ns[0] - complete.began_ns) / _NS_PER_MS if complete.times_ns else 0.0
        if whole_ms >= _PREFILL_MS:
            facts |= _abort_prefill(subject, prompt, complete, whole_ms)
            break
    subject.clear()
    missing = [name for name in ("abort_in_decode", "abort_in_prefill") if name not in facts]
    if missing:
        raise InconclusiveError("the answer is too short, or the prefill too quick, to be aborted", facts)
    return facts


def _abort_prefill(subject: ProbeSubject, prompt: list[int], complete: Observed, whole_ms: float) -> Facts:
    """Abort a prefill after a quarter of the time that it takes."""
    over = threading.Event()
    called_ns: list[int] = []

    def abort() -> None:
        if not over.wait(whole_ms / 4 / 1000):
            called_ns.append(time.monotonic_ns())
            subject.call("rkllm_abort")

    helper = threading.Thread(target=abort, daemon=True)
    subject.clear()
    helper.start()
    observed = subject.run(prompt, LIMIT)
    over.set()
    helper.join(PATIENCE_S)
    if not called_ns:
        return {}
    took_ms = (observed.ended_ns - called_ns[0]) / _NS_PER_MS
    if len(observed.ids) >= len(complete.ids) > 1:
        outcome = "forgotten"
    else:
        left_ms = whole_ms - (called_ns[0] - observed.began_ns) / _NS_PER_MS
        outcome = "cuts" if took_ms < left_ms / 2 else "waits"
    return {"abort_in_prefill": outcome, "abort_in_prefill_ms": (round(took_ms, 3), round(whole_ms, 3))}


def leave_pauses(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Find the call that ends a pause, so that the next run reads its own prompt."""
    expected = require_completed(cold(subject, prompts.other, LIMIT)).ids[:_COMPARED]
    resumed = require_completed(cold(subject, prompts.question, LIMIT)).ids[_PAUSE_AT:][:_COMPARED]
    if not resumed or resumed == expected:
        raise InconclusiveError("the two answers are too short or too alike to tell them apart")
    ways: dict[str, Callable[[], int]] = {
        "clear": subject.clear,
        "abort": partial(subject.call, "rkllm_abort"),
        "run": lambda: 0,
    }
    left_by: list[str] = []
    returns = True
    for name, leave in ways.items():
        _empty(subject, prompts)
        paused = subject.run(
            prompts.question, LIMIT, hook=lambda count: CALLBACK_PAUSE if count == _PAUSE_AT else CALLBACK_GO_ON
        )
        returns = returns and RKLLM_RUN_FINISH not in paused.states and len(paused.ids) == _PAUSE_AT
        leave()
        if subject.run(prompts.other, LIMIT).ids[:_COMPARED] == expected:
            left_by.append(name)
    _empty(subject, prompts)
    return {"pause_returns": returns, "pause_left_by": left_by}


def _empty(subject: ProbeSubject, prompts: ProbePrompts) -> None:
    """Make the subject idle with an empty cache; a paused run is resumed to its end first."""
    subject.clear()
    subject.run(prompts.question, LIMIT)
    subject.clear()


def hide_special_tokens(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Record the callback of a hidden special token: the one that ends the answer."""
    observed = require_completed(cold(subject, prompts.question, ANSWER_LIMIT))
    heard = [text for token, text in zip(observed.ids, observed.texts, strict=True) if token in prompts.stop_ids]
    if heard:
        return {"skipped_token": "null" if heard[0] is None else "empty"}
    if len(observed.ids) >= ANSWER_LIMIT:
        raise InconclusiveError(f"the model said no stop token within {ANSWER_LIMIT} tokens")
    return {"skipped_token": "silent"}


def keep_leading_tokens(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Test that n_keep leaves the leading tokens in the cache."""
    base = base_prompt(subject, prompts)
    first = require_completed(cold(subject, base, 2))
    again = require_completed(subject.run([*base, *prompts.tail()], 2))
    if again.evaluated_tokens is None or first.evaluated_tokens is None:
        raise InconclusiveError("this runtime counts no tokens")
    if spares(first, again, len(base)):
        raise InconclusiveError("every run leaves all of its tokens, the leading ones too")
    prompt_tokens = len(base) + len(prompts.tail())
    return {"keeps_leading_tokens": again.evaluated_tokens <= prompt_tokens - KEPT_TOKENS // 2}


def stay_loaded(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """A context length that is not a multiple of 32: that it was loaded, and runs."""
    require_completed(cold(subject, prompts.question, 2))
    return {"odd_context": "accepted"}


def run_while_busy(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """The status of a second rkllm_run, from another thread during the first."""
    _, status = beside(subject, prompts.question, lambda: subject.intrude(prompts.other))
    subject.clear()
    return {"busy_run_status": status}


def omit_role(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """An input whose role is NULL."""
    subject.clear()
    observed = subject.run(prompts.question, 2, role=False)
    return {"null_role": "works" if observed.is_complete and observed.ids else "refused"}


def run_asynchronously(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Test that rkllm_run_async calls back (not in 1.1.4; it never returned in 1.2.1)."""
    subject.clear()
    status, has_finished = subject.run_async(prompts.question, _ASYNC_S)
    return {"run_async": "works" if has_finished else "silent" if status == 0 else "refused"}


def overflow(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """A prompt that is longer than the context."""
    subject.clear()
    observed = subject.run(prompts.of_length(subject.load.context_tokens + 8), 2)
    if RKLLM_RUN_ERROR in observed.states:
        return {"over_long": "callback"}
    return {"over_long": "return" if observed.status != 0 else "runs"}
