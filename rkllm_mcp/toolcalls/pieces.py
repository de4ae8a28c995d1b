"""The pieces of one answer as they leave the detector: joined text, white space around calls, objects held back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallFailed
from rkllm_mcp.toolcalls.markers import CodeFenceState

# Text since a missed marker is followed up to this length.
_MAX_MISSED_CHARACTERS = 2000


@dataclass(frozen=True)
class Piece:
    """A stretch of the input and its events; no events if it only separates or marks."""

    raw: str
    events: tuple[DetectorEvent, ...] = ()


# White space at the beginning of a text, with the invisible characters that models write before a call.
_BLANK = re.compile(r"\A[\s\u200b\u2060\ufeff]*")


class Gap(Enum):
    """The stretch of white space that the next text ends; ``NONE`` in the middle of text."""

    START = "start"
    AFTER_THINKING = "after thinking"
    AFTER_CALL = "after a call"
    NONE = "none"


@dataclass(eq=False)
class MissedCall:
    """Text that may have been meant as a call and was not read as one."""

    has_marker: bool = False  # a marker that began no call is in the text
    refusal: str = ""  # why the code fence that has just been read is not a call
    # Text since a marker at the beginning of a line; None if there was none, or if it is long ago.
    since_marker: list[str] | None = None


@dataclass
class _HeldObject:
    """An object of a name and arguments that is not a call, and why: a failed call if it is the whole answer."""

    raw: str
    reason: str


@dataclass(eq=False)
class PieceWriter:
    """Writer of the pieces of one answer.

    Text is joined into one piece until another piece follows. White space around a call is held until the next text is
    known: it is emitted with text, and dropped before a call, after thinking and at the end of an answer with calls.
    """

    gap: Gap
    kind: type[Text] | type[Thinking] = Text  # the event that running text becomes
    fences: CodeFenceState = field(default_factory=CodeFenceState)
    missed: MissedCall = field(default_factory=MissedCall)
    has_calls: bool = False  # the answer has a call, valid or failed
    _object: _HeldObject | None = None
    _space: list[str] = field(default_factory=list[str])
    _text: list[str] = field(default_factory=list[str])
    _pieces: list[Piece] = field(default_factory=list[Piece])

    @property
    def is_first(self) -> bool:
        """True if only white space precedes the next character in the answer, or after its thinking."""
        gap = self.gap
        return (gap is Gap.START or gap is Gap.AFTER_THINKING) and self.kind is Text

    @property
    def is_in_plain_text(self) -> bool:
        """True if text that follows is emitted at once, and changes nothing but the state of code fences."""
        is_missed = self.missed.since_marker is not None or self.missed.refusal
        return self.gap is Gap.NONE and self._object is None and not is_missed

    def take(self) -> list[Piece]:
        """Return the pieces since the last time."""
        self._end_text()
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> None:
        """End the answer: settle the object, and emit or drop the white space."""
        self._settle_object()
        self._release_space(followed_by_text=self.gap is Gap.START)

    def write(self, text: str) -> None:
        """Emit text or thinking; hold white space next to a call."""
        if self._object is not None:
            # White space does not decide whether the object is the whole answer.
            self._object.raw += text
            if not _BLANK.sub("", text, count=1):
                return
            text, self._object = self._object.raw, None
        if self.gap is not Gap.NONE:
            bare = _BLANK.sub("", text, count=1)
            self._space.append(text[: len(text) - len(bare)])
            if not bare:
                return
            self._release_space(followed_by_text=self.gap is not Gap.AFTER_THINKING)
            self.gap = Gap.NONE
            text = bare
        if text:
            self._text.append(text)
            self.fences.feed(text)
            missed = self.missed
            missed.refusal = ""
            if missed.since_marker is not None:
                missed.since_marker.append(text)
                if sum(map(len, missed.since_marker)) > _MAX_MISSED_CHARACTERS:
                    missed.since_marker = None

    def drop(self, raw: str) -> None:
        """Leave out what only separates or marks."""
        self._settle_object()
        self._end_text()
        self._pieces.append(Piece(raw))

    def drop_closers(self, raw: str) -> None:
        """Leave out closers without a call, and the white space before them."""
        self._release_space(followed_by_text=False)
        self.drop(raw)

    def begin(self, gap: Gap, kind: type[Text] | type[Thinking] | None = None) -> None:
        """Begin a gap; text after it becomes ``kind``, if given."""
        self._settle_object()
        self._release_space(followed_by_text=False)
        self._end_text()
        self.gap = gap
        self.fences = CodeFenceState()
        self.kind = kind or self.kind

    def add_call(self, raw: str, events: tuple[DetectorEvent, ...]) -> None:
        """Emit a call, or a failed one."""
        self._settle_object()
        self.has_calls = True
        self._end_text()
        self._pieces.append(Piece(raw, events))

    def add_pieces(self, *pieces: Piece) -> None:
        """Emit pieces as they are."""
        self._end_text()
        self._pieces += pieces

    def hold_object(self, raw: str, reason: str) -> None:
        """Hold an object that is a failed call if no text follows; ``reason`` tells why it is not a call."""
        self._object = _HeldObject((self._object.raw if self._object else "") + raw, reason)

    def _settle_object(self) -> None:
        """Make the object at the beginning of the answer a failed call: no text follows it."""
        if self._object is not None:
            (raw, reason), self._object = (self._object.raw, self._object.reason), None
            self._release_space(followed_by_text=False)
            self.add_call(raw, (ToolCallFailed(raw, reason),))

    def _release_space(self, *, followed_by_text: bool) -> None:
        space = "".join(self._space)
        self._space.clear()
        if space and followed_by_text:
            self._text.append(space)
            self.fences.feed(space)
        elif space:
            self.drop(space)

    def _end_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._pieces.append(Piece(text, (self.kind(text),)))
