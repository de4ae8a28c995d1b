"""Which katakana words exist, and which letters follow each other in such words.

The second comes from the first: counts of one, two and three letters in a row, mixed by how much each can tell (Witten
and Bell, "The Zero-Frequency Problem", 1991). So a word that is not in the list still looks like one or does not.
Costs are negative natural logarithms of probabilities: what is likely is cheap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

_FILES = tuple(Path(__file__).with_name(name) for name in ("katakana.txt", "recent.txt"))
_SHORTEST = 2
# About as many katakana as there are; what was never seen is one of them.
_LETTERS = 90
# What stands before the first letter of a word and behind its last.
BEFORE_WORD, WORD_END = "^^", "$"


class Lexicon:
    """Words, and how likely letters are.

    Args:
        words: full-width katakana.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        self._longest = max(map(len, self._words), default=0)
        lines = [f"{BEFORE_WORD}{word}{WORD_END}" for word in sorted(self._words)]
        # How often each letter follows none, one or two given letters, and how many different ones do.
        self._follows = [
            Counter([line[at - length : at + 1] for line in lines for at in range(len(BEFORE_WORD), len(line))])
            for length in range(len(BEFORE_WORD) + 1)
        ]
        self._seen: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        for counts in self._follows:
            for letters, count in counts.items():
                self._seen[letters[:-1]] += count
                self._kinds[letters[:-1]] += 1
        self._costs: dict[str, float] = {}

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def words_at(self, letters: str, start: int) -> Iterator[int]:
        """Where the words end that begin at ``start``."""
        for end in range(start + _SHORTEST, min(len(letters), start + self._longest) + 1):
            if letters[start:end] in self._words:
                yield end

    def letter_cost(self, before: str, letter: str) -> float:
        """What a letter costs behind the two before it; ``^`` stands before a word and ``$`` is its end."""
        key = before + letter
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = -math.log(self._probability(before, letter))
        return cost

    def _probability(self, before: str, letter: str) -> float:
        shorter = self._probability(before[1:], letter) if before else 1 / _LETTERS
        seen, kinds = self._seen[before], self._kinds[before]
        return (self._follows[len(before)][before + letter] + kinds * shorter) / (seen + kinds) if seen else shorter


def own_words() -> frozenset[str]:
    """The project's words, from their files."""
    lines = [line for file in _FILES for line in file.read_text("utf-8").splitlines()]
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@lru_cache(maxsize=1)
def own_lexicon() -> Lexicon:
    """The project's words, read when the first dash has to be judged."""
    return Lexicon(own_words())
