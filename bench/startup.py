"""How long a person waits for the first sign of life, and what the host costs while it serves five servers.

Starts ``rkllm-mcp run --json`` as a user would, with no server and with five stdio servers, on the emulated runtime
flat out, and
notes: the first event, the first piece of the answer, the whole run (milliseconds), and the peak memory of the host
process alone (MB, VmHWM). The ratio to a bare ``python -c pass`` in the same run makes figures of different machines
comparable.

    python bench/startup.py [--json] [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HEAD = '[model]\nname = "demo"\n[runtime]\nlibrary = "emulator"\n'
SERVER = '[[servers]]\nname = "time{n}"\ncommand = "${{PYTHON}}"\nargs = ["-m", "mcp_server_time"]\n'
Figures = dict[str, float]


def bare_python_ms() -> float:
    """The yardstick: an interpreter that does nothing."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.monotonic() - start) * 1000


def peak_mb(pid: int) -> float:
    """Peak resident memory of a process that is still there."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def one_run(config: Path) -> Figures:
    """Ask one question and note when what arrived."""
    command = [
        sys.executable,
        "-m",
        "rkllm_mcp",
        "--config",
        str(config),
        "run",
        "--json",
        "What time is it in London?",
    ]
    start = time.monotonic()
    figures: Figures = {}
    environment = {**os.environ, "RKLLM_EMULATOR_SPEED": "flat"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = (time.monotonic() - start) * 1000
            event = json.loads(line)
            figures.setdefault("first_event_ms", now)
            if event["kind"] == "text":
                figures.setdefault("first_text_ms", now)
            if event["kind"] == "end":
                figures["end_ms"] = now
                figures["host_peak_mb"] = peak_mb(process.pid)
    figures["exit_ms"] = (time.monotonic() - start) * 1000
    return figures


def measure(runs: int, servers: int) -> Figures:
    """Medians of several runs, after one that warms the file cache."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.toml")
        config.write_text(HEAD + "".join(SERVER.format(n=n) for n in range(servers)), encoding="utf-8")
        one_run(config)
        samples: Sequence[Figures] = [one_run(config) for _ in range(runs)]
    return {name: round(statistics.median(sample[name] for sample in samples), 1) for name in samples[0]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=5, help="counted runs (5)")
    arguments = parser.parse_args()
    yardstick = statistics.median(bare_python_ms() for _ in range(arguments.runs))
    result = {f"{count} servers": measure(arguments.runs, count) for count in (0, 5)}
    if arguments.json:
        print(json.dumps({"bare_python_ms": round(yardstick, 1), **result}))
        return
    print(f"bare python  {yardstick:8.1f} ms")
    for label, figures in result.items():
        for name, value in figures.items():
            ratio = f"  {value / yardstick:6.1f} x bare python" if name.endswith("_ms") else ""
            print(f"{label:10} {name:16} {value:8.1f}{ratio}")


if __name__ == "__main__":
    main()
