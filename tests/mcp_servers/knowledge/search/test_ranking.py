"""The stages of a search, each by itself."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mcp_servers.knowledge.embedding.models import known_model
from mcp_servers.knowledge.search.pipeline import select_bases
from mcp_servers.knowledge.search.probability import PassageFigures, probability
from mcp_servers.knowledge.search.question import UnderstoodQuery, understand
from mcp_servers.knowledge.search.ranking import (
    PLACE_GAIN,
    bm25_shares,
    fuse,
    fused_order,
    heading_gains,
    place_gains,
    query_weights,
    rivals,
    select_chunks,
    select_terms,
    term_counts,
    term_keys,
    word_shares,
)
from mcp_servers.knowledge.storage.bases import StoredBase
from mcp_servers.knowledge.storage.text_index import Profile, index_chunk
from mcp_servers.knowledge.text_analysis import analyze_query
from mcp_servers.knowledge.types import KnowledgeBase


def test_fusion_adds_what_each_rank_is_worth_and_keeps_the_best() -> None:
    fused = fuse([1, 2, 3], [3, 4], maximum=3)
    assert list(fused) == [3, 1, 2]
    assert list(fused.values()) == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62])


def test_common_terms_are_left_out_of_the_index_search_when_they_cost_too_much() -> None:
    frequencies = {"the": 90, "rain": 5, "in": 40, "spain": 2}
    assert select_terms(frequencies, maximum=50) == ["spain", "rain", "in"]
    assert select_terms(frequencies, maximum=1) == ["spain", "rain", "in"]
    assert select_terms(frequencies, maximum=1000) == ["spain", "rain", "in", "the"]
    # Those that nothing has take no common term's place.
    frequencies = {"qux": 0, "quux": 0, "corge": 0, "the": 90}
    assert select_terms(frequencies, maximum=50) == ["the"]
    assert select_terms(frequencies, maximum=50, minimum=0) == []


def test_what_no_chunk_has_is_counted_wherever_it_is_in_the_question() -> None:
    frequencies = {"alpha": 5, "beta": 0, "gamma": 0}
    orders = [analyze_query(question) for question in ("alpha beta gamma", "beta gamma alpha", "gamma alpha beta")]
    assert [set(each.terms) for each in orders] == [frequencies.keys()] * 3
    best = [query_weights(UnderstoodQuery(each), frequencies, 10).best for each in orders]
    known = query_weights(UnderstoodQuery(analyze_query("alpha")), frequencies, 10).best
    # Two unknown words count half each, and are rarer than a known one.
    assert best == pytest.approx([best[0]] * 3)
    assert best[0] == pytest.approx(known / (1 - 0.624), rel=0.01)


def test_chunks_are_chosen_by_the_words_they_have_and_a_synonym_counts_once() -> None:
    query = understand("ホテル代")
    keys = term_keys(query)
    frequencies = dict.fromkeys(keys, 2)
    chunks = {"ホテ": [1, 2], "テル": [1, 2], "ル代": [1], "宿泊": [3, 4], "泊費": [3], "領収": [5]}
    postings = {key: np.array(chunks.get(term, []), np.int64) for term, key in keys.items()}
    found, sums = select_chunks(query_weights(query, frequencies, 10), postings)
    assert found.tolist() == [1, 3, 2]
    assert sums[0] > sums[1] > sums[2] > 0


def shares(query: str, *texts: str, chunks: int = 2) -> list[float]:
    """What each of some texts covers of a question, in a base of these texts."""
    analysis = analyze_query(query)
    indexed = [index_chunk("", (), text) for text in texts]
    frequencies = Counter(term for chunk in indexed for term in set(chunk.terms.split()))
    weights = query_weights(UnderstoodQuery(analysis), frequencies, chunks)
    profiles = [Profile(at, one.length, one.hashes, one.counts, at) for at, one in enumerate(indexed)]
    counts = term_counts(weights, profiles)
    return bm25_shares(weights, profiles, counts, sum(one.length for one in indexed) / len(indexed)).tolist()


def test_a_chunk_covers_between_nothing_and_all_of_a_question() -> None:
    nothing, some, more = shares("rain in spain", "snow", "rain on the sea", "rain in spain " * 200)
    assert nothing == 0
    assert 0 < some < more <= 1
    assert more > 0.95


def test_rare_words_count_more_than_common_ones() -> None:
    rare, common, *_ = shares("rain falls", "rain", *(["falls"] * 50), chunks=51)
    assert rare > common


def test_a_word_the_question_repeats_counts_more() -> None:
    first, second = shares("rain rain rain snow", "rain", "snow")
    assert first > second


def test_kanji_are_counted_where_no_pair_fits() -> None:
    related, unrelated = shares("税金", "金と税", "犬と猫")
    assert related > unrelated == 0


def test_a_kanji_that_is_a_word_finds_the_words_it_is_part_of() -> None:
    noun, other = shares("紙に刷る", "印刷と用紙", "紙に書く紙")
    assert noun > 1.2 * other
    # In 印刷 it is only part of a word, so a passage on 刷新 has little of that.
    assert shares("紙に刷る", "刷新")[0] > 1.5 * shares("印刷の紙", "刷新")[0]


def test_a_tiny_base_does_not_make_the_words_it_has_look_worthless() -> None:
    found, *_ = shares("リモートワーク手当の金額", "リモートワーク手当は月額5,000円です。", chunks=1)
    assert found > 0.3


def test_profiles_without_any_question_or_candidate_cause_no_error() -> None:
    assert shares("???", "rain") == [0.0]
    weights = query_weights(UnderstoodQuery(analyze_query("rain")), {"rain": 1}, 1)
    counts = term_counts(weights, [])
    assert bm25_shares(weights, [], counts, 1.0).size == word_shares(weights, counts).size == 0


def test_the_score_grows_with_each_figure_and_stays_a_share() -> None:
    weak = PassageFigures(share=0.1, size=7.0)
    weak = replace(weak, rivals=3)
    better = (replace(weak, share=0.3), replace(weak, rivals=2))
    assert all(0 < probability(weak) < probability(each) < 1 for each in better)
    assert probability(replace(weak, deviation=5.0)) > probability(replace(weak, deviation=1.0, behind=2.0))
    assert probability(replace(weak, deviation=1e9)) <= 1


def test_a_large_base_has_words_by_chance() -> None:
    small = PassageFigures(share=0.4, size=math.log(50))
    assert probability(small) > probability(replace(small, size=math.log(5000)))


def test_rivals_are_stretches_of_documents_with_as_much() -> None:
    chunks = ((1, 1), (2, 1), (40, 1), (60, 2), (61, 3))
    profiles = [Profile(chunk, 1, b"", b"", document) for chunk, document in chunks]
    # The neighbour of the first is no rival, the third is far away in the same document, the fourth has nearly as much.
    assert rivals(np.array([0.5, 0.5, 0.5, 0.45, 0.1]), profiles) == pytest.approx(1 + 1 + 0.9**8, abs=1e-3)
    assert rivals(np.array([0.5, 0.4, 0.1, 0.1, 0.1]), profiles) == pytest.approx(1, abs=1e-3)
    assert rivals(np.zeros(5), profiles) == 0
    assert rivals(np.zeros(0), []) == 0


def test_vectors_lead_where_the_words_of_their_model_weigh_little() -> None:
    by_words, deviations = np.array([0.8, 0.2]), np.array([1.0, 4.0])
    assert fused_order(by_words, None, 2.0).argmax() == 0
    assert fused_order(by_words, deviations, known_model("bge-m3").words).argmax() == 1
    assert fused_order(by_words, np.array([1.0, 1.2]), known_model("multilingual-e5-small@1f").words).argmax() == 0
    assert fused_order(np.zeros(2), deviations, 2.0).argmax() == 1


def test_a_passage_of_a_document_on_the_subject_ranks_above_a_passing_mention() -> None:
    query = understand("printer paper")
    texts = ["the printer is grey", "paper is loaded from below", "the printer is grey"]
    indexed = [index_chunk("", (), text) for text in texts]
    frequencies = Counter(term for chunk in indexed for term in set(chunk.terms.split()))
    weights = query_weights(query, frequencies, 3)
    profiles = [Profile(at, c.length, c.hashes, c.counts, at // 2) for at, c in enumerate(indexed)]
    first, _, alone = bm25_shares(weights, profiles, term_counts(weights, profiles), 4.0).tolist()
    assert first > alone


def test_a_follow_up_gains_by_its_words_in_headings_and_by_the_place_of_the_question_before() -> None:
    texts = ["invoice number", "invoice pages", "pages of a letter", "letter"]
    headings = ["printing", "printing", "printing", "writing"]
    indexed = [index_chunk("", (), text) for text in texts]
    profiles = [Profile(16 * (at % 2), c.length, c.hashes, c.counts, at // 2) for at, c in enumerate(indexed)]
    titles = [index_chunk(heading, (), "") for heading in headings]
    heading_profiles = [Profile(at, c.length, c.hashes, c.counts) for at, c in enumerate(titles)]
    question, previous = (
        query_weights(understand(text), dict.fromkeys(analyze_query(text).terms, 1), 4)
        for text in ("printing", "invoice number")
    )
    of_previous = bm25_shares(previous, profiles, term_counts(previous, profiles), 2.0)
    in_place = place_gains(of_previous, profiles)
    assert in_place.argmax() == 0
    assert in_place.max() == pytest.approx(PLACE_GAIN)
    # The first one has all words of the question before, the second one a part of them, the others none.
    whole, part, heading_alone, nothing = heading_gains(question, of_previous, heading_profiles).tolist()
    assert whole > 1.5 * part > 0
    assert heading_alone == nothing == 0
    assert not heading_gains(question, of_previous, heading_profiles[3:] * 4).any()


def test_a_word_counts_as_a_whole_with_an_alternative_and_in_part_by_its_bigrams() -> None:
    query = understand("ホテル代の上限")
    texts = ["ホテル代の上限", "宿泊費の上限", "上限", "ホテルの上限", "天気"]
    indexed = [index_chunk("", (), text) for text in texts]
    frequencies = Counter(term for chunk in indexed for term in set(chunk.terms.split()))
    weights = query_weights(query, Counter({term: frequencies[term] for term in term_keys(query)}), 50)
    profiles = [Profile(at, one.length, one.hashes, one.counts, at) for at, one in enumerate(indexed)]
    whole, synonym, half, most, nothing = word_shares(weights, term_counts(weights, profiles)).tolist()
    assert whole == pytest.approx(1.0)
    assert synonym > most > half > nothing == 0.0
    assert word_shares(query_weights(understand("???"), {}, 1), term_counts(weights, profiles)).tolist() == [1.0] * 5
    more = PassageFigures(share=0.4, size=7.0, words=1.0, terms=9)
    assert probability(more) > probability(replace(more, words=0.5))
    # A share of many terms is more than the same one of few.
    assert probability(more) > probability(replace(more, terms=2))


def stored(key: int, embedder: str) -> StoredBase:
    base = KnowledgeBase(str(key), f"base {key}", "", "", embedder, "")
    return StoredBase(key, base, analyzer=1, chunks=1, terms=1, embedding=key, next_embedding=None)


def test_many_bases_are_distinguished_by_the_directions_of_their_documents() -> None:
    bases = [stored(key, "model" if key else "") for key in range(4)]
    directions = {1: [1.0, 0.0], 2: [0.0, 1.0], 3: [0.6, 0.8]}
    summaries = {key: np.array(direction, np.float32) for key, direction in directions.items()}
    queries = {"model": np.array([0.0, 1.0], np.float32)}
    assert [base.key for base in select_bases(bases, summaries, queries, maximum=2)] == [0, 2, 3]
    assert select_bases(bases, {}, queries, maximum=2) == bases
