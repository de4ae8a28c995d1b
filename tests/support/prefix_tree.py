"""A tree of token sequences that counts which tokens of one are new."""

from __future__ import annotations

from collections.abc import Sequence


class PrefixTree:
    """Token sequences joined at the prefixes they share."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}

    def add(self, ids: Sequence[int]) -> int:
        """Add a sequence; return how many of its tokens no earlier sequence has after the same prefix."""
        before, node = len(self._children), 0
        for token_id in ids:
            node = self._children.setdefault((node, token_id), len(self._children) + 1)
        return len(self._children) - before
