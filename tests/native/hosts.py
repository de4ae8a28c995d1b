"""Runs the plain ctypes host as a process of its own: crashes are its business, not the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = Path(__file__).with_name("plain_host.py")


@dataclass(frozen=True)
class Played:
    """What came of a host: its exit code (negative: a signal), its answers, and everything on its streams."""

    code: int
    answers: list[dict[str, Any]]
    output: bytes
    errors: bytes


def play(library: Path, model: Path, lines: str = "", **environment: str) -> Played:
    """Lets the host ask the lines one by one; `environment` adds to a clean one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RKLLM")}
    command = [sys.executable, "-X", "utf8", str(HOST), str(library), library.parent.name, str(model)]
    done = subprocess.run(
        command, input=lines.encode(), capture_output=True, timeout=60, check=False, env={**kept, **environment}
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"returned"')]
    return Played(done.returncode, answers, done.stdout, done.stderr)


def calls(log: Path) -> list[dict[str, Any]]:
    """The lines of a call log."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]
