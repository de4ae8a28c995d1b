"""What json-repair makes of a broken text, if it only mended punctuation.

The library gives a value for anything, so its word alone is worth nothing: a guess counts when every word of the text
is still there in its order and none was added, every key stood before a colon, every text was quoted on both sides or
on neither, and nothing empty was invented. Anything else would hand a tool arguments the model never wrote.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import json_repair

# The library takes about 1.2 µs a character here and four times that on a board: a third of a second at most.
MAX_CHARACTERS = 64 * 1024

# What JSON adds around words, in any spelling a model may use for it.
_PUNCTUATION = re.compile(r"[\s{}\[\]:,\"'`\\“”„‘’]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[bfnrt])")
_EMPTY = re.compile(r"\"\"|''|“”|\[\s*\]|\{\s*\}")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "`": "`"}
_CLOSING_QUOTES = frozenset(_QUOTES.values())
_STRUCTURE = frozenset("{}[]:,\"'\n")
# A text that stands in very many places of another is not looked for in all of them.
_MAX_PLACES = 64


def guess(text: str) -> Any:
    """The object or list that ``text`` most likely means; None when more than punctuation would have to be changed.

    json-repair 0.64 (MIT); the checks are our choice.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        value = json_repair.repair_json(text, return_objects=True, skip_json_loads=True)
    except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
        return None
    if not isinstance(value, dict if text.startswith("{") else list):
        return None
    keys, leaves, empties = _contents(value)
    words = " ".join(item if isinstance(item, str) else json.dumps(item) for item in _in_order(value))
    kept = _words(_ESCAPE.sub(_unescaped, text)) == _words(words) and empties <= len(_EMPTY.findall(text))
    if not (kept and all(_is_key(key, text) for key in keys) and all(_is_text(leaf, text) for leaf in leaves)):
        return None
    return cast("Any", value)


def _in_order(value: Any) -> list[Any]:
    """Keys and leaves in the order in which they are written."""
    items: list[Any] = []
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            # The last is taken first.
            waiting += [item for pair in cast("dict[str, Any]", part).items() for item in pair][::-1]
        elif isinstance(part, list):
            waiting += cast("list[Any]", part)[::-1]
        else:
            items.append(part)
    return items


def _contents(value: Any) -> tuple[list[str], list[str], int]:
    """Keys, texts, and how many empty texts, lists and objects there are."""
    keys: list[str] = []
    leaves: list[str] = []
    empties = 0
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        empties += part in ("", [], {})
        if isinstance(part, dict):
            keys += cast("dict[str, Any]", part).keys()
            waiting += cast("dict[str, Any]", part).values()
        elif isinstance(part, list):
            waiting += cast("list[Any]", part)
        elif isinstance(part, str) and part:
            leaves.append(part)
    return keys, leaves, empties


def _words(text: str) -> str:
    return _PUNCTUATION.sub("", re.sub(r"\bnone\b", "null", text.casefold()))


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape.group(1), 16)) if escape.group(1) else " "


def _is_key(key: str, text: str) -> bool:
    return re.search(re.escape(key) + r"[\"'”’`]?\s*[:=]", text) is not None


def _is_text(leaf: str, text: str) -> bool:
    """Whether ``leaf`` stands somewhere between two quotes, or bare and without anything that could be structure."""
    place = text.find(leaf)
    if place < 0:
        return True  # It was written with escapes; the words were compared.
    for _ in range(_MAX_PLACES):
        before, after = text[place - 1 : place], text[place + len(leaf) : place + len(leaf) + 1]
        if _QUOTES.get(before) == after and before:
            return True
        if before not in _QUOTES and after not in _CLOSING_QUOTES and _STRUCTURE.isdisjoint(leaf):
            return True
        place = text.find(leaf, place + 1)
        if place < 0:
            break
    return False
