"""Candidates: two searches side by side, and one list of what either found.

Fusion only decides what is looked at more closely. It ranks by places, and a weak embedder's places would push good
passages down: ranking by it loses 1 to 14 points of nDCG where the re-rank loses none (docs/knowledge.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.storage.text_index import Profile, kanji_hash, term_hash
from mcp_servers.knowledge.text_analysis import Analysis

# Followed: Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet" (2009), which sets 60.
RRF_K = 60
CANDIDATES_PER_SEARCH = 500
MAX_CANDIDATES = 1000
# How many places of the text index one search reads, at 2 µs each. A word that is in every tenth of 100,000 chunks
# costs as much as all the others together, and what it finds they find: measured there, the first result was the same
# for every question, and of the first ten 99.6 %, at half the time of the slowest twentieth.
MAX_POSTINGS = 20_000
_MIN_TERMS = 3


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


def select_terms(frequencies: Mapping[str, int], maximum: int = MAX_POSTINGS) -> list[str]:
    """The terms worth searching with: the rarest first, as many as can be afforded. The re-rank counts all of them.

    Args:
        frequencies: in how many chunks each term occurs.
        most: how many places of the index may be read for them.
    """
    chosen: list[str] = []
    content_hashes = 0
    for term in sorted(frequencies, key=lambda term: frequencies[term]):
        maximum -= frequencies[term]
        if maximum < 0 and content_hashes >= _MIN_TERMS:
            break
        chosen.append(term)
        # A term that no chunk has costs nothing and finds nothing, so it stands for none that would.
        content_hashes += frequencies[term] > 0
    return chosen


def fuse(
    sparse: Sequence[tuple[int, float]], dense: Sequence[tuple[int, float]], maximum: int = MAX_CANDIDATES
) -> list[Candidate]:
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
    best = sorted(fused, key=lambda chunk: -fused[chunk])[:maximum]
    return [Candidate(chunk, sparse_scores.get(chunk), dense_scores.get(chunk), fused[chunk]) for chunk in best]


K1, B = 0.9, 0.6
KANJI_WEIGHT = 0.5
SURROUNDING_CHUNKS = 1000
# A kanji that is in no pair stands for a word by itself; it is taken to be in one chunk of a hundred.
_LONE_KANJI_SHARE = 0.01
_HALF = np.uint32(0xFFFF)


@dataclass(frozen=True)
class QueryWeights:
    """What of a question counts how much.

    Args:
        hashes: of terms and kanji, sorted.
        values: for each, what it adds to a chunk that is full of it, before ``K1``.
    """

    hashes: NDArray[np.uint32]
    values: NDArray[np.float64]

    @property
    def best(self) -> float:
        """The BM25 that no chunk can exceed."""
        return float(self.values.sum()) * (K1 + 1)


def query_weights(query: Analysis, frequencies: Mapping[str, int], chunks: int) -> QueryWeights:
    """The weights of a question's parts.

    Args:
        query: taken apart.
        frequencies: in how many chunks of the base each term occurs.
        chunks: how many the base has.
    """
    size = chunks + SURROUNDING_CHUNKS
    rarity = {term: _rarity(frequencies[term], size) for term in set(query.terms)}
    pairs = [term for term in rarity if len(term) > 1]
    weights: dict[int, float] = {}
    for term, count in Counter(query.terms).items():
        # A lone kanji is searched as the beginning of pairs and counted as a kanji below.
        if len(term) > 1 or term not in query.kanji:
            weights[term_hash(term)] = rarity[term] * math.sqrt(count)
    for kanji, count in Counter(query.kanji).items():
        around = [rarity[pair] for pair in pairs if kanji in pair]
        weight = KANJI_WEIGHT * min(around) if around else _rarity(round(size * _LONE_KANJI_SHARE), size)
        weights[kanji_hash(kanji)] = weight * math.sqrt(count)
    ordered = sorted(weights.items())
    return QueryWeights(np.array([key for key, _ in ordered], np.uint32), np.array([value for _, value in ordered]))


def bm25_shares(weights: QueryWeights, profiles: Sequence[Profile], average_length: float) -> NDArray[np.float64]:
    """For each profile, its BM25 as a share of the best, 0..1.

    Args:
        weights: of the question.
        profiles: of the candidates.
        average_length: terms in a chunk of the base.
    """
    if not profiles or not weights.hashes.size:
        return np.zeros(len(profiles))
    hashes = np.frombuffer(b"".join([profile.hashes for profile in profiles]), "<u4")
    counts = np.frombuffer(b"".join([profile.counts for profile in profiles]), np.uint8)
    owners = np.repeat(np.arange(len(profiles)), [len(profile.counts) for profile in profiles])
    # Nearly all of a chunk's terms are not the question's; half of a hash tells most of them apart at once.
    halves = np.zeros(1 << 16, bool)
    halves[weights.hashes & _HALF] = True
    possible = np.flatnonzero(halves[hashes & _HALF])
    places = np.minimum(np.searchsorted(weights.hashes, hashes[possible]), weights.hashes.size - 1)
    is_same = weights.hashes[places] == hashes[possible]
    found, places = possible[is_same], places[is_same]
    count, owner = counts[found].astype(float), owners[found]
    lengths = np.array([profile.length for profile in profiles], float)
    saturation = K1 * (1 - B + B * lengths / max(average_length, 1.0))
    contribution = weights.values[places] * count * (K1 + 1) / (count + saturation[owner])
    return np.bincount(owner, contribution, minlength=len(profiles)) / weights.best


def _rarity(frequency: int, size: int) -> float:
    return math.log(1 + (size - frequency + 0.5) / (frequency + 0.5))


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
    midpoint: float
    source: str

    def combine(self, share: float, cosine_above_mean: float) -> float:
        """What candidates are ordered by.

        Args:
            share: of the best BM25, 0..1.
            nearness: the cosine above the background, 0..1.
        """
        return share + self.dense_weight * cosine_above_mean

    def score(self, figure: float) -> float:
        """The figure on the scale of the threshold."""
        return 1 / (1 + math.exp(-self.steepness * (figure - self.midpoint)))


SPARSE_ONLY = Calibration(0.0, 8.0, 0.22, "chosen by eye on JaQuAD and others, checked on JSQuAD, XQuAD-en and SciFact")
_BY_EMBEDDER = {
    HashingEmbedder.name: Calibration(
        0.0,
        SPARSE_ONLY.steepness,
        SPARSE_ONLY.midpoint,
        "as words alone: hashing sees the same words, so it only finds",
    )
}
# Small, because the words decide: with a small static encoder the reference lost nothing at this weight.
_NEURAL = Calibration(
    0.1, SPARSE_ONLY.steepness, SPARSE_ONLY.midpoint, "as words alone; never measured with vectors of a neural model"
)


def calibration_for(embedder: str) -> Calibration:
    """The calibration where every candidate has a cosine of this embedder; for the empty name, none has."""
    return _BY_EMBEDDER.get(embedder, _NEURAL) if embedder else SPARSE_ONLY


def cosine_above_mean(cosine: float, background: float) -> float:
    """The part of a cosine above the background, 0..1."""
    return min(max((cosine - background) / max(1 - background, 1e-6), 0.0), 1.0)
