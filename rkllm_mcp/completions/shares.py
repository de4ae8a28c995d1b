"""What goes first where several share one place: the oldest of whoever has the most of it.

So nobody's busy day costs somebody else what they left there; alone, one has the place to oneself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def first_to_go(held: Sequence[tuple[str, int]]) -> int:
    """Which of the things that are held goes.

    Args:
        held: each thing's owner and how much room it takes, the one that was used last at the end; at least one.
    """
    room = Counter[str]()
    for owner, size in held:
        room[owner] += size
    most = max(room.values())
    return next(index for index, (owner, _) in enumerate(held) if room[owner] == most)
