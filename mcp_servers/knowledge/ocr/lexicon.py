"""Characters and words: dashes and katakana runs in a text, and the lexicon of katakana words.

A run is katakana with single dashes inside or after it. Two dashes in a row are a drawn line and end a run. Runs use
full-width composed letters; ``KatakanaRun.places`` maps them back to the text.

The lexicon also estimates how likely letters follow each other: interpolated trigrams (Witten and Bell, "The
Zero-Frequency Problem", 1991). Costs are negative natural logarithms of probabilities.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

LONG, HALF_LONG = "ー", "ｰ"
# The kanji for "one": in katakana it looks like ー, and the other way round.
ONE = "一"
# Hyphen-minus, Armenian and Mongolian hyphen, U+2010 to U+2015, hyphen bullet, minus signs (superscript, subscript,
# mathematical, heavy), modifier letter, technical and box-drawing lines, a kanji stroke, a hangul vowel, small and
# full-width forms.
_DASHES = (
    "-\u058a\u1806\u02d7\u2010-\u2015\u2043\u207b\u208b\u2212\u23af"
    "\u2500\u2501\u2574\u2576\u2796\u31d0\u3161\ufe58\ufe63\uff0d"
)
# Without the counters ヵ and ヶ: 一ヶ月.
_LETTERS = "ァ-ヴヷ-ヺーヽヾ\u31f0-\u31ffｦ-ﾝｰ"
# Voicing marks also follow hiragana, which is not part of a run.
_VOICING = "\u3099-\u309cﾞﾟ"
_KATAKANA = f"[{_LETTERS}][{_LETTERS}{_VOICING}]*"
# A single dash, or 一 that does not count (not 一カ月).
_OPEN = rf"(?:[{_DASHES}](?![{_DASHES}{_VOICING}])|{ONE}(?![カケ][月国所年条村店社件]|[{_DASHES}{ONE}{_VOICING}]))"
_RUN = re.compile(
    rf"(?<![{_LETTERS}])(?<![{_LETTERS}][{_VOICING}]){_KATAKANA}{_OPEN}(?:{_KATAKANA}{_OPEN})*(?:{_KATAKANA})?"
)
# Longer runs are not words; scored in parts, because time grows faster than length.
_MAX_RUN = 100
_IS_DASH = re.compile(f"[{_DASHES}]")
_SPACING_VOICE = str.maketrans("\u309b\u309c\uff9e\uff9f", "\u3099\u309a\u3099\u309a")
_VOICE = "\u3099\u309a"

# First letters of particles, する, です, とか and similar after a noun; others begin a new word.
_FOLLOWERS = frozenset("のをにがはでともやへかまよだなしすさせずばこぐくほっじちらねけみた")

# Single kanji that are suffixes of the word before them and never follow a hyphen. Counters of money or people are not
# included (ドル-円).
_SUFFIXES = frozenset(
    "社者氏家化的性系型式風製用法論学語族州市県島川山湖海駅港線号機車船店館院所場室部課局庁党派軍会杯賞祭費料代"
    "額率数量度値比差別側内外上下前後時期帯層圏域版剤酸菌症病炎類属科目色味状形品板管器計炉弁体様君達等"
)

Follower = Literal["katakana", "suffix", "word", "letter", "digit", "other"]


@dataclass(frozen=True)
class KatakanaRun:
    """A katakana run with open positions: marks that may be misread ー."""

    letters: str  # full-width katakana with ー at the open positions
    marks: dict[int, str]  # original character of each open position, by index in ``letters``
    after: Follower  # class of the following text; a suffix is a single kanji that is not a word
    places: tuple[int, ...]  # index of each letter in the text


def katakana_runs(text: str) -> Iterator[KatakanaRun]:
    """Yield the runs of ``text`` that have an open position."""
    for match in _RUN.finditer(text):
        letters, places = _composed(match.group(), match.start())
        for start in range(0, len(letters), _MAX_RUN):
            end = min(start + _MAX_RUN, len(letters))
            after = _kind(text[match.end() : match.end() + 2]) if end == len(letters) else "katakana"
            yield _run(letters[start:end], after, tuple(places[start:end]))


def _run(letters: Sequence[str], after: Follower, places: tuple[int, ...]) -> KatakanaRun:
    marks = {at: letter for at, letter in enumerate(letters) if is_mark(letter)}
    return KatakanaRun(
        "".join(LONG if at in marks else letter for at, letter in enumerate(letters)), marks, after, places
    )


def is_mark(letter: str) -> bool:
    """True for dashes and the kanji 一."""
    return letter == ONE or is_dash(letter)


def is_dash(letter: str) -> bool:
    """True for dashes."""
    return _IS_DASH.match(letter) is not None


def long_mark(before: str) -> str:
    """Return ー in the width of the preceding character."""
    return HALF_LONG if "ｦ" <= before <= "ﾟ" else LONG


def _composed(text: str, start: int) -> tuple[list[str], list[int]]:
    """Return the letters in full width, composed with voicing marks, and their indices."""
    letters: list[str] = []
    places: list[int] = []
    for offset, character in enumerate(text):
        plain = character.translate(_SPACING_VOICE)
        voiced = unicodedata.normalize("NFC", letters[-1] + plain) if plain in _VOICE and letters else ""
        if len(voiced) == 1:
            letters[-1] = voiced
            continue
        letters.append(plain if is_mark(plain) else unicodedata.normalize("NFKC", plain))
        places.append(start + offset)
    return letters, places


def _kind(text: str) -> Follower:
    """Classify the text after a run by its first two characters."""
    if not text:
        return "other"
    character = text[0]
    if _is_kanji(character):
        return "suffix" if character in _SUFFIXES and not _is_kanji(text[1:]) else "word"
    is_hiragana = "ぁ" <= character <= "ゖ"
    if is_hiragana and character not in _FOLLOWERS:
        return "word"
    category = unicodedata.category(character)
    if category.startswith("N"):
        return "digit"
    return "letter" if category.startswith("L") and not is_hiragana else "other"


def _is_kanji(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or character in tuple("々〆ヵヶ")


_FILES = tuple(Path(__file__).with_name(name) for name in ("katakana.txt", "recent.txt"))
_MIN_WORD = 2
# Number of katakana: the uniform distribution for unseen letters.
_ALPHABET_SIZE = 90
# Padding before the first letter and after the last.
BEFORE_WORD, WORD_END = "^^", "$"


class Lexicon:
    """A set of words and the letter statistics of these words."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        self._longest = max(map(len, self._words), default=0)
        lines = [f"{BEFORE_WORD}{word}{WORD_END}" for word in sorted(self._words)]
        # Counts after contexts of zero, one and two letters.
        self._follows = [
            Counter([line[at - length : at + 1] for line in lines for at in range(len(BEFORE_WORD), len(line))])
            for length in range(len(BEFORE_WORD) + 1)
        ]
        self._seen: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        for counts in self._follows:
            for letters, count in counts.items():
                self._seen[letters[:-1]] += count
                self._kinds[letters[:-1]] += 1
        self._costs: dict[str, float] = {}

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def words_at(self, letters: str, start: int) -> Iterator[int]:
        """Yield the ends of words that begin at ``start``."""
        for end in range(start + _MIN_WORD, min(len(letters), start + self._longest) + 1):
            if letters[start:end] in self._words:
                yield end

    def letter_cost(self, before: str, letter: str) -> float:
        """Return the cost of a letter after the two before it; ``^`` pads the start, ``$`` is the end."""
        key = before + letter
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = -math.log(self._probability(before, letter))
        return cost

    def _probability(self, before: str, letter: str) -> float:
        shorter = self._probability(before[1:], letter) if before else 1 / _ALPHABET_SIZE
        seen, kinds = self._seen[before], self._kinds[before]
        return (self._follows[len(before)][before + letter] + kinds * shorter) / (seen + kinds) if seen else shorter


def bundled_words() -> frozenset[str]:
    """Return the words of katakana.txt and recent.txt."""
    lines = [line for file in _FILES for line in file.read_text("utf-8").splitlines()]
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@lru_cache(maxsize=1)
def default_lexicon() -> Lexicon:
    """Return the lexicon of the bundled words, loaded once."""
    return Lexicon(bundled_words())
