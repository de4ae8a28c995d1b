"""Errors build one sentence from their fields."""

from __future__ import annotations

import signal

from rkllm_mcp.errors import CALL, EVALUATION, PromptTooLongError, RunRejectedError, WorkerDiedError


def test_a_dead_worker_is_named_with_its_signal_and_what_explains_it() -> None:
    lines = ("E rkllm: matmul(w8a8) run failed", "I rkllm: Enabled cpus num: 4")
    assert str(WorkerDiedError(-signal.SIGSEGV, "answering", lines)) == (
        "the runtime's process was killed by SIGSEGV while answering (last output: E rkllm: matmul(w8a8) run failed); "
        "it is restarted for the next question"
    )


def test_what_a_runtime_tells_in_passing_is_not_its_last_word() -> None:
    assert "last words" not in str(WorkerDiedError(70, "loading", ("I rkllm: Enabled cpus num: 4",)))
    assert "exited with code 70" in str(WorkerDiedError(70, "loading"))


def test_a_signal_without_a_name_is_shown_by_its_number() -> None:
    assert WorkerDiedError(-99, "answering").signal_name == "signal 99"


def test_a_prompt_that_is_too_long_says_by_how_much() -> None:
    assert "has 900 tokens, 400 more than the 500 that fit" in str(PromptTooLongError(900, 500))
    assert "has at least 900 tokens, 400 more than" in str(PromptTooLongError(900, 500, is_partial=True))


def test_a_failure_of_the_runtime_names_the_failed_request() -> None:
    assert str(RunRejectedError("no")).startswith("the runtime failed this answer: no; ask again")
    assert str(RunRejectedError("no", task=EVALUATION)).startswith("the runtime failed this evaluation: no;")
    assert str(RunRejectedError("no", task=CALL)).startswith("the runtime failed this call: no;")
