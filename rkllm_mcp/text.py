"""Short forms of texts, and the language of a text."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Literal, TypeAlias

from rkllm_base.ranges import HIRAGANA, KATAKANA

Language: TypeAlias = Literal["en", "ja"]
"""A language that the texts of this program exist in."""
LANGUAGES: tuple[Language, ...] = ("en", "ja")

ESCAPE_SEQUENCE = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links, the clipboard
    r"|\x1b[PX^_][^\x1b\n]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[!-/]+[0-~]|\x1b[78=>c]"  # character sets, the cursor, reset
)
"""Pattern of what a terminal obeys after Escape (ECMA-48), whole."""
DIRECTIONS = r"\u202A-\u202E\u2066-\u2069"
"""Embeddings, overrides and isolates of the writing direction, for a set of characters in a pattern."""

# What a file in front of a question begins with: its name, and the fence that its text ends with as well.
_FILE = re.compile(r"\s*(?:([^\n`]{1,255}):\n)?(`{4,})\n")
_FENCE = re.compile(r"( *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(`{3,}|~{3,})(.*)")
# A code block with this indent or more is in an item of a list.
_ITEM_INDENT = 2
_KANA = re.compile(f"[{HIRAGANA}{KATAKANA}]")


def shorten(text: str, limit: int) -> str:
    """Return ``text``, with ``…`` as its last character if it is longer than ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def collapse_whitespace(text: str) -> str:
    """Return ``text`` on one line, with a space for each run of whitespace."""
    return " ".join(text.split())


def first_line(text: str) -> str:
    """Return the first line of ``text`` that is not empty."""
    return text.strip().partition("\n")[0]


def without_files(question: str) -> str:
    """Return a question without the texts of the files in front of it, whose names follow in parentheses."""
    names: list[str] = []
    end = 0
    while (match := _FILE.match(question, end)) is not None:
        # No pattern: the text may have megabytes.
        close = question.find(f"\n{match[2]}", match.end() - 1)
        if close < 0:
            break
        names += [match[1]] if match[1] else []
        end = close + 1 + len(match[2])
    words = question[end:].strip()
    unnamed = ", ".join(name for name in dict.fromkeys(names) if name not in words)
    return (f"{words} ({unnamed})" if unnamed else words) if words else unnamed or question


def with_closed_fence(text: str) -> str:
    """Return Markdown that ends outside of any code block, so that what follows it is not a code."""
    fence, indent = "", 0
    for line in text.expandtabs(4).split("\n"):
        if indent >= _ITEM_INDENT and line.strip() and len(line) - len(line.lstrip()) < indent:
            fence, indent = "", 0  # its item of a list has ended
        match = _FENCE.match(line)
        if match is None:
            continue
        before, signs, after = match.groups()
        if not fence and (signs[0] == "~" or "`" not in after):
            fence, indent = signs, len(before)
        elif fence and signs.startswith(fence) and not before.strip() and not after.strip():
            fence, indent = "", 0
    return f"{text}\n{' ' * indent}{fence}" if fence else text


def language_of_setting(setting: str | None) -> Language:
    """Return ``ja`` for the settings ``ja``, ``ja-JP``, ``Japanese`` and ``日本語``, else ``en``."""
    return "ja" if (setting or "").strip().lower().startswith(("ja", "日本")) else "en"


def language_of_header(accept_language: str) -> Language | None:
    """Return the first known language of an ``Accept-Language`` header; None if it names none."""
    codes = [entry.strip()[:2].lower() for entry in accept_language.split(",")]
    return next((language for code in codes for language in LANGUAGES if code == language), None)


def language_of_text(text: str) -> Language:
    """Return ``ja`` for a text with kana, else ``en``."""
    return "ja" if _KANA.search(text) else "en"


def moment(at: float) -> str:
    """Return a local time, to the minute."""
    return datetime.fromtimestamp(at, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")


def stamp(at: float) -> str:
    """Return a time in ISO 8601, UTC, to the microsecond."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat()
