"""Text -> terms, by which requests and tools are compared.

* Latin words are split like names (``readTextFile``, ``read_text_file``), lowered and stemmed; stop words are dropped.
* Chinese and Japanese characters become bigrams, because no spaces separate words; each run of katakana or kanji is a
  term as well. In a request, bigrams of hiragana only are grammar and are dropped.
* Each meaning from the glossary is a term (``@delete``), the same in both languages.
* Recognisable formats become words for their type: ``notes.txt`` is a file, ``https://…`` a page.

Requests and tools use the same functions. Reference: the analyzer measured in reference knowledge, 1, without its
dictionary; the glossary is ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA

# A change of case inside a name: readText, HTTPServer.
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LATIN = re.compile(r"[a-z0-9\u00c0-\u024f]+")
_ENDINGS = ("ing", "ed")
_SHORTEST_STEM = 3


def fold(text: str) -> str:
    """Return ``text`` in lower case and NFKC form, with names split at changes of case."""
    return _CASE.sub(" ", unicodedata.normalize("NFKC", text)).lower()


def stem(word: str) -> str:
    """Return an English word without its ending, so that ``listing``, ``lists`` and ``list`` are equal."""
    if not word.isascii() or not word.isalpha() or len(word) <= _SHORTEST_STEM:
        return word
    if word.endswith(("ies", "ied")):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "ches", "shes", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            word = word[: -len(ending)]
            # committed, planned
            if word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST_STEM else word


# Endings that make another word of the same root: followers, reviewer, membership, contributors, protection.
_DERIVED = ("ation", "ition", "ship", "ment", "ion", "ance", "ence", "er", "or", "ee", "ive")
_SHORTEST_ROOT = 4


def root(word: str) -> str:
    """Return the part of an English word that words derived from it share."""
    shortened = stem(word)
    while ending := next(
        (end for end in _DERIVED if shortened.endswith(end) and len(shortened) - len(end) >= _SHORTEST_ROOT),
        "",
    ):
        shortened = shortened[: -len(ending)]
    return shortened[:-1] if shortened.endswith("e") and len(shortened) > _SHORTEST_ROOT else shortened


_FILE = Path(__file__).with_name("glossary.txt")
_LONGEST_PHRASE = 3


class Glossary:
    """Meanings by word."""

    def __init__(self, phrases: Mapping[tuple[str, ...], Sequence[str]], japanese: Mapping[str, Sequence[str]]) -> None:
        self.phrases = phrases
        self._japanese = japanese
        longest_first = sorted(japanese, key=len, reverse=True)
        self._entry = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def meanings_of_words(self, stems: Sequence[str]) -> Iterator[str]:
        """Yield the meanings of English words, given as stems in order; a phrase counts in addition to its words."""
        for start in range(len(stems)):
            for length in range(1, min(_LONGEST_PHRASE, len(stems) - start) + 1):
                yield from self.phrases.get(tuple(stems[start : start + length]), ())

    def entries_in(self, text: str) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the Japanese entries in ``text``, which is normalised and in lower case, with their meanings."""
        if self._entry is not None:
            for match in self._entry.finditer(text):
                yield match.group(), self._japanese[match.group()]


@cache
def own_glossary() -> Glossary:
    """Return the project's glossary, read from its file at the first use."""
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
                japanese.setdefault(fold(entry), []).append(meaning)
    return Glossary(phrases, japanese)


def _stems(phrase: str) -> list[str]:
    return [stem(word) for word in _LATIN.findall(fold(phrase))]


_CJK = re.compile(f"[{HIRAGANA}{KATAKANA}{KANJI}]+")
_WORDS = re.compile(rf"[a-z0-9\u00c0-\u024f]+|[{KATAKANA}]{{2,}}")
_HIRAGANA = re.compile(rf"[{HIRAGANA}ー]+\Z")
_RUN = re.compile(f"[{KATAKANA}]{{3,}}|[{KANJI}]{{3,}}")
# Formats and their meanings, in words of the glossary; the first match counts. Each begins where the run of its
# characters does, so that a row of dots or dashes is read once.
_SHAPES = tuple(
    (re.compile(pattern, re.IGNORECASE | re.ASCII), words)
    for pattern, words in (
        (r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "email"),
        (
            r"https?://[!-~]+|(?<![\w.-])(?:[\w-]+\.)+(?:com|org|net|jp|io|dev|edu|gov)(?:/[!-~]*)?(?!\w)",
            "url web page",
        ),
        (r"(?<![\w/~.-])[\w/~.-]*\.(?:png|jpe?g|gif|webp|bmp|svg|mp3|wav|ogg|flac|mp4|mov)(?!\w)", "media file"),
        (r"(?<![\w/~.-])[\w/~.-]*\.(?:[a-z][a-z0-9]{1,4}|[chr])(?!\w)", "file"),
        (r"(?<![\w/])[~.]?/[\w.-]+(?:/[\w.-]*)*", "path directory"),
        (r"(?<![\w/.(-])\(*\d[\d.,]{0,30}\)* ?(?:[*×÷^]| [-+/] ) ?\(*\d", "calculate arithmetic expression"),
        (r"\d ?% of\b|の ?\d+(?:\.\d+)? ?%|\dの ?\d+ ?乗", "calculate arithmetic expression"),
        (r"\+\d[\d -]{7,}\d|(?<!\d)0\d{1,3}-\d{2,4}-\d{3,4}(?!\d)", "phone number"),
    )
)
# "show me the issues" is not about the person who asks.
_TO_THE_SPEAKER = re.compile(r"\b(tell|give|show|let|find|get|send|bring|help|remind) (?:me|us)\b", re.IGNORECASE)
_STOP_WORDS = (
    "a about an and another any anything are as at be been but by called can could did do does done everything for "
    "from give had has have here how i if in into is it its just let like may me more most my named no not of on only "
    "or other our out over please so some such than that the their them then there these they this those to tool "
    "tools up us use used using very want was we were what when where which who will with within would you your"
)
_STOP = frozenset(_STOP_WORDS.split())
# The meaning of a stop word or a pronoun says little: "who" may be any person.
_STOP_WEIGHT = 0.6
_PRONOUNS = frozenset({"私", "わたし", "僕", "自分", "誰"})


# Terms of a request, each with other terms that may stand for it and their weights. Those that begin with ``~`` are in
# no tool.
Wanted: TypeAlias = Mapping[str, Sequence[tuple[str, float]]]


def terms_of(text: str, glossary: Glossary) -> list[str]:
    """Return the terms of a tool's ``text``, each as often as it occurs."""
    plain = fold(text)
    latin = [stem(word) for word in _LATIN.findall(plain)]
    meanings = [*glossary.meanings_of_words(latin), *(m for _, several in glossary.entries_in(plain) for m in several)]
    words = [stem(word) for word in _LATIN.findall(plain) if word not in _STOP]
    return [*words, *_japanese_terms(plain), *(f"@{meaning}" for meaning in meanings)]


def wanted_terms(request: str, glossary: Glossary) -> dict[str, list[tuple[str, float]]]:
    """Return the terms of a request.

    The words of a phrase count only together: "logged in" does not look for a log. Bigrams of hiragana are dropped
    unless the request has no other terms.
    """
    # Words for their type replace URLs, file names and telephone numbers.
    request = _TO_THE_SPEAKER.sub(r"\1", request)
    for shape, replacement in _SHAPES:
        request = shape.sub(f" {replacement} ", request)
    plain = fold(request)
    words = _LATIN.findall(plain)
    stems = [stem(word) for word in words]
    terms: dict[str, list[tuple[str, float]]] = {}
    start = 0
    while start < len(words):
        # The longest entry that begins here, else one word.
        length = min(_LONGEST_PHRASE, len(stems) - start)
        while length > 1 and tuple(stems[start : start + length]) not in glossary.phrases:
            length -= 1
        meanings = glossary.phrases.get(tuple(stems[start : start + length]), ())
        is_word = length == 1 and words[start] not in _STOP
        if meanings or is_word:
            key = stems[start] if is_word else f"~{' '.join(stems[start : start + length])}"
            weight = _STOP_WEIGHT if length == 1 and not is_word else 1.0
            terms[key] = [(f"@{meaning}", weight) for meaning in dict.fromkeys(meanings)]
        start += length
    for entry, meanings in glossary.entries_in(plain):
        weight = _STOP_WEIGHT if entry in _PRONOUNS else 1.0
        terms[f"~{entry}"] = [(f"@{meaning}", weight) for meaning in dict.fromkeys(meanings)]
    japanese = _japanese_terms(plain)
    telling = [term for term in japanese if not _HIRAGANA.match(term)]
    terms.update((term, []) for term in (telling or (() if terms else japanese)))
    return terms


def _japanese_terms(plain: str) -> list[str]:
    runs = _CJK.findall(plain)
    pairs = (run[index : index + 2] for run in runs for index in range(max(1, len(run) - 1)))
    return [*pairs, *(long for run in runs for long in _RUN.findall(run))]


def words_of(text: str) -> list[str]:
    """Return the Latin words that are not stop words, and the runs of katakana, in order."""
    return [word for word in _WORDS.findall(fold(text)) if word not in _STOP]
