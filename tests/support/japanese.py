"""Sentences that are to be Japanese."""

from __future__ import annotations

import re

_KANA = re.compile("[ぁ-ゖァ-ヶ。]")
# Three English words in a row, besides commands, settings and quotations.
_WORDS = re.compile(r"(?:\b[A-Za-z][a-z]+\b[ ,;:]+(?:'?X'?[ ,;:]+)?){2,}\b[a-z]+\b")
_NAMES = re.compile(r"(?:rkllm-mcp|sudo|git|async)(?: [a-z(_-]+)*|'[^X']+'")


def is_told(text: str) -> bool:
    """Return True if a sentence is Japanese to its end."""
    return _KANA.search(text) is not None and _WORDS.search(_NAMES.sub("", text)) is None
