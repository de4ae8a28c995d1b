"""Seeded ways to cut an input in two, for tests whose outcome does not depend on where an input is cut."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import TypeVar

Cuttable = TypeVar("Cuttable", str, bytes)

# --every-point sets it: scripts/test --all cuts everywhere.
EVERY_POINT = "RKLLM_TEST_EVERY_POINT"
CUTS = 32


def running_test() -> str:
    """The id of the running test, without its phase."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def cut_points(length: int, seed: str) -> list[int]:
    """Points between 0 and ``length``, both left out: 32 that the seed draws, or all with ``--every-point``."""
    points = range(1, length)
    if EVERY_POINT in os.environ or len(points) <= CUTS:
        return [*points]
    return sorted(random.Random(seed).sample(points, CUTS))


def splits(whole: Cuttable) -> Iterator[list[Cuttable]]:
    """The input whole, one element at a time, and in two parts at points drawn from the id of the running test.

    The seed and the points are printed, so that pytest shows them with a failure.
    """
    yield [whole]
    yield [whole[at : at + 1] for at in range(len(whole))]
    points = cut_points(len(whole), running_test())
    print(f"cut at {points}, drawn from the seed {running_test()!r}")
    for at in points:
        yield [whole[:at], whole[at:]]
