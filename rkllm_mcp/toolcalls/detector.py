"""Streaming detection: generated text becomes text, thinking, tool-call and failed-call events.

Invariants, for any split of the input into chunks:

* The same text gives the same events once adjacent text events are merged.
* Only a possible beginning of a marker is held back, and white space around a call until the next text is known. That
  white space is emitted with text and dropped before a call, after thinking and at the end of an answer with calls.
* Every character belongs to exactly one ``Piece``; the raw texts of all pieces, joined, are the input.
* Each character is examined a bounded number of times. A call is parsed once, when its structure has ended.
* A marker that is only mentioned, or stands in a code fence or in backticks, is text. Without declared tools everything
  is text.
* A format without a marker that is not the family's own is a call on lines of its own, and one in a code fence if the
  fence is the whole answer; it must name a declared tool and fit its schema. Otherwise it is text, unless an object of
  a name and arguments is the whole answer: that is a failed call.
* A tool's response that the model invents behind a call is dropped, and so are closers without a call that stand on
  lines of their own or at the end of the answer.
* A call inside thinking is thinking if the thinking is closed later, and a call if the answer ends first.
* A call whose structure never ends is cut at a closer in a position where calls end; a call that begins before another
  is complete makes the first fail. Text that may be truncated or quoted is never passed to a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.formats import LINE_FORMATS, Syntax, SyntaxSelection, boundary_of, select_syntaxes
from rkllm_mcp.toolcalls.markers import SPACE, CodeFenceState, Markers, Shape, literal, markers_of
from rkllm_mcp.toolcalls.resolve import (
    CUT_OFF,
    INTERRUPTED,
    Outcome,
    ResolvedPart,
    ToolCatalogue,
    refusal_of,
    resolve,
    unreadable,
)
from rkllm_mcp.toolcalls.scanners import ScanState
from rkllm_mcp.toolcalls.syntax import (
    RESPONSES,
    CallFormat,
    Openers,
    ThinkingMarks,
    ThinkingTags,
    find_ending,
    openers_of,
)

# These models have contexts of up to 16 thousand tokens; a longer body is not expected to end.
MAX_CALL_CHARACTERS = 256 * 1024
# Chunks of a body are joined in groups of this size; joining all of them at the end would delay the last token.
_MANY_PIECES = 256

ThinkingMode = Literal["off", "auto", "open"]

# After a cut the rest of the answer is read again, so this limit bounds the work on hostile text.
MAX_CUTS = 8
# Maximum white space before an answer's opening mark of thinking.
_MAX_LEADING_SPACE = 64

Gap = Literal["start", "after_thinking", "after_call"]

# Languages of code fences that may hold a call without a marker.
_PLAIN_FENCES = frozenset({"", "json", "xml", "text", "tool_call", "tool_code"})
_FENCE_LINE = Shape(*literal("```"), r"[a-zA-Z_]{0,12}", r"[ \t]{0,8}", r"\n", SPACE)
_FENCED_ANSWER = re.compile(r"(```[a-zA-Z_]*[ \t]*\n)(.*?)(\n {0,3}```\s*)", re.DOTALL)
# More text behind a code fence that began the answer.
_TEXT_BEHIND = re.compile(r"\n {0,3}```\s{0,64}[^\s`]")
_BEHIND_CHARACTERS = 72

_RESPONSE_MARKS = Markers(RESPONSES)

# Ends of calls that were never begun; models write them behind an answer in words.
_CLOSERS = (
    *("</tool_call>", "</tool_calls>", "</function_calls>", "</minimax:tool_call>", "</function>", "</invoke>"),
    *("</parameter>", "<tool_call|>", "<|/tool_call|>", "<|tool_call_end|>", "[END_TOOL_CALL]", "[/TOOL_CALL]"),
    *("</function_invocation>", "[/TOOL_CALLS]"),
)
_CLOSER_MARKS = Markers(_CLOSERS)
_CLOSER_RUN = re.compile(rf"(?:(?:{'|'.join(map(re.escape, _CLOSERS))})\s{{0,64}}){{1,8}}")

# An answer that ends with a closing marker was meant as a call, if it names a tool.
_MARKUP_ENDS = re.compile(r"(?:</\|?|<\|/?|\[/|\[END_)[\w\-]{2,30}\|?[>\]]\Z", re.IGNORECASE)
_MAX_MISSED_CHARACTERS = 2000


@dataclass(frozen=True)
class Piece:
    """A stretch of the input and its events; no events if it only separates or marks."""

    raw: str
    events: tuple[DetectorEvent, ...] = ()


class OpenCall:
    """One call that is being read, and further calls behind the same opener.

    ``boundary``: markers that cannot occur in a body. ``lead``: the part of the opener outside the body. ``is_line``:
    the format is not the family's, and it is a call only as a line of its own. ``is_first``: the answer begins with it.
    """

    def __init__(self, call_format: CallFormat, boundary: Markers, lead: str, *, is_line: bool, is_first: bool) -> None:
        self.is_line = is_line
        self.is_first = is_first
        self.call_format = call_format
        self.parts: list[ResolvedPart] = []
        self._boundary = boundary
        self._scanner = call_format.scanner(boundary)
        self._lead = lead
        self._body: list[str] = []
        self._joined: list[str] = []
        self._length = 0
        self._in_body = True

    def advance(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Continue at ``at``; return the position up to which the call was read, and True if the call is over."""
        while True:
            read = self._read_body if self._in_body else self._read_ending
            at, over = read(text, at, final)
            if over is not None:
                return at, over

    # Both return None to continue with the other one, True if the call is over and False to wait for more text.

    def _read_body(self, text: str, at: int, final: bool) -> tuple[int, bool | None]:
        room = at + MAX_CALL_CHARACTERS - self._length
        window = text if len(text) < room else text[:room]
        verdict, end = self._scanner.scan(window, at)
        self._append_body(window[at:end])
        if verdict is ScanState.COMPLETE:
            return end, self._end_body()
        if verdict is ScanState.BROKEN:
            if any(text.startswith(closer, end) for closer in self.call_format.closers):
                return end, self._end_body()
            return self._give_up(window, end, INTERRUPTED, takes_rest=False)
        if len(window) == room:
            return self._give_up(window, end, f"the call is longer than {MAX_CALL_CHARACTERS} characters")
        if not final:
            return end, False
        if self._scanner.may_end():
            return end, self._end_body()
        return self._give_up(window, end, CUT_OFF)

    def _append_body(self, text: str) -> None:
        self._body.append(text)
        self._length += len(text)
        if len(self._body) > _MANY_PIECES:
            self._body, self._joined = [], [*self._joined, "".join(self._body)]

    def _end_body(self) -> bool | None:
        if self.call_format.closers or self.call_format.another:
            self._in_body = False
            return None
        self._end_part("")
        return True

    def _read_ending(self, text: str, at: int, final: bool) -> tuple[int, bool | None]:
        """Read what follows a body: its closer, the separator before another body, or unrelated text."""
        ending = find_ending(self.call_format, text, at, final=final)
        if ending is None:
            return at, False
        self._end_part(text[at : ending.at])
        if not ending.another:
            return ending.at, True
        self._scanner, self._in_body = self.call_format.scanner(self._boundary), True
        return ending.at, None

    def _give_up(self, window: str, position: int, rule: str, *, takes_rest: bool = True) -> tuple[int, bool]:
        """End the current part although its structure has no end."""
        if takes_rest:
            self._body.append(window[position:])
            position = len(window)
        self._end_part("", unended=rule)
        return position, True

    def _end_part(self, tail: str, unended: str = "") -> None:
        """End the current part; ``tail`` is the text behind its body that belongs to it."""
        body = "".join((*self._joined, *self._body))
        self.parts.append(ResolvedPart(self._lead, body, tail, unended))
        self._lead, self._body, self._joined = "", [], []


class Detector:
    """Turn the text of one answer into events.

    Args:
        tools: the tools that the model may call; with none, everything is text.
        syntaxes: names from ``SYNTAXES``, or declarations; None selects ``DEFAULT_FORMATS``.
        thinking: ``auto`` if the answer may begin with thinking, ``open`` if the prompt ended inside thinking,
            ``off`` if thinking tags have no meaning. The tags are those of the syntaxes.
        on_note: called with a text that looks like a call, and the reason why it is none.

    Raises:
        UsageError: a syntax or the thinking mode is unknown.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        syntaxes: Sequence[str | Syntax] | None = None,
        thinking: ThinkingMode = "off",
        *,
        on_note: Callable[[str, str], None] | None = None,
    ) -> None:
        if thinking not in {"off", "auto", "open"}:
            raise UsageError(f"unknown thinking mode '{thinking}'; choose from off, auto, open")
        self._tools, self._syntaxes = tools, syntaxes
        self._selection: SyntaxSelection = select_syntaxes(syntaxes)
        self._catalogue = ToolCatalogue(tools)
        anywhere, first = (self._selection.anywhere, self._selection.first) if tools else ((), ())
        self._openers = openers_of(anywhere, self._catalogue.names)
        self._line_openers = openers_of(LINE_FORMATS if tools else (), self._catalogue.names)
        self._first_openers = openers_of(first, self._catalogue.names)
        self._marks = ThinkingMarks(() if thinking == "off" else self._selection.thinking)
        self._marker_sets: dict[tuple[bool, bool, bool, ThinkingTags | None], Markers] = {}
        self._has_calls = False
        # A marker that began no call is part of the text.
        self._has_openers = False
        # Text from a marker that began no call, and the reason why a call without a marker was refused.
        self._missed: list[str] | None = None
        self._refused = ""
        # An object of a name and arguments that is no call, and why: a failed call if it is the whole answer.
        self._object: tuple[str, str] | None = None
        self._thinks = thinking == "open"
        self._tags: ThinkingTags | None = None
        self._state: Callable[[bool], bool] = self._read_prose if thinking == "off" else self._read_beginning
        # Without tools no call can follow white space, and nothing has to be awaited.
        self._gap: Gap | None = "after_thinking" if self._thinks else "start" if tools else None
        self._space: list[str] = []
        self._fences = CodeFenceState()
        self._text = ""
        self._at = 0
        self._prose: list[str] = []
        self._pieces: list[Piece] = []
        self._tentative: list[str] = []
        self._tail = ""  # the end of them, which may be the beginning of what ends a fenced answer
        self._cuts = 0
        self._finished = False
        self._calm: Callable[[str], object] | None = None
        self._on_note = on_note

    def feed(self, text: str) -> list[DetectorEvent]:
        """Process the next chunk of the answer, of any length; return the events that are certain."""
        # Path of nearly every token: nothing is held back, and nothing in the text can begin a marker.
        if self._calm is not None and text and self._calm(text) is None:
            self._fences.feed(text)
            return [Thinking(text) if self._thinks else Text(text)]
        return [event for piece in self.consume(text) for event in piece.events]

    def finish(self) -> list[DetectorEvent]:
        """End the answer and return the events of everything that was held back. Nothing can be fed afterwards."""
        return [event for piece in self.close() for event in piece.events]

    def consume(self, text: str) -> list[Piece]:
        """Like ``feed``, but return the pieces that ``text`` completed, with their input text."""
        if self._finished:
            raise UsageError("this detector has finished its answer; make a new one for the next")
        self._text = self._text[self._at :] + text
        self._at = 0
        return self._advance(final=False)

    def close(self) -> list[Piece]:
        """Like ``finish``, but return the remaining pieces with their input text."""
        if self._finished:
            return []
        pieces = self._advance(final=True)
        self._finished = True
        return pieces

    def _advance(self, final: bool) -> list[Piece]:
        while self._state(final):
            pass
        if final:
            self._settle_object()
            self._release_space(followed_by_text=self._gap == "start")
        self._flush_prose()
        if final and not self._has_calls and (reason := self._refused or self._missed_reason()):
            # The text was shown; the line lets the model call again.
            self._pieces.append(Piece("", (ToolCallFailed("", reason),)))
        pieces, self._pieces = self._pieces, []
        is_calm = (
            self._gap is None
            and self._missed is None
            and not self._refused
            and self._object is None
            and self._at == len(self._text)
            and self._state == self._read_prose
        )
        self._calm = self._markers().first if is_calm and not final else None
        return pieces

    # Text and thinking

    def _current_openers(self) -> Openers:
        """Return the openers that count here; formats without a marker count only at the beginning of the answer."""
        return self._first_openers if self._is_first() else self._openers

    def _is_first(self) -> bool:
        return not self._thinks and self._gap in {"start", "after_thinking"}

    def _markers(self) -> Markers:
        """Return every marker that has a meaning at this position."""
        is_first = self._is_first()
        key = (self._thinks, is_first, self._has_calls, self._tags)
        markers = self._marker_sets.get(key)
        if markers is None:
            lines = () if self._thinks else self._line_openers.markers.literals
            fence = ("```",) if is_first and lines else ()
            responses = _RESPONSE_MARKS.literals if self._has_calls else ()
            openers = self._current_openers().markers.literals
            closers = _CLOSERS if lines else ()
            markers = self._marker_sets[key] = markers_of(
                openers, self._current_marks(), lines, fence, responses, closers
            )
        return markers

    def _current_marks(self) -> tuple[str, ...]:
        """Return the marks that end thinking here, or those that begin it in the middle of text."""
        return self._marks.closers(self._tags) if self._thinks else self._marks.anywhere()

    def _read_beginning(self, final: bool) -> bool:
        """Read the beginning of an answer that may start with thinking."""
        bare = self._text.lstrip().lstrip("\ufeff").lstrip()
        lead = self._text[: len(self._text) - len(bare)]
        self._state = self._read_prose
        if len(lead) > _MAX_LEADING_SPACE:
            return True
        tags = self._marks.standing(bare, openers_only=self._thinks)
        if tags is not None:
            mark = tags.opener if bare.startswith(tags.opener) else tags.closer
            self._at = len(lead)
            self._pass_mark(tags, mark, lead)
        elif not final and self._marks.may_begin(bare, openers_only=self._thinks):
            self._state = self._read_beginning
            return False
        return True

    def _pass_mark(self, tags: ThinkingTags, mark: str, lead: str = "") -> None:
        """Begin or end thinking at the mark at the current position."""
        begins = mark == tags.opener
        # A closer without an opener does not separate text.
        if begins or self._thinks or lead or self._gap is not None:
            self._begin_gap("after_thinking")
        self._flush_prose()
        self._thinks, self._tags = begins, tags if begins else None
        self._drop(lead + mark)
        self._at += len(mark)
        self._state = self._read_header if begins and tags.header else self._read_prose

    def _read_header(self, final: bool) -> bool:
        """Read the line behind the opener of thinking that names it."""
        header = "" if self._tags is None else self._tags.header
        if self._text.startswith(header, self._at):
            self._drop(header)
            self._at += len(header)
        elif not final and header.startswith(self._text[self._at :]):
            return False
        self._state = self._read_prose
        return True

    def _read_prose(self, final: bool) -> bool:
        """Read text or thinking up to the next marker."""
        markers = self._markers()
        marker = markers.search(self._text, self._at)
        position = len(self._text) if marker is None else marker[0]
        self._emit_prose(self._text[self._at : position])
        self._at = position
        if marker is None:
            return False
        if self._markers() is not markers:
            return True  # The emitted text ended the beginning of the answer, where more openers count.
        mark = self._standing_mark()
        if mark and (self._thinks or not self._fences.is_in_span):
            self._pass_mark(self._marks.of(mark), mark)
            return True
        is_response = self._has_calls and not self._fences.is_quoted and _RESPONSE_MARKS.at(self._text, position)
        closers = self._stray_closers(final) if is_response is False else ""
        decision = self._decide_call(final) if is_response is False and closers == "" else None
        if is_response:
            self._open_response()
        elif closers:
            self._release_space(followed_by_text=False)
            self._drop(closers)
            self._at += len(closers)
        elif decision is None and not (final and is_response is None):
            return False
        elif not decision:
            self._note_missed()
            self._emit_prose(self._text[position])
            self._at += 1
        else:
            self._enter_call(decision)
        return True

    def _stray_closers(self, final: bool) -> str | None:
        """Return closers without a call that stand here; empty for none, None if more text is needed.

        They are a line of their own, or the end of the answer; in a sentence they are text.
        """
        if self._thinks or self._has_openers or not self._tools or self._fences.is_quoted:
            return ""
        text = self._text
        run = _CLOSER_RUN.match(text, self._at)
        if run is None:
            return None if not final and _CLOSER_MARKS.at(text, self._at) is None else ""
        remaining = text[run.end() :]
        if not remaining and final:
            return run.group()
        if not final and any(closer.startswith(remaining) for closer in _CLOSERS):
            return None
        closers = run.group().rstrip()
        is_line = self._fences.is_line_start and "\n" in run.group()[len(closers) :]
        return run.group() if is_line else ""

    def _note_missed(self) -> None:
        """Follow the text from a marker at the beginning of a line that begins no call."""
        fences = self._fences
        if self._thinks or fences.is_quoted:
            return
        formats = self._openers.standing(self._text, self._at)
        if any(not (call_format.bare or call_format.fenced) for call_format in formats):
            self._has_openers = True
            if self._missed is None and fences.is_line_start:
                self._missed = []

    def _missed_reason(self) -> str:
        """Return the line for an answer whose end is markup that names a declared tool, and that was taken for text."""
        text = "".join(self._missed or ()).strip()
        if not _MARKUP_ENDS.search(text) or self._catalogue.named_in(text) is None:
            return ""
        rule = "the call is not written in a form that can be read"
        return unreadable(rule, text, self._selection.anywhere[0], self._catalogue)

    def _enter_call(self, decision: tuple[CallFormat, int, bool] | bool) -> None:
        if self._thinks:
            self._state = self._read_tentative
        elif isinstance(decision, bool):
            self._state = self._read_fenced_answer
        else:
            self._open_call(*decision)

    def _standing_mark(self) -> str:
        """Return the mark of thinking at the current position, or an empty string."""
        return next((mark for mark in self._current_marks() if self._text.startswith(mark, self._at)), "")

    def _decide_call(self, final: bool) -> tuple[CallFormat, int, bool] | bool | None:
        """Return the format and body position of the call that begins here, and True if it must be a line of its own.

        True: a code fence that may be the whole answer. False: no call. None: more text is needed.
        """
        text, at, openers = self._text, self._at, self._current_openers()
        is_fence = text[at] == "`"
        if not final and any(mark.startswith(text[at:]) for mark in self._current_marks()):
            return None  # Marks of thinking count in code fences too.
        quoted = not self._fences.may_open_fence if is_fence else self._fences.is_quoted
        decision = False if quoted else openers.decide(text, at, final=final)
        if decision and decision[0].bare and not self._may_be_bare():
            decision = False
        if decision:
            return (*decision, False)
        if decision is False and not quoted and not self._thinks:
            if is_fence:
                decision = self._is_first() and self._decide_fence(final)
            elif self._fences.is_line_start:
                decision = self._line_openers.decide(text, at, final=final)
                if decision:
                    return (*decision, True)
        if decision is False and self._on_note is not None:
            self._note_mention(openers, quoted=quoted and not is_fence)
        return decision

    def _may_be_bare(self) -> bool:
        """Return True if a call without a marker may stand here, in one of the family's own formats."""
        fences = self._fences
        is_line = self._is_first() or fences.is_line_start or fences.may_open_fence
        return is_line or fences.is_after_sentence or self._selection.bare_anywhere

    def _decide_fence(self, final: bool) -> bool | None:
        """Return True if a call begins in the code fence here; None if more text is needed."""
        text, position = self._text, _FENCE_LINE.match(self._text, self._at)
        if position is None or position == len(text):
            return None if not final and _FENCE_LINE.at(text, self._at) is not False else False
        language = text[self._at : position].strip("`").strip().lower()
        sets = (self._openers, self._line_openers) if language in _PLAIN_FENCES else (self._openers,)
        verdicts = [openers.decide(text, position, final=final) for openers in sets]
        return True if any(verdicts) else None if None in verdicts else False

    def _read_fenced_answer(self, final: bool) -> bool:
        """Read an answer that began with a call in a code fence: if there is nothing else, its calls count."""
        arrived = self._text[self._at :]
        text = self._tail + arrived
        following_text = _TEXT_BEHIND.search(text)
        self._tentative.append(arrived)
        self._tail = text[-_BEHIND_CHARACTERS:]
        self._at = len(self._text)
        if following_text is None and not final:
            return False
        fenced = self._taken_tentative()
        self._state = self._read_prose
        match = _FENCED_ANSWER.fullmatch(fenced) if following_text is None else None
        inner = Detector(self._tools, self._syntaxes)
        pieces = [] if match is None else [*inner.consume(match[2]), *inner.close()]
        if (
            match is not None
            and pieces
            and not any(isinstance(event, Text) for piece in pieces for event in piece.events)
        ):
            self._begin_gap("after_call")
            self._pieces += [Piece(match[1]), *pieces, Piece(match[3])]
            return False
        end = len(fenced) if following_text is None else len(fenced) - len(text) + following_text.end() - 1
        self._emit_prose(fenced[:end])
        failures = [event for piece in pieces for event in piece.events if isinstance(event, ToolCallFailed)]
        self._refused = failures[0].reason if failures else ""
        self._text, self._at = fenced[end:], 0
        return True

    # A response of a tool that the model invents

    def _open_response(self) -> None:
        opener = next(mark for mark in RESPONSES if self._text.startswith(mark, self._at))
        self._begin_gap("after_call")
        self._drop(opener)
        self._at += len(opener)
        self._state = partial(self._read_response, Markers((RESPONSES[opener],)))

    def _read_response(self, closer: Markers, final: bool) -> bool:
        """Drop the text up to the closer, or the rest of the answer."""
        marker = closer.search(self._text, self._at)
        position = len(self._text) if marker is None else marker[0]
        if marker is not None and marker[1]:
            position += len(closer.literals[0])
            self._state = self._read_prose
        elif final:
            position = len(self._text)
        if position > self._at:
            self._drop(self._text[self._at : position])
            self._at = position
        return self._state == self._read_prose

    def _note_mention(self, openers: Openers, *, quoted: bool) -> None:
        formats = openers.standing(self._text, self._at)
        if formats and self._on_note is not None:
            why = "it is quoted, in a code fence or in backticks" if quoted else "what follows is no call in this form"
            names = ", ".join(call_format.name for call_format in formats)
            self._on_note(self._text[self._at : self._at + 60], f"{names}: {why}")

    def _emit_prose(self, text: str) -> None:
        """Emit text or thinking; white space next to a call is held until the next text is known."""
        if self._object is not None:
            # White space does not decide whether the object is the whole answer.
            self._object = (self._object[0] + text, self._object[1])
            if not text.strip():
                return
            text, self._object = self._object[0], None
        if self._gap is not None:
            bare = text.lstrip()
            self._space.append(text[: len(text) - len(bare)])
            if not bare:
                return
            self._release_space(followed_by_text=self._gap != "after_thinking")
            self._gap = None
            text = bare
        if text:
            self._prose.append(text)
            self._fences.feed(text)
            self._refused = ""
            if self._missed is not None:
                self._missed.append(text)
                if sum(map(len, self._missed)) > _MAX_MISSED_CHARACTERS:
                    self._missed = None

    def _release_space(self, *, followed_by_text: bool) -> None:
        space = "".join(self._space)
        self._space.clear()
        if space and followed_by_text:
            self._prose.append(space)
            self._fences.feed(space)
        elif space:
            self._drop(space)

    def _flush_prose(self) -> None:
        text = "".join(self._prose)
        self._prose.clear()
        if text:
            self._pieces.append(Piece(text, (Thinking(text) if self._thinks else Text(text),)))

    def _settle_object(self) -> None:
        """Make the object at the beginning of the answer a failed call: no text follows it."""
        if self._object is not None:
            (raw, reason), self._object = self._object, None
            self._release_space(followed_by_text=False)
            self._flush_prose()
            self._has_calls = True
            self._pieces.append(Piece(raw, (ToolCallFailed(raw, reason),)))

    def _drop(self, raw: str) -> None:
        self._settle_object()
        self._flush_prose()
        self._pieces.append(Piece(raw))

    def _begin_gap(self, gap: Gap) -> None:
        self._settle_object()
        self._release_space(followed_by_text=False)
        self._flush_prose()
        self._gap = gap
        self._fences = CodeFenceState()

    def _read_tentative(self, final: bool) -> bool:
        """Read a call inside thinking: the end of the thinking or of the answer decides if it is one."""
        marker = self._marks.closing(self._tags).search(self._text, self._at)
        position = len(self._text) if marker is None else marker[0]
        self._tentative.append(self._text[self._at : position])
        self._at = position
        if marker is not None and marker[1]:
            if self._on_note is not None:
                self._on_note("".join(self._tentative)[:60], "it stands inside thinking that is closed later")
            self._emit_prose(self._taken_tentative())
            self._state = self._read_prose
            return True
        if not final:
            return False
        # The thinking was never closed, so the call ended it; the answer follows.
        self._begin_gap("after_thinking")
        self._thinks = False
        self._text, self._at = self._taken_tentative() + self._text[position:], 0
        self._state = self._read_prose
        return True

    def _taken_tentative(self) -> str:
        text = "".join(self._tentative)
        self._tentative.clear()
        self._tail = ""
        return text

    # Calls

    def _open_call(self, call_format: CallFormat, begins: int, is_line: bool) -> None:
        is_first = self._is_first()
        if not (is_line or self._must_be_whole(call_format)):
            self._begin_gap("after_call")
        boundary = boundary_of(call_format, self._selection)
        call = OpenCall(call_format, boundary, self._text[self._at : begins], is_line=is_line, is_first=is_first)
        self._at = begins
        self._state = partial(self._read_call, call)

    def _must_be_whole(self, call_format: CallFormat) -> bool:
        """Return True for a code fence that is a call only if no text follows."""
        return call_format.fenced and call_format.bare and not self._selection.bare_anywhere

    def _read_call(self, call: OpenCall, final: bool) -> bool:
        self._at, over = call.advance(self._text, self._at, final=final)
        if over and (call.is_line or self._must_be_whole(call.call_format)):
            self._state = partial(self._read_behind, call)
        elif over:
            self._state = self._read_prose
            self._resolve_parts(call)
        return over

    def _read_behind(self, call: OpenCall, final: bool) -> bool:
        """Read what follows a call without a marker: a line must end, behind a code fence the answer."""
        ends_turn = call.call_format.ends_turn and self._gap is None
        following = self._text[self._at :].lstrip(" \t" if call.is_line and not ends_turn else None)
        if not following and not final:
            return False
        is_alone: bool | None = following[:1] in {"", "\n", "\r"}
        if following.startswith("`") and not call.is_line:
            # Another call in a fence may follow.
            decision = self._first_openers.decide(following, 0, final=final)
            is_alone = None if decision is None else bool(decision)
        if is_alone is None:
            return False
        self._state = self._read_prose
        if is_alone and call.is_line:
            outcomes = [resolve(part, call.call_format, self._catalogue, None) for part in call.parts]
            valid = [isinstance(event, ToolCallDetected) for outcome in outcomes for event in outcome.events]
            is_alone = all(valid) if call.call_format.ends_turn else any(valid)
        if is_alone:
            self._begin_gap("after_call")
            self._resolve_parts(call)
        else:
            for part in call.parts:
                self._emit_part(part, call)
        return True

    def _emit_part(self, part: ResolvedPart, call: OpenCall) -> None:
        """Emit a body that is no call as text, or hold it back where it may be the whole answer."""
        reason = refusal_of(part, call.call_format, self._catalogue) if call.is_first else ""
        if reason:
            self._object = ((self._object[0] if self._object else "") + part.raw, reason)
        else:
            self._emit_prose(part.raw)

    def _resolve_parts(self, call: OpenCall) -> None:
        """Resolve the parts of a call that is over."""
        for index, part in enumerate(call.parts):
            outcome = resolve(part, call.call_format, self._catalogue, self if self._cuts < MAX_CUTS else None)
            self._add_outcome(outcome, part, call)
            if outcome.rest is not None:
                # The text behind a cut is read again.
                self._cuts += 1
                unread = (outcome.rest, *(later.raw for later in call.parts[index + 1 :]), self._text[self._at :])
                self._text, self._at = "".join(unread), 0
                return

    def _add_outcome(self, outcome: Outcome, part: ResolvedPart, call: OpenCall) -> None:
        if any(isinstance(event, Text) for event in outcome.events):
            self._emit_part(part, call)
            return
        self._settle_object()
        self._has_calls = True
        self._flush_prose()
        self._pieces.append(Piece(outcome.raw, outcome.events))

    # The protocol resolve.RestReader

    def next_call(self, text: str, start: int) -> int | None:
        """Return the position in ``text`` where a call begins, at or after ``start``."""
        return self._openers.next_call(text, start)

    def only_calls(self, text: str) -> bool:
        """Return True if ``text`` consists of complete calls and white space."""
        reader = Detector(self._tools, self._syntaxes)
        reader._cuts = MAX_CUTS
        pieces = reader.consume(text) + reader.close()
        return all(isinstance(event, ToolCallDetected) for piece in pieces for event in piece.events)
