"""The score of a passage: the probability that it answers the question, by a logistic regression.

``probability.json`` has the coefficients, made by ``python -m bench.own_words --train``: one set for words alone, one
with vectors. The figures are comparable between knowledge bases of different sizes and, because cosines are given in
standard deviations above the mean of the base, between models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).with_name("probability.json")
# The exponential of more overflows nothing and changes nothing.
_MAX_LOGIT = 30.0


@dataclass(frozen=True)
class PassageFigures:
    """What the score of a passage is made of."""

    share: float  # of the best possible BM25
    covered: float  # share of the question's weight that the passage has at all
    absent: float  # share of the question's weight that no passage of the base has
    heading: float  # share of the question's weight in title and headings
    size: float  # logarithm of the number of passages in the base, because more of them have words by chance
    deviation: float | None = None  # cosine in standard deviations above the mean of the base; None without vectors
    behind: float = 0.0  # deviations behind the nearest passage

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers of the regression."""
        words = (self.share, self.covered, self.absent, self.heading, self.size)
        return words if self.deviation is None else (*words, self.deviation, self.behind)


@dataclass(frozen=True)
class _Coefficients:
    weights: Sequence[float]
    bias: float


@lru_cache(maxsize=1)
def _coefficients() -> tuple[_Coefficients, _Coefficients]:
    table = json.loads(FILE.read_text("utf-8"))
    words, vectors = (_Coefficients(**table[name]) for name in ("words", "vectors"))
    return words, vectors


def probability(figures: PassageFigures) -> float:
    """Return the probability that a passage answers the question."""
    words, vectors = _coefficients()
    chosen = words if figures.deviation is None else vectors
    logit = chosen.bias + sum(w * value for w, value in zip(chosen.weights, figures.values, strict=True))
    return 1 / (1 + math.exp(min(max(-logit, -_MAX_LOGIT), _MAX_LOGIT)))
