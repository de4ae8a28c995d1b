"""Ways to cut an input, for tests whose outcome does not depend on where an input is cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeVar

Cuttable = TypeVar("Cuttable", str, bytes)

# --every-point sets it: scripts/test --all cuts everywhere.
EVERY_POINT = "RKLLM_TEST_EVERY_POINT"
# Longer than any marker. To cut a long input in two at each of its points would cost the square of its length.
_STRIDE = 32


def has_every_point() -> bool:
    """Return True where inputs are cut at each point."""
    return EVERY_POINT in os.environ


def splits(whole: Cuttable) -> Iterator[list[Cuttable]]:
    """The input whole, one element at a time, and cut in two in the middle.

    With ``--every-point`` it is cut at each point in place of the middle: a short one in two, a long one into pieces of
    32 elements whose first has each length up to 32.
    """
    yield [whole]
    yield [whole[at : at + 1] for at in range(len(whole))]
    if not has_every_point():
        middle = len(whole) // 2
        yield [whole[:middle], whole[middle:]]
        return
    for first in range(1, min(_STRIDE, len(whole) - 1) + 1):
        points = range(first, len(whole), _STRIDE)
        yield [whole[begin:end] for begin, end in zip([0, *points], [*points, len(whole)], strict=True)]
