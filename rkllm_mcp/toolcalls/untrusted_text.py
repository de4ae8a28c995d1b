"""Text from servers: invisible characters, call markers and tool descriptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from rkllm_mcp.messages import ToolSpec

if TYPE_CHECKING:
    from rkllm_mcp.toolcalls.syntax import CallFormat

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


def without_invisible(text: str) -> tuple[str, int]:
    """Return ``text`` without invisible characters, and the number of removed characters."""
    if text.isascii() and text.isprintable():
        return text, 0
    shown = _PATTERN.sub(_preserved, text)
    return shown, len(text) - len(shown)


def on_one_line(name: str) -> str:
    """Return a server's name for something in one line, shortened, so that it cannot add sentences to our messages."""
    name = " ".join(without_invisible(name)[0].split())
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…"


def _preserved(found: re.Match[str]) -> str:
    return found.group(1) or ""


_LOOK_ALIKES = str.maketrans({"<": "‹", "[": "［", "{": "｛", "(": "（"})

# <tool_call>, [/TOOL_CALLS], <seed:tool_call>, <start_function_call>, <function=; <|im_end|>, <|channel>, <channel|>.
_MARKER = re.compile(
    r"[<\[](?=/?(?:[|｜]/?)?(?:\w{1,16}:)?(?:END_|START_)?(?:TOOL|FUNCTION)[ _▁-]?CALL|FUNCTION=)"
    r"|<(?=[|｜][^<>|｜\s]{1,40}[|｜]?>|\w{1,40}[|｜]>)",
    re.IGNORECASE,
)
# Quotation marks, and fences without a language.
_QUOTATION = re.compile(r"(?<!`)`{1,2}(?!`)|^[ \t]*`{3,}[ \t]*$", re.MULTILINE)
_BRACKET = re.compile(r"[<\[{(]")
# A call may contain another that is found once the outer one is broken; accidental nesting is not deeper.
_PASSES = 4


def without_markers(text: str) -> str:
    """Return ``text`` with markers broken that only have a meaning as a call or a turn."""
    return _MARKER.sub(lambda found: found.group().translate(_LOOK_ALIKES), text)


def escape_markers(text: str, tools: Sequence[ToolSpec], syntaxes: Sequence[str] = ()) -> str:
    """Return ``text`` with everything broken that would be a call if the model repeated it.

    ``syntaxes`` are the model's own, in addition to those that any model may write.
    """
    text = without_markers(text)
    if not tools or _BRACKET.search(text) is None:
        return text
    from rkllm_mcp.toolcalls.formats import DEFAULT_FORMATS, SYNTAXES

    own = (call_format for name in syntaxes for call_format in SYNTAXES[name].formats)
    formats = tuple(dict.fromkeys((*own, *DEFAULT_FORMATS)))
    for _ in range(_PASSES):
        calls = _calls(text, tools, formats)
        if not calls:
            return text
        for start, end in calls:
            text = f"{text[:start]}{_BRACKET.sub(_disarm, text[start:end], count=1)}{text[end:]}"
    for start, end in _calls(text, tools, formats):
        text = f"{text[:start]}{text[start:end].translate(_LOOK_ALIKES)}{text[end:]}"
    return text


def _disarm(found: re.Match[str]) -> str:
    return found.group().translate(_LOOK_ALIKES)


def _calls(text: str, tools: Sequence[ToolSpec], formats: tuple[CallFormat, ...]) -> list[tuple[int, int]]:
    """Return the positions of calls, including quoted ones: a model may repeat them without the quotation marks."""
    # Without any mark, without quotation marks only (some formats have a fence), and unchanged; positions stay equal.
    views = {text.replace("`", " "), _QUOTATION.sub(_blank, text), text}
    return sorted({call for view in views for call in _calls_in(view, tools, formats)})


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())


def _calls_in(text: str, tools: Sequence[ToolSpec], formats: tuple[CallFormat, ...]) -> Iterator[tuple[int, int]]:
    from rkllm_mcp.events import ToolCallDetected
    from rkllm_mcp.toolcalls.detector import Detector
    from rkllm_mcp.toolcalls.formats import Syntax

    detector = Detector(tools, [Syntax("any", formats, bare_anywhere=True)])
    names = {tool.name for tool in tools}
    place = 0
    for piece in (*detector.consume(text), *detector.close()):
        if any(isinstance(event, ToolCallDetected) and event.name in names for event in piece.events):
            yield place, place + len(piece.raw)
        place += len(piece.raw)


# Deeper levels are not shown to a model.
_MAX_DEPTH = 40
_WORDS = frozenset({"description", "title", "$comment"})


def presentable(tool: ToolSpec, clean: Callable[[str], str]) -> tuple[ToolSpec, int]:
    """Return the cleaned tool and the number of removed invisible characters; ``clean`` removes call markup."""
    counts: list[int] = []

    def shown(text: str) -> str:
        visible, count = without_invisible(text)
        counts.append(count)
        return clean(visible)

    description = shown(tool.description)
    schema = cast("Mapping[str, Any]", _schema(tool.input_schema, shown, 0))
    if description == tool.description and schema == tool.input_schema:
        return tool, 0
    return replace(tool, description=description, input_schema=schema), sum(counts)


def _schema(value: Any, shown: Callable[[str], str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {
            key: shown(item) if key in _WORDS and isinstance(item, str) else _schema(item, shown, depth + 1)
            for key, item in items
        }
    if isinstance(value, list):
        return [_schema(item, shown, depth + 1) for item in cast("list[Any]", value)]
    return value
