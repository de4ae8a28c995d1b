"""Analyzer v2: text -> terms, for both documents and queries.

Japanese (and Chinese, Korean) has no spaces: a run of its characters yields all bigrams, and runs of three or more
katakana or kanji are terms as a whole as well, which covers most names. Other scripts yield words without diacritics
and English function words, reduced to their stems by Snowball's English stemmer (Porter, 2001).

Before that, radicals, variant kanji, invisible characters, letters far apart, thousands (1,250) and articles (第三条)
become what is usual (``unify_letters``).

* The terms of a text never change within one ``ANALYZER_VERSION``: deleting from the text index needs exactly the terms
that were added. Any change here or in the rules of ``ocr`` raises the version, and stored text is indexed again.
* Queries drop bigrams of two hiragana (grammar) unless fewer than two other terms remain. The index has them, because
うどん and りんご are hiragana only.
* Single kanji are not indexed, because each would match half of the index; the re-rank counts them.

Measurements: docs/development/search.md.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from mcp_servers.knowledge.ocr.rules import correct_long_marks
from rkllm_base.characters import fold_characters
from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA

# Raise it also when the rules of ``ocr`` change.
ANALYZER_VERSION = 7

_UNSPACED = f"{HIRAGANA}{KATAKANA}{KANJI}\u31f0-\u31ff\uac00-\ud7a3"
_RUN = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")
_LONG_RUN = re.compile(rf"[{KATAKANA}]{{3,}}|[{KANJI}]{{3,}}")
# サーバー and サーバ, ウィルス and ウイルス.
_LAST_LONG = re.compile(rf"(?<=[{KATAKANA}]{{3}})\u30fc(?![{KATAKANA}])")
_SMALL_KATAKANA = str.maketrans("ァィゥェォ", "アイウエオ")
_VU, _BU = re.compile("ヴ([ァィェォ]?)"), {"ァ": "バ", "ィ": "ビ", "ェ": "ベ", "ォ": "ボ", "": "ブ"}
# 申し込み and 申込: the kanji on both sides of okurigana are a term as well.
_OKURIGANA = re.compile(rf"(?=([{KANJI}])[いきしちひみりぎじびえけせねめれげぜべっわ]{{1,2}}([{KANJI}]))")
# Each begins with a rare character, because a search for it is fast.
_RAISED_DIGITS = re.compile(r"\d(?=[⁰¹²³⁴-⁹])")
_THOUSANDS = re.compile(r",(?<=\d,)(?=\d{3}(?!\d))")
_HUMPED = re.compile(r"[A-Z](?<=[a-z0-9][A-Z])[a-z0-9]")
# Letters far apart, each on its own: 日 程 表.
_SPACED_OUT = re.compile(rf"(?<![{_UNSPACED}])[{_UNSPACED}](?:[ \u3000][{_UNSPACED}](?![{_UNSPACED}])){{2,}}")
_KANJI_DIGITS, _UNITS = "〇一二三四五六七八九", {"十": 10, "百": 100}
_ARTICLE = re.compile("第([〇一二三四五六七八九十百]{1,6})(?=[条章節項号回話課部版編巻])")
_CAMEL_CASE = re.compile(r"\b[A-Za-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GRAMMAR = re.compile(rf"[{HIRAGANA}\u30fc]{{1,2}}")
_ONE_KANJI = re.compile(rf"[{KANJI}]")
_FUNCTION_WORDS = """
a about after again all also am an and another any are as at be been before being between both but by can could did do
does doing during each even ever every few for from had has have having he her here him his how i if in into is it its
just like many may me might mine more most much must my myself need needs never no not now of off on only or other our
ours out own please really same shall she should so some still such than that the their them then there these they
this those to too under up us very want wanted wants was way ways we were what when where which who whom whose why will
with would yet you your yours yourself
anyone anybody anything everyone everybody everything nobody nothing someone somebody something
don doesn didn isn aren wasn won couldn shouldn wouldn ll re ve
"""
_STOP = frozenset(_FUNCTION_WORDS.split())
# A query with fewer terms keeps its hiragana bigrams.
_MIN_TERMS = 2


@dataclass(frozen=True)
class Analysis:
    """The terms of a text in order, with repetitions."""

    terms: list[str]
    kanji: list[str]  # every single kanji, with repetitions


def unify_letters(text: str) -> str:
    """Return ``text`` in the letters that are compared: corrected, NFKC, lower case, one spelling of katakana."""
    folded = fold_characters(text)
    # 10³ is not 103, but m² is m2.
    apart = folded if folded.isascii() else _RAISED_DIGITS.sub(r"\g<0> ", folded)
    plain = unicodedata.normalize("NFKC", correct_long_marks(apart)).lower()
    plain = _THOUSANDS.sub("", plain)
    if not plain.isascii():
        plain = _SPACED_OUT.sub(lambda spaced: "".join(spaced[0].split()), plain)
        plain = _ARTICLE.sub(lambda match: f"第{_kanji_value(match[1])}", plain)
    if "ヴ" in plain:
        plain = _VU.sub(lambda match: _BU[match[1]], plain)
    return _LAST_LONG.sub("", plain.translate(_SMALL_KATAKANA))


def _kanji_value(digits: str) -> int:
    """Return the value of a kanji number below a thousand: 二十三."""
    total = digit = 0
    for character in digits:
        unit = _UNITS.get(character, 0)
        if unit:
            total, digit = total + (digit or 1) * unit, 0
        else:
            digit = digit * 10 + _KANJI_DIGITS.index(character)
    return total + digit


def analyze(text: str, *, divides_names: bool = True) -> Analysis:
    """Analyze a stored text; with ``divides_names`` the parts of a name like maxRetryCount are terms as well."""
    if divides_names and _HUMPED.search(text):
        text = _CAMEL_CASE.sub(lambda word: f"{word[0]} {_HUMP.sub(' ', word[0])}", text)
    terms: list[str] = []
    kanji: list[str] = []
    for match in _RUN.finditer(unify_letters(text)):
        run = match.group()
        if match["unspaced"] is None:
            word = _word(run)
            if word:
                terms.append(word)
        elif len(run) == 1:
            terms.append(run)
            kanji += _ONE_KANJI.findall(run)
        else:
            terms += [run[at : at + 2] for at in range(len(run) - 1)]
            terms += _LONG_RUN.findall(run)
            terms += [f"{match[1]}{match[2]}" for match in _OKURIGANA.finditer(run)]
            kanji += _ONE_KANJI.findall(run)
    return Analysis(terms, kanji)


def analyze_query(text: str) -> Analysis:
    """Analyze a query, without hiragana bigrams unless few other terms remain."""
    analysis = analyze(text, divides_names=False)
    meaningful = [term for term in analysis.terms if not _GRAMMAR.fullmatch(term)]
    return Analysis(meaningful if len(meaningful) >= _MIN_TERMS else analysis.terms, analysis.kanji)


def indexed_text(title: str, headings: tuple[str, ...], text: str) -> str:
    """Return the text a chunk is indexed by; the title counts twice.

    Measured against the title once: +0.5 nDCG points on JSQuAD, +1 on SciFact; without the title -2 on JSQuAD.
    """
    return "\n".join([title, title, *headings, *headings[-1:], text])


def embedded_text(title: str, headings: tuple[str, ...], text: str) -> str:
    """Return the text of a chunk that embedders read."""
    return "\n".join([title, *headings, text])


@lru_cache(maxsize=65_536)
def _word(run: str) -> str:
    """Return the term of a word; empty for a function word."""
    bare = run if run.isascii() else "".join(c for c in unicodedata.normalize("NFKD", run) if c.isalnum())
    if bare in _STOP:
        return ""
    if not (bare.isascii() and bare.isalpha()):
        return bare
    # A stemmer holds the word that it works on, and several threads analyze at once. Loaded at the first English word.
    return importlib.import_module("snowballstemmer.english_stemmer").EnglishStemmer().stemWord(bare)
