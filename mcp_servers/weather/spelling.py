"""A place name as somebody typed it -> the keys under which the gazetteer looks it up.

Two keys exist. ``fold`` is for Japanese script: it forgets width, case, spaces, the difference between katakana and
hiragana and a few variant characters. ``romaji_key`` is for how a name sounds: kana and every common romanisation
(Hepburn with or without macrons, Kunrei, ``oh``/``ou`` for a long o) of one name give the same key. Both are applied
to the agency's names and to the question alike, so that only equality is ever asked. Nothing here knows which places
exist.
"""

from __future__ import annotations

import re
import unicodedata

_KATAKANA_TO_HIRAGANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}
# 鎌ヶ谷 and 鎌ケ谷, 龍ケ崎 and 竜ヶ崎 are the same towns; the small ke has become hiragana by then.
_VARIANTS = str.maketrans(
    {"ゖ": "け", "龍": "竜", "檜": "桧", "曾": "曽", "澤": "沢", "濱": "浜", "嶋": "島", "條": "条"}
)
_IGNORED = re.compile(r"[\s\-‐‑‒–—'’`.・･_]+")

_SYLLABLES = """
あ a い i う u え e お o か ka き ki く ku け ke こ ko さ sa し shi す su せ se そ so た ta ち chi つ tsu て te と to
な na に ni ぬ nu ね ne の no は ha ひ hi ふ fu へ he ほ ho ま ma み mi む mu め me も mo や ya ゆ yu よ yo
ら ra り ri る ru れ re ろ ro わ wa ゐ i ゑ e を o ん n が ga ぎ gi ぐ gu げ ge ご go ざ za じ ji ず zu ぜ ze ぞ zo
だ da ぢ ji づ zu で de ど do ば ba び bi ぶ bu べ be ぼ bo ぱ pa ぴ pi ぷ pu ぺ pe ぽ po ゔ vu
きゃ kya きゅ kyu きょ kyo しゃ sha しゅ shu しょ sho ちゃ cha ちゅ chu ちょ cho にゃ nya にゅ nyu にょ nyo
ひゃ hya ひゅ hyu ひょ hyo みゃ mya みゅ myu みょ myo りゃ rya りゅ ryu りょ ryo ぎゃ gya ぎゅ gyu ぎょ gyo
じゃ ja じゅ ju じょ jo びゃ bya びゅ byu びょ byo ぴゃ pya ぴゅ pyu ぴょ pyo しぇ she ちぇ che てぃ ti でぃ di ふぁ fa
"""
_ROMAN: dict[str, str] = dict(re.findall(r"(\S+) (\S+)", _SYLLABLES))

# Applied in this order to anything in Latin letters; the left side is what people and older signs write.
_RESPELLINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[^a-z]", ""),
        (r"oh(?![aiueoy])", "o"),
        (r"sy([auo])", r"sh\1"),
        (r"ty([auo])", r"ch\1"),
        (r"[zj]y([auo])", r"j\1"),
        (r"si", "shi"),
        (r"ti", "chi"),
        (r"tu", "tsu"),
        (r"(?<![sc])hu", "fu"),
        (r"[zd]i", "ji"),
        (r"d[zu]+", "zu"),
        (r"tch", "cch"),
        (r"m(?=[bmp])", "n"),
        (r"o[ou]+", "o"),
        (r"uu+", "u"),
    )
)


def fold(text: str) -> str:
    """The Japanese key of a name: width, case, kana script, spaces and a few variant characters forgotten."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _IGNORED.sub("", plain).translate(_KATAKANA_TO_HIRAGANA).translate(_VARIANTS)


def is_kana(folded: str) -> bool:
    """Whether a folded name is written in kana alone."""
    return bool(folded) and all("ぁ" <= char <= "ゖ" or char == "ー" for char in folded)


def is_latin(text: str) -> bool:
    """Whether a name is written in Latin letters (marks, spaces and punctuation do not count)."""
    letters = [char for char in unicodedata.normalize("NFKD", text) if char.isalpha()]
    return bool(letters) and all(char.isascii() for char in letters)


def romaji_key(text: str) -> str:
    """How a name in kana or Latin letters sounds; empty when it holds anything else, kanji for instance."""
    folded = fold(text)
    if is_kana(folded):
        return _respell(_spell_kana(folded))
    if is_latin(text):
        return _respell(unicodedata.normalize("NFKD", text).casefold())
    return ""


def _spell_kana(kana: str) -> str:
    """Hepburn of hiragana: a small tsu doubles the next consonant, a long mark repeats the vowel before it."""
    spelled: list[str] = []
    doubled = False
    at = 0
    while at < len(kana):
        piece = kana[at : at + 2] if kana[at : at + 2] in _ROMAN else kana[at]
        at += len(piece)
        if piece == "っ":
            doubled = True
            continue
        sound = spelled[-1][-1] if piece == "ー" and spelled else _ROMAN.get(piece, "")
        spelled.append(sound[:1] + sound if doubled else sound)
        doubled = False
    return "".join(sound for sound in spelled if sound)


def _respell(latin: str) -> str:
    for pattern, replacement in _RESPELLINGS:
        latin = pattern.sub(replacement, latin)
    return latin
