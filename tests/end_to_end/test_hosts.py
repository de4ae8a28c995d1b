"""The bench that compares hosts counts in the call log what a cache that held everything would not evaluate again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.hosts import FLOOR, URL, CallLog, Row, measure_tokens


def write(log: Path, *runs: tuple[Sequence[int], Sequence[int], int]) -> None:
    """Log runs as (prompt, sampled ids, prefilled tokens), and calls that are not runs."""
    with log.open("a", encoding="utf-8") as file:
        for prompt, sampled, prefilled in runs:
            run = {"mode": "generate", "prompt": prompt, "sampled": sampled, "prefill_tokens": prefilled}
            file.write(json.dumps({"call": "rkllm_run", "run": run}) + "\n")
            file.write(json.dumps({"call": "rkllm_get_kv_cache_size"}) + "\n")


def test_tokens_count_as_distinct_once_and_not_where_the_model_wrote_them(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.jsonl")
    # The last token of an answer is sampled and not evaluated, so the next prompt evaluates it.
    write(tmp_path / "calls.jsonl", ([1, 2, 3], [4, 5], 3), ([1, 2, 3, 4, 5, 6], [7], 2))
    assert log.phase("ours", "alone") == Row("ours", "alone", 2, 9, 5, 5)
    write(tmp_path / "calls.jsonl", ([1, 2, 8], [9], 1))
    assert log.phase("ours", "in turn") == Row("ours", "in turn", 1, 3, 1, 1)


def test_a_cold_start_counts_the_hosts_own_runs_before_the_first_answer(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.jsonl")
    write(tmp_path / "calls.jsonl", ([1, 2, 3], [4], 3))
    log.phase("ours", "alone")
    log.forget()
    write(tmp_path / "calls.jsonl", ([1, 2], [0], 1), ([1, 2, 3, 4], [5], 2), ([1, 2, 3, 4, 6], [5], 1))
    row = log.phase("ours", "restart", is_cold=True, answered=2)
    assert (row.distinct, row.prefilled, row.cold) == (5, 4, 0.75)


def test_the_barest_host_on_the_engine_streams_what_the_others_are_compared_with() -> None:
    (row,) = measure_tokens([("floor", FLOOR, URL, "default")], abi="1.2.3", rounds=1)
    assert row.tokens == 120
    assert 0 < row.delivery_p50_us <= row.delivery_p99_us
    assert row.cpu_us > 0
