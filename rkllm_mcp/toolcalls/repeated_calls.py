"""Calls that repeat what a tool's result says."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from dataclasses import replace

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
    formats = (call_format for syntax in SYNTAXES.values() for call_format in syntax.formats)
    every_form = Syntax("any", "", tuple(dict.fromkeys((*DEFAULT_FORMATS, *formats))), bare_anywhere=True)
    literals = {*([raw] if any(name in raw for name in names) else ()), *([arguments] if call.arguments else ())}
    for text in texts:
        # A model may repeat a text as it is, unescaped, or without its quotation marks.
        unescaped = html.unescape(text).replace("\\n", "\n").replace('\\"', '"')
        views = (text, unescaped, _QUOTATION.sub(" ", unescaped), unescaped.replace("`", " "))
        for view in dict.fromkeys(views):
            if not any(name in view for name in names):
                continue
            squeezed = _squeeze(view)
            if any(literal in squeezed for literal in literals):
                return True
            detector = Detector([replace(tool, name=name) for name in names], [every_form])
            for event in (*detector.feed(view), *detector.finish()):
                if isinstance(event, ToolCallDetected):
                    earlier_arguments = json.dumps(event.arguments, ensure_ascii=False)
                    if _squeeze(earlier_arguments) == arguments:
                        return True
    return False


def _squeeze(text: str) -> str:
    # Without backslashes as well: quotation marks may be escaped any number of times.
    return "".join(text.replace("\\", "").split())
