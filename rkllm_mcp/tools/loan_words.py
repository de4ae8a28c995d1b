"""Match katakana with the English words that they spell, by sound: コミット and ``commit`` are both ``komit``.

Both are written with the few consonants that Japanese tells apart (``l`` is ``r``, ``v`` is ``b``, all sibilants are
``s``), the English letters by the usual rules of their pronunciation. Words with the same consonants are candidates;
their vowels decide. A compound is divided into known words: セルフホストランナー is ``self``, ``host`` and ``runner``.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache, lru_cache
from pathlib import Path

from rkllm_base.ranges import KATAKANA

_RULES = Path(__file__).with_name("spelling.txt")
# Two sounds of ``ch`` and of ``g`` before e, i and y: "branch" and "archive", "merge" and "gist".
_SOUNDS = (("t", "s"), ("k", "g"))
_KATAKANA = re.compile(f"[{KATAKANA}]+")
_CONSONANTS = str.maketrans({"z": "s", "v": "b"})
# Vowels that Japanese adds after a consonant: "u", and "o" after t and d.
_ADDED = re.compile(r"(?<=[^aiueo])u|(?<=[td])o")
# Least similarity of the sounds; of words with two consonants more, because many share them.
_SIMILAR, _SIMILAR_SHORT = 0.6, 0.7
# Syllables of the longest word and of the longest compound, and the part of a compound that known words must cover.
_LONGEST, _LONGEST_COMPOUND = 12, 30
_COVERED = 0.7


@cache
def _rules() -> list[tuple[re.Pattern[str], str]]:
    """Return the rules of English spelling, read from their file at the first use."""
    lines = _RULES.read_text("utf-8").splitlines()
    rules = (line.split() for line in lines if not line.startswith("#"))
    return [(re.compile(pattern), sound.strip("_")) for pattern, sound in rules]


@lru_cache(maxsize=8192)
def sounds_of(word: str) -> tuple[str, ...]:
    """Return the sounds that a Latin word in lower case may have."""
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for pattern, sound in _rules():
        word = pattern.sub(sound, word)
    return tuple(dict.fromkeys(word.replace("C", ch).replace("G", g) for ch, g in _SOUNDS))


def syllables(katakana: str) -> list[str]:
    """Return the sound of each syllable; a long vowel and a doubled consonant are not sounds of their own."""
    sounds: list[str] = []
    for character in katakana:
        name = unicodedata.name(character, "").split()
        sound = name[-1].lower() if name[:2] == ["KATAKANA", "LETTER"] else ""
        if "SMALL" in name:
            if sounds and sound in ("a", "i", "u", "e", "o", "ya", "yu", "yo"):
                # ファ is "ha", ティ "ti", ジョ "zo"; ウェ is "we".
                before = "w" if sounds[-1] == "u" else sounds[-1][:-1]
                sounds[-1] = before + sound.removeprefix("y")
        elif sound == "n" or not sound:
            sounds += [sound] if sound else []
        elif sounds and sounds[-1] == "n" and sound[0] == "n":
            sounds[-1] = sound
        else:
            sounds.append(sound)
    return [sound.translate(_CONSONANTS) for sound in sounds]


def _bones(sound: str) -> str:
    """Return the consonants, with ``a`` for any vowel at the beginning."""
    consonants = "".join(letter for letter in sound if letter not in "aiueoy")
    return f"a{consonants}" if sound[:1] in ("a", "i", "u", "e", "o", "y") else consonants


class LoanWords:
    """Words of texts by their sounds.

    Args:
        words: Latin words and runs of katakana in lower case.
    """

    def __init__(self, words: Iterable[str]) -> None:
        # By consonants the words and their sounds.
        self._latin: dict[str, dict[str, str]] = {}
        self._katakana: dict[str, dict[str, str]] = {}
        self._counts = Counter(words)
        for word in self._counts:
            if _KATAKANA.fullmatch(word):
                sound = "".join(syllables(word))
                self._katakana.setdefault(_bones(sound), {})[word] = sound
            elif word.isascii() and word.isalpha() and len(word) > 2:
                for sound in sounds_of(word):
                    self._latin.setdefault(_bones(sound), {})[word] = sound

    def english_in(self, katakana: str) -> list[str]:
        """Return the Latin words that a run of katakana spells, in order; empty if it is something else."""
        heard = syllables(katakana[:_LONGEST_COMPOUND])
        # Per position: similarity of the words from there on, their syllables, the words.
        best: list[tuple[float, int, list[str]]] = [(0.0, 0, [])] * (len(heard) + 1)
        for start in range(len(heard) - 1, -1, -1):
            best[start] = best[start + 1]
            for end in range(start + 2, min(start + _LONGEST, len(heard)) + 1):
                word, similarity = self._nearest("".join(heard[start:end]), self._latin)
                gain, covered, words = best[end]
                length = end - start
                # A long word counts for more than the short ones in it.
                if word and (total := gain + similarity * length - 1.0) > best[start][0]:
                    best[start] = (total, covered + length, [word, *words])
        _, covered, words = best[0]
        return words if heard and covered >= _COVERED * len(heard) else []

    def katakana_of(self, words: list[str]) -> Iterator[str]:
        """Yield the runs of katakana that spell one of the words, or some that are next to each other."""
        if not self._katakana:
            return
        for start in range(len(words)):
            for end in range(start + 1, min(start + 3, len(words)) + 1):
                for sound in sounds_of("".join(words[start:end])):
                    word, _ = self._nearest(sound, self._katakana)
                    if word:
                        yield word

    def _nearest(self, sound: str, words: dict[str, dict[str, str]]) -> tuple[str, float]:
        """Return the word with the same consonants whose vowels are the most similar, with the similarity."""
        bones = _bones(sound)
        candidates = words.get(bones, {}) if len(bones) > 1 else {}
        forms = (sound, _ADDED.sub("", sound))
        rated: list[tuple[float, int, str]] = []
        for word, heard in candidates.items():
            likeness = max(SequenceMatcher(None, form, heard).ratio() for form in forms)
            # Of words that sound alike, the one that tools use more.
            rated.append((likeness, self._counts[word], word))
        similarity, _, word = max(rated, default=(0.0, 0, ""))
        return (word, similarity) if similarity >= (_SIMILAR if len(bones) > 2 else _SIMILAR_SHORT) else ("", 0.0)
