"""Attacks of guests, one after the other, while others ask: what each takes of the service, and what remains of it.

    .venv/bin/python -m bench.load abuse [--only WORDS] [--json]

An attack is an async function that does what none should do to a running service; ``ATTACKS`` has all of them. During
each, friendly clients ask and their answers are checked, and its own process measures memory and ``/healthz``
(``bench.probe``). Afterwards the service has to hold what it held before. The exit code is 1 when anything was found.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import anyio
import httpx2

from bench.abuse_frame import OWN_SLOWDOWN, Attack, Scene
from bench.abuse_guests import GUESTS
from bench.abuse_servers import SERVERS
from bench.load_clients import HOSTILE_WAYS, Client, Hostile, Run
from bench.load_service import (
    GROWTH_AFTER_ABUSE_MB,
    KEYS,
    WRONG,
    LoadedService,
    growth,
    holdings_at_rest,
    loaded_service,
)
from bench.probe import probed
from bench.tally import Budget, Tally

_OTHERS = 3
# A GIF of one pixel.
_SMALLEST_PICTURE = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
# An attack of one act goes on for that long, seconds, so that others ask meanwhile.
_LEAST_S = 3.0
# All attacks of one have to be over after this, seconds.
_PATIENCE_S = 120.0


async def _repeat(way: str, scene: Scene) -> None:
    """Carry out a way of ``Hostile`` again and again for a while."""
    hostile, began = Hostile(scene.run, 0), time.monotonic()
    while time.monotonic() - began < _LEAST_S:
        # What is refused in the middle of a request is no finding.
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, httpx2.HTTPError):
            await HOSTILE_WAYS[way](hostile)


ATTACKS: Sequence[Attack] = (
    *(Attack(way, partial(_repeat, way)) for way in HOSTILE_WAYS),
    *GUESTS,
    *SERVERS,
)


@dataclass
class Outcome:
    """What an attack took, and what came of the others."""

    attack: str
    seconds: float = 0.0
    host_mb: float = 0.0  # memory of the service at its highest, above that before
    all_mb: float = 0.0  # the same of all its processes
    healthz_s: float = 0.0  # the slowest /healthz
    slowdown: float = 1.0  # of the machine, see ``bench.probe``
    others: int = 0  # answers that friendly clients got meanwhile, each compared
    longest_wait_s: float = 0.0  # the longest of them, refusals for now included
    remained: list[str] = field(default_factory=list[str])  # what the service holds more than before
    findings: list[str] = field(default_factory=list[str])


class _Asking(Budget):
    """A budget that lasts until the attack is over and others were answered meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False

    def spent(self, runs: int) -> float:
        """Return 1 when it is over."""
        del runs
        return float(self.is_over)


async def _carry_out(attack: Attack, scene: Scene) -> Outcome:
    service, run = scene.service, scene.run
    outcome = Outcome(attack.name)
    before = await holdings_at_rest(service, run.tally.find)
    began = time.monotonic()
    asking = _Asking()
    run.budget, run.waits_s = asking, []
    with probed(service.url, service.process.pid) as figures:
        async with anyio.create_task_group() as others:
            for number in range(_OTHERS):
                client = Client(run, number, ("converse", "complete"), keeps_connection=False)
                others.start_soon(client.ask_until_spent)
            try:
                with anyio.fail_after(_PATIENCE_S):
                    await attack.act(scene)
                    while not run.waits_s:
                        await run.answered.wait()
            except TimeoutError:
                run.tally.find(f"it is not over after {_PATIENCE_S:g} s, or others were not answered")
            outcome.others = len(run.waits_s)
            outcome.seconds = round(time.monotonic() - began, 1)
            asking.is_over = True
    outcome.longest_wait_s = round(max(run.waits_s, default=0.0), 2)
    outcome.host_mb = round(max(0.0, figures.host_mb - before.host_mb), 1)
    outcome.all_mb = round(figures.all_mb - figures.before_mb, 1)
    outcome.healthz_s = max(figures.healthz_s, default=0.0)
    outcome.slowdown = figures.slowdown
    after = await holdings_at_rest(service, run.tally.find, before, GROWTH_AFTER_ABUSE_MB)
    outcome.remained = list(growth(before, after, GROWTH_AFTER_ABUSE_MB))
    limits = {"host_mb": attack.host_mb, "all_mb": attack.all_mb, "healthz_s": attack.healthz_s}
    limits["healthz_s"] *= max(1.0, figures.slowdown / OWN_SLOWDOWN)
    for what, most in limits.items():
        if (value := getattr(outcome, what)) > most:
            run.tally.find(f"{what} was {value:g}, and may be {most:g}")
    if figures.failed:
        run.tally.find(f"/healthz failed {figures.failed} times")
    if not outcome.others:
        run.tally.find("others were not answered")
    outcome.findings = [*run.tally.findings, *(f"{more}" for more in outcome.remained)]
    run.tally.findings.clear()
    return outcome


async def _load_eyes(service: LoadedService) -> None:
    """Have the vision encoder loaded, whose process stays."""
    picture = base64.b64encode(_SMALLEST_PICTURE).decode()
    turn = {"role": "user", "content": "what is it?", "images": [picture]}
    body = {"model": service.models[0], "messages": [turn], "stream": False}
    headers = {"Authorization": f"Bearer {KEYS[0]}"}
    client = httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60, verify=False)
    async with client:
        (await client.post("/api/chat", json=body)).raise_for_status()


def abuse(attacks: Iterable[Attack] = ATTACKS, seed: int = 1) -> list[Outcome]:
    """Carry out attacks, those of one world against one service."""
    outcomes: list[Outcome] = []
    by_world = sorted(attacks, key=lambda attack: attack.world.__qualname__)
    for _, group in itertools.groupby(by_world, key=lambda attack: attack.world.__qualname__):
        of_world = list(group)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abuse-")))
            more = stack.enter_context(of_world[0].world(folder))
            service = stack.enter_context(loaded_service(folder, ("loaded",), "1.3.0", more, sees=True))
            anyio.run(_load_eyes, service)
            for attack in of_world:
                tally = Tally(attack.name)
                scene = Scene(service, Run(service, random.Random(seed).getrandbits(32), tally, Budget()), folder)
                written = len(service.log)
                outcome = anyio.run(_carry_out, attack, scene)
                for line in service.log[written:]:
                    if any(word in line for word in WRONG):
                        outcome.findings.append(f"the service wrote: {line}")
                outcomes.append(outcome)
    return outcomes


def main(only: str, seed: int, *, as_json: bool) -> int:
    """Carry out the attacks whose names have these words, and print; 1 when anything was found."""
    began = time.monotonic()
    chosen = [attack for attack in ATTACKS if only in attack.name]
    outcomes = abuse(chosen, seed)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))
    else:
        print(table(outcomes))
        print(f"{len(outcomes)} attacks in {time.monotonic() - began:.0f} s")
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes for people: a line each, and lines of what was found."""
    row = "{:<44} {:>5} {:>8} {:>8} {:>9} {:>5} {:>6} {:>6}  {}"
    lines = [row.format("attack", "s", "host MB", "all MB", "healthz s", "busy", "others", "wait s", "remained")]
    for each in outcomes:
        memory, times = (each.host_mb, each.all_mb), (each.healthz_s, each.slowdown)
        figures = (each.seconds, *memory, *times, each.others, each.longest_wait_s)
        lines.append(row.format(each.attack, *figures, "; ".join(each.remained) or "nothing"))
        lines += [f"    found: {finding}" for finding in each.findings]
    return "\n".join(lines)
