"""Thousands of answers with everything that can go wrong, looking for a token in the wrong place and for what is left.

    python -m bench.soak [--runs N | --minutes M | --hours H] [--seed S] [--json]

Four conversations at a time ask at random; runs are read, left, cancelled, limited and stopped, and the emulated
runtime fails, crashes, hangs, forgets to finish, delivers NULL and knows no end. First the engine on every family of
the interface, then whole answers with a tool. Every request names itself and its answer consists of that name, so each
answer is known in advance.

Counted are characters that are lost (an answer that ended well and is not whole) or leaked (another's), descriptors and
processes that are left, memory that grows, and restarts. The exit code is 1 when anything was found. The same seed asks
the same in the same order; what meets what depends on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.soak_app import AppSoak
from bench.soak_engine import EngineSoak
from bench.soak_tally import Budget, Tally, descriptors, processes

VERSIONS = ("1.2.0", "1.2.3", "1.3.0")
PARTS = len(VERSIONS) + 1
# What the host may grow by after a quarter of the runs, MB: the allocator's own unsteadiness.
GROWTH_MB = 16.0
_WARM_UP_RUNS = 4


def soak(seed: int, runs: int | None, seconds: float | None) -> list[Tally]:
    """Soak everything in turn.

    Args:
        seed: of the randomness.
        runs: how many, all parts together; None for no limit.
        seconds: how long, all parts together; None for no limit.
    """
    return asyncio.run(_soak(seed, runs, seconds))


async def _soak(seed: int, runs: int | None, seconds: float | None) -> list[Tally]:
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        # What is opened once, by imports and by asyncio, is open then.
        for part in range(PARTS):
            await _part(part, seed, Budget(_WARM_UP_RUNS)).run(folder)
        return [await _checked(part, seed, runs, seconds, folder) for part in range(PARTS)]


async def _checked(part: int, seed: int, runs: int | None, seconds: float | None, folder: Path) -> Tally:
    before = descriptors()
    budget = Budget(runs and max(1, runs // PARTS), seconds and seconds / PARTS)
    tally = await _part(part, seed, budget).run(folder)
    if left := sorted(set(descriptors().items()) - set(before.items())):
        tally.find(f"descriptors are left: {left}")
    if children := processes():
        tally.find(f"processes are left: {sorted(children)}")
    if tally.host_growth_mb > GROWTH_MB:
        tally.find(f"this process grew by {tally.host_growth_mb} MB")
    return tally


def _part(part: int, seed: int, budget: Budget) -> EngineSoak | AppSoak:
    return EngineSoak(VERSIONS[part], seed, budget) if part < len(VERSIONS) else AppSoak(seed, budget)


def table(tallies: Sequence[Tally]) -> str:
    """The counts for people."""
    names = ("part", "seconds", "runs", "lost", "leaked", "restarts", "host grew", "worker", "outcomes")
    lines = [
        names,
        *(
            (
                tally.part,
                f"{tally.seconds:g}",
                str(tally.runs),
                str(tally.lost_tokens),
                str(tally.leaked_tokens),
                str(tally.restarts),
                f"{tally.host_growth_mb:g} MB",
                f"{tally.worker_mb:g} MB",
                ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common() if count),
            )
            for tally in tallies
        ),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*rows, *(f"{tally.part}: {finding}" for tally in tallies for finding in tally.findings)])


def main() -> int:
    """Soak and print; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--runs", type=int, help="so many answers (default: 2000)")
    length.add_argument("--minutes", type=float)
    length.add_argument("--hours", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes if arguments.minutes else 3600 * arguments.hours if arguments.hours else None
    runs = arguments.runs or (None if seconds else 2000)
    tallies = soak(arguments.seed, runs, seconds)
    if arguments.json:
        print(json.dumps({"seed": arguments.seed, "parts": [tally.as_json() for tally in tallies]}))
    else:
        print(table(tallies))
    return 1 if any(tally.findings for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
