"""The append-only token ids of one conversation.

What went in and what came out stays as it was: the next prompt is the ledger plus what is new, so the runtime's own
prefix matching evaluates only the new part (maintainer's recipe, rknn-llm issue 432: history off, send everything,
never clear). ``rewind`` exists for the owner's edits alone. The ledger knows no text and no roles.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence


class TokenLedger:
    """Token ids in order. ``ids`` may be read at any time and must not be changed."""

    def __init__(self) -> None:
        # Four bytes each: a service keeps those of many conversations.
        self._ids = array("i")

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """All ids so far."""
        return self._ids

    def append(self, ids: Iterable[int]) -> None:
        """Add ids at the end: rendered text, or what a generation delivered."""
        self._ids.extend(ids)

    def rewind(self, length: int) -> None:
        """Forget what lies behind the first ``length`` ids, because the conversation itself was changed there.

        Raises:
            ValueError: ``length`` is not within the ledger.
        """
        if not 0 <= length <= len(self._ids):
            raise ValueError(f"cannot rewind {len(self._ids)} tokens to {length}")
        del self._ids[length:]


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of leading ids that are equal."""
    shortest = min(len(left), len(right))
    if list(left[:shortest]) == list(right[:shortest]):
        return shortest
    return next(index for index in range(shortest) if left[index] != right[index])
