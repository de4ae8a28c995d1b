"""The runs that wait for the NPU, and which of them goes next.

One KV cache serves every conversation: a run whose prompt begins with what the cache holds prefills only what is new,
and running another one first would throw that away. So the run that reuses most goes next. Nobody starves: whoever has
been overtaken often enough goes before all others, in the order asked.

The run that reuses most is nearly always the next of the conversation that was answered last, and it cannot wait while
that is answered: it comes a moment later, with the result of a tool. So it can be announced (``Announcement``), and
then the others are kept waiting for it, but no longer than evaluating again what they would throw away takes: at worst
that doubles a cost that they would have caused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

# Others may go first this often; the wait behind them is that many answers at most.
PATIENCE_RUNS = 4
# An announced run is waited for no longer than this, however much it would save.
LONGEST_HOLD_S = 2.0
# Fewer tokens saved are not worth breaking the order for; 32 are prefilled in 50 ms at 643 tokens per second.
WORTHWHILE_TOKENS = 32


class Prompted(Protocol):
    """What the queue needs of a run."""

    @property
    def tokens(self) -> Sequence[int]:
        """Its prompt; empty when it is none of token ids."""
        ...


_Run = TypeVar("_Run", bound=Prompted)


@dataclass
class _Entry(Generic[_Run]):
    run: _Run
    overtaken: int = 0


class RunQueue(Generic[_Run]):
    """A queue that prefers what the cache holds.

    Args:
        patience_runs: how often a run may be overtaken; 0 keeps the order asked.
    """

    def __init__(self, patience_runs: int = PATIENCE_RUNS) -> None:
        self._patience_runs = patience_runs
        self._entries: list[_Entry[_Run]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_Run]:
        return (entry.run for entry in self._entries)

    def append(self, run: _Run) -> None:
        """Add a run behind all others."""
        self._entries.append(_Entry(run))

    def remove(self, run: _Run) -> bool:
        """Take a run out; False when it does not wait."""
        before = len(self._entries)
        self._entries = [entry for entry in self._entries if entry.run is not run]
        return len(self._entries) < before

    def clear(self) -> list[_Run]:
        """Take all runs out."""
        runs, self._entries = list(self), []
        return runs

    @property
    def may_wait(self) -> bool:
        """Whether the oldest may be overtaken once more."""
        return bool(self._entries) and self._entries[0].overtaken < self._patience_runs

    def peek(self, cached: Sequence[int]) -> _Run:
        """The run that ``take`` would take out.

        Raises:
            IndexError: none waits.
        """
        return self._entries[self._chosen(cached)].run

    def take(self, cached: Sequence[int]) -> _Run:
        """Take out the run that goes next.

        Args:
            cached: the ids that the KV cache is known to hold, from its start.

        Raises:
            IndexError: none waits.
        """
        chosen = self._chosen(cached)
        for entry in self._entries[:chosen]:
            entry.overtaken += 1
        return self._entries.pop(chosen).run

    def _chosen(self, cached: Sequence[int]) -> int:
        first = self._entries[0]
        if len(self._entries) == 1 or first.overtaken >= self._patience_runs:
            return 0
        reused = [common_prefix(entry.run.tokens, cached) for entry in self._entries]
        best = max(range(len(reused)), key=lambda index: (reused[index], -index))
        return best if reused[best] >= reused[0] + WORTHWHILE_TOKENS else 0


@dataclass(frozen=True)
class ExpectedRun:
    """A run that will be asked for soon.

    Args:
        tokens: what its prompt will begin with.
        since: when it was announced, seconds of the event loop's clock.
    """

    tokens: Sequence[int]
    since: float

    def held_until(self, upcoming: Prompted, cached: Sequence[int], cost_s: Callable[[int], float]) -> float:
        """How long it is waited for before ``upcoming``; 0 where that saves nothing worth waiting for.

        Args:
            upcoming: the run that goes next otherwise.
            cached: what the KV cache holds.
            cost_s: seconds that evaluating so many tokens takes.
        """
        lost = common_prefix(self.tokens, cached) - common_prefix(upcoming.tokens, cached)
        return self.since + min(cost_s(lost), LONGEST_HOLD_S) if lost >= WORTHWHILE_TOKENS else 0.0


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading ids are the same."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
