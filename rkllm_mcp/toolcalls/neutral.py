"""Foreign text that looks like a tool call becomes text that does not: one bracket is replaced by a look-alike.

What a tool returns is read by the model, and a model repeats what it reads. A call that a web page spells out must not
become one because the model quoted the page. Two steps: a marker that means nothing else (``<tool_call>``,
``[TOOL_CALL]``, ``<|im_end|>``) always loses its bracket; of what else is left only that changes in which the detector
finds a call of a declared tool, wherever it stands and however it is fenced. Ordinary text, JSON, HTML and source code
stay as they are, and every character keeps its place.

That such text cannot become a control token is not settled here: the prompt encodes it with those switched off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.form import Form
from rkllm_mcp.toolcalls.syntax import DEFAULT_FORMS, SYNTAXES, Syntax

_LOOK_ALIKES = str.maketrans({"<": "‹", "[": "［", "{": "｛", "(": "（"})

# <tool_call>, [/TOOL_CALLS], <seed:tool_call>, <start_function_call>, <function=; <|im_end|>, <|channel>, <channel|>.
_MARKER = re.compile(
    r"[<\[](?=/?(?:[|｜]/?)?(?:\w{1,16}:)?(?:END_|START_)?(?:TOOL|FUNCTION)[ _▁-]?CALL|FUNCTION=)"
    r"|<(?=[|｜][^<>|｜\s]{1,40}[|｜]?>|\w{1,40}[|｜]>)",
    re.IGNORECASE,
)
# Marks of a quotation, and fences that say no language.
_QUOTATION = re.compile(r"(?<!`)`{1,2}(?!`)|^[ \t]*`{3,}[ \t]*$", re.MULTILINE)
_BRACKET = re.compile(r"[<\[{(]")
# A call may hold another that is found once the outer one is gone; deeper than this nobody quotes by accident.
_PASSES = 4


def without_markers(text: str) -> str:
    """``text`` with the markers disarmed that mean nothing but a call or a turn."""
    return _MARKER.sub(lambda found: found.group().translate(_LOOK_ALIKES), text)


def neutralised(text: str, tools: Sequence[ToolSpec], syntaxes: Sequence[str] = ()) -> str:
    """``text`` with everything disarmed that would be a call if the model said it.

    Args:
        text: of a tool's result.
        tools: what the model may call.
        syntaxes: how the model writes calls, besides what any model may write.
    """
    text = without_markers(text)
    if not tools or _BRACKET.search(text) is None:
        return text
    own = (form for name in syntaxes for form in SYNTAXES[name].forms)
    forms = tuple(dict.fromkeys((*own, *DEFAULT_FORMS)))
    for _ in range(_PASSES):
        calls = _calls(text, tools, forms)
        if not calls:
            return text
        for start, end in calls:
            text = f"{text[:start]}{_BRACKET.sub(_disarm, text[start:end], count=1)}{text[end:]}"
    for start, end in _calls(text, tools, forms):
        text = f"{text[:start]}{text[start:end].translate(_LOOK_ALIKES)}{text[end:]}"
    return text


def _disarm(found: re.Match[str]) -> str:
    return found.group().translate(_LOOK_ALIKES)


def _calls(text: str, tools: Sequence[ToolSpec], forms: tuple[Form, ...]) -> list[tuple[int, int]]:
    """Where calls stand, also quoted ones: who repeats a quotation may leave the marks out."""
    # Without any mark, without those that only quote (some forms have a fence), and as it is: every place the same.
    views = {text.replace("`", " "), _QUOTATION.sub(_blank, text), text}
    return sorted({call for view in views for call in _calls_in(view, tools, forms)})


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())


def _calls_in(text: str, tools: Sequence[ToolSpec], forms: tuple[Form, ...]) -> Iterator[tuple[int, int]]:
    detector = Detector(tools, [Syntax("any", forms, bare_anywhere=True)])
    names = {tool.name for tool in tools}
    place = 0
    for piece in (*detector.consume(text), *detector.close()):
        if any(isinstance(event, ToolCallDetected) and event.name in names for event in piece.events):
            yield place, place + len(piece.raw)
        place += len(piece.raw)
