"""Descriptions written for web pages -> one line for a small model: no markup, no line breaks, bounded length."""

from __future__ import annotations

import re

_TAG = re.compile(r"<[^<>]{0,300}>")
_LINK = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()\s]{0,500}\)")
_MARKS = re.compile(r"[*`]{1,3}|^#{1,6} +|^ *> +", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_SENTENCE_ENDS = ("。", ". ", "! ", "? ", "！", "？")
# Only this multiple of the limit is searched for markup.
_MARGIN = 4


def shortened(text: str, limit: int) -> str:
    """Shorten ``text`` to ``limit`` characters, at the end of a sentence if one ends in the second half."""
    if limit <= 0 or not text:
        return ""
    line = _SPACE.sub(" ", _MARKS.sub("", _LINK.sub(r"\1", _TAG.sub(" ", text[: limit * _MARGIN + 500])))).strip()
    if len(line) <= limit:
        return line
    head = line[:limit]
    end = max(head.rfind(mark) + len(mark.strip()) for mark in _SENTENCE_ENDS)
    if end > limit // 2:
        return head[:end]
    return f"{line[: limit - 1].rstrip()}…"


def described(summary: str, description: str, limit: int) -> str:
    """Return summary and description of an operation as one text without repetition."""
    first, rest = shortened(summary, limit), shortened(description, limit)
    if not first or rest.lower().startswith(first.rstrip(".。…").lower()):
        return rest or first
    gap = "" if first.endswith("。") else " " if first[-1] in ".!?…" else ". "
    return shortened(f"{first}{gap}{rest}".strip(), limit) if rest else first
