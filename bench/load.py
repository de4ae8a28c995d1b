"""Clients that leave, fail, attack and come again while workers die: is an answer lost, mixed up, or something left?

    .venv/bin/python -m bench.load [SCENARIO] [--minutes 10 | --questions 500] [--clients N] [--seed 1] [--json]

A real service on the emulated runtime; ``SCENARIOS`` says who asks what, and what happens meanwhile. Every question has
its own name and its answer consists of it. Counted are characters that are lost (an answer that ended well and is
not whole) and mixed up (another's), conversations that are not stored as they were, and what the service holds when
no request runs: descriptors, threads, tasks, processes, memory, once after a quarter and once at the end. Measured are
the waits for answers, and how long ``/healthz`` takes, asked four times a second.

``abuse`` is a list of attacks instead, one after the other (``bench.abuse``).

The exit code is 1 when anything was found, or if ``/healthz`` took half a second where workers live.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench import abuse
from bench.load_clients import PATIENCE_S, WAYS, Client, Hostile, Run
from bench.load_service import (
    GROWTH_AFTER_ABUSE_MB,
    GROWTH_MB,
    WRONG,
    Holdings,
    LoadedService,
    growth,
    holdings_at_rest,
    loaded_service,
)
from bench.tally import Budget, Tally, processes, resident_mb

# The share after which everything that is opened or loaded once is there.
WARM_UP = 0.25
# The growth of the service at its highest, MB.
PEAK_GROWTH_MB = 300.0
# The longest that /healthz may take, seconds.
HEALTHZ_S = 0.5
_PROBE_PAUSE_S = 0.25
# A kill follows the one before after this many answers, and in a long run not before this many seconds.
_ANSWERS_BETWEEN_KILLS = (20, 60)
_SECONDS_BETWEEN_KILLS = 8.0


@dataclass(frozen=True)
class Scenario:
    """Who asks what, and what happens meanwhile."""

    clients: int  # how many friendly clients there are
    ways: tuple[str, ...]  # how they ask (``load_clients.WAYS``); a way that is named twice is chosen twice as often
    models: tuple[str, ...] = ("loaded",)  # names of the models, among which each question draws one
    hostile: int = 0  # how many hostile clients there are in addition
    kills: bool = False  # the worker is killed again and again
    release: str = "1.3.0"  # of the emulated runtime


_TWO = ("heron", "raven")
_EVERY_WAY = tuple(WAYS)
_FAULTS = ("converse", "provoke", "provoke", "limit", "leave", "cancel")
_LOAD = ("complete", "complete", "use own tool", "converse", "converse", "use Ollama", "leave", "cancel", "hang up")
SCENARIOS = {
    "load": Scenario(64, _LOAD),
    "hostile": Scenario(63, ("converse",), hostile=1, kills=True),
    "exchange": Scenario(16, ("converse", "complete", "use Ollama", "embed"), _TWO, kills=True),
    **{f"faults-{release}": Scenario(4, _FAULTS, release=release) for release in ("1.2.0", "1.2.3", "1.3.0")},
    "mixed": Scenario(32, _EVERY_WAY, _TWO, hostile=1, kills=True),
}


@dataclass
class Report:
    """What came of it."""

    scenario: str  # its name
    tally: Tally  # the answers and the findings
    kills: int = 0  # workers that were killed
    hostile: dict[str, int] = field(default_factory=dict[str, int])  # hostile acts by kind
    waits_s: Sequence[float] = ()  # from questions to their answers
    healthz_s: list[float] = field(default_factory=list[float])  # what each probe of ``/healthz`` took
    peak_growth_mb: float = 0.0  # memory of the service at its highest, above that at the start
    # What the service held after the warm-up and at the end.
    holdings: list[Holdings] = field(default_factory=list[Holdings])

    def as_json(self) -> dict[str, Any]:
        """Return everything for a program, series of seconds as their least, median and most."""
        series = {name: _spread(getattr(self, name)) for name in ("waits_s", "healthz_s")}
        return {**asdict(self), **series, "tally": self.tally.as_json()}


def _spread(values: Sequence[float]) -> list[float]:
    """The least, the median and the most."""
    return [round(value, 3) for value in (min(values), statistics.median(values), max(values))] if values else []


class _Load:
    """A scenario against one service."""

    def __init__(self, name: str, service: LoadedService, seed: int) -> None:
        self._scenario = SCENARIOS[name]
        self._service = service
        self._seed = seed
        self.report = Report(name, Tally(name))

    async def carry_out(self, questions: int | None, seconds: float | None, clients: int) -> None:
        """Load the service, look what it holds, load it again, and compare."""
        report = self.report
        warm_up = Budget(questions and round(questions * WARM_UP), seconds and seconds * WARM_UP)
        await self._load(warm_up, self._seed, clients)
        report.holdings.append(await self._holdings_at_rest())
        rest = Budget(questions, seconds and seconds * (1 - WARM_UP))
        await self._load(rest, self._seed + 1, clients)
        report.holdings.append(await self._holdings_at_rest(report.holdings[0]))
        report.tally.end()
        for finding in self._growth(*report.holdings):
            report.tally.find(finding)

    async def _load(self, budget: Budget, seed: int, clients: int) -> None:
        run = Run(self._service, seed, self.report.tally, budget)
        hostile = [Hostile(run, number) for number in range(self._scenario.hostile)]
        async with anyio.create_task_group() as disturbing:
            disturbing.start_soon(self._probe)
            if self._scenario.kills:
                disturbing.start_soon(self._kill, run)
            for client in hostile:
                disturbing.start_soon(client.run)
            async with anyio.create_task_group() as asking:
                for number in range(clients):
                    asking.start_soon(Client(run, number, self._scenario.ways).ask_until_spent)
            # In a short run too, every hostile act has been tried once.
            for client in hostile:
                await client.round_over.wait()
            disturbing.cancel_scope.cancel()
        self.report.waits_s = [*self.report.waits_s, *run.waits_s]
        for kind, count in run.hostile.items():
            self.report.hostile[kind] = self.report.hostile.get(kind, 0) + count

    async def _kill(self, run: Run) -> None:
        dice = random.Random(run.seed)
        while True:
            due, began = len(run.waits_s) + dice.randint(*_ANSWERS_BETWEEN_KILLS), time.monotonic()
            while len(run.waits_s) < due:
                await run.answered.wait()
            if run.budget.is_timed:
                await anyio.sleep(max(0.0, _SECONDS_BETWEEN_KILLS - (time.monotonic() - began)))
            self.report.kills += kill_workers(self._service.process.pid)

    async def _probe(self) -> None:
        """Ask ``/healthz`` again and again, and note the memory of the service."""
        pid, report = self._service.process.pid, self.report
        before = resident_mb(pid)
        http = httpx2.AsyncClient(base_url=self._service.url, timeout=PATIENCE_S, verify=False)
        async with http:
            while True:
                began = time.monotonic()
                status = (await http.get("/healthz")).status_code
                report.healthz_s.append(time.monotonic() - began)
                report.peak_growth_mb = max(report.peak_growth_mb, round(resident_mb(pid) - before, 1))
                if status != 200:
                    report.tally.find(f"/healthz is {status}")
                await anyio.sleep(_PROBE_PAUSE_S)

    async def _holdings_at_rest(self, before: Holdings | None = None) -> Holdings:
        most = GROWTH_AFTER_ABUSE_MB if self._scenario.hostile else GROWTH_MB
        return await holdings_at_rest(self._service, self.report.tally.find, before, most)

    def _growth(self, before: Holdings, after: Holdings) -> Iterator[str]:
        return growth(before, after, GROWTH_AFTER_ABUSE_MB if self._scenario.hostile else GROWTH_MB)


def kill_workers(root: int) -> int:
    """Kill the workers below a process; return their number."""
    count = 0
    for pid in processes(root):
        with suppress(OSError):
            if b"rkllm_mcp.runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


def load(name: str, seed: int, questions: int | None = None, seconds: float | None = None, clients: int = 0) -> Report:
    """Carry out a scenario for this many questions or seconds; 0 clients are as many as it names."""
    scenario = SCENARIOS[name]
    with (
        tempfile.TemporaryDirectory(prefix="load-") as folder,
        loaded_service(Path(folder), scenario.models, scenario.release) as service,
    ):
        work = _Load(name, service, seed)
        anyio.run(work.carry_out, questions, seconds, clients or scenario.clients)
        log = service.log
    report = work.report
    if report.peak_growth_mb > PEAK_GROWTH_MB:
        report.tally.find(f"the service grew by {report.peak_growth_mb:g} MB")
    for line in log:
        if any(word in line for word in WRONG):
            report.tally.find(f"the service wrote: {line}")
    return report


def table(report: Report) -> str:
    """The counts for people."""
    tally, shown = report.tally, report.as_json()
    lines = [
        f"{report.scenario}: {tally.runs} questions in {tally.seconds:g} s",
        f"characters lost: {tally.lost_tokens}, mixed up: {tally.leaked_tokens}",
        ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common() if count),
        f"workers killed: {report.kills}; hostile: {report.hostile}",
        f"least, median, most: waits {shown['waits_s']} s, /healthz {shown['healthz_s']} s",
        f"after the warm-up {report.holdings[0]}",
        f"at the end        {report.holdings[1]}; at the highest {report.peak_growth_mb:g} MB above the start",
    ]
    return "\n".join([*lines, *tally.findings])


def main() -> int:
    """Carry out a scenario and print; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="?", default="mixed", choices=[*SCENARIOS, "abuse"])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--questions", type=int, help="so many (default: 500)")
    length.add_argument("--minutes", type=float)
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="of abuse, the attacks whose names have these words")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.scenario == "abuse":
        return abuse.main(arguments.only, arguments.seed, as_json=arguments.json)
    seconds = arguments.minutes * 60 if arguments.minutes else None
    questions = arguments.questions or (None if seconds else 500)
    report = load(arguments.scenario, arguments.seed, questions, seconds, arguments.clients)
    print(json.dumps(report.as_json()) if arguments.json else table(report))
    is_slow = not report.kills and max(report.healthz_s) >= HEALTHZ_S
    return 1 if report.tally.findings or is_slow else 0


if __name__ == "__main__":
    sys.exit(main())
