"""The markers that count in one answer, and the decision what begins at one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rkllm_mcp.events import Text
from rkllm_mcp.toolcalls.formats import LINE_FORMATS, SyntaxSelection
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal, markers_of
from rkllm_mcp.toolcalls.pieces import PieceWriter
from rkllm_mcp.toolcalls.resolve import ToolCatalogue, unreadable
from rkllm_mcp.toolcalls.syntax import (
    RESPONSES,
    CallFormat,
    Openers,
    ThinkingMarks,
    ThinkingTags,
    openers_of,
)

_RESPONSE_MARKS = Markers(RESPONSES)

# Ends of calls that were never begun; models write them after an answer in words.
_CLOSERS = (
    *("</tool_call>", "</tool_calls>", "</function_calls>", "</minimax:tool_call>", "</function>", "</invoke>"),
    *("</parameter>", "<tool_call|>", "<|/tool_call|>", "<|tool_call_end|>", "[END_TOOL_CALL]", "[/TOOL_CALL]"),
    *("</function_invocation>", "[/TOOL_CALLS]"),
)
_CLOSER_MARKS = Markers(_CLOSERS)
_CLOSER_RUN = re.compile(rf"(?:(?:{'|'.join(map(re.escape, _CLOSERS))})\s{{0,64}}){{1,8}}")

# Languages of code fences that may hold a call without a marker.
_PLAIN_FENCES = frozenset({"", "json", "xml", "text", "tool_call", "tool_code"})
_FENCE_LINE = Shape(*literal("```"), r"[a-zA-Z_]{0,12}", r"[ \t]{0,8}", r"\n", SPACE)

# An answer that ends with a closing marker was meant as a call, if it names a tool.
_MARKUP_ENDS = re.compile(r"(?:</\|?|<\|/?|\[/|\[END_)[\w\-]{2,30}\|?[>\]]\Z", re.IGNORECASE)

# So much of a text is reported with the reason why it is not a call.
_NOTED_CHARACTERS = 60


@dataclass(frozen=True)
class NothingOpens:
    """The marker begins nothing: its first character is text."""


@dataclass(frozen=True)
class CallOpens:
    """A call of ``call_format`` begins, and its body at ``body_at``."""

    call_format: CallFormat
    body_at: int
    is_line: bool  # the format is not the family's, and it is a call only as its own line


@dataclass(frozen=True)
class FenceOpens:
    """A code fence begins with a call; it counts if the fence is the whole answer."""


@dataclass(frozen=True)
class ThinkingOpens:
    """Thinking begins, at the opener of ``tags``."""

    tags: ThinkingTags


@dataclass(frozen=True)
class ThinkingCloses:
    """Thinking ends at ``mark``, which has no meaning where none was begun."""

    mark: str


@dataclass(frozen=True)
class ResponseOpens:
    """A tool's response begins at ``mark``, which the model invents."""

    mark: str


@dataclass(frozen=True)
class ClosersStand:
    """``markup`` closes calls that were never begun."""

    markup: str


Opening = NothingOpens | CallOpens | FenceOpens | ThinkingOpens | ThinkingCloses | ResponseOpens | ClosersStand
NOTHING = NothingOpens()


@dataclass(eq=False)
class Vocabulary:
    """The formats and marks of one answer; ``on_note`` gets a text that looks like a call, and why it is not one."""

    selection: SyntaxSelection
    catalogue: ToolCatalogue
    marks: ThinkingMarks
    on_note: Callable[[str, str], None] | None = None
    openers: Openers = field(init=False)  # of calls anywhere in the answer
    first_openers: Openers = field(init=False)  # at its beginning, where formats without a marker count too
    line_openers: Openers = field(init=False)  # of calls that are lines of their own
    _marker_sets: dict[tuple[object, ...], Markers] = field(
        init=False, default_factory=dict[tuple[object, ...], Markers]
    )

    def __post_init__(self) -> None:
        anywhere, first, lines = self.selection.anywhere, self.selection.first, LINE_FORMATS
        names = self.catalogue.names
        self.openers, self.first_openers, self.line_openers = (
            openers_of(formats if names else (), names) for formats in (anywhere, first, lines)
        )

    def note(self, text: str, why: str) -> None:
        """Report a text that looks like a call and is none."""
        if self.on_note is not None:
            self.on_note(text[:_NOTED_CHARACTERS], why)

    def markers_in_text(self, out: PieceWriter) -> Markers:
        """Return every marker that has a meaning at this position in text."""
        key = (out.is_first, out.has_calls)
        markers = self._marker_sets.get(key)
        if markers is None:
            openers = self.first_openers if out.is_first else self.openers
            lines = self.line_openers.markers.literals
            markers = self._marker_sets[key] = markers_of(
                openers.markers.literals,
                self.marks.anywhere,
                lines,
                ("```",) if out.is_first and lines else (),
                _RESPONSE_MARKS.literals if out.has_calls else (),
                _CLOSERS if lines else (),
            )
        return markers

    def markers_in_thinking(self, tags: ThinkingTags | None, out: PieceWriter) -> Markers:
        """Return every marker that has a meaning inside the thinking that ``tags`` began; None for the prompt."""
        key = (tags, out.has_calls)
        markers = self._marker_sets.get(key)
        if markers is None:
            responses = _RESPONSE_MARKS.literals if out.has_calls else ()
            markers = markers_of(self.openers.markers.literals, self.marks.closers(tags), responses)
            self._marker_sets[key] = markers
        return markers

    def opening_in_text(self, text: str, at: int, out: PieceWriter, *, final: bool) -> Opening | None:
        """Return what begins at the marker at ``at``; None if more text is needed, which ``final`` excludes."""
        marks, fences = self.marks.anywhere, out.fences
        mark = _mark_at(marks, text, at) if marks else ""
        if mark and not fences.is_in_span:
            tags = self.marks.owners[mark]
            return ThinkingOpens(tags) if mark == tags.opener else ThinkingCloses(mark)
        response = out.has_calls and not fences.is_quoted and _RESPONSE_MARKS.at(text, at)
        if response is not False:
            return _response(text, at, response, final)
        closers = self._stray_closers(text, at, out, final)
        if closers != "":
            return None if closers is None else ClosersStand(closers)
        return self._call_opening(text, at, out, marks, final)

    def opening_in_thinking(
        self, tags: ThinkingTags | None, text: str, at: int, out: PieceWriter, *, final: bool
    ) -> Opening | None:
        """Like ``opening_in_text``, inside the thinking that ``tags`` began."""
        marks = self.marks.closers(tags)
        mark = _mark_at(marks, text, at)
        if mark:
            return ThinkingCloses(mark)
        response = out.has_calls and not out.fences.is_quoted and _RESPONSE_MARKS.at(text, at)
        return (
            self._call_opening(text, at, out, marks, final)
            if response is False
            else _response(text, at, response, final)
        )

    def missed_reason(self, text: str) -> str:
        """Return the line for text that ends in markup and names a declared tool, so that it was meant as a call."""
        text = text.strip()
        if not _MARKUP_ENDS.search(text) or self.catalogue.named_in(text) is None:
            return ""
        rule = "the call is not written in a form that can be read"
        return unreadable(rule, text, self.selection.anywhere[0], self.catalogue)

    def _call_opening(
        self, text: str, at: int, out: PieceWriter, marks: Sequence[str], final: bool
    ) -> CallOpens | FenceOpens | NothingOpens | None:
        """Return the call that begins at ``at``; ``marks`` are the marks of thinking that count here."""
        if marks and not final and any(mark.startswith(text[at:]) for mark in marks):
            return None  # Marks of thinking count in code fences too.
        fences, is_fence = out.fences, text[at] == "`"
        openers = self.first_openers if out.is_first else self.openers
        is_quoted = not fences.may_open_fence if is_fence else fences.is_quoted
        decision = False if is_quoted else openers.decide(text, at, final=final)
        if decision is None:
            return None
        # A call without a marker counts at the beginning of a line or after a sentence.
        if decision and (
            not decision[0].bare
            or out.is_first
            or fences.is_line_start
            or fences.may_open_fence
            or fences.is_after_sentence
            or self.selection.bare_anywhere
        ):
            return CallOpens(*decision, is_line=False)
        if not is_quoted and out.kind is Text:
            # A call in a format of other families is its own line or in a code fence.
            opening: CallOpens | FenceOpens | NothingOpens | None
            if is_fence:
                opening = NOTHING
                position = _FENCE_LINE.match(text, at) if out.is_first else None
                if position is not None and position < len(text):
                    language = text[at:position].strip("`").strip().lower()
                    sets = (self.openers, self.line_openers) if language in _PLAIN_FENCES else (self.openers,)
                    verdicts = [openers.decide(text, position, final=final) for openers in sets]
                    opening = FenceOpens() if any(verdicts) else None if None in verdicts else NOTHING
                elif out.is_first and not final and _FENCE_LINE.at(text, at) is not False:
                    opening = None
            else:
                line = fences.is_line_start and self.line_openers.decide(text, at, final=final)
                opening = CallOpens(*line, is_line=True) if line else NOTHING if line is False else None
            if opening is not NOTHING:
                return opening
        if self.on_note is not None and (formats := openers.standing(text, at)):
            in_quotes = is_quoted and not is_fence
            why = (
                "it is quoted, in a code fence or in backticks" if in_quotes else "what follows is no call in this form"
            )
            self.note(text[at:], f"{', '.join(call_format.name for call_format in formats)}: {why}")
        return NOTHING

    def _stray_closers(self, text: str, at: int, out: PieceWriter, final: bool) -> str | None:
        """Return closers without a call that stand here; empty for none, None if more text is needed.

        They are their own line, or the end of the answer; in a sentence they are text.
        """
        if out.missed.has_marker or not self.catalogue.names or out.fences.is_quoted:
            return ""
        run = _CLOSER_RUN.match(text, at)
        if run is None:
            return None if not final and _CLOSER_MARKS.at(text, at) is None else ""
        remaining = text[run.end() :]
        if not remaining and final:
            return run.group()
        if not final and any(closer.startswith(remaining) for closer in _CLOSERS):
            return None
        closers = run.group().rstrip()
        is_line = out.fences.is_line_start and "\n" in run.group()[len(closers) :]
        return run.group() if is_line else ""


def _mark_at(marks: Sequence[str], text: str, at: int) -> str:
    return next((mark for mark in marks if text.startswith(mark, at)), "")


def _response(text: str, at: int, is_mark: bool | None, final: bool) -> ResponseOpens | NothingOpens | None:
    """Return the response at ``at``; ``is_mark`` is None if only the beginning of its mark has arrived."""
    if is_mark:
        return ResponseOpens(_mark_at(_RESPONSE_MARKS.literals, text, at))
    return NOTHING if final else None
