"""What a service takes while it is attacked: memory of its processes, and how long ``/healthz`` takes.

``probed`` measures from its own process, which the clients' work does not delay.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.tally import processes, resident_mb

_HEALTHZ_PAUSE_S, _MEMORY_PAUSE_S = 0.1, 0.02
_PATIENCE_S = 60.0
_WORK_PAUSE_S, _WORK_STEPS = 0.2, 50_000


@dataclass
class Figures:
    """What was measured."""

    before_mb: float = 0.0  # memory of all processes of the service at the beginning
    host_mb: float = 0.0  # memory of the service itself at its highest, by the kernel's count
    all_mb: float = 0.0  # memory of all its processes at their highest
    healthz_s: list[float] = field(default_factory=list[float])  # what each question to ``/healthz`` took
    slowdown: float = 1.0  # how many times longer a piece of work took at most than at its fastest: the machine is busy
    failed: int = 0  # questions to ``/healthz`` that had another answer than 200, or none


@contextmanager
def probed(url: str, pid: int) -> Generator[Figures, None, None]:
    """Measure a service and the processes below it until the end of the block, where the figures are complete."""
    command = [sys.executable, "-m", "bench.probe", url, str(pid)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    figures = Figures()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield figures
    finally:
        with suppress(OSError):
            process.stdin.close()
        try:
            lines = process.stdout.read().splitlines()
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if lines:
            vars(figures).update(json.loads(lines[-1]))


def _time_healthz(url: str) -> tuple[float, bool]:
    """Return the seconds that ``/healthz`` took, and whether it was 200."""
    address, began = urlsplit(url), time.monotonic()
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        is_good = connection.getresponse().status == 200
    except OSError:
        is_good = False
    finally:
        connection.close()
    return round(time.monotonic() - began, 3), is_good


def _ask(url: str, figures: Figures, over: threading.Event) -> None:
    while not over.is_set():
        seconds, is_good = _time_healthz(url)
        figures.healthz_s.append(seconds)
        figures.failed += not is_good
        over.wait(_HEALTHZ_PAUSE_S)


def _compare(figures: Figures, over: threading.Event) -> None:
    """Do the same work again and again, as anything else on this machine has to."""
    fastest = min(_time_work() for _ in range(10))
    while not over.wait(_WORK_PAUSE_S):
        figures.slowdown = max(figures.slowdown, round(_time_work() / fastest, 1))


def _time_work() -> float:
    began = time.monotonic()
    for _ in range(_WORK_STEPS):
        pass
    return time.monotonic() - began


def _weigh(pid: int, figures: Figures, over: threading.Event) -> None:
    while not over.wait(_MEMORY_PAUSE_S):
        figures.all_mb = max(figures.all_mb, _memory_mb(pid))


def _memory_mb(pid: int) -> float:
    return round(resident_mb(pid) + sum(map(resident_mb, processes(pid))), 1)


def reset_highest(pid: int | None = None) -> None:
    """Have the kernel count the highest memory of a process from now on."""
    with suppress(OSError):
        Path(f"/proc/{pid or os.getpid()}/clear_refs").write_text("5", encoding="ascii")


def highest_mb(pid: int | None = None) -> float:
    """Return the memory of a process at its highest, MB; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid or os.getpid()}/status").read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def main() -> None:
    """Measure until standard input ends, and print the figures as JSON."""
    url, pid = sys.argv[1], int(sys.argv[2])
    reset_highest(pid)
    before = _memory_mb(pid)
    figures, over = Figures(before_mb=before, all_mb=before), threading.Event()
    threads = [threading.Thread(target=work, args=(at, figures, over)) for work, at in ((_ask, url), (_weigh, pid))]
    threads.append(threading.Thread(target=_compare, args=(figures, over)))
    for thread in threads:
        thread.start()
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    figures.host_mb = highest_mb(pid)
    sys.stdout.write(json.dumps(vars(figures)))


if __name__ == "__main__":
    main()
