"""Characters that a person does not see and a model reads: taken out of what servers say.

Instructions can be hidden in them: whole sentences in tag characters, an order of words that only the eye sees
reversed. What ordinary text needs stays: joiners inside words and emoji, flags that are spelled in tags, variants of
Chinese characters, marks of direction in scripts that run from right to left.

Followed: Unicode 16, blocks Tags and Variation Selectors, UAX #9 (bidirectional controls), UTS #51 (flag sequences).
"""

from __future__ import annotations

import re

# A flag of a region is a black flag and its name in tags (England, Scotland, Wales).
_FLAG = r"\U0001F3F4[\U000E0030-\U000E0039\U000E0061-\U000E007A]{3,6}\U000E007F"
# One selector behind a Chinese character chooses its variant, as in Japanese names; elsewhere it says nothing.
_VARIANT = r"[\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF][\U000E0100-\U000E01EF]"
_HIDDEN = (
    r"[\U000E0000-\U000E007F\U000E0100-\U000E01EF"  # tags, variation selectors of ideographs
    r"\u202A-\u202E\u2066-\u2069"  # embeddings, overrides and isolates
    r"\u200B\u2060-\u2064\u206A-\u206F\uFEFF\u00AD\u180E\uFFF9-\uFFFB]"  # without width or meaning
    # A model's text has lines and tabs; other controls move a terminal's cursor or mean nothing.
    r"|[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]"
)
# What is longer is no name that a person reads.
_NAME_CHARS = 64
_PATTERN = re.compile(f"({_FLAG}|{_VARIANT})|(?:{_HIDDEN})")


def without_hidden(text: str) -> tuple[str, int]:
    """``text`` without hidden characters, and how many there were."""
    if text.isascii() and text.isprintable():
        return text, 0
    shown = _PATTERN.sub(_kept, text)
    return shown, len(text) - len(shown)


def on_one_line(name: str) -> str:
    """A name that a server has chosen, unable to add words of its own to a sentence of ours."""
    name = " ".join(without_hidden(name)[0].split())
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…"


def _kept(found: re.Match[str]) -> str:
    return found.group(1) or ""
