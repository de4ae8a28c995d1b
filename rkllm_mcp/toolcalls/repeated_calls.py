"""Calls that repeat what a tool's result says."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import DEFAULT_FORMATS, SYNTAXES, Syntax

# Quotation marks, and fences without a language.
_QUOTATION = re.compile(r"(?<!`)`{1,2}(?!`)|^[ \t]*`{3,}[ \t]*$", re.MULTILINE)


def repeats_call(call: ToolCall, tool: ToolSpec, texts: Iterable[str]) -> bool:
    """Return True if ``call`` is in one of ``texts``, white space aside.

    It does if the generated text is there, if the tool's name and the arguments as JSON do, or if the text contains
    a call of this tool with these arguments in any format, also quoted or escaped as in JSON or HTML.
    """
    names = {call.name, tool.name, tool.wire_name, tool.qualified_name} - {""}
    arguments = _squeeze(json.dumps(call.arguments, ensure_ascii=False, default=str))
    raw = _squeeze(call.raw)
    literals = {*([raw] if any(name in raw for name in names) else ()), *([arguments] if call.arguments else ())}
    for text in texts:
        # A model may repeat a text as it is, unescaped, or without its quotation marks.
        unescaped = html.unescape(text).replace("\\n", "\n").replace('\\"', '"')
        views = (text, unescaped, _QUOTATION.sub(" ", unescaped), unescaped.replace("`", " "))
        for view in dict.fromkeys(views):
            if any(name in view for name in names):
                squeezed = _squeeze(view)
                calls = (
                    _squeeze(json.dumps(earlier_call, ensure_ascii=False)) for earlier_call in _calls(view, tool, names)
                )
                if any(literal in squeezed for literal in literals) or arguments in calls:
                    return True
    return False


def _squeeze(text: str) -> str:
    # Without backslashes as well: quotation marks may be escaped any number of times.
    return "".join(text.replace("\\", "").split())


def _calls(text: str, tool: ToolSpec, names: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the arguments of the calls of ``tool`` in ``text``, in any format."""
    formats = dict.fromkeys(
        (*DEFAULT_FORMATS, *(call_format for syntax in SYNTAXES.values() for call_format in syntax.formats))
    )
    tools = [replace(tool, name=name) for name in names]
    detector = Detector(tools, [Syntax("any", "", tuple(formats), bare_anywhere=True)])
    for event in (*detector.feed(text), *detector.finish()):
        if isinstance(event, ToolCallDetected):
            yield event.arguments
