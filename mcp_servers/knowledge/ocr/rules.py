"""Rules for open positions: a single dash, or 一, after katakana, which may be a misread long vowel mark.

A position is its own mark only if something says so: it follows ン or ッ, is between two listed words
(バス-トイレ), before a letter or digit (タイプ-C), or counts (データ一覧). All others are ー. Where the text has a
listed word with another letter in that place, that letter is taken: キャリ- and キャリア.

Two dashes in a row are a drawn line. Katakana is compared in full-width composed letters. Corrected
text stays unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

LONG, HALF_LONG = "ー", "ｰ"
# The kanji for "one": in katakana it looks like ー, and the other way round.
ONE = "一"
# PDFs often have the radical instead.
_RADICAL_ONE = "⼀"
# Hyphens, minus signs, lines and letters that are drawn as one stroke, in all widths.
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
_COUNTED = rf"[カケ][月国所年条村店社件]|[{_DASHES}{_VOICING}]|{ONE}(?:{ONE}|(?![\u3400-\u9fff]))"
_OPEN = rf"(?:[{_DASHES}](?![{_DASHES}{_VOICING}])|[{ONE}{_RADICAL_ONE}](?!{_COUNTED}))"
_RUN = re.compile(
    rf"(?<![{_LETTERS}])(?<![{_LETTERS}][{_VOICING}]){_KATAKANA}{_OPEN}(?:{_KATAKANA}{_OPEN})*(?:{_KATAKANA})?"
)
_IS_MARK = re.compile(f"[{_DASHES}{ONE}{_RADICAL_ONE}]")
# In katakana of full width it is misread as well.
_NARROW_LONG = re.compile(f"[ァ-ヺー][\u3099\u309a]*(?P<marks>{HALF_LONG}+)")
_SPACING_VOICE = str.maketrans(f"\u309b\u309c\uff9e\uff9f{_RADICAL_ONE}", f"\u3099\u309a\u3099\u309a{ONE}")
_VOICE = "\u3099\u309a"
_KANJI = re.compile("[\u3400-\u9fff々〆ヵヶ]")
# Kanji that are suffixes of the word before them. Counters of money or people are not included (ドル-円).
_SUFFIX = re.compile(
    "[社者氏家化的性系型式風製用法論学語族州市県島川山湖海駅港線号機車船店館院所場室部課局党派軍会杯賞祭費料代額率数"
    "量値比差別側内外上下前後時期帯層域版剤酸病類科目色味状形品板器計炉弁体様君等](?![\u3400-\u9fff々])"
)
# Hiragana that begin another word after a noun, not a particle, する or です.
_NEXT_WORD = re.compile("[あいうえおきけそつひふむめゆよりるれろわん]")
# A letter or digit: before it a hyphen is as likely as ー.
LABEL = re.compile(r"[^\W_\u3041-\u30ff\u3400-\u9fff々〆]")
_NEVER_LONG = frozenset("ンッーヽヾ")
_KANA = [chr(code) for code in range(0x30A1, 0x30FB)]
# Shorter words are in others by chance; longer ones are compounds.
_PART, _COVERING, _LONGEST = 3, 4, 12


class Decision(NamedTuple):
    """An open position and the character that belongs there."""

    position: int  # index in the text
    character: str  # ー in the width of its neighbour, the mark itself, or another letter of the text
    is_sure: bool  # False: two readings are words, so a model should decide


def is_mark(letter: str) -> bool:
    """True for dashes and the kanji 一."""
    return _IS_MARK.match(letter) is not None


def long_mark(before: str) -> str:
    """Return ー in the width of the preceding character."""
    return HALF_LONG if "ｦ" <= before <= "ﾟ" else LONG


@lru_cache(maxsize=1)
def listed_words() -> frozenset[str]:
    """Return the bundled katakana words."""
    files = (Path(__file__).with_name(name) for name in ("katakana.txt", "recent.txt"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def replace_characters(text: str, changes: Mapping[int, str]) -> str:
    """Return ``text`` with the characters at some positions replaced."""
    characters = list(text)
    for position, character in changes.items():
        characters[position] = character
    return "".join(characters)


def correct_long_marks(text: str) -> str:
    """Return ``text`` with misread long vowel marks corrected by the rules."""
    return replace_characters(text, {decision.position: decision.character for decision in decisions(text)})


def decisions(text: str) -> list[Decision]:
    """Return a decision for every open position of ``text``, in order."""
    narrow = (run.span("marks") for run in _NARROW_LONG.finditer(text))
    decided = [Decision(at, LONG, is_sure=True) for start, end in narrow for at in range(start, end)]
    for run in _RUN.finditer(text):
        # The letters in full width, composed with voicing marks, and their indices.
        letters, positions = list[str](), list[int]()
        for offset, written in enumerate(run.group(), run.start()):
            plain = written.translate(_SPACING_VOICE)
            voiced = unicodedata.normalize("NFC", letters[-1] + plain) if plain in _VOICE and letters else ""
            if len(voiced) == 1:
                letters[-1] = voiced
            else:
                letters.append(plain if is_mark(plain) else unicodedata.normalize("NFKC", plain))
                positions.append(offset)
        position = _Run(letters, text[run.end() : run.end() + 2], listed_words(), text)
        is_misread = False
        for at, index in enumerate(positions):
            if is_mark(letters[at]):
                letter, is_sure = position.decide(at, is_misread=is_misread)
                is_misread = is_misread or bool(letter)
                letters[at] = letter or letters[at]
                character = long_mark(text[index - 1]) if letter == LONG else letter or text[index]
                decided.append(Decision(index, character, is_sure))
    # A ｰ after a ー that is a decision itself is one, too.
    decided_at = {mark.position for mark in decided}
    for decision in tuple(decided):
        at = decision.position + 1
        while decision.character == LONG and text[at : at + 1] == HALF_LONG and at not in decided_at:
            decided_at.add(at)
            decided.append(Decision(at, LONG, is_sure=True))
            at += 1
    return sorted(decided)


class _Run(NamedTuple):
    """Katakana with open positions, which are decided from left to right."""

    letters: list[str]
    following: str  # the next two characters
    listed: frozenset[str]
    text: str

    def decide(self, at: int, *, is_misread: bool) -> tuple[str, bool]:
        """Return the letter of a position, empty for the mark itself, and True if that is certain.

        ``is_misread`` says that an earlier mark of the run was misread: メ-カ-2社, ユ一ザ一の.
        """
        before = _IS_MARK.split("".join(self.letters[max(at - _LONGEST, 0) : at]))[-1]
        if before[-1:] in _NEVER_LONG:
            return "", True
        if at + 1 < len(self.letters):
            right = [LONG if is_mark(letter) else letter for letter in self.letters[at + 1 : at + _LONGEST]]
            return self._inside(before, "".join(right)), True
        is_word, is_long_word = self._ends_in_word(before, _PART), self._ends_in_word(before + LONG, _COVERING)
        if LABEL.match(self.following):
            is_both = is_word and is_long_word
            is_number = is_both and self.following[0].isdecimal() and not is_misread
            return "" if is_number or not is_long_word else LONG, not is_both
        is_kanji_word = _KANJI.match(self.following) and not _SUFFIX.match(self.following)
        if self.letters[at] == ONE and self.following[:1] == ONE:
            # カレ一一皿: one of the two is the number.
            return LONG if is_long_word else "", True
        if self.letters[at] == ONE:
            is_number = is_kanji_word or not is_long_word or (is_word and not is_misread)
            return "" if is_number else LONG, True
        if is_long_word:
            return LONG, True
        is_next_word = is_kanji_word or _NEXT_WORD.match(self.following)
        if is_word and is_next_word:
            return "", True
        # The letter of a word of the text with the same stem, or ー, unsure if such words exist.
        stems = [before[start:] for start in range(len(before) - _PART + 1)]
        words = [stem + letter for stem in stems for letter in _KANA if stem + letter in self.listed]
        text = unicodedata.normalize("NFKC", self.text) if words else ""
        letters = {word[-1] for word in words if word in text}
        return (letters.pop(), True) if len(letters) == 1 else (LONG, not words)

    def _inside(self, before: str, right: str) -> str:
        # The letter that makes a listed word of both sides where ー makes none: キャリ-パス is キャリアパス.
        starts = range(max(len(before) - _PART + 1, 0))
        letters = {
            letter
            for stem in (before[start:] for start in starts)
            for letter in _KANA
            if stem + letter in self.listed and f"{stem}{letter}{right}" in self.listed
        }
        is_long = any(f"{before[start:]}{LONG}{right}" in self.listed for start in starts)
        if len(letters) == 1 and not is_long:
            return letters.pop()
        joined = f"{before}{LONG}{right}"
        ends = range(len(before) + 2, len(joined) + 1)
        if any(
            joined[start:end] in self.listed
            for start in range(len(before))
            for end in ends
            if end - start >= _COVERING or end - start == len(joined)
        ):
            return LONG
        is_next_word = right in self.listed or any(right[:end] in self.listed for end in range(_PART, len(right)))
        is_hyphen = (
            is_next_word and self._ends_in_word(before, _PART) and not self._ends_in_word(before + LONG, _COVERING)
        )
        return "" if is_hyphen else LONG

    def _ends_in_word(self, letters: str, shortest: int) -> bool:
        return letters in self.listed or any(letters[at:] in self.listed for at in range(len(letters) - shortest + 1))
