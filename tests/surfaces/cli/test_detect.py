"""``rkllm-mcp detect --explain``: the events, and after them why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_detect_explains_why_a_call_was_seen_and_another_was_not(tmp_path: Path) -> None:
    answer = 'Use {"name": "f", "arguments": {}} so.\n<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    done = subprocess.run(
        [sys.executable, "-m", "rkllm_mcp", "detect", "--explain", "--syntax", "hermes"],
        input=answer.encode(),
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["text", "tool_call", "why", "why"]
    assert lines[2]["text"].startswith('{"name": "f"')
    assert "a call only as a valid call on a line of its own" in lines[2]["why"]
    assert lines[3]["why"] == "a call of 'f'"
