"""Numbers as words -> digits: 二千三百, 100万, twenty five, three hundred."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_KANJI: Mapping[str, int] = {digit: value for value, digit in enumerate("〇一二三四五六七八九")}
_KANJI_TENS: Mapping[str, int] = {"十": 10, "百": 100, "千": 1000}
_MYRIADS: Mapping[str, int] = {"万": 10**4, "億": 10**8, "兆": 10**12}
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ENGLISH: Mapping[str, int] = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: 10 * value for value, word in enumerate(_TENS, 2)},
    "dozen": 12,
}
_ENGLISH_TENS: Mapping[str, int] = {"hundred": 100, "thousand": 1000, "million": 10**6}
_KANJI_NUMBER = re.compile(r"(?:\d+(?:\.\d+)?|[〇一二三四五六七八九十百千])[〇一二三四五六七八九十百千万億兆\d]*")
_WORD = "|".join((*_ENGLISH, *_ENGLISH_TENS))
_ENGLISH_NUMBER = re.compile(rf"\b(?:{_WORD})(?:(?:[ -]| and )(?:{_WORD}))*\b", re.IGNORECASE)
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def with_digits(text: str) -> str:
    """Return a text with its numbers in digits, of normal width and without separators of thousands."""
    plain = _GROUPED.sub(lambda match: match[0].replace(",", ""), unicodedata.normalize("NFKC", text))
    plain = _KANJI_NUMBER.sub(lambda match: _of_kanji(match[0]), plain)
    return _ENGLISH_NUMBER.sub(lambda match: str(_of_english(match[0])), plain)


def _of_kanji(number: str) -> str:
    """Return 3万5千 as 35000; a number without kanji as it is."""
    if re.fullmatch(r"[\d.]+", number):
        return number
    total, section, digits = 0, 0.0, ""
    for char in number:
        if char in _MYRIADS:
            total += round((section + (float(digits) if digits else 0 if section else 1)) * _MYRIADS[char])
            section, digits = 0.0, ""
        elif char in _KANJI_TENS:
            section += (float(digits) if digits else 1) * _KANJI_TENS[char]
            digits = ""
        else:
            digits += str(_KANJI.get(char, char))
    return str(total + round(section) + round(float(digits or 0)))


def _of_english(number: str) -> int:
    total, section = 0, 0
    for word in re.findall(r"[a-z]+", number.lower()):
        if word in _ENGLISH:
            section = section * _ENGLISH[word] if word == "dozen" and section else section + _ENGLISH[word]
        elif word == "hundred":
            section = (section or 1) * _ENGLISH_TENS[word]
        elif word in _ENGLISH_TENS:
            total, section = total + (section or 1) * _ENGLISH_TENS[word], 0
    return total + section
