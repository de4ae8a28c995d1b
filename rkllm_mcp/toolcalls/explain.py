"""Reasons why a text was or was not taken for a call, for users whose model's call was missed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rkllm_mcp.events import DetectorEvent, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.text import shorten
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from rkllm_mcp.toolcalls.formats import SYNTAXES, Syntax, SyntaxSelection, select_syntaxes
from rkllm_mcp.toolcalls.resolve import names_in
from rkllm_mcp.toolcalls.syntax import CallFormat, Openers

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
    looker = _Looker(frozenset(tool.name for tool in tools), select_syntaxes(syntaxes))
    for character in text:
        explanations += looker.look(detector.feed(character))
    explanations += looker.look(detector.finish())
    explanations += looker.explain_overlooked()
    return list(dict.fromkeys(explanations))


@dataclass(eq=False)
class _Looker:
    """Explains events, and searches text for calls in formats that were not enabled."""

    names: frozenset[str]  # of the tools
    selection: SyntaxSelection
    text: list[str] = field(default_factory=list[str])  # since the last event

    def look(self, events: Iterable[DetectorEvent]) -> list[Explanation]:
        """Return the explanations of events."""
        explanations: list[Explanation] = []
        for event in events:
            if isinstance(event, Text):
                self.text.append(event.text)
            elif isinstance(event, ToolCallDetected):
                explanations += self.explain_overlooked()
                mended = ", which was not valid as written and was mended" if event.repaired else ""
                explanations.append(
                    Explanation(shorten(event.raw, _SHOWN_CHARACTERS), f"a call of '{event.name}'{mended}")
                )
            elif isinstance(event, ToolCallFailed):
                explanations += self.explain_overlooked()
                explanations.append(
                    Explanation(shorten(event.raw, _SHOWN_CHARACTERS), f"a call that cannot be made: {event.reason}")
                )
        return explanations

    def explain_overlooked(self) -> list[Explanation]:
        """Return explanations of texts since the last event that look like calls."""
        text = "".join(self.text)
        self.text.clear()
        every = tuple(dict.fromkeys(call_format for syntax in SYNTAXES.values() for call_format in syntax.formats))
        openers = Openers(every, self.names | frozenset(names_in(text)))
        explanations: list[Explanation] = []
        at = 0
        while (start := openers.next_call(text, at)) is not None:
            decision = openers.decide(text, start, final=True)
            if decision:
                explanations.append(
                    Explanation(shorten(text[start:], _SHOWN_CHARACTERS), self._why(decision[0], text[start:]))
                )
            at = start + 1
        return explanations

    def _why(self, call_format: CallFormat, text: str) -> str:
        if not self.names:
            return "no tool is declared, so everything is text"
        name = next(iter(names_in(text[:512])), None)
        if name is not None and name not in self.names:
            return f"'{name}' is not a declared tool"
        if call_format in self.selection.anywhere:
            return "it is quoted, or another call begins behind it"
        if call_format.bare:
            rule = "it is a call only as a valid call on a line of its own"
            return f"the form {call_format.name} has no marker, so {rule}"
        names = ", ".join(syntax.name for syntax in SYNTAXES.values() if call_format in syntax.formats)
        return f"this is how {names} is written, which is not looked for; choose it with --syntax or in model.toml"
