"""Three emulated boards, PostgreSQL and HAProxy, of which one after the other is killed: is a question lost?

    .venv/bin/python -m bench.boards_killed [--minutes 10] [--people 16] [--think 18] [--seed 1]
    .venv/bin/python -m bench.boards_killed --outages 10,100,300
    .venv/bin/python -m bench.boards_killed --calm [--minutes 10] [--people 50] [--think 90]
    … --long-answers 0.05

People ask through the proxy in conversations of their own. A question is acknowledged when the proxy's answer to it
begins. Every part in turn gets a SIGKILL and begins again a moment later. Whoever sees an answer break off asks again,
as the page offers it; how long that takes until an answer begins is a wait, as is how long a question waits that was
not acknowledged at once. At the end every acknowledged question is read back from each board: with the whole answer if
its asker has received it, else whole or marked as broken off.

``--outages`` takes the database away for so many seconds each time, and nothing else. A board is back when it reads
what is stored and nothing waits there for the database, at most ``BACK_S`` after the database's return.

``--calm`` kills nothing and compares waits for the first token with those of one common queue, computed from when the
same questions came and how long the NPU worked for each. ``--long-answers`` is the share of answers of 2,000 tokens.
The exit code is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.boards import Outcome
from bench.tally import Budget, Tally
from tests.support.boards import NAMES, Boards, boards
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.served import scripted_model

# The longest that a board which died makes anybody wait, and the share of a common queue's 95th percentile, at most.
WAIT_S, SHARE, MIXED_SHARE = 15.0, 1.2, 1.3
# The longest that a board is away after the database has come back.
BACK_S = 5.0
# Between two kills, and how long a killed part stays away.
_PAUSE_S, _AWAY_S = 10.0, 4.0
_RETRY_S = 0.5
_LOOK_S = 0.1
_PATIENCE_S = 90.0
# Of an answer, and of a calm one: 4 s at 15 tokens per second, with which 50 people keep three boards busy for three
# quarters of the time. With more both queues only grow; with less the wait is mostly the way there.
_WORDS, _CALM_WORDS = 24, 10
# Of 2,000 tokens, and the most time that one takes.
_LONG_WORDS, _LONG_S = 306, 40.0
_RULES = """
rule
  user ask ([a-z0-9.]+)
  say {said}

rule
  user tell ([a-z0-9.]+)
  say {told}
"""


@dataclass
class Asked:
    """A question."""

    name: str
    conversation: str
    words: int  # of its answer
    is_acknowledged: bool = False
    text: str = ""  # what its asker has received
    is_whole: bool = False  # with its end

    @property
    def message(self) -> str:
        """The question."""
        return f"{'tell' if self.words == _LONG_WORDS else 'ask'} {self.name}"


@dataclass
class Report:
    """What came of it."""

    tally: Tally
    asked: list[Asked] = field(default_factory=list[Asked])
    kills: Counter[str] = field(default_factory=Counter[str])
    endings: Counter[str] = field(default_factory=Counter[str])  # of the stored answers
    waits_s: list[float] = field(default_factory=list[float])  # until an answer begins, of who did not get one at once
    first_token_s: list[float] = field(default_factory=list[float])
    common_queue_s: list[float] = field(default_factory=list[float])
    mean_work_s: float = 0.0  # prefill and decode of one answer
    caught_up_s: float = 0.0  # from the last kill until no board was behind
    back_s: dict[str, float] = field(default_factory=dict[str, float])  # of the slowest board, by the outage before

    def as_json(self) -> dict[str, Any]:
        """Return the counts and the percentiles."""
        return {
            "seconds": self.tally.seconds,
            "acknowledged": len(self.asked),
            "kills": dict(self.kills),
            "endings": dict(self.endings),
            "outcomes": dict(self.tally.outcomes),
            "waits": len(self.waits_s),
            "longest_wait_s": round(max(self.waits_s, default=0.0), 1),
            "mean_work_s": round(self.mean_work_s, 2),
            "first_token_p95_s": percentile(self.first_token_s),
            "common_queue_p95_s": percentile(self.common_queue_s),
            "caught_up_s": round(self.caught_up_s, 1),
            "back_s": self.back_s,
            "findings": self.tally.findings,
        }


def percentile(values: Sequence[float], share: float = 0.95) -> float | None:
    """Return the value that this share does not exceed; None without values."""
    return round(Outcome(list(values)).percentile(share), 2) if values else None


def said(name: str, words: int = _WORDS) -> str:
    """Return the answer to a name; it counts, because an answer that repeats itself is ended."""
    return " ".join(f"{number} {name}" for number in range(words))


@dataclass
class _People:
    """Those who ask, and what they have seen."""

    several: Boards
    report: Report
    budget: Budget
    seed: int
    think_s: float
    words: int  # of an answer
    long_answers: float  # the share of those with 2,000 tokens
    works: list[tuple[float, float, float]] = field(default_factory=list[tuple[float, float, float]])
    _waits_since: dict[str, float | None] = field(default_factory=dict[str, "float | None"])  # by question

    async def person(self, number: int) -> None:
        """Ask one question after the other until the time is over."""
        dice, conversation, turn = random.Random(self.seed * 1000 + number), "", 0
        client = httpx2.AsyncClient(base_url=self.several.url, timeout=_PATIENCE_S)
        async with client:
            while True:
                await anyio.sleep(min(dice.expovariate(1 / self.think_s), self.budget.left_s))
                if not self.report.tally.begin(self.budget):
                    return
                turn += 1
                name = f"n{number}.{turn}"
                words = _LONG_WORDS if dice.random() < self.long_answers else self.words
                conversation = await self._ask(client, Asked(name, conversation, words))
                if turn % 6 == 0:
                    conversation = ""

    async def _ask(self, client: httpx2.AsyncClient, asked: Asked) -> str:
        """Ask until there is an answer, and return the conversation."""
        name, began = asked.name, time.monotonic()
        self._waits_since[name] = None
        while True:
            outcome = await self._attempt(client, asked, began)
            self.report.tally.outcomes[outcome] += 1
            if outcome in ("answered", "nothing was broken off"):
                return asked.conversation
            if self._waits_since[name] is None:
                self._waits_since[name] = time.monotonic()
            if time.monotonic() - began > _PATIENCE_S:
                self.report.tally.find(f"{name}: no answer in {_PATIENCE_S:g} s, at last {outcome}")
                return asked.conversation if asked.is_acknowledged else ""
            await anyio.sleep(_RETRY_S)

    async def _attempt(self, client: httpx2.AsyncClient, asked: Asked, began: float) -> str:
        """Ask, or ask again what was acknowledged and broken off; return what came of it."""
        body: dict[str, Any] = {"again": True} if asked.is_acknowledged else {"message": asked.message}
        if asked.conversation:
            body["conversation"] = asked.conversation
        try:
            async with client.stream("POST", "/v1/execute", json=body) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    code = answer.json()["error"]["code"]
                    is_over = answer.status_code == 409 and asked.is_acknowledged and code != "answer_under_way"
                    return "nothing was broken off" if is_over else f"{answer.status_code} {code}"
                if (since := self._waits_since[asked.name]) is not None:
                    self.report.waits_s.append(time.monotonic() - since)
                    self._waits_since[asked.name] = None
                if not asked.is_acknowledged:
                    asked.conversation, asked.is_acknowledged = answer.headers["x-conversation-id"], True
                    self.report.asked.append(asked)
                return await self._read(answer, asked, began)
        except httpx2.TransportError as error:
            return type(error).__name__

    async def _read(self, answer: httpx2.Response, asked: Asked, began: float) -> str:
        has_begun, asked.text = False, ""
        try:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("kind") == "text":
                    if not has_begun:
                        self.report.first_token_s.append(time.monotonic() - began)
                        has_begun = True
                    asked.text += event["text"]
                elif event.get("kind") == "usage":
                    self.works.append((began, event["prefill_ms"] / 1000, event["decode_ms"] / 1000))
                elif event.get("kind") == "end":
                    asked.is_whole = event["reason"] == "answered"
                    return event["reason"]
        except httpx2.TransportError:
            pass
        return "broken off"


def common_queue(works: Sequence[tuple[float, float, float]], servers: int) -> list[float]:
    """Return the waits for the first token in one queue: of questions by when they came, prefill and decode seconds."""
    free_at = [0.0] * servers
    waits: list[float] = []
    for came, prefill_s, decode_s in sorted(works):
        first = min(range(servers), key=free_at.__getitem__)
        begins = max(came, free_at[first])
        free_at[first] = begins + prefill_s + decode_s
        waits.append(begins + prefill_s - came)
    return waits


class _Killer:
    """Ends every part in turn, and begins it again."""

    def __init__(self, several: Boards, database: PostgresServer, report: Report) -> None:
        self._several, self._report = several, report
        kill, start = several.kill, several.start
        self._parts: Mapping[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "board1": (lambda: kill("board1"), lambda: start("board1")),
            "PostgreSQL": (database.kill, database.start),
            "board2": (lambda: kill("board2"), lambda: start("board2")),
            "HAProxy": (several.proxy.kill, several.proxy.start),
            "board3": (lambda: kill("board3"), lambda: start("board3")),
        }

    async def run(self, is_over: anyio.Event) -> None:
        """Go on until it is over; everything lives then."""
        while not is_over.is_set():
            for name, (kill, start) in self._parts.items():
                with anyio.move_on_after(_PAUSE_S):
                    await is_over.wait()
                if is_over.is_set():
                    return
                await anyio.to_thread.run_sync(kill)
                self._report.kills[name] += 1
                await anyio.sleep(_AWAY_S if name != "HAProxy" else _RETRY_S)
                await anyio.to_thread.run_sync(start)


async def _outages(several: Boards, database: PostgresServer, report: Report, lengths_s: Sequence[float]) -> None:
    """Take the database away for each of these times, and measure when each board is back."""
    for length_s in lengths_s:
        # Something is stored that every board can be asked for.
        asked: Asked | None = None
        while asked is None:
            await anyio.sleep(_PAUSE_S)
            asked = next((each for each in report.asked if each.is_whole), None)
        await anyio.to_thread.run_sync(database.kill)
        report.kills["PostgreSQL"] += 1
        await anyio.sleep(length_s)
        await anyio.to_thread.run_sync(database.start)
        began = time.monotonic()
        path = f"/v1/conversations/{asked.conversation}"

        async def wait_for(address: str, path: str = path) -> None:
            client = httpx2.AsyncClient(base_url=f"http://{address}", timeout=_PATIENCE_S)
            async with client:
                is_back = False
                while not is_back:
                    await anyio.sleep(_LOOK_S)
                    ready, read = await client.get("/readyz"), await client.get(path)
                    is_back = read.is_success and not {"behind", "storage"} & set(ready.json())

        async with anyio.create_task_group() as boards_back:
            for board in several.boards.values():
                boards_back.start_soon(wait_for, board.address)
        back_s = round(time.monotonic() - began, 1)
        report.back_s[f"{length_s:g} s"] = back_s
        if back_s > BACK_S:
            report.tally.find(f"after {length_s:g} s without the database a board was away for {back_s} s more")


async def _read_back(several: Boards, report: Report) -> None:
    """Compare what each board has of every conversation with what was asked and received."""
    stored: dict[str, dict[str, tuple[str, str]]] = {}
    for board in several.boards.values():
        client = httpx2.AsyncClient(base_url=f"http://{board.address}", timeout=_PATIENCE_S)
        async with client:
            for conversation in dict.fromkeys(asked.conversation for asked in report.asked):
                answer = await client.get(f"/v1/conversations/{conversation}")
                turns: list[dict[str, str]] = answer.json()["messages"] if answer.is_success else []
                stored[conversation] = {
                    question["text"].partition(" ")[2]: (reply["ending"], reply["text"])
                    for question, reply in zip(turns[::2], turns[1::2], strict=True)
                }
        for asked in report.asked:
            case = f"{asked.name} at {board.address}"
            if (kept := stored[asked.conversation].get(asked.name)) is None:
                report.tally.find(f"{case}: the question is not there")
                continue
            ending, text = kept
            report.tally.compare(
                case, text, said(asked.name, asked.words), complete=asked.is_whole or ending == "answered"
            )
            if asked.is_whole and ending != "answered":
                report.tally.find(f"{case}: the whole answer was received, and is stored as {ending}")
            if board is next(iter(several.boards.values())):
                report.endings[ending] += 1


async def _carry_out(
    crowd: _People, people: int, database: PostgresServer | None, outages_s: Sequence[float] = ()
) -> None:
    report, is_over = crowd.report, anyio.Event()
    async with anyio.create_task_group() as disturbing:
        if outages_s and database is not None:
            disturbing.start_soon(_outages, crowd.several, database, report, outages_s)
        elif database is not None:
            disturbing.start_soon(_Killer(crowd.several, database, report).run, is_over)
        async with anyio.create_task_group() as asking:
            for number in range(people):
                asking.start_soon(crowd.person, number)
        is_over.set()
    report.tally.end()
    await _caught_up(crowd.several, report)
    await _read_back(crowd.several, report)
    report.common_queue_s = common_queue(crowd.works, len(NAMES))
    report.mean_work_s = sum(prefill + decode for _, prefill, decode in crowd.works) / max(len(crowd.works), 1)


async def _caught_up(several: Boards, report: Report) -> None:
    """Wait until nothing waits for the database at any board."""
    began = time.monotonic()
    client = httpx2.AsyncClient(timeout=_PATIENCE_S)
    async with client:
        for board in several.boards.values():
            ready = {"behind": "unknown"}
            while {"behind", "storage"} & set(ready):
                ready = (await client.get(f"http://{board.address}/readyz")).json()
                if time.monotonic() - began > _PATIENCE_S:
                    report.tally.find(f"a board is still behind: {ready}")
                    break
                await anyio.sleep(_RETRY_S)
    report.caught_up_s = time.monotonic() - began


def killed(
    minutes: float,
    people: int = 16,
    think_s: float = 18.0,
    seed: int = 1,
    *,
    is_calm: bool = False,
    outages_s: Sequence[float] = (),
    long_answers: float = 0.0,
) -> Report:
    """Let people ask for this many minutes, and kill every part in turn unless it is calm, or outages are given."""
    report = Report(Tally("boards"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boards-")))
        words = _CALM_WORDS if is_calm else _WORDS
        speed = "prefill 600 decode 60" if not is_calm else "prefill 600 decode 15"
        model = scripted_model(
            folder / "parrot", _RULES.format(said=said("$1", words), told=said("$1", _LONG_WORDS)), speed=speed
        )
        database = stack.enter_context(postgres_server())
        several = stack.enter_context(boards(folder, model, store=database.new_database()))
        crowd = _People(several, report, Budget(seconds=minutes * 60), seed, think_s, words, long_answers)
        anyio.run(_carry_out, crowd, people, None if is_calm else database, outages_s)
    # One that asks again may find a long answer at every board.
    longest_s = WAIT_S + (_LONG_S if long_answers else 0.0)
    if not is_calm and not outages_s and max(report.waits_s, default=0.0) > longest_s:
        report.tally.find(f"a client waited {max(report.waits_s):.1f} s for an answer to begin")
    first, common = percentile(report.first_token_s), percentile(report.common_queue_s)
    share = MIXED_SHARE if long_answers else SHARE
    if is_calm and first is not None and common is not None and first > share * common:
        report.tally.find(f"95 % waited less than {first} s, in a common queue than {common} s")
    return report


def main() -> int:
    """Print what came of it; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--people", type=int, help="16, or 50 with --calm")
    parser.add_argument("--think", type=float, help="seconds between an answer and the next question; 18, or 90")
    parser.add_argument("--calm", action="store_true", help="kill nothing, and compare with a common queue")
    parser.add_argument("--outages", default="", help="seconds without the database, such as 10,100,300")
    parser.add_argument("--long-answers", type=float, default=0.0, help="share of answers of 2,000 tokens")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    people, think_s = (50, 90.0) if given.calm else (16, 18.0)
    people, think_s = given.people or people, given.think or think_s
    outages_s = [float(length) for length in given.outages.split(",") if length]
    # Each begins after a pause, and what waited is made up for.
    minutes = given.minutes if not outages_s else sum(outages_s, 30.0 * (1 + len(outages_s))) / 60
    report = killed(
        minutes,
        people,
        think_s,
        given.seed,
        is_calm=given.calm,
        outages_s=outages_s,
        long_answers=given.long_answers,
    )
    print(json.dumps(report.as_json(), indent=1))
    return 1 if report.tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
