"""Bytes -> text: Japanese and Western encodings by our own count, others by chardet.

Byte order marks, escape sequences of ISO-2022-JP and zero bytes of UTF-16 decide at once. Valid UTF-8 is UTF-8 except
for a few short cases. Otherwise each candidate decodes the bytes, and the most usual text wins: hiragana and common
kanji are usual, half-width katakana and rare kanji are not. A declared charset (HTML ``meta``, HTTP) is only a bonus,
because it is often wrong.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

# Longer samples do not change the result.
_SAMPLE_BYTES = 32_768

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# ESC $ @, ESC $ B, ESC $ ( D, ESC ( I, ESC ( J: character set switches in mail and on old Unix systems.
_ISO_2022_JP = re.compile(rb"\x1b(?:\$[@B]|\$\([DOPQ]|\([IJ])")

_TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("encodings.json").read_text("utf-8"))
# Several codecs per name: the first one that decodes every byte is used. CP932 has the Windows additions to Shift_JIS
# (①, ㈱, 髙), the second codec those of Macintosh and JIS X 0213.
_CODECS: dict[str, list[str]] = {name: each["codecs"] for name, each in _TABLE["japanese"].items()}
_JAPANESE_NAMES = {declared: name for name, each in _TABLE["japanese"].items() for declared in each["names"]}
# Codecs that pages may declare; Python has others, e.g. for passwords and host names.
_TEXT_CODECS = re.compile(
    r"utf-8|iso8859-\d+|cp\d+|koi8-[rut]|gb\d+|gbk|big5(hkscs)?|euc_\w+|mac-\w+|tis-620|johab|hz|ptcp154|kz1048"
)
# The kanji that make up two thirds of the kanji in an encyclopedia.
_COMMON_KANJI = frozenset(_TABLE["common_kanji"])
# Negative log frequency of characters: (first, last, cost); the first matching row counts.
_COSTS: list[tuple[str, str, float]] = _TABLE["costs"]
_OTHER_COST = 12.0
_COMMON_KANJI_COST = 2.6
# JIS level 1 kanji are ten times as frequent as the others.
_LEVEL_1_KANJI_COST = 5.8
# Text costs two to five per character; above this it is not text.
_MAX_TEXT_COST = 6.5
# Bonus of the declared encoding and of valid UTF-8: less than one rare character.
_DECLARED_BONUS = 4.0
_UTF_8_BONUS = 3.0
# Half-width katakana occur in runs; a single one is a letter like é in another encoding.
_SINGLE_KANA = re.compile("(?<![｡-ﾟ])[｡-ﾟ](?![｡-ﾟ])")
_SINGLE_KANA_COST = 4.0


# With this share of kana among the characters outside ASCII, or usual ones, and few damaged ones, a text is Japanese.
_MIN_KANA, _MAX_JAPANESE_COST, _MAX_DAMAGED = 0.15, 4.8, 0.01
_MIN_FOREIGN_BYTES = 12
# So many bytes form UTF-8 sequences in another encoding only by design.
_MIN_UTF_8_BYTES = 20
# UTF-16 without zero bytes has no letters of ASCII, so it is Japanese with this share of hiragana.
_MIN_HIRAGANA = 0.2
_HIRAGANA, _KANA, _HALF_WIDTH = re.compile("[ぁ-ん]"), re.compile("[ぁ-んァ-ヶ]"), re.compile("[｡-ﾟ]")
_NOT_PRINTED = re.compile(rb"[^\t\n\r\x20-\x7e]")
_NOT_JAPANESE = re.compile("[^\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef\u2010-\u203b]")


@dataclass(frozen=True)
class Decoded:
    """Decoded text."""

    text: str  # without byte order mark, lines end with \n
    encoding: str  # Python's name
    damaged: int = 0  # number of undecodable places, now U+FFFD


def decode(content: bytes, declared: str = "") -> Decoded:
    """Decode any bytes; ``declared`` is the charset named by the document or its sender."""
    encoding = _from_marks(content) or _most_likely(content, _python_name(declared))
    text, encoding = _read(content, encoding)
    return Decoded(text.replace("\r\n", "\n").replace("\r", "\n"), encoding, text.count("\ufffd"))


def is_binary(content: bytes) -> bool:
    """True if the beginning of the bytes is not text in any encoding."""
    sample = content[:_SAMPLE_BYTES]
    if not sample or _from_marks(sample):
        return False
    controls = sum(count for byte, count in Counter(sample).items() if byte < 32 and byte not in b"\t\n\r\f\x1b\x1a")
    return controls > max(2, len(sample) // 50)


def mean_cost(text: str) -> float:
    """Return how unusual the characters of a text are: two to five for text, more for garbage and for none."""
    return sum(map(_character_cost, text)) / len(text) if text else _OTHER_COST


def _from_marks(content: bytes) -> str:
    """Return the encoding that marks determine, or an empty string."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return encoding
    if _ISO_2022_JP.search(content[:_SAMPLE_BYTES]) and max(content[:_SAMPLE_BYTES]) < 0x80:
        return "iso2022_jp"
    sample = content[:_SAMPLE_BYTES]
    # Spaces, digits and line ends have a zero byte in UTF-16; other text has none.
    if b"\0" in sample:
        sample = sample[: len(sample) // 2 * 2]
        wide = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
        cost, encoding = min((_cost(sample, encoding), encoding) for encoding in wide)
        return encoding if cost < len(sample) / 2 * _MAX_TEXT_COST else ""
    if len(content) % 2 == 0 and _NOT_PRINTED.search(sample):
        for encoding in ("utf-16-le", "utf-16-be"):
            text = sample[: len(sample) // 2 * 2].decode(encoding, errors="replace")
            if len(_HIRAGANA.findall(text)) >= len(text) * _MIN_HIRAGANA and not _NOT_JAPANESE.search(text):
                return encoding
    return ""


def _most_likely(content: bytes, declared: str) -> str:
    """Return the encoding that decodes the bytes to the most usual text."""
    if content.isascii():
        return "ascii"
    sample = _sample(content)
    is_utf_8 = _is_valid(content, "utf-8")
    # No other encoding forms three-byte UTF-8 sequences, or many of two bytes, by chance.
    if is_utf_8 and (any(byte >= 0xE0 for byte in sample) or sum(byte > 0x7F for byte in sample) >= _MIN_UTF_8_BYTES):
        return "utf-8"
    costs = {encoding: _cost(sample, encoding) for encoding in ("utf-8", "cp932", "euc_jp", "cp1252")}
    costs["utf-8"] -= _UTF_8_BONUS if is_utf_8 else 0.0
    if declared:
        costs[declared] = costs.get(declared, _cost(sample, declared)) - _DECLARED_BONUS
    best = min(costs, key=lambda encoding: costs[encoding])
    if is_utf_8 or len(sample) < _MIN_FOREIGN_BYTES or _is_japanese(sample, best):
        return best
    if declared:
        return declared if _is_valid(content, declared) else best
    return _foreign(sample) or best


def _is_japanese(sample: bytes, encoding: str) -> bool:
    text = "".join(each for each in _read(sample, encoding)[0] if each > "\x7f")
    # Letters of other scripts look like half-width katakana.
    is_plain = not _HALF_WIDTH.search(text) and mean_cost(text) <= _MAX_JAPANESE_COST
    is_usual = is_plain or len(_KANA.findall(text)) >= len(text) * _MIN_KANA
    return is_usual and text.count("\ufffd") <= len(text) * _MAX_DAMAGED


def _foreign(sample: bytes) -> str:
    """Return the encoding that chardet, which knows most languages, finds; empty if it finds none or is missing."""
    try:
        import chardet
    except ImportError:
        return ""
    found = _python_name(chardet.detect(sample).get("encoding") or "")
    # A character may be cut at the end of the sample.
    return found if found and _read(sample, found)[0].count("\ufffd") <= 1 else ""


def _sample(content: bytes) -> bytes:
    """Return the bytes from the first non-ASCII one."""
    first = re.search(rb"[\x80-\xff]", content)
    return content[first.start() :][:_SAMPLE_BYTES] if first else content[:_SAMPLE_BYTES]


def _is_valid(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeError:
        return False
    return True


def _read(content: bytes, encoding: str) -> tuple[str, str]:
    """Decode with the first codec that reads every byte, or with replacement characters."""
    tables = _CODECS.get(encoding, [encoding])
    table = next((table for table in tables if _is_valid(content, table)), "")
    return (content.decode(table), table) if table else (content.decode(tables[0], errors="replace"), tables[0])


def _cost(sample: bytes, encoding: str) -> float:
    # A character cut at the end costs every candidate about the same.
    text, _ = _read(sample, encoding)
    singles = sum(1 for _ in _SINGLE_KANA.finditer(text))
    return sum(n * _character_cost(each) for each, n in Counter(text).items()) + singles * _SINGLE_KANA_COST


@lru_cache(maxsize=16_384)
def _character_cost(character: str) -> float:
    if character in _COMMON_KANJI:
        return _COMMON_KANJI_COST
    if "一" <= character <= "鿿" and _is_level_1(character):
        return _LEVEL_1_KANJI_COST
    return next((cost for first, last, cost in _COSTS if first <= character <= last), _OTHER_COST)


def _is_level_1(kanji: str) -> bool:
    # Rows 16 to 47 of JIS X 0208 are level 1.
    encoded = kanji.encode("euc_jp", errors="ignore")
    return bool(encoded) and 0xB0 <= encoded[0] <= 0xCF


def _python_name(declared: str) -> str:
    """Return Python's name of a declared text encoding, or an empty string."""
    name = declared.strip().strip("\"'").lower()
    if name in _JAPANESE_NAMES:
        return _JAPANESE_NAMES[name]
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""
    # Browsers read ISO 8859-1 as Windows-1252.
    return "cp1252" if found == "iso8859-1" else found if _TEXT_CODECS.fullmatch(found) else ""
