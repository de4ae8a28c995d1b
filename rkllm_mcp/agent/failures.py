"""Failed calls: what a person reads where no tool could answer.

An error is never a fact. It goes to the model, which gets one more round with the tools; where that fails as well, a
sentence of the catalogue takes the place of what a model would make of errors alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.messages import ToolResult, ToolSpec
from rkllm_mcp.text import Language, first_line, shorten

_MOST_REASON_CHARS = 200
# Words of a program, which say nothing to a person: errno, names of exceptions, tracebacks.
_OF_A_PROGRAM = re.compile(
    r"\[Errno|\bE[A-Z]{4,}\b|\b\w+(?:Error|Exception)\b|Traceback|\bundefined\b|0x[0-9a-f]{4,}|\{\""
)
# Before the result of a call that was made before, for the model.
REPEATED = "(Called before with the same arguments; this is the same result.)\n"
# A person or the owner has decided; the model passes that on in its own words.
_DECIDED = frozenset({"deny", "never", "refused", "off", "stopped"})


def has_failed(result: ToolResult) -> bool:
    """Return True if a call failed by itself, and nobody has refused it."""
    return result.is_error and result.ruling not in _DECIDED


def failure_sentence(
    results: Sequence[ToolResult], tool_of: Callable[[str], ToolSpec | None], language: Language
) -> str:
    """Return the sentence for a person about failed calls: the tool of the last one, and the reason."""
    of_calls = [result for result in results if result.call_id]
    if not of_calls:
        return translate("answer.no_call", language)
    result = of_calls[-1]
    tool = tool_of(result.name)
    if tool is None:
        return translate("answer.no_call", language)
    tool = tool.in_language(language)
    reason = shorten(first_line(result.shown.removeprefix(REPEATED)), _MOST_REASON_CHARS)
    if not reason or _OF_A_PROGRAM.search(reason):
        reason = translate("answer.unknown_reason", language)
    reason = read_catalogue(language).phrase(reason)
    return translate("answer.could_not", language, tool=tool.title or tool.name, reason=reason.rstrip(".。"))
