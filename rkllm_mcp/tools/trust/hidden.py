"""Remove characters that are invisible to a person but read by a model.

They can hide instructions: sentences in tag characters, or reversed text. Characters that ordinary text needs are
preserved: joiners inside words and emoji, flag sequences, variation selectors of Chinese characters, direction marks of
right-to-left scripts.

Follows Unicode 16, blocks Tags and Variation Selectors, UAX #9 (bidirectional controls), UTS #51 (flag sequences).
"""

from __future__ import annotations

import re

# A regional flag is a black flag followed by the region's name in tags (England, Scotland, Wales).
_FLAG = r"\U0001F3F4[\U000E0030-\U000E0039\U000E0061-\U000E007A]{3,6}\U000E007F"
# One selector after a Chinese character selects its variant, as in Japanese names; elsewhere it has no meaning.
_VARIANT = r"[\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF][\U000E0100-\U000E01EF]"
_HIDDEN = (
    r"[\U000E0000-\U000E007F\U000E0100-\U000E01EF"  # tags, variation selectors of ideographs
    r"\u202A-\u202E\u2066-\u2069"  # embeddings, overrides and isolates
    r"\u200B\u2060-\u2064\u206A-\u206F\uFEFF\u00AD\u180E\uFFF9-\uFFFB]"  # without width or meaning
    # Control characters except newline and tab move a terminal's cursor or have no meaning.
    r"|[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]"
)
# Longer names are shortened in messages.
_NAME_CHARS = 64
_PATTERN = re.compile(f"({_FLAG}|{_VARIANT})|(?:{_HIDDEN})")


def without_hidden(text: str) -> tuple[str, int]:
    """Return ``text`` without invisible characters, and the number of removed characters."""
    if text.isascii() and text.isprintable():
        return text, 0
    shown = _PATTERN.sub(_preserved, text)
    return shown, len(text) - len(shown)


def on_one_line(name: str) -> str:
    """Return a server's name for something in one line, shortened, so that it cannot add sentences to our messages."""
    name = " ".join(without_hidden(name)[0].split())
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…"


def _preserved(found: re.Match[str]) -> str:
    return found.group(1) or ""
