"""Compare a person's words with values that a model writes in another script: ロンドン and ``Europe/London``."""

from __future__ import annotations

import re
import unicodedata

from rkllm_base.ranges import KATAKANA
from rkllm_mcp.builtin.clock import places
from rkllm_mcp.tools.loan_words import LoanWords
from rkllm_mcp.tools.search_terms import own_glossary, stem

_LATIN = re.compile(r"[a-z0-9]+")
_KATAKANA = re.compile(f"[{KATAKANA}]{{2,}}")
# Meanings of the glossary that a value may have; those of verbs and things say which tool is asked for.
_TIMES = frozenset({"today", "tomorrow", "yesterday", "last_month", "this_month"})


def have_common_words(text: str, values: str) -> bool:
    """Return True if two texts have a word in common that one of them writes in Japanese.

    Katakana are compared by their sound, places by their names and their time zone, days and months by their meaning.
    """
    first, second = (unicodedata.normalize("NFKC", part).lower() for part in (text, values))
    if first.isascii() == second.isascii() and not first.isascii():
        return False
    latin, japanese = (first, second) if first.isascii() else (second, first)
    words = _LATIN.findall(latin)
    spelled = LoanWords(words)
    if any(spelled.english_in(run) for run in _KATAKANA.findall(japanese)):
        return True
    times = _TIMES.intersection(own_glossary().meanings_of_words([stem(word) for word in words]))
    if any(times.intersection(meanings) for _, meanings in own_glossary().entries_in(japanese)):
        return True
    spaced = f" {' '.join(words)} "
    for zone, names in places():
        if any(name in japanese for name in names if not name.isascii()):
            latin_names = [name for name in names if name.isascii()]
            latin_names.append(zone.rpartition("/")[2].replace("_", " ").lower())
            if any(f" {name} " in spaced for name in latin_names):
                return True
    return False
