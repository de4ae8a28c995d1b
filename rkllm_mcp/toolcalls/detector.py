"""Streaming detection: generated text becomes text, thinking, tool-call and failed-call events.

Invariants, for any split of the input into chunks:

* The same text gives the same events once adjacent text events are merged.
* Only a possible beginning of a marker is held back, and white space around a call until the next text is known. That
  white space is emitted with text and dropped before a call, after thinking and at the end of an answer with calls.
* Every character belongs to exactly one ``Piece``; the raw texts of all pieces, joined, are the input.
* Each character is examined a bounded number of times. A call is parsed once, when its structure has ended.
* A marker that is only mentioned, or is in a code fence or in backticks, is text. Without declared tools everything
  is text.
* A format without a marker that is not the family's own is a call on lines of its own, and one in a code fence if the
  fence is the whole answer; it must name a declared tool and fit its schema. Otherwise it is text, unless an object of
  a name and arguments is the whole answer: that is a failed call.
* A tool's response that the model invents after a call is dropped, and so are closers without a call that are on
  lines of their own or at the end of the answer.
* A call inside thinking is thinking if the thinking is closed later, and a call if the answer ends first.
* A call whose structure never ends is cut at a closer in a position where calls end; a call that begins before another
  is complete makes the first fail. Text that may be truncated or quoted is never passed to a tool.

An answer is always in one ``AnswerState``. The class of the state owns its data, reads text, gives pieces to the
``PieceWriter`` and returns an event, which leads to the next state by ``TRANSITIONS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.formats import Syntax, boundary_of, select_syntaxes
from rkllm_mcp.toolcalls.markers import Markers, markers_of
from rkllm_mcp.toolcalls.openings import (
    CallOpens,
    ClosersStand,
    FenceOpens,
    NothingOpens,
    ResponseOpens,
    ThinkingCloses,
    ThinkingOpens,
    Vocabulary,
)
from rkllm_mcp.toolcalls.pieces import Gap, Piece, PieceWriter
from rkllm_mcp.toolcalls.resolve import (
    CUT_OFF,
    INTERRUPTED,
    ResolvedPart,
    RestReader,
    ToolCatalogue,
    refusal_of,
    resolve,
)
from rkllm_mcp.toolcalls.scanners import ScanState
from rkllm_mcp.toolcalls.syntax import RESPONSES, CallFormat, ThinkingMarks, find_ending
from rkllm_mcp.toolcalls.transitions import (
    TRANSITIONS,
    AnswerState,
    BodyBegins,
    BodyEnds,
    CallEnds,
    CallInThinking,
    FenceBegins,
    Found,
    OpenCall,
    ResponseBegins,
    TextFollows,
    ThinkingBegins,
    ThinkingFollows,
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

_FENCED_ANSWER = re.compile(r"(```[a-zA-Z_]*[ \t]*\n)(.*?)(\n {0,3}```\s*)", re.DOTALL)
# More text after a code fence that began the answer.
_TEXT_AFTER = re.compile(r"\n {0,3}```\s{0,64}[^\s`]")
_TEXT_AFTER_CHARACTERS = 72


class AnswerReader:
    """Reader of one answer: its unread text, its state, and the pieces that are written.

    ``cuts``: number of times that the text after a call was read again.
    """

    def __init__(self, vocabulary: Vocabulary, thinking: ThinkingMode = "off", cuts: int = 0) -> None:
        self.vocabulary = vocabulary
        # Without tools no call can follow white space, and nothing has to be awaited.
        self.out = PieceWriter(Gap.START if vocabulary.catalogue.names else Gap.NONE)
        self.text = ""
        self.at = 0  # position in ``text`` up to which it was read
        self.cuts = cuts
        first: TextFollows | ThinkingFollows = TextFollows()
        if thinking == "open":
            self.out, first = PieceWriter(Gap.AFTER_THINKING, Thinking), ThinkingFollows(None)
        self.state = AnswerState.TEXT if thinking == "off" else AnswerState.BEGINNING
        self.reader: StateReader = READERS[self.state](first)

    def read(self, text: str, *, final: bool = False) -> list[Piece]:
        """Read the next text; with ``final`` it is the last. Return the pieces that it completes."""
        self.text = self.text[self.at :] + text
        self.at = 0
        while (event := self.reader.read(self, final)) is not None:
            self.state = TRANSITIONS[self.state][type(event)]
            self.reader = READERS[self.state](event)
        out = self.out
        if final:
            self.state = AnswerState.DONE
            out.finish()
            if not out.has_calls:
                missed = out.missed
                reason = missed.refusal or self.vocabulary.missed_reason("".join(missed.since_marker or ()))
                if reason:
                    # The text was shown; the line lets the model call again.
                    out.add_pieces(Piece("", (ToolCallFailed("", reason),)))
        return out.take()

    def write_to_marker(self, markers: Markers) -> bool:
        """Emit the text up to the next of ``markers``; return False if none follows."""
        marker = markers.search(self.text, self.at)
        position = len(self.text) if marker is None else marker[0]
        self.out.write(self.text[self.at : position])
        self.at = position
        return marker is not None

    def drop(self, raw: str) -> None:
        """Leave out ``raw``, the next text."""
        self.out.drop(raw)
        self.at += len(raw)

    def end_thinking(self, mark: str, lead: str = "") -> TextFollows:
        """Read ``lead`` and the closer of thinking."""
        # A closer without an opener does not separate text.
        if self.out.kind is Thinking or lead or self.out.gap is not Gap.NONE:
            self.out.begin(Gap.AFTER_THINKING, Text)
        self.drop(lead + mark)
        return TextFollows()

    def read_again(self, text: str) -> None:
        """Put ``text`` before the unread text."""
        self.text, self.at = text + self.text[self.at :], 0

    def read_apart(self, text: str, *, cuts: int = 0) -> list[Piece]:
        """Return the pieces of ``text`` as a whole answer without thinking."""
        vocabulary = replace(self.vocabulary, marks=ThinkingMarks(()), on_note=None)
        return AnswerReader(vocabulary, cuts=cuts).read(text, final=True)

    def only_calls(self, text: str) -> bool:
        """Return True if ``text`` consists of complete calls and white space."""
        pieces = self.read_apart(text, cuts=MAX_CUTS)
        return all(isinstance(event, ToolCallDetected) for piece in pieces for event in piece.events)


@dataclass(eq=False)
class BeginningState:
    """Nothing but white space has been read; ``text`` is what follows if no mark of thinking comes."""

    text: TextFollows | ThinkingFollows

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read white space and a mark of thinking."""
        bare = answer.text.lstrip().lstrip("\ufeff\u200b\u2060").lstrip()
        lead = answer.text[: len(answer.text) - len(bare)]
        if len(lead) > _MAX_LEADING_SPACE:
            return self.text
        marks, openers_only = answer.vocabulary.marks, isinstance(self.text, ThinkingFollows)
        tags = marks.standing(bare, openers_only=openers_only)
        if tags is not None:
            if bare.startswith(tags.opener):
                answer.out.begin(Gap.AFTER_THINKING, Thinking)
                answer.drop(lead + tags.opener)
                return ThinkingBegins(tags)
            return answer.end_thinking(tags.closer, lead)
        return None if not final and marks.may_begin(bare, openers_only=openers_only) else self.text


@dataclass(eq=False)
class HeaderState:
    """The opener of thinking has been read."""

    begins: ThinkingBegins

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read the line that names the thinking, which is not part of it."""
        tags = self.begins.tags
        header = tags.header
        if header and answer.text.startswith(header, answer.at):
            answer.drop(header)
        elif header and not final and header.startswith(answer.text[answer.at :]):
            return None
        return ThinkingFollows(tags)


@dataclass(eq=False)
class ThinkingState:
    """Thinking is being read."""

    follows: ThinkingFollows

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read thinking up to its closer, a call, or an invented response."""
        vocabulary, out, tags = answer.vocabulary, answer.out, self.follows.tags
        while answer.write_to_marker(vocabulary.markers_in_thinking(tags, out)):
            opening = vocabulary.opening_in_thinking(tags, answer.text, answer.at, out, final=final)
            match opening:
                case ThinkingCloses():
                    return answer.end_thinking(opening.mark)
                case ResponseOpens():
                    out.begin(Gap.AFTER_CALL)
                    answer.drop(opening.mark)
                    return ResponseBegins(RESPONSES[opening.mark], self.follows)
                case CallOpens():
                    return CallInThinking(tags)
                case None:
                    return None
                case _:
                    out.write(answer.text[answer.at])
                    answer.at += 1
        return None


@dataclass(eq=False)
class TentativeCallState:
    """A call inside thinking has begun: it is thinking if the thinking is closed, and a call if the answer ends."""

    call: CallInThinking
    chunks: list[str] = field(default_factory=list[str])

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read up to the closer of the thinking."""
        closers = answer.vocabulary.marks.closers(self.call.tags)
        marker = markers_of(closers).search(answer.text, answer.at)
        position = len(answer.text) if marker is None else marker[0]
        self.chunks.append(answer.text[answer.at : position])
        answer.at = position
        if marker is not None and marker[1]:
            text = "".join(self.chunks)
            answer.vocabulary.note(text, "it stands inside thinking that is closed later")
            answer.out.write(text)
            return ThinkingFollows(self.call.tags)
        if not final:
            return None
        # The thinking was never closed, so the call ended it; the answer follows.
        answer.out.begin(Gap.AFTER_THINKING, Text)
        answer.read_again("".join(self.chunks))
        return TextFollows()


@dataclass(eq=False)
class TextState:
    """Text of the answer is being read."""

    follows: TextFollows

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read text up to thinking, a call, or an invented response."""
        vocabulary, out = answer.vocabulary, answer.out
        while True:
            is_first = out.is_first
            if not answer.write_to_marker(vocabulary.markers_in_text(out)):
                return None
            if is_first and not out.is_first:
                continue  # The emitted text ended the beginning of the answer, where more openers count.
            opening = vocabulary.opening_in_text(answer.text, answer.at, out, final=final)
            match opening:
                case None:
                    return None
                case NothingOpens():
                    formats = () if out.fences.is_quoted else vocabulary.openers.standing(answer.text, answer.at)
                    if any(not (call_format.bare or call_format.fenced) for call_format in formats):
                        out.missed.has_marker = True
                        if out.missed.since_marker is None and out.fences.is_line_start:
                            out.missed.since_marker = []
                    out.write(answer.text[answer.at])
                    answer.at += 1
                case CallOpens():
                    call_format = opening.call_format
                    call = OpenCall(
                        call_format,
                        boundary_of(call_format, vocabulary.selection),
                        lead=answer.text[answer.at : opening.body_at],
                        is_line=opening.is_line,
                        is_first=is_first,
                        must_be_whole=call_format.fenced
                        and call_format.bare
                        and not vocabulary.selection.bare_anywhere,
                    )
                    if not (call.is_line or call.must_be_whole):
                        out.begin(Gap.AFTER_CALL)
                    answer.at = opening.body_at
                    return BodyBegins(call)
                case FenceOpens():
                    return FenceBegins()
                case ThinkingOpens():
                    out.begin(Gap.AFTER_THINKING, Thinking)
                    answer.drop(opening.tags.opener)
                    return ThinkingBegins(opening.tags)
                case ThinkingCloses():
                    answer.end_thinking(opening.mark)
                case ResponseOpens():
                    out.begin(Gap.AFTER_CALL)
                    answer.drop(opening.mark)
                    return ResponseBegins(RESPONSES[opening.mark], TextFollows())
                case ClosersStand():
                    out.drop_closers(opening.markup)
                    answer.at += len(opening.markup)


class BodyState:
    """A body of a call is being read by the scanner of its format."""

    def __init__(self, begins: BodyBegins) -> None:
        self.call = begins.call
        self.scanner = self.call.call_format.scanner(self.call.boundary)
        self.chunks: list[str] = []
        self.groups: list[str] = []  # of chunks, joined

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read up to the end of the body's structure."""
        text, call = answer.text, self.call
        room = answer.at + MAX_CALL_CHARACTERS - call.characters
        window = text if len(text) < room else text[:room]
        verdict, end = self.scanner.scan(window, answer.at)
        piece = window[answer.at : end]
        self.chunks.append(piece)
        call.characters += len(piece)
        if len(self.chunks) > _MANY_PIECES:
            self.chunks, self.groups = [], [*self.groups, "".join(self.chunks)]
        answer.at = end
        if verdict is ScanState.COMPLETE:
            return self._end()
        if verdict is ScanState.BROKEN:
            if any(text.startswith(closer, end) for closer in call.call_format.closers):
                return self._end()
            return self._end(INTERRUPTED)
        if len(window) < room:
            if not final:
                return None
            if self.scanner.may_end():
                return self._end()
        self.chunks.append(window[end:])
        answer.at = len(window)
        is_cut_off = len(window) < room
        return self._end(CUT_OFF if is_cut_off else f"the call is longer than {MAX_CALL_CHARACTERS} characters")

    def _end(self, unended: str = "") -> BodyEnds | CallEnds:
        """End the body; ``unended`` is why its structure has no end."""
        body, call = "".join((*self.groups, *self.chunks)), self.call
        if not unended and (call.call_format.closers or call.call_format.another):
            return BodyEnds(call, body)
        call.end_part(body, unended=unended)
        return CallEnds(call)


@dataclass(eq=False)
class EndingState:
    """The structure of a body has ended."""

    ends: BodyEnds

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read what follows the body: its closer, the separator before another body, or unrelated text."""
        call = self.ends.call
        ending = find_ending(call.call_format, answer.text, answer.at, final=final)
        if ending is None:
            return None
        call.end_part(self.ends.body, answer.text[answer.at : ending.at])
        answer.at = ending.at
        return BodyBegins(call) if ending.another else CallEnds(call)


@dataclass(eq=False)
class AfterCallState:
    """A call has ended. One without a marker counts only if a line ends here, or the answer for a code fence."""

    ends: CallEnds

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Emit the call, or its text."""
        call, vocabulary = self.ends.call, answer.vocabulary
        if call.is_line or call.must_be_whole:
            ends_turn = call.call_format.ends_turn and answer.out.gap is Gap.NONE
            following = answer.text[answer.at :].lstrip(" \t" if call.is_line and not ends_turn else None)
            if not following and not final:
                return None
            is_alone = following[:1] in {"", "\n", "\r"}
            if following.startswith("`") and not call.is_line:
                # Another call in a fence may follow.
                decision = vocabulary.first_openers.decide(following, 0, final=final)
                if decision is None:
                    return None
                is_alone = bool(decision)
            if is_alone and call.is_line:
                # The bodies of a line must be calls that can be made.
                outcomes = [resolve(part, call.call_format, vocabulary.catalogue, None) for part in call.parts]
                valid = [isinstance(event, ToolCallDetected) for outcome in outcomes for event in outcome.events]
                is_alone = all(valid) if call.call_format.ends_turn else any(valid)
            if not is_alone:
                for part in call.parts:
                    self._write_text(part, answer)
                return TextFollows()
            answer.out.begin(Gap.AFTER_CALL)
        rest_reader = RestReader(vocabulary.openers, answer.only_calls)
        for index, part in enumerate(call.parts):
            may_cut = answer.cuts < MAX_CUTS
            outcome = resolve(part, call.call_format, vocabulary.catalogue, rest_reader if may_cut else None)
            if any(isinstance(event, Text) for event in outcome.events):
                self._write_text(part, answer)
            else:
                answer.out.add_call(outcome.raw, outcome.events)
            if outcome.rest is not None:
                # The text after a cut is read again.
                answer.cuts += 1
                answer.read_again("".join((outcome.rest, *(later.raw for later in call.parts[index + 1 :]))))
                break
        return TextFollows()

    def _write_text(self, part: ResolvedPart, answer: AnswerReader) -> None:
        """Emit a body that is not a call as text, or hold it where it may be the whole answer."""
        call = self.ends.call
        reason = refusal_of(part, call.call_format, answer.vocabulary.catalogue) if call.is_first else ""
        if reason:
            answer.out.hold_object(part.raw, reason)
        else:
            answer.out.write(part.raw)


@dataclass(eq=False)
class FencedAnswerState:
    """The answer began with a call in a code fence: its calls count if nothing else follows."""

    begins: FenceBegins
    chunks: list[str] = field(default_factory=list[str])
    tail: str = ""  # the end of them, which may be the beginning of what ends the fence

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Read up to text after the fence, or to the end of the answer."""
        arrived = answer.text[answer.at :]
        text = self.tail + arrived
        following_text = _TEXT_AFTER.search(text)
        self.chunks.append(arrived)
        self.tail = text[-_TEXT_AFTER_CHARACTERS:]
        answer.at = len(answer.text)
        if following_text is None and not final:
            return None
        out, fenced = answer.out, "".join(self.chunks)
        match = _FENCED_ANSWER.fullmatch(fenced) if following_text is None else None
        pieces = [] if match is None else answer.read_apart(match[2])
        events = [event for piece in pieces for event in piece.events]
        if match is not None and pieces and not any(isinstance(event, Text) for event in events):
            out.begin(Gap.AFTER_CALL)
            out.add_pieces(Piece(match[1]), *pieces, Piece(match[3]))
            return TextFollows()
        end = len(fenced) if following_text is None else len(fenced) - len(text) + following_text.end() - 1
        out.write(fenced[:end])
        out.missed.refusal = next((event.reason for event in events if isinstance(event, ToolCallFailed)), "")
        answer.read_again(fenced[end:])
        return TextFollows()


class ResponseState:
    """The opener of a response has been read."""

    def __init__(self, begins: ResponseBegins) -> None:
        self.closer = Markers((begins.closer,))
        self.then = begins.then

    def read(self, answer: AnswerReader, final: bool) -> Found | None:
        """Drop the text up to the closer, or the rest of the answer."""
        marker = self.closer.search(answer.text, answer.at)
        position = len(answer.text) if marker is None or final else marker[0]
        is_closed = marker is not None and marker[1]
        if marker is not None and marker[1]:
            position = marker[0] + len(self.closer.literals[0])
        if position > answer.at:
            answer.drop(answer.text[answer.at : position])
        return self.then if is_closed else None


StateReader = (
    BeginningState
    | HeaderState
    | ThinkingState
    | TentativeCallState
    | TextState
    | BodyState
    | EndingState
    | AfterCallState
    | FencedAnswerState
    | ResponseState
)
"""Reader of one state; it owns the data of its state.

``read`` reads text and returns what leads to the next state; None if more text is needed, which ``final`` excludes.
"""

READERS: Mapping[AnswerState, Callable[[Any], StateReader]] = {
    AnswerState.BEGINNING: BeginningState,
    AnswerState.HEADER: HeaderState,
    AnswerState.THINKING: ThinkingState,
    AnswerState.TENTATIVE_CALL: TentativeCallState,
    AnswerState.TEXT: TextState,
    AnswerState.BODY: BodyState,
    AnswerState.ENDING: EndingState,
    AnswerState.AFTER_CALL: AfterCallState,
    AnswerState.FENCED_ANSWER: FencedAnswerState,
    AnswerState.RESPONSE: ResponseState,
}
"""The reader of each state, made from what led to it."""


class Detector:
    """Turn the text of one answer into events.

    Args:
        tools: the tools that the model may call; with none, everything is text.
        syntaxes: names from ``SYNTAXES``, or declarations; None selects ``DEFAULT_FORMATS``.
        thinking: ``auto`` if the answer may begin with thinking, ``open`` if the prompt ended inside thinking,
            ``off`` if thinking tags have no meaning. The tags are those of the syntaxes.
        on_note: called with a text that looks like a call, and the reason why it is not one.

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
        selection = select_syntaxes(syntaxes)
        marks = ThinkingMarks(() if thinking == "off" else selection.thinking)
        self._answer = AnswerReader(Vocabulary(selection, ToolCatalogue(tools), marks, on_note), thinking)
        # A search that finds nothing in a text that can be emitted at once; None if no text can be.
        self._quick_search: Callable[[str], object] | None = None

    def feed(self, text: str) -> list[DetectorEvent]:
        """Process the next chunk of the answer, of any length; return the events that are certain."""
        # Path of nearly every token: nothing is held, and nothing in the text can begin a marker.
        if self._quick_search is not None and text and self._quick_search(text) is None:
            out = self._answer.out
            out.fences.feed(text)
            return [out.kind(text)]
        return [event for piece in self.consume(text) for event in piece.events]

    @property
    def open_call(self) -> tuple[CallFormat, str] | None:
        """Format, and body so far, of the call that is being read; None if none exists, or it may still be text."""
        reader, answer = self._answer.reader, self._answer
        if not isinstance(reader, BodyState) or reader.call.is_line or reader.call.must_be_whole or reader.call.parts:
            return None
        return reader.call.call_format, "".join((*reader.groups, *reader.chunks, answer.text[answer.at :]))

    @property
    def is_at_beginning(self) -> bool:
        """True while nothing but the possible beginning of thinking has been read."""
        return self._answer.state is AnswerState.BEGINNING

    def reads_thinking(self, text: str) -> bool:
        """Return True if ``text``, which comes next, is thinking or may begin it."""
        answer = self._answer
        if answer.state is AnswerState.BEGINNING:
            bare, marks = (answer.text[answer.at :] + text).lstrip(), answer.vocabulary.marks
            is_mark = marks.may_begin(bare, openers_only=False) or marks.standing(bare, openers_only=False) is not None
            return is_mark or answer.out.kind is Thinking
        return answer.state in (AnswerState.HEADER, AnswerState.THINKING, AnswerState.TENTATIVE_CALL)

    def finish(self) -> list[DetectorEvent]:
        """End the answer and return the events of everything that was held. Nothing can be fed afterwards."""
        return [event for piece in self.close() for event in piece.events]

    def consume(self, text: str) -> list[Piece]:
        """Like ``feed``, but return the pieces that ``text`` completed, with their input text."""
        if self._answer.state is AnswerState.DONE:
            raise UsageError("this detector has finished its answer; make a new one for the next")
        answer = self._answer
        pieces = answer.read(text)
        reader, out = answer.reader, answer.out
        self._quick_search = None
        if answer.at == len(answer.text) and out.is_in_plain_text:
            if isinstance(reader, TextState):
                self._quick_search = answer.vocabulary.markers_in_text(out).first
            elif isinstance(reader, ThinkingState):
                self._quick_search = answer.vocabulary.markers_in_thinking(reader.follows.tags, out).first
        return pieces

    def close(self) -> list[Piece]:
        """Like ``finish``, but return the remaining pieces with their input text."""
        if self._answer.state is AnswerState.DONE:
            return []
        self._quick_search = None
        return self._answer.read("", final=True)
