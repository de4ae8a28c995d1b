"""Sixty-four clients at one board, who leave when they like: does anybody lose an answer, or hear somebody else's?

    .venv/bin/python -m bench.load [--minutes 10 | --questions 500] [--clients 64] [--seed 1] [--json]

A real service on the emulated runtime, and clients that ask through OpenAI's, Ollama's and its own interface: as
streams and whole, with the assistant's tools and with their own, in conversations that go on; that leave in the middle,
cancel, break connections, and come again when they are told that the queue is full.

Measured are waiting times, from a question to the first record of its answer, and how evenly answers are shared.
Counted are characters that are lost (an answer that ended well and is not whole) or leaked (another's), refusals, and
what the service holds when nobody asks: descriptors, threads, tasks, processes, memory, once after a quarter and
once at the end. The exit code is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.load_clients import Client
from bench.load_service import KEYS, Holdings, LoadedService, loaded_service
from bench.soak_tally import Budget, Tally

CLIENTS = 64
# The share after which everything that is kept once is there.
WARM_UP = 0.25
# The allocator's own unsteadiness, MB.
GROWTH_MB = 24.0
# Threads for files and the store come and go with what there is to do.
THREADS_MORE = 16
# Whoever left is forgotten by then, seconds: the run ends within a few tokens.
_SETTLED_WITHIN_S = 20.0
# How often it is looked at: a connection that is just being closed is no leak.
_READINGS = 5
_WRONG = ("Traceback", "was never", "internal error", "went wrong", "ResourceWarning")


@dataclass(frozen=True)
class Spread:
    """The least, the middle and the most of some values."""

    least: float
    median: float
    most: float


@dataclass(frozen=True)
class Loaded:
    """What came of it.

    Args:
        tally: the answers.
        answers: answers per client.
        waited_s: how long answers were waited for, seconds, refusals and the queue included.
        before: what the service held after the warm-up, with nobody asking.
        after: the same at the end.
    """

    tally: Tally
    answers: Spread
    waited_s: Spread
    before: Holdings
    after: Holdings

    def as_json(self) -> dict[str, Any]:
        """Everything for a program."""
        return {**{each.name: asdict(getattr(self, each.name)) for each in fields(self)}, "tally": self.tally.as_json()}


def spread(values: Sequence[float]) -> Spread:
    """How values are spread; all zero when there are none."""
    return Spread(min(values), statistics.median(values), max(values)) if values else Spread(0, 0, 0)


def load(seed: int, questions: int | None = None, seconds: float | None = None, clients: int = CLIENTS) -> Loaded:
    """Load a service.

    Args:
        seed: of the randomness.
        questions: how many, all clients together; None for no limit.
        seconds: how long; None for no limit.
        clients: how many.
    """
    with tempfile.TemporaryDirectory(prefix="load-") as folder, loaded_service(Path(folder)) as service:
        loaded = anyio.run(_load, service, seed, questions, seconds, clients)
        log = service.log
    for line in log:
        if any(word in line for word in _WRONG):
            loaded.tally.find(f"the service wrote: {line}")
    for finding in growth(loaded.before, loaded.after):
        loaded.tally.find(finding)
    return loaded


async def _load(
    service: LoadedService, seed: int, questions: int | None, seconds: float | None, clients: int
) -> Loaded:
    tally = Tally("load")
    crowd = partial(_crowd, service, tally, clients)
    await crowd(seed, Budget(questions and round(questions * WARM_UP), seconds and seconds * WARM_UP))
    before = await _idle(service, tally)
    waits = await crowd(seed + 1, Budget(questions, seconds and seconds * (1 - WARM_UP)))
    after = await _idle(service, tally, before)
    tally.end()
    answers = spread([len(each) for each in waits])
    return Loaded(tally, answers, spread([wait for each in waits for wait in each]), before, after)


async def _crowd(service: LoadedService, tally: Tally, clients: int, seed: int, budget: Budget) -> list[list[float]]:
    """Let clients ask until the budget is used up; how long each waited for its answers."""
    crowd = [Client(number, service.url, seed, tally) for number in range(clients)]
    async with anyio.create_task_group() as tasks:
        for client in crowd:
            tasks.start_soon(client.run, budget)
    return [client.waited_s for client in crowd]


async def _idle(service: LoadedService, tally: Tally, before: Holdings | None = None) -> Holdings:
    """What it holds once nobody asks; whoever left is forgotten by then, and connections are closed.

    Args:
        service: the service.
        tally: where it is noted when somebody is not forgotten.
        before: what it held earlier, to which it is to come back.
    """
    headers = {"Authorization": f"Bearer {KEYS[0]}", "Connection": "close"}
    queue: dict[str, int] = {}
    held = await anyio.to_thread.run_sync(service.holdings)
    client = httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60)
    with anyio.move_on_after(_SETTLED_WITHIN_S) as patience:
        async with client:
            while not queue or any(queue.values()):
                queue = (await client.get("/v1/board")).raise_for_status().json()["queue"]
        for _ in range(_READINGS):
            held = _least(held, await anyio.to_thread.run_sync(service.holdings))
        while before is not None and any(growth(before, held)):
            held = await anyio.to_thread.run_sync(service.holdings)
    if patience.cancelled_caught and any(queue.values()):
        tally.find(f"nobody asks, and the queue holds {queue}")
    return held


def _least(one: Holdings, other: Holdings) -> Holdings:
    """The reading that no connection that was just being closed is part of."""
    return min(one, other, key=lambda held: held.descriptors + held.tasks)


def growth(before: Holdings, after: Holdings) -> Iterator[str]:
    """What there is more of than there was."""
    for what in ("descriptors", "tasks", "processes"):
        if (more := getattr(after, what) - getattr(before, what)) > 0:
            yield f"{more} {what} more than after the warm-up"
    if (more := after.threads - before.threads) > THREADS_MORE:
        yield f"{more} threads more than after the warm-up"
    for what in ("host_mb", "worker_mb"):
        if (more := getattr(after, what) - getattr(before, what)) > GROWTH_MB:
            yield f"{what} grew by {more:.1f}"


def _shown(values: Spread) -> str:
    return f"{values.least:.3g} to {values.most:.3g}, median {values.median:.3g}"


def table(loaded: Loaded) -> str:
    """The counts for people."""
    tally = loaded.tally
    lines = [
        f"{tally.runs} questions in {tally.seconds:g} s; characters lost: {tally.lost_tokens}, of others: "
        + str(tally.leaked_tokens),
        ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common()),
        f"answers per client: {_shown(loaded.answers)}; waited for an answer: {_shown(loaded.waited_s)} s",
        f"after the warm-up {loaded.before}",
        f"at the end        {loaded.after}",
    ]
    return "\n".join([*lines, *tally.findings])


def main() -> int:
    """Load and print; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--questions", type=int, help="so many (default: 500)")
    length.add_argument("--minutes", type=float)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60 if arguments.minutes else None
    questions = arguments.questions or (None if seconds else 500)
    loaded = load(arguments.seed, questions, seconds, arguments.clients)
    print(json.dumps(loaded.as_json()) if arguments.json else table(loaded))
    return 1 if loaded.tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
