"""Recall: of what a person wants remembered, the rows that a question is about, by words and without a model.

    question ─▶ its own words and their topics ─▶ share of them in each row ─▶ probability ─▶ at most three rows

The weights and the threshold are fitted to the half of ``tests/data/memory`` that is marked ``tune``.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rkllm_base.own_words import own_words
from rkllm_base.ranges import HIRAGANA, KANJI
from rkllm_mcp.records import MemoryRow
from rkllm_mcp.tools.search_terms import stem

MOST_RECALLED = 3
# From this probability on a row is recalled.
LIKELY = 0.5
# A row with less than this part of the best one's odds is about something else.
_OTHERS = 0.25
# What each part of the evidence adds to the logarithm of the odds that a question is about a row.
_COVERED, _MATCHED, _PERSONAL, _NONE = 6.0, 0.8, 1.6, -5.1
_MOST_MATCHED = 3.0
# Weights of a word that is the same, one of the same topic, and one in hiragana, which is mostly grammar.
_TOPIC_WEIGHT, _HIRAGANA_WEIGHT = 0.8, 0.3

_TOPICS = Path(__file__).with_name("topics.txt")
_PERSONAL_WORDS = re.compile(
    r"\b(?:i|i'm|i've|my|mine|me|we|we're|our|ours|us)\b|私|わたし|僕|ぼく|俺|うち|我が家|わが家|自分|いつもの|だっけ|っけ",
    re.IGNORECASE,
)
_LATIN = re.compile(r"[a-z0-9\u00c0-\u024f]+")
_HIRAGANA_ONLY = re.compile(f"[{HIRAGANA}]+\\Z")
_KANJI_RUN = re.compile(f"[{KANJI}]{{3,}}\\Z")


@cache
def _topics() -> tuple[Mapping[str, frozenset[int]], Sequence[tuple[str, int]]]:
    """Return the topics of English stems, and the Japanese words with theirs, the longest first."""
    english: dict[str, set[int]] = {}
    japanese: list[tuple[str, int]] = []
    lines = [line for line in _TOPICS.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    for number, line in enumerate(lines):
        words, other_words = ([word.strip() for word in part.split(",")] for part in line.split("|"))
        for word in words:
            english.setdefault(stem(word), set()).add(number)
        japanese += [(word, number) for word in other_words]
    return {word: frozenset(topics) for word, topics in english.items()}, sorted(
        japanese, key=lambda entry: -len(entry[0])
    )


def _topics_of(text: str) -> set[int]:
    """Return the topics of a text in lower case."""
    english, japanese = _topics()
    topics = {topic for word in _LATIN.findall(text) for topic in english.get(stem(word), ())}
    return topics | {topic for word, topic in japanese if word in text}


def recalled_rows(question: str, rows: Sequence[MemoryRow]) -> list[MemoryRow]:
    """Return the rows that a question is probably about, at most ``MOST_RECALLED``, the most probable first."""
    plain = unicodedata.normalize("NFKC", question).lower().replace("’", "'")
    words = [word for word in own_words(_PERSONAL_WORDS.sub(" ", plain))[0] if len(word) > 1 or not word.isascii()]
    weights = {word: _HIRAGANA_WEIGHT if _HIRAGANA_ONLY.match(word) and not _topics_of(word) else 1.0 for word in words}
    total = sum(weights.values())
    is_personal = _PERSONAL_WORDS.search(plain) is not None
    rated: list[tuple[float, MemoryRow]] = []
    for row in rows:
        text = unicodedata.normalize("NFKC", row.text).lower()
        stems, topics = {stem(word) for word in _LATIN.findall(text)}, _topics_of(text)
        # How much of the question's words the row has.
        matched = 0.0
        for word, weight in weights.items():
            if word.isascii():
                is_same = stem(word) in stems
            else:
                is_same = word in text
                if not is_same and _KANJI_RUN.match(word):
                    pairs = [word[index : index + 2] for index in range(len(word) - 1)]
                    is_same = sum(pair in text for pair in pairs) * 2 > len(pairs)
            if is_same:
                matched += weight
            elif _topics_of(word) & topics:
                matched += weight * _TOPIC_WEIGHT
        if matched:
            odds = _NONE + _COVERED * matched / total + _MATCHED * min(matched, _MOST_MATCHED) + _PERSONAL * is_personal
            rated.append((1 / (1 + math.exp(-odds)), row))
    rated.sort(key=lambda pair: -pair[0])
    least = max(LIKELY, _OTHERS * rated[0][0]) if rated else LIKELY
    return [row for probability, row in rated[:MOST_RECALLED] if probability >= least]
