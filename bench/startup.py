"""How long a person waits for the first sign of life, and what the host costs while it serves five servers.

Starts ``rkllm-mcp run --json`` as a user would, with no server and with five stdio servers, on the emulated runtime
flat out, and notes: the first event, the first piece of the answer, the whole run (milliseconds), the CPU time of the
host process up to the first event, and its peak memory (MB, VmHWM). Then starts ``serve`` without servers and notes the
time until ``/readyz`` answers 200. The ratio to a bare ``python -c pass`` in the same run makes figures of different
machines comparable. The bytecode is compiled first, as it is in packages and images. With ``--against``, the root of
another source tree, both trees are started in turn; on a busy machine only the ratio of their CPU times counts.

    python bench/startup.py [--json] [--runs 5] [--against FOLDER]
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError

HEAD = '[model]\nname = "demo"\n[runtime]\nlibrary = "emulator"\n'
SERVER = '[[servers]]\nname = "time{n}"\ncommand = "${{PYTHON}}"\nargs = ["-m", "mcp_server_time"]\n'
Figures = dict[str, float]
REPOSITORY = Path(__file__).resolve().parents[1]
# A start that takes longer has failed, seconds.
READY_TIMEOUT_S = 60.0


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


def cpu_ms(pid: int) -> float:
    """CPU time of all threads of a process that is still there."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text("ascii").split()[0]) for path in threads) / 1e6


def environment() -> dict[str, str]:
    """The caller's, with the emulated runtime flat out, and with bytecode."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "RKLLM_EMULATOR_SPEED": "flat"}


def one_run(tree: Path, config: Path) -> Figures:
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), cwd=tree, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = (time.monotonic() - start) * 1000
            event = json.loads(line)
            if not figures:
                figures |= {"first_event_ms": now, "first_event_cpu_ms": cpu_ms(process.pid)}
            if event["kind"] == "text":
                figures.setdefault("first_text_ms", now)
            if event["kind"] == "end":
                figures["end_ms"] = now
                figures["host_peak_mb"] = peak_mb(process.pid)
    figures["exit_ms"] = (time.monotonic() - start) * 1000
    return figures


def one_serve(tree: Path, config: Path) -> Figures:
    """Start the service and note when it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rkllm_mcp", "--config", str(config), "serve", "--port", str(port)]
    start = time.monotonic()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment(), cwd=tree) as process:
        while not is_ready(port):
            if process.poll() is not None or time.monotonic() - start > READY_TIMEOUT_S:
                process.kill()
                raise SystemExit("rkllm-mcp serve did not become ready")
            time.sleep(0.005)
        figures = {
            "ready_ms": (time.monotonic() - start) * 1000,
            "ready_cpu_ms": cpu_ms(process.pid),
            "host_peak_mb": peak_mb(process.pid),
        }
        process.terminate()
    return figures


def is_ready(port: int) -> bool:
    """True if the service says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return response.status == 200
    except (URLError, OSError):
        return False


def measure(runs: int, trees: Sequence[Path]) -> dict[str, dict[str, Figures]]:
    """Medians of several starts of each tree, in turn, after one that warms the file cache."""
    samples: dict[str, dict[str, list[Figures]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for servers in (0, 5):
            config = Path(folder, f"{servers}.toml")
            config.write_text(HEAD + "".join(SERVER.format(n=n) for n in range(servers)), encoding="utf-8")
        for run in range(runs + 1):
            for tree in trees:
                figures = {
                    "0 servers": one_run(tree, Path(folder, "0.toml")),
                    "5 servers": one_run(tree, Path(folder, "5.toml")),
                    "serve": one_serve(tree, Path(folder, "0.toml")),
                }
                for label, sample in figures.items() if run else ():
                    samples.setdefault(str(tree), {}).setdefault(label, []).append(sample)
    return {
        tree: {
            label: {name: round(statistics.median(sample[name] for sample in found), 1) for name in found[0]}
            for label, found in labels.items()
        }
        for tree, labels in samples.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=5, help="counted runs (5)")
    parser.add_argument("--against", type=Path, help="the root of another source tree, started in turn with this one")
    arguments = parser.parse_args()
    trees = [REPOSITORY, *([arguments.against.resolve()] if arguments.against else [])]
    for tree in trees:
        compileall.compile_dir(tree / "rkllm_mcp", quiet=1)
    yardstick = statistics.median(bare_python_ms() for _ in range(arguments.runs))
    result = measure(arguments.runs, trees)
    if arguments.json:
        print(json.dumps({"bare_python_ms": round(yardstick, 1), **result}))
        return
    print(f"bare python  {yardstick:8.1f} ms")
    for tree, labels in result.items():
        print(tree)
        for label, figures in labels.items():
            for name, value in figures.items():
                ratio = f"  {value / yardstick:6.1f} x bare python" if name.endswith("_ms") else ""
                print(f"{label:10} {name:20} {value:8.1f}{ratio}")


if __name__ == "__main__":
    main()
