"""BM25 re-rank: candidates and a question -> each candidate's share of the best BM25 there could be.

Beyond the text index this counts single kanji, how often the question repeats a term, and knows how much of the
question a chunk covers at best: a share in 0..1 means the same for every question, so it can be calibrated.

What differs from textbook BM25, each measured on the collections (docs/knowledge.md):
* ``K1`` 0.9 and ``B`` 0.6: chunks are short and cut to a size, so a repeated word says little and length less.
* Rarity is counted as if the base lay among a thousand further chunks. In a base of ten chunks every word is in a
  tenth of them; that must not make the found words look worthless and the missing ones precious.
* A kanji weighs half of the most common pair of the question that holds it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.analysis import Analysis
from mcp_servers.knowledge.storage.texts import Profile, kanji_hash, term_hash

K1, B = 0.9, 0.6
KANJI_WEIGHT = 0.5
SURROUNDING_CHUNKS = 1000
# A kanji that is in no pair stands for a word by itself; it is taken to be in one chunk of a hundred.
_LONE_KANJI_SHARE = 0.01
_HALF = np.uint32(0xFFFF)


@dataclass(frozen=True)
class Weights:
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


def weights_of(query: Analysis, frequencies: Mapping[str, int], chunks: int) -> Weights:
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
    return Weights(np.array([key for key, _ in ordered], np.uint32), np.array([value for _, value in ordered]))


def covered_shares(weights: Weights, profiles: Sequence[Profile], average_length: float) -> NDArray[np.float64]:
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
    likely = np.flatnonzero(halves[hashes & _HALF])
    places = np.minimum(np.searchsorted(weights.hashes, hashes[likely]), weights.hashes.size - 1)
    is_same = weights.hashes[places] == hashes[likely]
    found, places = likely[is_same], places[is_same]
    count, owner = counts[found].astype(float), owners[found]
    lengths = np.array([profile.length for profile in profiles], float)
    burden = K1 * (1 - B + B * lengths / max(average_length, 1.0))
    worth = weights.values[places] * count * (K1 + 1) / (count + burden[owner])
    return np.bincount(owner, worth, minlength=len(profiles)) / weights.best


def _rarity(frequency: int, size: int) -> float:
    return math.log(1 + (size - frequency + 0.5) / (frequency + 0.5))
