"""Several boards before one proxy, simulated: how long people wait for the first word under each rule of routing.

    python -m bench.boards [FILE.cfg] [--people 30] [--boards 10] [--hours 2] [--persons-asked 0.1]
                           [--long-answers 0.05]

A configuration file of HAProxy adds its own rule, as ``rule_of`` reads it, to the built-in ones. Times are seconds to
the first token; ``read`` is the number of prefilled tokens over the least possible. Nothing is measured here: speeds
and the behaviour of people are assumptions (``Load``), so compare rules with each other.
"""

from __future__ import annotations

import argparse
import heapq
import random
import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TypeAlias

_CONTEXT_TOKENS = 4096
# A step of an answer: a delay in seconds, or the wait for a board's NPU.
_Process: TypeAlias = "Generator[float | Callable[[Callable[[], None]], None], None, None]"


@dataclass(frozen=True)
class Load:
    """People and boards of a simulation."""

    people: int = 30
    boards: int = 10
    hours: float = 2.0
    prefill_tokens_per_s: float = 600.0
    decode_tokens_per_s: float = 15.0
    shared_tokens: int = 1500  # system text and tools, which every board has in its KV cache
    think_s: float = 60.0  # between an answer and the next question, on average
    persons_asked: float = 0.0  # share of tool calls that wait for a person's approval, 20 s on average
    long_answers: float = 0.0  # share of answers of 2,000 tokens
    conversations_cached: int = 1  # KV caches of a board


@dataclass(frozen=True)
class Rule:
    """A rule of routing; what no board may take waits in one common queue, first come first served."""

    name: str
    at_once: int = 1  # answers that a board is given at the same time (``maxconn``)
    # A board is given one more while an answer there waits for a person (``agent-check``).
    counts_persons: bool = False
    # A conversation goes to its own board if fewer answers than this are under way there; None: no affinity.
    own_below: int | None = None
    # It waits for its own board, after at most this many others; None: it does not wait there.
    waits_for_own: int | None = None
    is_random: bool = False
    prefers_own: bool = False  # a board that becomes free takes its own conversation out of the queue first


COMMON_QUEUE = Rule("common queue, own conversation first", own_below=1, prefers_own=True)
RULES = (
    Rule("random", is_random=True),
    Rule("least connections"),
    Rule("pinned to its board", own_below=1, waits_for_own=1_000_000),
    Rule("pinned, leaves when two wait", own_below=1, waits_for_own=1),
    Rule("own board if it is free, one at a time", own_below=1),
    Rule("own board if it is free, two at a time", own_below=1, at_once=2),
    COMMON_QUEUE,
    replace(COMMON_QUEUE, name="common queue, one more while a person is asked", at_once=2, counts_persons=True),
)


def rule_of(configuration: str) -> Rule:
    """Return the rule of a configuration of HAProxy, for the first backend that balances what a model answers."""
    backend = re.split(
        r"^(?:backend|frontend|listen) ", configuration.partition("\nbackend answers")[2], flags=re.MULTILINE
    )[0]
    servers = "\n".join(re.findall(r"^ *(?:default-server|server) .*", backend, flags=re.MULTILINE))
    at_once = re.search(r"\bmaxconn (\d+)", servers)
    waiting = re.search(r"\bmaxqueue (\d+)", servers)
    below = re.search(r"^ *use-server .*\{ srv_conn\(answers/\S+\) (eq|lt) (\d+) \}", backend, flags=re.MULTILINE)
    is_pinned = re.search(r"^ *stick (?:on|match) ", backend, flags=re.MULTILINE) is not None
    own_below = int(below[2]) + (below[1] == "eq") if below else None
    return Rule(
        "the file",
        at_once=int(at_once[1]) if at_once else 1_000_000,
        counts_persons="agent-check" in servers,
        own_below=1 if is_pinned else own_below,
        waits_for_own=(int(waiting[1]) if waiting else 1_000_000) if is_pinned else None,
    )


@dataclass
class Outcome:
    """Waits of a simulation, and the tokens that were prefilled."""

    waits_s: list[float] = field(default_factory=list[float])
    prefilled: int = 0
    needed: int = 0

    def percentile(self, share: float) -> float:
        """Return the wait for the first token that this share of the questions did not exceed."""
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class _Question:
    """A question of a conversation that waits for a board, or is there."""

    conversation: int
    tokens: int  # the whole prompt
    new_tokens: int
    asked_at: float
    rounds: list[tuple[int, int, float]]  # written tokens, tokens of the result, seconds until it came
    end: Callable[[int], None]  # called with the tokens of the conversation afterwards


class _Board:
    """An NPU that evaluates one prompt at a time, and what is under way before it."""

    def __init__(self) -> None:
        self.under_way = 0
        self.asking = 0  # answers that wait for a person
        self.waiting: deque[_Question] = deque()
        self.cached: dict[int, int] = {}  # conversation -> tokens, the least recently used first
        self.is_busy = False
        self.resumes: deque[Callable[[], None]] = deque()


class Simulation:
    """One run of a rule under a load."""

    def __init__(self, rule: Rule, load: Load, seed: int) -> None:
        self._rule, self._load, self._random = rule, load, random.Random(seed)
        self._now, self._numbers, self._conversations = 0.0, count(), count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._boards = [_Board() for _ in range(load.boards)]
        self._own: dict[int, _Board] = {}
        self._queue: deque[_Question] = deque()
        self._turn = count()
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Let everybody ask until the time is over."""
        for _ in range(self._load.people):
            self._begin(self._random.uniform(0, self._load.think_s))
        end = self._load.hours * 3600
        while self._events and self._events[0][0] < end:
            self._now, _, act = heapq.heappop(self._events)
            act()
        return self.outcome

    # --- people -----------------------------------------------------------------------------------------------------

    def _begin(self, delay_s: float) -> None:
        turns, number = self._random.randint(2, 8), next(self._conversations)
        self._at(delay_s, lambda: self._ask(number, self._load.shared_tokens, turns))

    def _ask(self, conversation: int, tokens: int, turns: int) -> None:
        def end(total: int) -> None:
            pause = self._random.expovariate(1 / self._load.think_s)
            if turns == 1 or total > _CONTEXT_TOKENS - 700:
                self._begin(pause)
            else:
                self._at(pause, lambda: self._ask(conversation, total, turns - 1))

        roll, new = self._random, self._random.randint(15, 60)
        calls = roll.randint(0, 3) if roll.random() < 0.6 else 0
        rounds = [(roll.randint(20, 40), roll.randint(150, 500), self._tool_s()) for _ in range(calls)]
        is_long = self._load.long_answers > 0 and roll.random() < self._load.long_answers
        rounds.append((2000 if is_long else roll.randint(40, 120), 0, 0.0))
        self._arrive(_Question(conversation, tokens + new, new, self._now, rounds, end))

    def _takes(self, board: _Board) -> int:
        """Return how many answers a board is given at the same time now."""
        return min(self._rule.at_once, 1 + board.asking) if self._rule.counts_persons else self._rule.at_once

    def _tool_s(self) -> float:
        is_asked = self._random.random() < self._load.persons_asked
        return 0.7 + (self._random.expovariate(1 / 20) if is_asked else 0.0)

    # --- the proxy --------------------------------------------------------------------------------------------------

    def _arrive(self, question: _Question) -> None:
        rule, own = self._rule, self._own.get(question.conversation)
        if rule.is_random:
            board = self._random.choice(self._boards)
            self._give_or_wait(board, question)
            return
        if own is not None and rule.own_below is not None:
            if rule.waits_for_own is None:
                if own.under_way < min(self._takes(own), rule.own_below):
                    self._give(own, question)
                    return
            elif own.under_way < self._takes(own) or len(own.waiting) < rule.waits_for_own:
                self._give_or_wait(own, question)
                return
        turn = next(self._turn)
        free = [number for number, board in enumerate(self._boards) if board.under_way < self._takes(board)]
        if free:
            least = min(free, key=lambda n: (self._boards[n].under_way, (n - turn) % len(self._boards)))
            self._give(self._boards[least], question)
        else:
            self._queue.append(question)

    def _give_or_wait(self, board: _Board, question: _Question) -> None:
        if board.under_way < self._takes(board):
            self._give(board, question)
        else:
            board.waiting.append(question)

    def _leave(self, board: _Board) -> None:
        board.under_way -= 1
        self._fill(board)

    def _fill(self, board: _Board) -> None:
        """Give a board the next question if it takes one now."""
        if board.under_way >= self._takes(board):
            return
        if board.waiting:
            self._give(board, board.waiting.popleft())
        elif self._queue:
            its = (question for question in self._queue if self._own.get(question.conversation) is board)
            question = next(its, self._queue[0]) if self._rule.prefers_own else self._queue[0]
            self._queue.remove(question)
            self._give(board, question)

    def _give(self, board: _Board, question: _Question) -> None:
        board.under_way += 1
        self._own[question.conversation] = board
        self._step(self._answer(board, question))

    # --- a board ----------------------------------------------------------------------------------------------------

    def _answer(self, board: _Board, question: _Question) -> _Process:
        total, outcome = question.tokens, self.outcome
        new = question.new_tokens
        for number, (written, result, pause_s) in enumerate(question.rounds):
            yield lambda resume: self._take(board, resume)
            missing = total - board.cached.pop(question.conversation, self._load.shared_tokens)
            outcome.prefilled, outcome.needed = outcome.prefilled + missing, outcome.needed + new
            yield missing / self._load.prefill_tokens_per_s
            if number == 0:
                outcome.waits_s.append(self._now - question.asked_at)
            yield written / self._load.decode_tokens_per_s
            total += written
            board.cached[question.conversation] = total
            while len(board.cached) > self._load.conversations_cached:
                del board.cached[next(iter(board.cached))]
            self._release(board)
            is_asking = pause_s > 2
            board.asking += is_asking
            self._fill(board)
            yield pause_s
            board.asking -= is_asking
            total, new = total + result, result
        question.end(total)
        self._leave(board)

    def _take(self, board: _Board, resume: Callable[[], None]) -> None:
        if board.is_busy:
            board.resumes.append(resume)
        else:
            board.is_busy = True
            resume()

    def _release(self, board: _Board) -> None:
        board.is_busy = False
        if board.resumes:
            self._take(board, board.resumes.popleft())

    # --- time -------------------------------------------------------------------------------------------------------

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + delay_s, next(self._numbers), act))

    def _step(self, process: _Process) -> None:
        step = next(process, None)
        if callable(step):
            step(lambda: self._step(process))
        elif step is not None:
            self._at(step, lambda: self._step(process))


def simulate(rule: Rule, load: Load, seeds: Sequence[int] = (1, 2, 3)) -> Outcome:
    """Return the outcome of a rule over several seeds."""
    total = Outcome()
    for seed in seeds:
        outcome = Simulation(rule, load, seed).run()
        total.waits_s += outcome.waits_s
        total.prefilled, total.needed = total.prefilled + outcome.prefilled, total.needed + outcome.needed
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--people", type=int, default=30, help="people who ask")
    parser.add_argument("--boards", type=int, default=10, help="boards")
    parser.add_argument("--hours", type=float, default=2.0, help="simulated time")
    parser.add_argument("--persons-asked", type=float, default=0.0, help="share of tool calls that wait for a person")
    parser.add_argument("--long-answers", type=float, default=0.0, help="share of answers of 2,000 tokens")
    parser.add_argument("--conversations-cached", type=int, default=1, help="KV caches of a board")
    given = vars(parser.parse_args(arguments))
    file = given.pop("file")
    load = replace(Load(), **given)
    rules = RULES if file is None else (*RULES, replace(rule_of(file.read_text("utf-8")), name=str(file)))
    print(f"{'rule':42}{'p50':>8}{'p95':>8}{'p99':>8}{'read':>8}")
    for rule in rules:
        outcome = simulate(rule, load)
        figures = [outcome.percentile(share) for share in (0.5, 0.95, 0.99)]
        read = outcome.prefilled / max(1, outcome.needed)
        print(f"{rule.name:42}" + "".join(f"{figure:8.2f}" for figure in (*figures, read)))


if __name__ == "__main__":
    main()
