"""Reasons why a text was or was not taken for a call, for users whose model's call was missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.text import shorten
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from rkllm_mcp.toolcalls.formats import SYNTAXES, Syntax, SyntaxSelection, select_syntaxes
from rkllm_mcp.toolcalls.resolve import names_in
from rkllm_mcp.toolcalls.syntax import Openers

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Explanation:
    """The beginning of a stretch of an answer, and a sentence about its detection."""

    text: str
    why: str


def explain(
    text: str,
    tools: Sequence[ToolSpec],
    syntaxes: Sequence[str | Syntax] | None = None,
    thinking: ThinkingMode = "auto",
) -> list[Explanation]:
    """Return an explanation for every text in an answer that is a call or looks like one, in order.

    Raises:
        UsageError: a syntax or the thinking mode is unknown.
    """
    explanations: list[Explanation] = []
    detector = Detector(
        tools, syntaxes, thinking, on_note=lambda excerpt, why: explanations.append(Explanation(excerpt, why))
    )
    names, selection = frozenset(tool.name for tool in tools), select_syntaxes(syntaxes)
    text_since: list[str] = []  # since the last call
    for character in (*text, None):
        for event in detector.finish() if character is None else detector.feed(character):
            if isinstance(event, Text):
                text_since.append(event.text)
            elif isinstance(event, (ToolCallDetected, ToolCallFailed)):
                explanations += _explain_overlooked("".join(text_since), names, selection)
                text_since.clear()
                if isinstance(event, ToolCallFailed):
                    why = f"a call that cannot be made: {event.reason}"
                else:
                    mended = ", which was not valid as written and was mended" if event.repaired else ""
                    why = f"a call of '{event.name}'{mended}"
                explanations.append(Explanation(shorten(event.raw, _SHOWN_CHARACTERS), why))
    explanations += _explain_overlooked("".join(text_since), names, selection)
    return list(dict.fromkeys(explanations))


def _explain_overlooked(text: str, names: frozenset[str], selection: SyntaxSelection) -> list[Explanation]:
    """Return explanations of what looks like a call in ``text``, in any format; ``names`` are those of the tools."""
    every = tuple(dict.fromkeys(call_format for syntax in SYNTAXES.values() for call_format in syntax.formats))
    openers = Openers(every, names | frozenset(names_in(text)))
    explanations: list[Explanation] = []
    at = 0
    while (start := openers.next_call(text, at)) is not None:
        at = start + 1
        decision = openers.decide(text, start, final=True)
        if not decision:
            continue
        call_format, excerpt = decision[0], text[start:]
        name = next(iter(names_in(excerpt[:512])), None)
        if not names:
            why = "no tool is declared, so everything is text"
        elif name is not None and name not in names:
            why = f"'{name}' is not a declared tool"
        elif call_format in selection.anywhere:
            why = "it is quoted, or another call begins behind it"
        elif call_format.bare:
            rule = "it is a call only as a valid call on a line of its own"
            why = f"the form {call_format.name} has no marker, so {rule}"
        else:
            written = ", ".join(syntax.name for syntax in SYNTAXES.values() if call_format in syntax.formats)
            why = f"this is how {written} is written, which is not looked for; choose it with --syntax or in model.toml"
        explanations.append(Explanation(shorten(excerpt, _SHOWN_CHARACTERS), why))
    return explanations
