"""Ranking of documents for a request: BM25 over several fields (BM25F), in plain Python.

A term counts more in a tool's name than in its description, more if few tools have it, and less in a long text. The
score is divided by the maximum for those terms of the request that occur in any tool, so 0 means no and 1 full overlap
at any length. Reference: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), 3.6;
the weights are ours, set on the tuning half of the measured requests (bench/tool_retrieval.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Saturation of repeated terms, and penalty for long texts.
_K1 = 1.2
_LENGTH = 0.5
# A request with less evidence than two rare words has no certain meaning, even if a tool matches it.
_LEAST_EVIDENCE = 4.0
# A synonym is less certain than the word itself.
_MEANING_WEIGHT = 0.7


@dataclass(frozen=True)
class Field:
    """One part of a document: its terms and their weight."""

    terms: Sequence[str]
    weight: float = 1.0


class Ranking:
    """Index of documents, each given as its fields."""

    def __init__(self, documents: Sequence[Sequence[Field]]) -> None:
        self._counts = [_weighted_counts(fields) for fields in documents]
        lengths = [sum(counts.values()) for counts in self._counts]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [1 - _LENGTH + _LENGTH * length / (average or 1.0) for length in lengths]
        self._document_counts = Counter(term for counts in self._counts for term in counts)

    def scores(self, request: Sequence[str]) -> list[float]:
        """Return a score from 0 to 1 for each document."""
        weights = {term: self.rarity(term) for term in set(request)}
        known = sum(weight for term, weight in weights.items() if term in self._document_counts)
        highest = max(known, _LEAST_EVIDENCE) * (_K1 + 1)
        sums = (
            sum(weight * _saturated(counts[term] / norm) for term, weight in weights.items() if term in counts)
            for counts, norm in zip(self._counts, self._norms, strict=True)
        )
        return [found / highest for found in sums]

    def rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term."""
        total, having = len(self._counts), self._document_counts[term]
        rarity = math.log(1 + (total - having + 0.5) / (having + 0.5))
        return rarity * _MEANING_WEIGHT if term.startswith("@") else rarity


def _weighted_counts(fields: Sequence[Field]) -> Mapping[str, float]:
    counts: dict[str, float] = {}
    for field in fields:
        for term in field.terms:
            counts[term] = counts.get(term, 0.0) + field.weight
    return counts


def _saturated(count: float) -> float:
    return count * (_K1 + 1) / (count + _K1)
