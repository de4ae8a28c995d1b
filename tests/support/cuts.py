"""Ways to cut an input, for tests whose outcome does not depend on where an input is cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeVar

Cuttable = TypeVar("Cuttable", str, bytes)

# --every-point sets it: scripts/test --all cuts everywhere.
EVERY_POINT = "RKLLM_TEST_EVERY_POINT"


def splits(whole: Cuttable) -> Iterator[list[Cuttable]]:
    """The input whole, one element at a time, and in two parts: in the middle, or with ``--every-point`` everywhere."""
    yield [whole]
    yield [whole[at : at + 1] for at in range(len(whole))]
    points = range(1, len(whole)) if EVERY_POINT in os.environ else [len(whole) // 2]
    for at in points:
        yield [whole[:at], whole[at:]]
