"""Bytes -> text: Japanese and Western encodings by our own count, others by chardet.

Byte order marks, escape sequences of ISO-2022-JP and zero bytes of UTF-16 decide at once. Valid UTF-8 is UTF-8 except
for a few short cases; if only some lines are, the others are read on their own. Otherwise each candidate decodes the
bytes, and the most usual text wins: hiragana and common kanji are usual, half-width katakana and rare kanji are not. A
declared charset (HTML ``meta``, HTTP) is only a bonus, because it is often wrong.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections import Counter
from contextlib import suppress
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

_ESCAPED = re.compile(rb"\x1b(\$[@B]|\([BJI])([^\x1b]*)")

_TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("encodings.json").read_text("utf-8"))
# Several codecs per name: the first one that decodes every byte is used. CP932 has the Windows additions to Shift_JIS
# (①, ㈱, 髙), the second codec those of Macintosh and JIS X 0213.
_CODECS: dict[str, list[str]] = {name: entry["codecs"] for name, entry in _TABLE["japanese"].items()}
_LABELS: dict[str, str] = {
    declared: name
    for name, every in (
        *((name, entry["names"]) for name, entry in _TABLE["japanese"].items()),
        *_TABLE["labels"].items(),
    )
    for declared in every
}
# Codecs that pages may declare; Python has others, e.g. for passwords and host names.
_TEXT_CODECS = re.compile(
    r"utf-8|iso8859-\d+|cp\d+|koi8-[rut]|gb\d+|gbk|big5(hkscs)?|euc_\w+|mac-\w+|tis-620|johab|hz|ptcp154|kz1048"
    r"|utf-7|iso2022_\w+"
)
# Their text is in bytes of ASCII.
_SEVEN_BITS = re.compile(r"hz|utf-7|iso2022_\w+")
# What programs write under the name of the smaller one, and browsers read it as.
_SUPERSETS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "tis-620": "cp874",
}
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


_NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
_LINE = re.compile(rb"[^\n]*\n|[^\n]+$")
_NON_ASCII = re.compile(rb"[\x80-\xff]")
_LATIN_LETTER = re.compile(rb"[A-Za-z]")
# Also one that is cut.
_UTF_8_SEQUENCE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
# A line with so little next to UTF-8 is damaged UTF-8.
_MAX_STRAY_SHARE = 0.2
# Lines of two bytes a character may be UTF-8 by chance; this many different ones are not.
_MIN_UTF_8_LINES = 3
_LINE_ENCODINGS = ("cp932", "euc_jp", "cp1252")
# Encodings of mainframes, of DOS outside Russia and of Macintosh: chardet takes damaged or mixed text for them.
_NEVER_DETECTED = re.compile(r"cp(?:037|273|424|500|875|1026|1140|1047|437|7\d\d|8[56]\d)(?<!cp866)|mac-.*")
# Characters of usual Japanese text in CP932, with those that Windows added.
_USUAL_JAPANESE = re.compile("[\t\n\r -~｡-ﾟ\u3000-\u303fぁ-ヿ㈀-㏿①-⑳Ⅰ-Ⅻ℡№一-鿿豈-\ufaff！-～Å♪〜～℃㎡…―‐“”‘’]+")
_ADDED_BY_WINDOWS = re.compile("[㈀-㏿①-⑳Ⅰ-Ⅹ№℡髙﨑]")
_KANA_RUN = re.compile("[ｦ-ﾟ]{2,}")
# Voicing marks occur only after some letters, and small letters and ー never first.
_IMPOSSIBLE_KANA = re.compile("(?<![ｶ-ﾄﾊ-ﾎｳ])ﾞ|(?<![ﾊ-ﾎ])ﾟ|^[ｧ-ｯｰﾞﾟ]")
_MARKED_KANA = re.compile("[ﾞﾟｰｯｬｭｮ]")
_PLAIN_KANA = re.compile("[ﾞﾟｰｯｬｭｮ]|^[ｱ-ﾝ]{3,}")
# A few rare kanji raise the mean of a short text.
_MAX_SHORT_COST = 7.5
# Bytes of UTF-16 or UTF-32 make no more control characters and unassigned ones than this.
_MAX_WIDE_DAMAGE = 0.01


@dataclass(frozen=True)
class Decoded:
    """Decoded text."""

    text: str  # without byte order mark, lines end with \n
    encoding: str  # Python's name
    damaged: int = 0  # number of undecodable places, now U+FFFD
    other_encoding: str = ""  # of lines that are not in ``encoding``
    other_lines: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about losses and guesses."""
        other_lines = f"Lines that are not {self.encoding} ({self.other_lines}) were read as {self.other_encoding}."
        damage = f"{self.damaged} places could not be read as {self.encoding} and are shown as \ufffd."
        return (*([other_lines] if self.other_lines else []), *([damage] if self.damaged else []))


def decode(content: bytes, declared: str = "") -> Decoded:
    """Decode any bytes; ``declared`` is the charset named by the document or its sender."""
    encoding = _from_marks(content)
    if not encoding:
        # A log that a crash has cut ends in zero bytes.
        content = content.rstrip(b"\0") or content
        mixed = _decode_by_line(content)
        if mixed:
            return mixed
        encoding = _most_likely(content, _python_name(declared))
    text, encoding = _decode(content, encoding)
    # The text may have the character itself.
    damaged = 0 if _is_valid(content, encoding) else text.count("\ufffd")
    return Decoded(text.replace("\r\n", "\n").replace("\r", "\n"), encoding, damaged)


def decode_word(content: bytes, declared: str) -> str:
    """Decode a few words whose charset is stated next to them, as in the head of a mail: too few to guess from."""
    encoding = _python_name(declared)
    text = _decode(content, encoding)[0] if encoding else "\ufffd"
    return decode(content, declared).text if "\ufffd" in text else text


def is_binary(content: bytes) -> bool:
    """True if the beginning of the bytes is not text in any encoding."""
    sample = content[:_SAMPLE_BYTES].rstrip(b"\0") or content[:_SAMPLE_BYTES]
    if not sample or _from_marks(content[:_SAMPLE_BYTES]):
        return False
    controls = sum(count for byte, count in Counter(sample).items() if byte < 32 and byte not in b"\t\n\r\f\x1b\x1a")
    return controls > max(2, len(sample) // 50)


def _decode_by_line(content: bytes) -> Decoded | None:
    """Decode a file of which some lines are UTF-8 and others are not; None for any other file."""
    if content.isascii() or _is_valid(content, "utf-8"):
        return None
    lines = _LINE.findall(content)
    wide = [line for line in lines if not line.isascii()]
    good = [line for line in wide if _is_valid(line, "utf-8")]
    if not good or (max(map(max, good)) < 0xE0 and len(set(good)) < _MIN_UTF_8_LINES):
        return None
    mixed: list[bytes] = []
    for line in wide:
        if not _is_valid(line, "utf-8"):
            stray = len(_NON_ASCII.findall(_UTF_8_SEQUENCE.sub(b"", line)))
            is_damaged_utf_8 = stray < 2 and stray <= len(_NON_ASCII.findall(line)) * _MAX_STRAY_SHARE
            mixed += [] if is_damaged_utf_8 else [line]
    second = ""
    if mixed:
        fitting = [codec for codec in _LINE_ENCODINGS if all(_is_valid(line, codec) for line in mixed)]
        other = b"".join(mixed)[:_SAMPLE_BYTES]
        second = min(fitting or _LINE_ENCODINGS, key=lambda encoding: _cost(other, encoding))
    sample = b"".join(good)[:_SAMPLE_BYTES]
    # Short lines of EUC-JP may be UTF-8 by chance: then the whole file makes better text in the other encoding.
    if second and _is_valid(sample, second) and _cost(sample, second) < _cost(sample, "utf-8"):
        return None
    is_other = {line for line in mixed if second and _is_valid(line, second)}
    text = "".join(line.decode(second) if line in is_other else line.decode("utf-8", "replace") for line in lines)
    other_lines = sum(line in is_other for line in mixed)
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return Decoded(plain, "utf-8", text.count("\ufffd"), second if other_lines else "", other_lines)


def _is_short_japanese(content: bytes) -> bool:
    """True for valid CP932 of usual characters only, whose half-width katakana are in runs."""
    if not _is_valid(content, "cp932") or _is_valid(content, "utf-8"):
        return False
    text = content.decode("cp932")
    if not _USUAL_JAPANESE.fullmatch(text):
        return False
    half = _HALF_WIDTH.findall(text)
    full = "".join(character for character in text if character > "\x7f" and not "｡" <= character <= "ﾟ")
    runs: list[str] = _KANA_RUN.findall(text)
    # Single half-width katakana are letters of European languages.
    if sum(map(len, runs)) < len(half) or any(map(_IMPOSSIBLE_KANA.search, runs)):
        return False
    if not full and not _PLAIN_KANA.search(text):
        return False
    if _is_valid(content, "euc_jp"):
        # Two kanji of EUC-JP are four half-width katakana, which seldom are a word without a mark or small letter.
        is_two_kanji = not full and not _MARKED_KANA.search(text)
        if (is_two_kanji and mean_cost(content.decode("euc_jp")) <= _LEVEL_1_KANJI_COST) or (
            _cost(content, "euc_jp") < _cost(content, "cp932")
        ):
            return False
    return not full or mean_cost(full) <= _MAX_SHORT_COST or _ADDED_BY_WINDOWS.search(full) is not None


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
        texts = {encoding: sample.decode(encoding, errors="replace") for encoding in wide}
        encoding = min(texts, key=lambda encoding: mean_cost(texts[encoding]))
        text = texts[encoding]
        # Characters that no text has: control, unassigned, private and replacement ones.
        counts = Counter(text)
        damaged = [letter for letter in counts if letter == "\ufffd" or unicodedata.category(letter) in _NO_TEXT]
        damage = sum(counts[letter] for letter in damaged if letter not in "\t\n\r\f")
        is_text = mean_cost(text) < _MAX_TEXT_COST and damage <= max(1, len(text) * _MAX_WIDE_DAMAGE)
        return encoding if is_text else ""
    if len(content) % 2 == 0 and _NOT_PRINTED.search(sample):
        for encoding in ("utf-16-le", "utf-16-be"):
            text = sample[: len(sample) // 2 * 2].decode(encoding, errors="replace")
            if len(_HIRAGANA.findall(text)) >= len(text) * _MIN_HIRAGANA and not _NOT_JAPANESE.search(text):
                return encoding
    return ""


def _most_likely(content: bytes, declared: str) -> str:
    """Return the encoding that decodes the bytes to the most usual text."""
    if content.isascii():
        return declared if _SEVEN_BITS.fullmatch(declared) and _is_valid(content, declared) else "ascii"
    first = re.search(rb"[\x80-\xff]", content)
    sample = content[first.start() :][:_SAMPLE_BYTES] if first else content[:_SAMPLE_BYTES]
    is_utf_8 = _is_valid(content, "utf-8")
    # No other encoding forms three-byte UTF-8 sequences, or many of two bytes, by chance.
    if is_utf_8 and (any(byte >= 0xE0 for byte in sample) or sum(byte > 0x7F for byte in sample) >= _MIN_UTF_8_BYTES):
        return "utf-8"
    # Signs next to Latin words (120 µs ± 3): in Japanese, two half-width katakana of which the first is ﾂ or ﾃ.
    if (
        is_utf_8
        and declared in {"", "utf-8"}
        and _LATIN_LETTER.search(content)
        and max(sample.decode("utf-8", "ignore")) <= "\xff"
    ):
        return "utf-8"
    if (not declared or declared in _CODECS) and _is_short_japanese(content[:_SAMPLE_BYTES]):
        return "cp932"
    costs = {encoding: _cost(sample, encoding) for encoding in ("utf-8", "cp932", "euc_jp", "cp1252")}
    costs["utf-8"] -= _UTF_8_BONUS if is_utf_8 else 0.0
    if declared:
        costs[declared] = costs.get(declared, _cost(sample, declared)) - _DECLARED_BONUS
    best = min(costs, key=lambda encoding: costs[encoding])
    if is_utf_8 or len(sample) < _MIN_FOREIGN_BYTES:
        return best
    text = "".join(character for character in _decode(sample, best)[0] if character > "\x7f")
    # Letters of other scripts look like half-width katakana.
    is_plain = not _HALF_WIDTH.search(text) and mean_cost(text) <= _MAX_JAPANESE_COST
    is_japanese = is_plain or len(_KANA.findall(text)) >= len(text) * _MIN_KANA
    if is_japanese and text.count("\ufffd") <= len(text) * _MAX_DAMAGED:
        return best
    if declared:
        return declared if _is_valid(content, declared) else best
    # chardet knows most languages, and may be missing.
    try:
        import chardet
    except ImportError:
        return best
    foreign = _python_name(chardet.detect(sample).get("encoding") or "")
    if not foreign or _NEVER_DETECTED.fullmatch(foreign):
        return best
    # A character may be cut at the end of the sample.
    return foreign if _decode(sample, foreign)[0].count("\ufffd") <= 1 else best


def _is_valid(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeError:
        return False
    return True


def _decode(content: bytes, encoding: str) -> tuple[str, str]:
    """Decode with the first codec that reads every byte, or with replacement characters."""
    tables = _CODECS.get(encoding, [encoding])
    table = next((table for table in tables if _is_valid(content, table)), "")
    if not table and encoding == "iso2022_jp":
        # Outlook writes the characters that Windows added (①, ㈱, 髙), which the codecs of the standard do not know.
        content, tables = _ESCAPED.sub(_as_cp932, content), ["cp932"]
        table = "cp932" if _is_valid(content, "cp932") else ""
    return (content.decode(table), table) if table else (content.decode(tables[0], errors="replace"), tables[0])


def _as_cp932(escaped: re.Match[bytes]) -> bytes:
    """Return the characters after an escape sequence of ISO-2022-JP in CP932."""
    kind, written = escaped[1], escaped[2]
    if kind == b"(I":
        return bytes(byte | 0x80 if byte > 0x20 else byte for byte in written)
    if not kind.startswith(b"$"):
        return written
    converted = bytearray()
    at = 0
    while at < len(written):
        row, cell = written[at], written[at + 1] if at + 1 < len(written) else 0
        if not (0x20 < row < 0x7F and 0x20 < cell < 0x7F):
            converted.append(row)
            at += 1
            continue
        lead = (row + 1) // 2 + (0x70 if row < 0x5F else 0xB0)
        converted += bytes((lead, cell + (0x7E if row % 2 == 0 else 0x1F if cell < 0x60 else 0x20)))
        at += 2
    return bytes(converted)


def _cost(sample: bytes, encoding: str) -> float:
    # A character cut at the end costs every candidate about the same.
    text, _ = _decode(sample, encoding)
    singles = sum(1 for _ in _SINGLE_KANA.finditer(text))
    return sum(n * _character_cost(character) for character, n in Counter(text).items()) + singles * _SINGLE_KANA_COST


@lru_cache(maxsize=16_384)
def _character_cost(character: str) -> float:
    if character in _COMMON_KANJI:
        return _COMMON_KANJI_COST
    if "一" <= character <= "鿿":
        # Rows 16 to 47 of JIS X 0208 are level 1.
        encoded = character.encode("euc_jp", errors="ignore")
        if encoded and 0xB0 <= encoded[0] <= 0xCF:
            return _LEVEL_1_KANJI_COST
    return next((cost for first, last, cost in _COSTS if first <= character <= last), _OTHER_COST)


def _python_name(declared: str) -> str:
    """Return Python's name of a declared text encoding, or an empty string."""
    name = declared.strip().strip("\"'").lower()
    # Names of programs and of registries begin with these.
    for candidate in (name, name.removeprefix("x-"), name.removeprefix("cs")):
        if candidate in _LABELS:
            return _LABELS[candidate]
        with suppress(LookupError, ValueError):
            codec = codecs.lookup(candidate).name
            if _TEXT_CODECS.fullmatch(codec):
                return _SUPERSETS.get(codec, codec)
    return ""
