"""English stemming and text normalisation.

``stem("files")`` and ``stem("file")`` are equal; a stem need not be a word. The rules are our own short list; their
errors are harmless, because requests and tools use the same rules.
"""

from __future__ import annotations

import re
import unicodedata

# A change of case inside a name: readText, HTTPServer.
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LATIN = re.compile(r"[a-z0-9\u00c0-\u024f]+")
_ENDINGS = ("ing", "ed")
_SHORTEST_STEM = 3


def folded(text: str) -> str:
    """Return ``text`` in lower case and NFKC form, with names split at changes of case."""
    return _CASE.sub(" ", unicodedata.normalize("NFKC", text)).lower()


def latin_words(text: str) -> list[str]:
    """Return the Latin words and numbers of folded ``text``."""
    return _LATIN.findall(text)


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
