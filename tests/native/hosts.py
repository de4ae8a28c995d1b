"""Runs the plain ctypes host as its own process: crashes are its business, not the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
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


def command_of(library: Path, models: list[Path]) -> list[str]:
    """The command that runs the host."""
    return [sys.executable, "-X", "utf8", str(HOST), str(library), library.parent.name, *map(str, models)]


def environment_of(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment without what steers the emulator, and with the changes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RKLLM")}
    return {**kept, **changes}


def play_until(library: Path, model: Path, lines: str, call: str, faults: str) -> dict[str, Any]:
    """Lets the host say the lines until the emulator logs that a call does not return; then ends it.

    Returns:
        The line of that call.
    """
    log = model.with_name("calls.fifo")
    os.mkfifo(log)
    environment = environment_of({"RKLLM_EMULATOR_LOG": str(log), "RKLLM_EMULATOR_FAULTS": faults})
    pipe = subprocess.PIPE
    with subprocess.Popen(command_of(library, [model]), stdin=pipe, stdout=subprocess.DEVNULL, env=environment) as host:
        assert host.stdin is not None
        host.stdin.write(lines.encode())
        host.stdin.close()
        # Held open for writing too, so that the end of one line is not the end of the file.
        writer = os.open(log, os.O_RDWR)
        with log.open(encoding="utf-8") as written:
            found = next(line for line in map(json.loads, written) if line["call"] == call and line["return"] is None)
        os.close(writer)
        host.kill()
    return found


def play(library: Path, model: Path | list[Path], lines: str = "", **environment: str) -> Played:
    """Lets the host open the models and say the lines one by one; `environment` adds to a clean one."""
    models = model if isinstance(model, list) else [model]
    done = subprocess.run(
        command_of(library, models),
        input=lines.encode(),
        capture_output=True,
        timeout=60,
        check=False,
        env=environment_of(environment),
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"returned"')]
    return Played(done.returncode, answers, done.stdout, done.stderr)


def calls(log: Path) -> list[dict[str, Any]]:
    """The lines of a call log."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]
