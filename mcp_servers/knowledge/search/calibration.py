"""A re-rank's figure -> a score in 0..1 that means the same for every query, every base and every embedder.

The scale is the one of the tools' guide: 0.5 and more for a broad search, 0.6 for a balanced one, 0.7 for a strict
one. Only the middle and the slope of the curve are chosen; ``bench/knowledge_calibration.py`` prints what they do to
questions that have an answer in the base and to questions that have none, and docs/knowledge.md shows the table.

The cosine that is added is the part above the background, (cos - mean) / (1 - mean): models differ in how near
anything is to anything, so a bare cosine of one model means nothing to another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mcp_servers.knowledge.embedding.hashing import HashingEmbedder


@dataclass(frozen=True)
class Calibration:
    """How a chunk's figures become its score.

    Args:
        dense_weight: what a cosine adds to the share of BM25.
        steepness: of the curve.
        middle: the figure whose score is 0.5.
        source: where the numbers come from.
    """

    dense_weight: float
    steepness: float
    middle: float
    source: str

    def figure(self, share: float, nearness: float) -> float:
        """What candidates are ordered by.

        Args:
            share: of the best BM25, 0..1.
            nearness: the cosine above the background, 0..1.
        """
        return share + self.dense_weight * nearness

    def score(self, figure: float) -> float:
        """The figure on the scale of the threshold."""
        return 1 / (1 + math.exp(-self.steepness * (figure - self.middle)))


WORDS_ALONE = Calibration(0.0, 8.0, 0.22, "chosen by eye on JaQuAD and others, checked on JSQuAD, XQuAD-en and SciFact")
_BY_EMBEDDER = {
    HashingEmbedder.name: Calibration(
        0.0, WORDS_ALONE.steepness, WORDS_ALONE.middle, "as words alone: hashing sees the same words, so it only finds"
    )
}
# Small, because the words decide: with a small static encoder the reference lost nothing at this weight.
_A_MODEL = Calibration(
    0.1, WORDS_ALONE.steepness, WORDS_ALONE.middle, "as words alone; never measured with vectors of a neural model"
)


def calibration_for(embedder: str) -> Calibration:
    """The calibration where every candidate has a cosine of this embedder; for the empty name, none has."""
    return _BY_EMBEDDER.get(embedder, _A_MODEL) if embedder else WORDS_ALONE


def nearness(cosine: float, background: float) -> float:
    """The part of a cosine above the background, 0..1."""
    return min(max((cosine - background) / max(1 - background, 1e-6), 0.0), 1.0)
