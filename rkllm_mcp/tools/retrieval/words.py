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
from collections.abc import Iterator

from rkllm_mcp.tools.retrieval.glossary import Glossary
from rkllm_mcp.tools.retrieval.stems import folded, latin_words, stem

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff々〆]+")
_HIRAGANA = re.compile(r"[\u3040-\u309fー]+\Z")
_RUN = re.compile(r"[\u30a0-\u30ff]{3,}|[\u3400-\u9fff々]{3,}")
# Formats and their meanings, in words of the glossary; the first match counts.
_SHAPES = tuple(
    (re.compile(pattern, re.IGNORECASE | re.ASCII), words)
    for pattern, words in (
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "email"),
        (r"https?://[!-~]+|(?<![\w.])(?:[\w-]+\.)+(?:com|org|net|jp|io|dev|edu|gov)(?:/[!-~]*)?(?!\w)", "url web page"),
        (r"[\w/~.-]*\.(?:png|jpe?g|gif|webp|bmp|svg|mp3|wav|ogg|flac|mp4|mov)(?!\w)", "media file"),
        (r"[\w/~.-]*\.(?:[a-z][a-z0-9]{1,4}|[chr])(?!\w)", "file"),
        (r"(?<![\w/])[~.]?/[\w.-]+(?:/[\w.-]*)*", "path directory"),
        (r"\+\d[\d -]{7,}\d|(?<!\d)0\d{1,3}-\d{2,4}-\d{3,4}(?!\d)", "phone number"),
    )
)
_STOP_WORDS = (
    "a about an and any anything are as at be been but by called can could do does everything for from give had has "
    "have here how i if in into is it its just let like may me more most my named no not of on only or other our "
    "out over please so some such than that the their them then there these they this those to tool tools up us use "
    "used using very want was we were what when where which who will with within would you your"
)
_STOP = frozenset(_STOP_WORDS.split())


def terms_of(text: str, glossary: Glossary, *, is_request: bool = False) -> list[str]:
    """Return the terms of ``text``, each as often as it occurs.

    For a request, bigrams of hiragana are dropped unless it has no other terms.
    """
    plain = folded(_with_formats_named(text) if is_request else text)
    latin = latin_words(plain)
    terms = [stem(word) for word in latin if word not in _STOP]
    pairs: list[str] = []
    for run in _CJK.findall(plain):
        pairs += _pairs(run)
        terms += _RUN.findall(run)
    telling = [pair for pair in pairs if not _HIRAGANA.match(pair)]
    terms += telling if is_request and (telling or terms) else pairs
    meanings = [*glossary.meanings_of_words([stem(word) for word in latin]), *glossary.meanings_in(plain)]
    return [*terms, *(f"@{meaning}" for meaning in meanings)]


def _with_formats_named(request: str) -> str:
    """Replace URLs, file names and telephone numbers in ``request`` by words for their type."""
    for shape, words in _SHAPES:
        request = shape.sub(f" {words} ", request)
    return request


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for index in range(len(run) - 1):
        yield run[index : index + 2]
