"""Ranking: terms to search with, fusion of both searches, BM25 re-rank, order. Pure functions.

Fusion only selects candidates: ranking by it loses 1 to 14 points of nDCG with a weak embedder
(docs/development/search.md).

The re-rank also counts single kanji and repeated query terms. Its result is the share of the best BM25 that any chunk
could reach for the query, so it is comparable between queries. Deviations from textbook BM25, each measured:

* ``K1`` 0.9 and ``B`` 0.6: chunks are short and of similar length.
* IDF assumes 200 further chunks, so that words in a base of ten chunks do not look common.
* A kanji weighs half of the most frequent bigram of the query that contains it; all of it where it is a word by itself,
because that is how 刷る finds 印刷.
* A chunk also gets 0.3 of the best chunk of its document for each term.

With the vectors of a model the order is by cosines in standard deviations above the mean of the base, because models
differ in both, and by words with a weight that belongs to the model. The score is made in ``probability``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.search.question import Alternative, Concept, UnderstoodQuery
from mcp_servers.knowledge.storage.database import NO_CHUNKS, ChunkKeys
from mcp_servers.knowledge.storage.text_index import Profile, kanji_hash, term_hash
from mcp_servers.knowledge.text_analysis import Analysis

# Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet" (2009), which uses 60.
RRF_K = 60
CANDIDATES_PER_SEARCH = 150
MAX_CANDIDATES = 500
# Postings read per search. Common words add nothing to the candidates: docs/development/search.md, "Speed".
MAX_POSTINGS = 8_000
_MIN_TERMS = 3


def term_keys(query: UnderstoodQuery) -> dict[str, int]:
    """Return index term -> hash of the terms of a query and of its alternatives."""
    alternatives = [alternative for concept in query.concepts for alternative in concept.alternatives]
    terms = [*query.analysis.terms, *(term for alternative in alternatives for term in alternative.terms)]
    # A lone kanji is searched as a prefix of bigrams, and counted as a kanji.
    kanji = {*query.analysis.kanji, *(kanji for alternative in alternatives for kanji in alternative.kanji)}
    lone = [kanji_term for kanji_term in terms if kanji_term in kanji] + [
        kanji_term for alternative in alternatives for kanji_term in alternative.kanji
    ]
    return {term: term_hash(term) for term in terms} | {kanji: kanji_hash(kanji) for kanji in lone}


def select_terms(frequencies: Mapping[str, int], maximum: int = MAX_POSTINGS, minimum: int = _MIN_TERMS) -> list[str]:
    """Return the rarest terms that occur and whose document frequencies sum up to ``maximum``."""
    chosen: list[str] = []
    for term in sorted((term for term in frequencies if frequencies[term]), key=lambda term: frequencies[term]):
        maximum -= frequencies[term]
        if maximum < 0 and len(chosen) >= minimum:
            break
        chosen.append(term)
    return chosen


def select_chunks(
    weights: QueryWeights, postings: Mapping[int, ChunkKeys], maximum: int = 0
) -> tuple[ChunkKeys, NDArray[np.float64]]:
    """Return the chunks of posting lists with the sums of the weights of their terms, best first.

    At least the ``maximum`` best ones, all for 0. ``postings`` are by term hash. Counts and lengths are left to the
    re-rank.
    """
    in_both = partial(np.intersect1d, assume_unique=True)
    by_place = {int(index): postings[key] for index, key in enumerate(weights.hashes.tolist()) if key in postings}
    by_term = {index: chunk_keys for index, chunk_keys in by_place.items() if weights.values[index] > 0}
    alternatives = [
        (concept, share * concept.value, reduce(in_both, [by_place[index] for index in indices.tolist()]))
        for concept in weights.concepts
        for indices, share in concept.alternatives
        if by_place.keys() >= set(indices.tolist())
    ]
    # NumPy 2.4's unique() builds a hash table, which takes ten times as long for these.
    merged = np.sort(
        np.concatenate([*by_term.values(), *(chunk_keys for *_, chunk_keys in alternatives), NO_CHUNKS]), kind="stable"
    )
    chunks = merged[np.diff(merged, prepend=-1) > 0]
    rows = {index: np.searchsorted(chunks, chunk_keys) for index, chunk_keys in by_term.items()}
    total = np.zeros(chunks.size)
    for index, row in rows.items():
        total[row] += weights.values[index]
    for concept in {id(concept): concept for concept, *_ in alternatives}.values():
        reached, best = np.zeros(chunks.size), np.zeros(chunks.size)
        for index in rows.keys() & set(concept.own.tolist()):
            reached[rows[index]] += weights.values[index]
        for _, value, chunk_keys in (alternative for alternative in alternatives if alternative[0] is concept):
            row = np.searchsorted(chunks, chunk_keys)
            best[row] = np.maximum(best[row], value)
        total += np.maximum(best - reached, 0.0)
    # Sorting all of them takes longer than the rest of this.
    if 0 < maximum < total.size:
        indices = np.flatnonzero(total >= np.partition(total, -maximum)[-maximum])
        chunks, total = chunks[indices], total[indices]
    order = np.argsort(-total, kind="stable")
    return chunks[order], total[order]


def fuse(*searches: Sequence[int], maximum: int = MAX_CANDIDATES) -> dict[int, float]:
    """Return the best chunks of several searches, each with the sum of 1 / (60 + rank)."""
    fused: dict[int, float] = {}
    for ranked in searches:
        for rank, chunk in enumerate(ranked, 1):
            fused[chunk] = fused.get(chunk, 0.0) + 1 / (RRF_K + rank)
    return dict(sorted(fused.items(), key=lambda item: -item[1])[:maximum])


# The constants of the weights, with the section of docs/development/search.md where each was measured ("own words":
# Over real manuals); "chosen": no measurement of it alone is recorded.
K1, B = 0.9, 0.6  # Weights; own words: 1.3, 0.3 and 0.8 are worse
SURROUNDING_CHUNKS = 200  # chosen: words in a base of ten chunks must not look common
KANJI_WEIGHT = 0.5  # Weights; own words: 1.0 for a kanji that is a word by itself
_LONE_KANJI_SHARE = 0.01  # chosen: a kanji outside all bigrams is treated as a word in 1 % of the chunks
PARTICLE_WEIGHT = 0.5  # Search quality measured 0.4; 0.5 was not measured by itself
MIXED_SHARE = 0.3  # chosen: of a bigram of a word and its particle, which a chunk need not have for a full score
ABSENT_WORD, ABSENT_BIGRAM = 0.5, 0.8  # chosen: of terms that no chunk has; every example query finds its document
SYNONYM_WEIGHT = 0.85  # own words: of the word's weight; 0.8 and 0.6 are worse
KNOWN_SHARE = 0.7  # own words: of the weight of an alternative, if chunks have the word itself
# Own words: of the best chunk of the same document for each term, so that a passage of a page on the subject comes
# before a passing mention.
DOCUMENT_WEIGHT = 0.3
_HALF = np.uint32(0xFFFF)
Figures = NDArray[np.float64]


_PARTICLE = re.compile("^[はがをにでとのもへやか].$|^.[はがをにでとのもへやか]$")
_EPSILON, _BIGRAM = 1e-9, 2
_MIXED = re.compile("[\u3041-\u3096].|.[\u3041-\u3096]")


@dataclass(frozen=True)
class ConceptWeights:
    """Weight of a concept, as indices of ``QueryWeights.hashes``."""

    own: NDArray[np.intp]
    value: float
    alternatives: list[tuple[NDArray[np.intp], float]]  # all of these terms together, and their share of the value


@dataclass(frozen=True)
class WordWeight:
    """Weight of a whole word, as indices of ``QueryWeights.hashes``."""

    own: NDArray[np.intp]
    value: float
    alternatives: list[NDArray[np.intp]]


@dataclass(frozen=True)
class QueryWeights:
    """Weights of the query's terms, kanji and concepts."""

    hashes: NDArray[np.uint32]  # sorted
    values: NDArray[np.float64]  # contribution to BM25 before the factor K1 + 1; 0 for terms of alternatives only
    concepts: list[ConceptWeights]
    best: float = 1.0  # BM25 of a chunk that has everything that matters
    words: Sequence[WordWeight] = ()
    terms: int = 0  # different terms of the query


def query_weights(query: UnderstoodQuery, frequencies: Mapping[str, int], chunks: int) -> QueryWeights:
    """Return the weights of a query; ``frequencies`` are document frequencies of all its terms."""
    size = chunks + SURROUNDING_CHUNKS
    rarity = {term: _rarity(frequencies[term], size) for term in set(query.analysis.terms)}
    # The concepts with an alternative whose terms all occur in the base, and these alternatives.
    pairs = (
        (concept, [a for a in concept.alternatives if all(map(frequencies.get, a.terms))]) for concept in query.concepts
    )
    present = [(concept, alternatives) for concept, alternatives in pairs if alternatives]
    # A word that no chunk has is as rare as its alternatives together.
    replaced = {
        term: _rarity(_frequency(alternatives, frequencies, size), size)
        for concept, alternatives in present
        for term in concept.own.terms
    }
    by_term: dict[str, float] = {}
    for term, count in Counter(query.analysis.terms).items():
        # A lone kanji is searched as a prefix of bigrams, and has the weight of a kanji.
        if len(term) > 1 or term not in query.analysis.kanji:
            # The bigrams of a run that no chunk has as a whole count instead of it.
            unknown = rarity[term] * (ABSENT_WORD if term.isascii() else ABSENT_BIGRAM * (len(term) <= _BIGRAM))
            weight = rarity[term] if frequencies[term] else replaced.get(term, unknown)
            by_term[term] = weight * math.sqrt(count) * (PARTICLE_WEIGHT if _PARTICLE.search(term) else 1.0)
    weights = {term_hash(term): weight for term, weight in by_term.items()}
    bigrams = [term for term in rarity if len(term) > 1]
    for kanji, count in Counter(query.analysis.kanji).items():
        around = [pair for pair in bigrams if kanji in pair]
        weight = min(map(rarity.__getitem__, around), default=_rarity(round(size * _LONE_KANJI_SHARE), size))
        # A kanji between hiragana is a word by itself.
        weight *= 1.0 if all(map(_MIXED.fullmatch, around)) else KANJI_WEIGHT
        weights[kanji_hash(kanji)] = weight * math.sqrt(count)
    keys = {key for _, alternatives in present for alternative in alternatives for key in _keys(alternative)}
    ordered = sorted(keys.union(weights))
    indices = {key: at for at, key in enumerate(ordered)}
    values = np.array([weights.get(key, 0.0) for key in ordered])
    concepts = [
        _concept(concept, alternatives, indices, values, frequencies, size) for concept, alternatives in present
    ]
    total = float(values.sum()) + sum(concept.value for concept in concepts if not concept.own.size)
    mixed = sum((1 - MIXED_SHARE) * weight for term, weight in by_term.items() if _MIXED.fullmatch(term))
    return QueryWeights(
        np.array(ordered, np.uint32),
        values,
        concepts,
        best=max(total - mixed, _EPSILON) * (K1 + 1),
        words=[_word(word, concepts, indices, weights, rarity) for word in query.words if word.terms],
        terms=len(rarity),
    )


def _frequency(alternatives: Sequence[Alternative], frequencies: Mapping[str, int], size: int) -> int:
    """Return about how many chunks have any of the alternatives."""
    lone_kanji = round(size * _LONE_KANJI_SHARE)
    return min(
        sum(min(map(frequencies.__getitem__, alternative.terms), default=lone_kanji) for alternative in alternatives),
        size // 2,
    )


def _keys(alternative: Alternative) -> list[int]:
    return [term_hash(term) for term in alternative.terms] + [kanji_hash(kanji) for kanji in alternative.kanji]


def _concept(
    concept: Concept,
    alternatives_found: Sequence[Alternative],
    indices: Mapping[int, int],
    values: NDArray[np.float64],
    frequencies: Mapping[str, int],
    size: int,
) -> ConceptWeights:
    own_keys = dict.fromkeys([*map(term_hash, concept.own.terms), *map(kanji_hash, concept.own.kanji)])
    own_indices = np.array([indices[key] for key in own_keys if key in indices and values[indices[key]] > 0], np.intp)
    value = float(values[own_indices].sum())
    if not own_indices.size:
        # The word is of hiragana, which the query drops: it weighs like the most common alternative.
        value = _rarity(_frequency(alternatives_found, frequencies, size), size)
    share = KNOWN_SHARE if all(frequencies.get(term) for term in concept.own.terms) else 1.0
    alternatives = [
        (np.array([indices[key] for key in _keys(alternative)], np.intp), share * SYNONYM_WEIGHT)
        for alternative in alternatives_found
    ]
    return ConceptWeights(own_indices, value, alternatives)


def _word(
    word: Analysis,
    concepts: Sequence[ConceptWeights],
    indices: Mapping[int, int],
    weights: Mapping[int, float],
    rarity: Mapping[str, float],
) -> WordWeight:
    """Return the weight of a word, that of its rarest term, and the alternatives of the concepts that it is part of."""
    kanji = list(map(kanji_hash, word.kanji))
    bigrams = [term_hash(term) for term in word.terms if len(term) <= _BIGRAM] or list(map(term_hash, word.terms))
    is_kanji = len(word.terms) == len(word.kanji) == 1
    columns = [indices[key] for key in (kanji if is_kanji else bigrams) if key in indices]
    value = weights.get(kanji[0], 0.0) if is_kanji else max(rarity.get(term, 0.0) for term in word.terms)
    related = {indices[key] for key in (*bigrams, *kanji) if key in indices}
    alternatives = [
        terms for concept in concepts if related & set(concept.own.tolist()) for terms, _ in concept.alternatives
    ]
    return WordWeight(np.array(columns, np.intp), value, alternatives)


def bm25_shares(weights: QueryWeights, profiles: Sequence[Profile], counts: Figures, average_length: float) -> Figures:
    """Return for each profile its share of the best possible BM25, 0..1; ``counts`` are those of ``term_counts``."""
    if not counts.size:
        return np.zeros(len(profiles))
    table = _saturate(counts, profiles, average_length)
    owned = np.array([profile.document for profile in profiles], np.int64)
    by_document = np.argsort(owned, kind="stable")
    _, starts, documents = np.unique(owned[by_document], return_index=True, return_inverse=True)
    indices = np.empty(len(profiles), np.intp)
    indices[by_document] = documents
    best: Figures = np.maximum.reduceat(table[:, by_document], starts, axis=1)
    total = (1 - DOCUMENT_WEIGHT) * _sums(weights, table) + DOCUMENT_WEIGHT * _sums(weights, best)[indices]
    return np.minimum(total / weights.best, 1.0)


def word_shares(weights: QueryWeights, counts: Figures) -> Figures:
    """Return for each column of ``term_counts`` the share of the query's words that it has, by weight, 0..1.

    A word counts in part if only some of its bigrams are there, and as a whole with an alternative of it.
    """
    shares: Figures = np.zeros(len(np.transpose(counts)))
    total = sum(word.value for word in weights.words)
    if not total or not counts.size:
        return shares + 1.0
    has, occurring = np.minimum(counts, 1.0), frozenset(np.flatnonzero(counts.any(axis=1)).tolist())
    for word in weights.words:
        covered: Figures = has[word.own].mean(axis=0) if word.own.size else np.zeros(shares.size)
        for terms in word.alternatives:
            if occurring.issuperset(terms.tolist()):
                covered = np.maximum(covered, has[terms].min(axis=0))
        shares += word.value / total * covered
    return shares


# Passages of one subject are next to each other: chunks of a document, by their keys.
STRETCH_CHUNKS = 16
# With 0.9 of the share of the best passage 0.43 is counted, with 0.7 of it 0.06.
RIVAL_POWER = 8


def rivals(shares: Figures, profiles: Sequence[Profile]) -> float:
    """Return how many stretches of documents have as much of the question as the best passage, its own included.

    A stretch whose best passage has less counts in part. A question whose words are all over the base is answered by
    none of these passages in particular.
    """
    return float((_best_of_stretches(shares, profiles)[0] ** RIVAL_POWER).sum())


def _best_of_stretches(shares: Figures, profiles: Sequence[Profile]) -> tuple[Figures, NDArray[np.intp]]:
    """Return the best share of each stretch, relative to the best of all, and the stretch of each profile."""
    stretches = [profile.document << 32 | profile.chunk // STRETCH_CHUNKS for profile in profiles]
    _, indices = np.unique(np.array(stretches, np.int64), return_inverse=True)
    best = np.zeros(len(profiles))
    np.maximum.at(best, indices, shares)
    return best / max(float(shares.max(initial=0.0)), _EPSILON), indices


# What the share of a passage gains in a follow-up: if its headings have the words of the question and it those of the
# question before, and if it stands where the question before is answered. Chosen on 12 pairs
# (docs/development/search.md).
HEADING_GAIN, PLACE_GAIN = 0.8, 0.1
# Passages whose headings are looked at, because analyzing them takes longer than the rest.
FOLLOW_UP_HEADINGS = 30


def place_gains(of_previous: Figures, profiles: Sequence[Profile]) -> Figures:
    """Return what each profile gains by its place; ``of_previous`` are shares of the question before."""
    best, indices = _best_of_stretches(of_previous, profiles)
    return PLACE_GAIN * best[indices] ** RIVAL_POWER


def heading_gains(question: QueryWeights, of_previous: Figures, headings: Sequence[Profile]) -> Figures:
    """Return what passages gain by their headings; ``of_previous`` are shares of the question before."""
    average_length = sum(heading.length for heading in headings) / max(len(headings), 1)
    table = _saturate(term_counts(question, headings), headings, average_length)
    return HEADING_GAIN * np.minimum(_sums(question, table) / question.best, 1.0) * of_previous


def term_counts(weights: QueryWeights, profiles: Sequence[Profile]) -> Figures:
    """Return how often each term of the query occurs in each profile, as a table term x profile."""
    if not profiles or not weights.hashes.size:
        return np.zeros((weights.hashes.size, len(profiles)))
    hashes = np.frombuffer(b"".join([profile.hashes for profile in profiles]), "<u4")
    counts = np.frombuffer(b"".join([profile.counts for profile in profiles]), np.uint8)
    owners = np.repeat(np.arange(len(profiles)), [len(profile.counts) for profile in profiles])
    # Half of a hash excludes nearly all terms that are not in the query.
    halves = np.zeros(1 << 16, bool)
    halves[weights.hashes & _HALF] = True
    possible = np.flatnonzero(halves[hashes & _HALF])
    indices = np.minimum(np.searchsorted(weights.hashes, hashes[possible]), weights.hashes.size - 1)
    is_same = weights.hashes[indices] == hashes[possible]
    table = np.zeros((weights.hashes.size, len(profiles)))
    table[indices[is_same], owners[possible[is_same]]] = counts[possible[is_same]]
    return table


def _saturate(counts: Figures, profiles: Sequence[Profile], average_length: float) -> Figures:
    """Return what BM25 makes of counts: of repeated terms little, and less in longer profiles."""
    lengths = np.array([profile.length for profile in profiles], float)
    return counts * ((K1 + 1) / (counts + K1 * (1 - B + B * lengths / max(average_length, 1.0))))


def _sums(weights: QueryWeights, table: Figures) -> Figures:
    """Return the weight of the terms of each column of a table, an alternative instead of its word if that is more."""
    total = weights.values @ table
    occurring = frozenset(np.flatnonzero(table.any(axis=1)).tolist())
    for concept in weights.concepts:
        # Most alternatives are in none of the profiles.
        alternative_sums = [
            share * table[terms].min(axis=0)
            for terms, share in concept.alternatives
            if occurring.issuperset(terms.tolist())
        ]
        if alternative_sums:
            own_sum = weights.values[concept.own] @ table[concept.own]
            total += np.maximum(np.max(alternative_sums, axis=0) * concept.value - own_sum, 0.0)
    return total


def _rarity(frequency: int, size: int) -> float:
    return math.log(1 + (size - frequency + 0.5) / (frequency + 0.5))


def fused_order(shares: Figures, deviations: Figures | None, words: float) -> Figures:
    """Return what chunks are ranked by: shares, or with vectors their deviation and ``words`` times the relative share.

    ``deviations`` are cosines in standard deviations above the mean of the base, because models differ in both.
    """
    if deviations is None:
        return shares
    return deviations + words * shares / max(float(shares.max(initial=0.0)), _EPSILON)
