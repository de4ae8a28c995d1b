"""Sentences of the built-in tools in the language of a question; ``sentences.json`` has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA

_JAPANESE = re.compile(f"[{HIRAGANA}{KATAKANA}{KANJI}]")


_SENTENCES: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name("sentences.json").read_text("utf-8"))


def language_of(question: str) -> str:
    """Return ``ja`` for a text in Japanese script, of kanji alone too (今何時), else ``en``."""
    return "ja" if _JAPANESE.search(question) else "en"


def sentences_for(question: str) -> Mapping[str, Any]:
    """Return the sentences in the language of a question."""
    return _SENTENCES[language_of(question)]
