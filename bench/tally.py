"""What a load counts, and the resources of processes."""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

_RSS = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_MOST_FINDINGS = 20


class Budget:
    """How long a part goes on.

    Args:
        runs: this many runs; None for no limit.
        seconds: this long; None for no limit.
    """

    def __init__(self, runs: int | None = None, seconds: float | None = None) -> None:
        self._runs = runs
        self._seconds = seconds
        self._began = time.monotonic()

    @property
    def is_timed(self) -> bool:
        """True if it ends after a time."""
        return self._seconds is not None

    @property
    def left_s(self) -> float:
        """The seconds that are left; infinite without a limit of time."""
        return max(self._began + self._seconds - time.monotonic(), 0.0) if self._seconds else math.inf

    def spent(self, runs: int) -> float:
        """The share that is used up after this many runs; 1 and more is all of it."""
        by_runs = runs / self._runs if self._runs else 0.0
        by_time = (time.monotonic() - self._began) / self._seconds if self._seconds else 0.0
        return max(by_runs, by_time)


@dataclass
class Tally:
    """The counts of a load: it is good when there are no findings."""

    part: str
    runs: int = 0  # answers asked for
    outcomes: Counter[str] = field(default_factory=Counter[str])
    lost_tokens: int = 0  # characters of complete answers that did not come
    leaked_tokens: int = 0  # characters of an answer that were none of its own
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def as_json(self) -> dict[str, Any]:
        """The counts for a program; before Python 3.12 ``asdict`` counts the pairs of a Counter."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "outcomes": dict(self.outcomes)}

    def begin(self, budget: Budget) -> bool:
        """Another run begins; False when it is enough."""
        if budget.spent(self.runs) >= 1:
            return False
        self.runs += 1
        return True

    def end(self) -> None:
        """Note how long it took."""
        self.seconds = round(time.monotonic() - self._began, 1)

    def find(self, finding: str) -> None:
        """Note what should not have happened."""
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(finding)

    def compare(self, case: str, text: str, expected: str, *, complete: bool) -> None:
        """Compare an answer with what it has to be: all of ``expected``, or a beginning of it."""
        same = next(
            (i for i, (a, b) in enumerate(zip(text, expected, strict=False)) if a != b), min(len(text), len(expected))
        )
        if foreign := len(text) - same:
            self.leaked_tokens += foreign
            self.find(
                f"{case}: foreign text {text[max(0, same - 20) : same + 60]!r} in place of {expected[same:][:20]!r}"
            )
        elif complete and (missing := len(expected) - same):
            self.lost_tokens += missing
            self.find(f"{case}: {missing} characters are missing behind {text[-40:]!r}")


def resident_mb(pid: int | None = None) -> float:
    """Memory of a process, MB; 0 when it is gone."""
    try:
        found = _RSS.search(Path(f"/proc/{pid or os.getpid()}/status").read_text("utf-8"))
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def descriptors() -> dict[str, str]:
    """Open descriptors of this process and what they are; the one that lists them is closed by then."""
    links = [(path.name, path) for path in Path("/proc/self/fd").iterdir()]
    return {name: str(path.readlink()) for name, path in links if path.is_symlink()}


def processes(root: int | None = None) -> set[int]:
    """Every process below one; below this one when None."""

    def below(pid: int) -> Iterator[int]:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                children = [int(child) for child in (task / "children").read_text("ascii").split()]
            except OSError:
                continue
            for child in children:
                yield child
                yield from below(child)

    return set(below(root or os.getpid()))
