"""Candidates: two searches side by side, and one list of what either found.

Fusion only decides what is looked at more closely. It ranks by places, and a weak embedder's places would push good
passages down: ranking by it loses 1 to 14 points of nDCG where the re-rank loses none (docs/knowledge.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Followed: Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet" (2009), which sets 60.
RRF_K = 60
FOUND_BY_EACH = 500
FUSED = 1000
# How many places of the text index one search reads, at 2 µs each. A word that is in every tenth of 100,000 chunks
# costs as much as all the others together, and what it finds they find: measured there, the first result was the same
# for every question, and of the first ten 99.6 %, at half the time of the slowest twentieth.
PLACES_READ = 20_000
_FEWEST_TERMS = 3


@dataclass(frozen=True)
class Candidate:
    """A chunk that either search found.

    Args:
        chunk: its row.
        sparse: BM25 of the text index; None when only the vectors found it.
        dense: cosine; None when only the words found it.
        rrf: sum of 1 / (60 + rank), ranks counted from 1.
    """

    chunk: int
    sparse: float | None
    dense: float | None
    rrf: float


def rarest(frequencies: Mapping[str, int], most: int = PLACES_READ) -> list[str]:
    """The terms worth searching with: the rarest first, as many as can be afforded. The re-rank counts all of them.

    Args:
        frequencies: in how many chunks each term occurs.
        most: how many places of the index may be read for them.
    """
    chosen: list[str] = []
    known = 0
    for term in sorted(frequencies, key=lambda term: frequencies[term]):
        most -= frequencies[term]
        if most < 0 and known >= _FEWEST_TERMS:
            break
        chosen.append(term)
        # A term that no chunk has costs nothing and finds nothing, so it stands for none that would.
        known += frequencies[term] > 0
    return chosen


def fuse(sparse: Sequence[tuple[int, float]], dense: Sequence[tuple[int, float]], most: int = FUSED) -> list[Candidate]:
    """Both lists as one, best places first.

    Args:
        sparse: chunks and scores, best first.
        dense: likewise.
        most: how many are kept.
    """
    sparse_scores, dense_scores = dict(sparse), dict(dense)
    fused = dict.fromkeys([*sparse_scores, *dense_scores], 0.0)
    for found in (sparse, dense):
        for rank, (chunk, _) in enumerate(found, 1):
            fused[chunk] += 1 / (RRF_K + rank)
    best = sorted(fused, key=lambda chunk: -fused[chunk])[:most]
    return [Candidate(chunk, sparse_scores.get(chunk), dense_scores.get(chunk), fused[chunk]) for chunk in best]
