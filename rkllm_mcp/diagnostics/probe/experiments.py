"""The experiments that a runtime should survive: how fast it is, who calls back, what it keeps, what it delivers.

Each takes a subject and prompts, leaves the subject ready for the next, and returns facts by the names of
``facts.json``. What it cannot settle it says with ``InconclusiveError``, which carries what is settled all the
same. Nothing waits longer than ``PATIENCE_S``; what hangs in the library is ended by the process that started this one.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rkllm_mcp.diagnostics.probe.subject import Observed, ProbePrompts, ProbeRows, ProbeSubject
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.runtime.abi.common import (
    RKLLM_INFER_GET_LAST_HIDDEN_LAYER,
    RKLLM_INFER_GET_LOGITS,
    RKLLM_RUN_FINISH,
    RKLLM_RUN_WAITING,
)

Facts = dict[str, Any]

# Tokens that any answer of an experiment may have; with 1.2.x, which has no limit per run, the model is loaded with it.
LIMIT = 32
# And those that are about an answer's own end.
ANSWER_LIMIT = 256
_SHOWN_TOKENS = 12
# Prompt lengths whose speed is measured; the next one is left out when it would take longer than the budget.
LENGTHS = (64, 256, 1024, 4096, 8192)
PREFILL_BUDGET_MS = 30_000.0
# A prompt long enough for its reuse to show next to the question.
_BASE_TOKENS = 160
# Where the runtime gives no counts, times decide, and only when they are long enough to differ.
_TELLING_MS = 20.0
PATIENCE_S = 10.0
_NEAR = 1e-3
# Runs of one token, of which the middle one's time counts.
_STEPS = 7
# Cosine of two rows of logits of the same prompt; prompts evaluated in other parts are rounded differently.
_SAME_LOGITS = 0.99

_T = TypeVar("_T")


class InconclusiveError(RkllmMcpError):
    """An experiment without a complete result; ``facts`` are the settled ones."""

    def __init__(self, reason: str, facts: Facts | None = None) -> None:
        super().__init__(reason)
        self.facts = facts or {}


def measure_pace(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Prefill and decode, by prompt length, each from an empty cache."""
    prefill: list[tuple[int, float]] = []
    decode: list[tuple[int, float]] = []
    for tokens in LENGTHS:
        if tokens + LIMIT >= subject.load.context_tokens:
            break
        if prefill:
            measured, took_ms = prefill[-1]
            # The time of a prefill grows faster than its length.
            if took_ms * (tokens / measured) ** 1.5 > PREFILL_BUDGET_MS:
                break
        prompt = prompts.of_length(tokens)
        observed = require_completed(cold(subject, prompt, LIMIT))
        if prefill and len(prompt) <= prefill[-1][0]:
            continue
        prefill.append((len(prompt), round(observed.prefill_ms, 3)))
        times_ms = observed.tokens_ms
        if len(times_ms) > 1:
            decode.append((len(prompt), round((times_ms[-1] - times_ms[0]) / (len(times_ms) - 1), 3)))
    return {"prefill_ms": prefill, "decode_ms": decode}


def find_callback_thread(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Find the thread of the callbacks, and test that it is the same in every run."""
    runs = [require_completed(cold(subject, prompts.question, 4)) for _ in range(3)]
    threads = {thread for run in runs for thread in run.threads}
    is_calling = all(run.threads == {run.caller} for run in runs)
    return {"callback_thread": "calling" if is_calling else "library", "callback_thread_is_kept": len(threads) == 1}


def watch_ending(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Observe the normal end of an answer: the stop token and its text."""
    observed = require_completed(cold(subject, prompts.question, ANSWER_LIMIT))
    pairs = zip(observed.ids, observed.texts, strict=True)
    texts = [(token, (text or b"").decode("utf-8", "replace")) for token, text in pairs]
    facts: Facts = {"first_tokens": texts[:_SHOWN_TOKENS]}
    if RKLLM_RUN_FINISH in observed.states:
        text = observed.finish_text
        facts["finish_text"] = "null" if text is None else "some" if text else "empty"
    stops = [index for index, token in enumerate(observed.ids) if token in prompts.stop_ids]
    if not stops:
        raise InconclusiveError(f"the model said no stop token within {len(observed.ids)} tokens", facts)
    return {**facts, "ends_at_stop_token": stops[0] == len(observed.ids) - 1}


def watch_is_running(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Record rkllm_is_running from another thread, inside a callback and when idle."""
    idle = subject.call("rkllm_is_running")
    _, running = beside(subject, prompts.question, partial(subject.call, "rkllm_is_running"))
    if running is None:
        raise InconclusiveError("it did not answer during a run", {"is_running_while_idle": idle})
    return {"is_running_while_idle": idle, "is_running_while_running": running}


def watch_cache(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Measure the KV cache reuse between runs, without and with history."""
    base, tail = base_prompt(subject, prompts), prompts.tail()
    facts: Facts = {}
    first = require_completed(cold(subject, base, 2))
    size = subject.cache_size()
    if size is not None and RKLLM_RUN_FINISH in first.states:
        facts["caches_last_token"] = size >= len(base) + len(first.ids)
    facts["reuses_prefix"] = spares(first, require_completed(subject.run([*base, *tail], 2)), len(base))
    cold(subject, base, 2)
    again = require_completed(subject.run(base, 2))
    if again.evaluated_tokens is not None:
        some = "all" if again.evaluated_tokens >= len(base) else "last"
        facts["full_match_evaluates"] = some if again.evaluated_tokens else "none"
    # The same, of runs that keep their history.
    subject.clear()
    first = require_completed(subject.run(base, 2, keep_history=True))
    further = require_completed(subject.run(tail, 2, keep_history=True))
    size = subject.cache_size()
    subject.clear()
    require_completed(subject.run(base, 2, keep_history=True))
    both = require_completed(subject.run([*base, *tail], 2))
    subject.clear()
    facts["reuses_prefix_after_history"] = spares(first, both, len(base))
    if size is not None and RKLLM_RUN_FINISH in further.states:
        facts["history_continues"] = size >= len(base) + len(tail)
    settled = {name: fact for name, fact in facts.items() if fact is not None}
    if len(settled) < len(facts):
        raise InconclusiveError("this runtime counts no tokens, and its prefill is too quick to be timed", settled)
    return settled


def find_rows(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Find the rows of hidden states and logits that a run delivers, and test them without clearing the cache."""
    prompt = base_prompt(subject, prompts)
    facts: Facts = {}
    refused: list[str] = []
    for what, mode in (("hidden", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), ("logits", RKLLM_INFER_GET_LOGITS)):
        subject.clear()
        observed = subject.run(prompt, 1, mode=mode)
        rows: list[ProbeRows] = getattr(observed, what)
        if not observed.is_complete or not rows:
            refused.append(f"{what}: rkllm_run returned {observed.status} and brought no rows")
            continue
        facts[f"{what}_rows"] = "all" if rows[-1].count > 1 else "last"
        facts[f"{what}_size"] = rows[-1].width
        if what == "hidden":
            facts["hidden_callbacks"] = sum(state <= RKLLM_RUN_WAITING for state in observed.states)
            second = subject.run(prompt, 1, mode=RKLLM_INFER_GET_LAST_HIDDEN_LAYER)
            if second.is_complete and second.hidden:
                first_row, row = rows[-1].last, second.hidden[-1].last
                facts["hidden_needs_clear"] = len(row) != len(first_row) or not all(
                    abs(x - y) <= _NEAR * (1 + abs(x)) for x, y in zip(first_row, row, strict=True)
                )
    subject.clear()
    if refused:
        raise InconclusiveError("; ".join(refused), facts)
    return facts


def measure_logits_steps(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Measure runs of one token for its logits after a cached prefix: the steps of sampling by the host."""
    base, tail = base_prompt(subject, prompts), prompts.tail()[:_STEPS]
    first = require_completed(cold(subject, base, 1))
    steps: list[Observed] = []
    for count in range(1, len(tail) + 1):
        steps.append(subject.run([*base, *tail[:count]], 1, mode=RKLLM_INFER_GET_LOGITS))
        if not steps[-1].is_complete or not steps[-1].logits:
            raise InconclusiveError(f"rkllm_run returned {steps[-1].status} and brought no logits")
    keeps_cache = spares(first, subject.run([*base, *tail, *tail[:1]], 1), len(base))
    subject.clear()
    whole_run = subject.run([*base, *tail], 1, mode=RKLLM_INFER_GET_LOGITS)
    subject.clear()
    facts: Facts = {
        "logits_step_ms": round(statistics.median(step.tokens_ms[-1] for step in steps), 3),
        "logits_step_rows": steps[-1].logits[-1].count,
    }
    if whole_run.logits:
        step_row, whole_row = steps[-1].logits[-1].last, whole_run.logits[-1].last
        product = sum(x * y for x, y in zip(step_row, whole_row, strict=True))
        has_same_direction = product >= _SAME_LOGITS * math.hypot(*step_row) * math.hypot(*whole_row)
        facts["logits_step_is_wrong"] = not has_same_direction
    if keeps_cache is None:
        raise InconclusiveError("this runtime counts no tokens, and its prefill is too quick to be timed", facts)
    return {**facts, "logits_step_keeps_cache": keeps_cache}


def try_prompt_cache(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Measure the tokens and the time that a prompt cache saves."""
    base, tail = base_prompt(subject, prompts, 4 * _BASE_TOKENS), prompts.tail()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prompt.cache")
        subject.clear()
        saved = subject.run(base, 1, save_to=str(file))
        if not saved.is_complete or not file.is_file():
            raise InconclusiveError(f"no prompt cache was written (rkllm_run returned {saved.status})")
        facts: Facts = {"prompt_cache_bytes": (file.stat().st_size, len(base))}
        uncached = require_completed(cold(subject, [*base, *tail], 1))
        subject.clear()
        status = subject.call("rkllm_load_prompt_cache", str(file).encode())
        if status != 0:
            raise InconclusiveError(f"rkllm_load_prompt_cache returned {status}", facts)
        loaded = require_completed(subject.run([*base, *tail], 1))
        subject.call("rkllm_release_prompt_cache")
        subject.clear()
    if loaded.evaluated_tokens is not None:
        facts["prompt_cache_prefills"] = (loaded.evaluated_tokens, len(base) + len(tail))
    if uncached.prefill_ms >= _TELLING_MS and loaded.prefill_ms > 0:
        facts["prompt_cache_speed_up"] = round(uncached.prefill_ms / loaded.prefill_ms, 2)
    return facts


# What the experiments have in common


def base_prompt(subject: ProbeSubject, prompts: ProbePrompts, tokens: int = _BASE_TOKENS) -> list[int]:
    """A prompt long enough to see its reuse, that leaves half of the context free."""
    return prompts.of_length(min(tokens, subject.load.context_tokens // 2))


def cold(subject: ProbeSubject, prompt: list[int] | tuple[int, ...], limit: int) -> Observed:
    """A run from an empty cache."""
    subject.clear()
    return subject.run(prompt, limit)


def require_completed(observed: Observed) -> Observed:
    """Return the run if it ended as it should, or raise an InconclusiveError."""
    if not observed.is_complete:
        raise InconclusiveError(f"rkllm_run failed (it returned {observed.status})")
    return observed


def spares(first: Observed, second: Observed, shared: int) -> bool | None:
    """Return True if the second run did not evaluate the prefix again that it shares; None if unknown."""
    if first.evaluated_tokens is not None and second.evaluated_tokens is not None:
        return second.evaluated_tokens < shared // 2 + LIMIT
    if first.prefill_ms < _TELLING_MS:
        return None
    return second.prefill_ms < first.prefill_ms / 2


def beside(
    subject: ProbeSubject, prompt: list[int] | tuple[int, ...], call: Callable[[], _T]
) -> tuple[Observed, _T | None]:
    """A run, and what a call from another thread returned while the callback of its second token was open.

    The callback waits for the call, and not for ever: None when the call did not return before the run went on.
    """
    call_due, call_made = threading.Event(), threading.Event()
    answers: list[_T] = []

    def make_call() -> None:
        if call_due.wait(PATIENCE_S):
            answers.append(call())
            call_made.set()

    def hook(count: int) -> int:
        if count == _SECOND:
            call_due.set()
            call_made.wait(_HOLD_S)
        return 0

    helper = threading.Thread(target=make_call, daemon=True)
    helper.start()
    subject.clear()
    observed = subject.run(prompt, LIMIT, hook=hook)
    answer = answers[0] if answers else None
    call_due.set()  # an answer of one token leaves the helper waiting
    helper.join(PATIENCE_S)
    return observed, answer


_SECOND = 2
# A call that takes this long inside a callback waits for the callback to return.
_HOLD_S = 0.5
