"""Delay and CPU time of a reader that polls for a token when it expects one, against a reader that sleeps.

    .venv/bin/python -m bench.polling [--json]

A process writes the time into a socket 33 times a second, and a reader in this process takes it. ``sleeping`` waits in
the kernel; ``polling`` wakes up shortly before the expected token, polls for at most 0.7 ms, and waits in the kernel
after that. The expected token is the median of the last intervals away from the last one. The paces: ``steady``, each
interval up to 30 % longer or shorter (``jitter``), and four tokens at once after four intervals (``bursts``).
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass

TOKENS = 200
PACES = ("steady", "jitter", "bursts")
# The reader polls from so long before the expected token, and for so long.
_EARLY_S = 0.000_35
_POLLED_S = 0.000_7
_WRITER = """
import random, socket, struct, sys, time
connection, pace, interval = socket.socket(fileno=int(sys.argv[1])), sys.argv[3], 1 / 33
random.seed(1)
for number in range(int(sys.argv[2])):
    if pace == "bursts":
        time.sleep(0 if number % 4 else 4 * interval)
    else:
        time.sleep(interval * (random.uniform(0.7, 1.3) if pace == "jitter" else 1))
    connection.send(struct.pack("<Q", time.monotonic_ns()))
"""


@dataclass(frozen=True)
class Row:
    """One reader at one pace: from writing to reading, CPU time of the reader, and tokens met while polling."""

    pace: str
    reader: str
    delay_mean_us: float
    delay_p99_us: float
    cpu_us_per_token: float
    met: float


def measure(pace: str, *, polls: bool) -> Row:
    """Read all tokens of one writer."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", "-c", _WRITER, str(theirs.fileno()), str(TOKENS), pace]
    delays: list[float] = []
    intervals: deque[float] = deque(maxlen=9)
    last, met = 0.0, 0
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),)):
        theirs.close()
        ours.setblocking(False)
        began = time.thread_time()
        while True:
            was_met = False
            if polls and len(intervals) == intervals.maxlen:
                due = last + statistics.median(intervals) - _EARLY_S
                is_early = bool(select.select([ours], [], [], max(0.0, due - time.monotonic()))[0])
                until = 0.0 if is_early else due + _POLLED_S
                while not was_met and time.monotonic() < until:
                    was_met = bool(select.select([ours], [], [], 0)[0])
            select.select([ours], [], [])
            received = ours.recv(65_536)
            now_ns = time.monotonic_ns()
            if not received:
                break
            met += was_met
            delays += [(now_ns - sent_ns) / 1e3 for (sent_ns,) in struct.iter_unpack("<Q", received)]
            intervals.append(now_ns / 1e9 - last)
            last = now_ns / 1e9
        cpu_us = (time.thread_time() - began) * 1e6
    delays.sort()
    reader = "polling" if polls else "sleeping"
    count = len(delays)
    return Row(pace, reader, statistics.fmean(delays), delays[count * 99 // 100], cpu_us / count, met / count)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    arguments = parser.parse_args()
    rows = [measure(pace, polls=polls) for pace in PACES for polls in (False, True)]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'pace':8}{'reader':10}{'mean µs':>9}{'p99 µs':>9}{'CPU µs':>9}{'met':>7}")
    for row in rows:
        cells = f"{row.delay_mean_us:9.0f}{row.delay_p99_us:9.0f}{row.cpu_us_per_token:9.0f}{100 * row.met:6.0f}%"
        print(f"{row.pace:8}{row.reader:10}{cells}")


if __name__ == "__main__":
    main()
