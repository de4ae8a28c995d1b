"""The score of a passage: the probability that it answers the question, by a logistic regression.

``probability.json`` has the coefficients, made by ``python -m bench.own_words --train``: for words alone, for each
embedder that was measured, and for the others. The figures are comparable between knowledge bases of different sizes
and, because cosines are given in standard deviations above the mean of the base, between models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_servers.knowledge.embedding.models import known_model

FILE = Path(__file__).with_name("probability.json")
# The exponential of more overflows nothing and changes nothing.
_MAX_LOGIT = 30.0
_LEAST_SHARE = 0.05
# Nothing is likely to answer a question whose best passage has a score below these, with a cross-encoder and with
# vectors, or with words alone a lesser share of the best possible BM25: docs/development/search.md.
NO_ANSWER, _NO_ANSWER_BY_VECTORS, _NO_ANSWER_SHARE = 0.15, 0.04, 0.24


@dataclass(frozen=True)
class PassageFigures:
    """What the score of a passage is made of."""

    share: float  # of the best possible BM25
    size: float  # logarithm of the number of passages in the base, because more of them have words by chance
    rivals: float = 1.0  # stretches of documents that have as much of the question as the best passage
    words: float = 1.0  # share of the question's words that the passage has as a whole, by weight
    terms: int = 1  # different terms of the question
    deviation: float | None = None  # cosine in standard deviations above the mean of the base; None without vectors
    behind: float = 0.0  # deviations behind the nearest passage

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers of the regression; logarithms, because a passage without any of the words is no answer."""
        share, rivals = math.log(self.share + _LEAST_SHARE), math.log(max(self.rivals, 1.0))
        by_words = (share, self.words, self.size, rivals)
        return (
            (*by_words, math.log1p(self.terms)) if self.deviation is None else (*by_words, self.deviation, self.behind)
        )


@dataclass(frozen=True)
class _Coefficients:
    weights: Sequence[float]
    bias: float


_COEFFICIENTS = {name: _Coefficients(**values) for name, values in json.loads(FILE.read_text("utf-8")).items()}


def is_unanswered(figures: PassageFigures, score: float) -> bool:
    """Return True if a question whose best passage has these figures and this score is not likely to have an answer.

    About 1 in 20 of the questions whose answer is among the first three results is beyond these lines.
    """
    return figures.share < _NO_ANSWER_SHARE if figures.deviation is None else score < _NO_ANSWER_BY_VECTORS


def probability(figures: PassageFigures, embedder: str = "") -> float:
    """Return the probability that a passage answers the question; ``embedder`` names the model of the vectors."""
    chosen = _COEFFICIENTS["words"]
    if figures.deviation is not None:
        chosen = _COEFFICIENTS.get(known_model(embedder).match, _COEFFICIENTS["vectors"])
    logit = chosen.bias + sum(w * value for w, value in zip(chosen.weights, figures.values, strict=True))
    return 1 / (1 + math.exp(min(max(-logit, -_MAX_LOGIT), _MAX_LOGIT)))
