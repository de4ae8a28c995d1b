"""Order of the runs that wait for the NPU.

One KV cache serves every conversation, and a run prefills only the part of its prompt that the cache does not hold. So
the run that reuses most goes next; after ``max_skips`` skips a run goes before all others, in order of arrival.

After a tool call the next run of the same conversation reuses most, and arrives a moment later. It can be expected
(``ExpectedRun``): other runs are then held for at most the time that prefilling the lost part again takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rkllm_mcp.generation import common_prefix

# A run is skipped at most this often.
MAX_SKIPS = 4
# Upper limit of the hold for an expected run.
LONGEST_HOLD_S = 2.0
# Smaller savings do not change the order; 32 are prefilled in 50 ms at 643 tokens per second.
WORTHWHILE_TOKENS = 32


class Prompted(Protocol):
    """The part of a run that the queue needs."""

    @property
    def tokens(self) -> Sequence[int]:
        """Token ids of the prompt; empty for other inputs."""
        ...


_Run = TypeVar("_Run", bound=Prompted)


@dataclass
class _Entry(Generic[_Run]):
    run: _Run
    skipped: int = 0


class RunQueue(Generic[_Run]):
    """Waiting runs; the one that reuses most of the KV cache goes first. ``max_skips=0`` keeps the order of arrival."""

    def __init__(self, max_skips: int = MAX_SKIPS) -> None:
        self._max_skips = max_skips
        self._entries: list[_Entry[_Run]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_Run]:
        return (entry.run for entry in self._entries)

    def append(self, run: _Run) -> None:
        """Add a run at the end."""
        self._entries.append(_Entry(run))

    def remove(self, run: _Run) -> bool:
        """Remove a run; return False if it is not waiting."""
        before = len(self._entries)
        self._entries = [entry for entry in self._entries if entry.run is not run]
        return len(self._entries) < before

    def clear(self) -> list[_Run]:
        """Remove and return all runs."""
        runs, self._entries = list(self), []
        return runs

    @property
    def may_be_skipped(self) -> bool:
        """True if the oldest run may be skipped once more."""
        return bool(self._entries) and self._entries[0].skipped < self._max_skips

    def peek(self, cached: Sequence[int]) -> _Run:
        """Return the run that ``take`` would remove.

        Raises:
            IndexError: none waits.
        """
        return self._entries[self._chosen(cached)].run

    def take(self, cached: Sequence[int]) -> _Run:
        """Remove and return the next run; ``cached`` holds the ids known to be in the KV cache, from its start.

        Raises:
            IndexError: none waits.
        """
        chosen = self._chosen(cached)
        for entry in self._entries[:chosen]:
            entry.skipped += 1
        return self._entries.pop(chosen).run

    def _chosen(self, cached: Sequence[int]) -> int:
        first = self._entries[0]
        if len(self._entries) == 1 or first.skipped >= self._max_skips:
            return 0
        reused = [common_prefix(entry.run.tokens, cached) for entry in self._entries]
        best = max(range(len(reused)), key=lambda index: (reused[index], -index))
        return best if reused[best] >= reused[0] + WORTHWHILE_TOKENS else 0


@dataclass(frozen=True)
class ExpectedRun:
    """A run that is expected soon."""

    # Prefix of its prompt.
    tokens: Sequence[int]
    # Time at which it was expected, seconds of the event loop's clock.
    since: float

    def hold_until(self, upcoming: Prompted, cached: Sequence[int], cost_s: Callable[[int], float]) -> float:
        """Return the time until which ``upcoming`` is held for this run; 0 if holding saves too little.

        ``cost_s`` returns the seconds that prefilling so many tokens takes.
        """
        lost = common_prefix(self.tokens, cached) - common_prefix(upcoming.tokens, cached)
        return self.since + min(cost_s(lost), LONGEST_HOLD_S) if lost >= WORTHWHILE_TOKENS else 0.0
