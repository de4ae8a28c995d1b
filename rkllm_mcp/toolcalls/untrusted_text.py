"""Text from servers: invisible characters, call markers and tool descriptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from rkllm_base.ranges import KANJI
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.text import DIRECTIONS, ESCAPE_SEQUENCE, collapse_whitespace, shorten

# A regional flag is a black flag followed by the region's name in tags (England, Scotland, Wales).
_FLAG = r"\U0001F3F4[\U000E0030-\U000E0039\U000E0061-\U000E007A]{3,6}\U000E007F"
# One selector after a Chinese character selects its variant, as in Japanese names; elsewhere it has no meaning.
_VARIANT = rf"[{KANJI}][\U000E0100-\U000E01EF]"
_HIDDEN = (
    r"[\U000E0000-\U000E007F\U000E0100-\U000E01EF"  # tags, variation selectors of ideographs
    rf"{DIRECTIONS}"
    r"\u200B\u2060-\u2064\u206A-\u206F\uFEFF\u00AD\u180E\uFFF9-\uFFFB]"  # without width or meaning
    # Control characters except newline and tab move a terminal's cursor or have no meaning. Colours go as a whole: of
    # what is left ("[31m") a model makes words.
    rf"|{ESCAPE_SEQUENCE}|[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]"
)
# Longer names are shortened in messages.
_NAME_CHARS = 64
_PATTERN = re.compile(f"({_FLAG}|{_VARIANT})|(?:{_HIDDEN})")


def without_invisible(text: str) -> tuple[str, int]:
    """Return ``text`` without invisible characters, and the number of removed characters."""
    if text.isascii() and text.isprintable():
        return text, 0
    visible = _PATTERN.sub(lambda match: match.group(1) or "", text)
    return visible, len(text) - len(visible)


def on_one_line(name: str) -> str:
    """Return a server's name for something in one line, shortened, so that it cannot add sentences to our messages."""
    return shorten(collapse_whitespace(without_invisible(name)[0]), _NAME_CHARS)


_LOOK_ALIKES = str.maketrans({"<": "‹", "[": "［"})

# <tool_call>, [/TOOL_CALLS], <seed:tool_call>, <start_function_call>, <function=, <invoke;
# <|im_end|>, <|channel>, <channel|>.
_MARKER = re.compile(
    r"[<\[](?=/?(?:[|｜]/?)?(?:\w{1,16}:)?(?:END_|START_)?(?:TOOL|FUNCTION)[ _▁-]?CALL|FUNCTION=)"
    r"|<(?=[|｜][^<>|｜\s]{1,40}[|｜]?>|\w{1,40}[|｜]>|INVOKE\b)",
    re.IGNORECASE,
)


def without_markers(text: str) -> str:
    """Return ``text`` with markers broken that only have a meaning as a call or a turn."""
    return _MARKER.sub(lambda match: match.group().translate(_LOOK_ALIKES), text)


# Deeper levels are not shown to a model.
_MAX_DEPTH = 40
_WORDS = frozenset({"description", "title", "$comment"})


def presentable(tool: ToolSpec, clean: Callable[[str], str]) -> tuple[ToolSpec, int]:
    """Return the cleaned tool and the number of removed invisible characters; ``clean`` removes call markup."""
    counts: list[int] = []

    def clean_visible(text: str) -> str:
        visible, count = without_invisible(text)
        counts.append(count)
        return clean(visible)

    description = clean_visible(tool.description)
    schema = cast("Mapping[str, Any]", _schema(tool.input_schema, clean_visible, 0))
    texts = cast("Mapping[str, Any]", _texts(tool.texts, clean_visible))
    if (description, schema, texts) == (tool.description, tool.input_schema, tool.texts):
        return tool, 0
    return replace(tool, description=description, input_schema=schema, texts=texts), sum(counts)


def _texts(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _texts(item, clean) for key, item in cast("Mapping[str, Any]", value).items()}
    return clean(value)


def _schema(value: Any, clean: Callable[[str], str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {
            key: clean(item) if key in _WORDS and isinstance(item, str) else _schema(item, clean, depth + 1)
            for key, item in items
        }
    if isinstance(value, list):
        return [_schema(item, clean, depth + 1) for item in cast("list[Any]", value)]
    return value
