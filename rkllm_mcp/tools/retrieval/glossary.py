"""Synonyms in English and Japanese, read from ``glossary.txt``.

A meaning is named by its first English word. English words and phrases are matched by stems; Japanese entries as
substrings, longest first, because nothing marks the end of a Japanese word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rkllm_mcp.tools.retrieval.stems import folded, latin_words, stem

_FILE = Path(__file__).with_name("glossary.txt")
_LONGEST_PHRASE = 3


class Glossary:
    """Meanings by word."""

    def __init__(self, phrases: Mapping[tuple[str, ...], Sequence[str]], japanese: Mapping[str, Sequence[str]]) -> None:
        self._phrases = phrases
        self._japanese = japanese
        longest_first = sorted(japanese, key=len, reverse=True)
        self._entry = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def meanings_of_words(self, stems: Sequence[str]) -> Iterator[str]:
        """Yield the meanings of English words, given as stems in order; a phrase counts in addition to its words."""
        for start in range(len(stems)):
            for length in range(1, min(_LONGEST_PHRASE, len(stems) - start) + 1):
                yield from self._phrases.get(tuple(stems[start : start + length]), ())

    def meanings_in(self, text: str) -> Iterator[str]:
        """Yield the meanings of Japanese entries in ``text``, which is normalised and in lower case."""
        if self._entry is not None:
            for match in self._entry.finditer(text):
                yield from self._japanese[match.group()]


def own_glossary() -> Glossary:
    """Return the project's glossary, read from its file."""
    phrases: dict[tuple[str, ...], list[str]] = {}
    japanese: dict[str, list[str]] = {}
    text = _FILE.read_text("utf-8")
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        english, other = ([entry.strip() for entry in part.split(",")] for part in line.split("|"))
        meaning = "_".join(_stems(english[0]))
        for entry in (*english, *other):
            if entry.isascii():
                phrases.setdefault(tuple(_stems(entry)), []).append(meaning)
            else:
                japanese.setdefault(folded(entry), []).append(meaning)
    return Glossary(phrases, japanese)


def _stems(phrase: str) -> list[str]:
    return [stem(word) for word in latin_words(folded(phrase))]
