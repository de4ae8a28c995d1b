"""Generated text becomes events while it streams: text, thinking, tool calls, and calls that are none.

Rules that hold whatever the chunks:

* The same text gives the same events, pieces of text merged, however it is cut.
* Only what may be the beginning of a marker is held back, and white space at the edge of a call until what follows is
  known: it goes out with text and is dropped before a call, after ``</think>`` and at the end of an answer with calls.
* Nothing is lost. Every character belongs to one ``Piece``; the raw texts of all pieces, joined, are the input.
* Each character is looked at a bounded number of times. A call is parsed once, when its structure has ended.
* A marker that is mentioned, quoted in a code fence or in backticks is text. Without declared tools everything is text.
* A call inside thinking is thinking if ``</think>`` comes later and a call if the answer ends without it.
* A call whose structure never ends is taken to end where a closer stands like an end; a call that begins before
  another is complete makes the first fail. What may be cut off or quoted is never passed to a tool.

The detector executes the table of ``syntax`` and knows no syntax, no schema and no stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.payload import Catalogue
from rkllm_mcp.toolcalls.quoting import Quoting
from rkllm_mcp.toolcalls.scan import Scanner, Verdict
from rkllm_mcp.toolcalls.settling import CUT_OFF, INTERRUPTED, Part, settle
from rkllm_mcp.toolcalls.syntax import Openers, Syntax, chosen_syntaxes, find_ending

ThinkingMode = Literal["off", "auto", "open"]

THINK_OPENER = "<think>"
THINK_CLOSER = "</think>"

# The contexts of these models end at 16 thousand tokens; a body beyond this is not going to end.
MAX_CALL_CHARACTERS = 256 * 1024
# Each cut has the rest of the answer read again, so their number bounds the work on hostile text.
MAX_CUTS = 8
# White space before <think>; after more than this an answer does not begin with thinking.
_MAX_LEADING_SPACE = 64

_CLOSES_THINKING = Markers((THINK_CLOSER,))

Gap = Literal["start", "after_thinking", "after_call"]


@dataclass(frozen=True)
class Piece:
    """A stretch of the input and what became of it: no event where it only separates or marks."""

    raw: str
    events: tuple[DetectorEvent, ...] = ()


@dataclass
class _Call:
    """A call that is being read: the text of its current part, and the parts that are complete."""

    syntax: Syntax
    boundary: Markers
    scanner: Scanner
    lead: str
    body: list[str] = field(default_factory=list[str])
    length: int = 0
    parts: list[Part] = field(default_factory=list[Part])

    def take(self, text: str) -> None:
        self.body.append(text)
        self.length += len(text)

    def end_part(self, tail: str, unended: str = "") -> None:
        """The current part ends here; ``tail`` is what follows its body and belongs to it."""
        self.parts.append(Part(self.lead, "".join(self.body), tail, unended))
        self.lead, self.body = "", []


class Detector:
    """Turns the text of one answer into events.

    Args:
        tools: what the model may call; with none, everything is text.
        syntaxes: names from ``SYNTAXES``, or declarations; all of them for None.
        thinking: ``auto`` when the answer may begin with ``<think>``, ``open`` when the prompt ended inside thinking,
            ``off`` when the tags mean nothing.

    Raises:
        UsageError: there is no such syntax or thinking mode.

    The shape is our choice, after the state machines of vLLM's engine and transformers' response parser.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        syntaxes: Sequence[str | Syntax] | None = None,
        thinking: ThinkingMode = "off",
    ) -> None:
        if thinking not in {"off", "auto", "open"}:
            raise UsageError(f"unknown thinking mode '{thinking}'; choose from off, auto, open")
        enabled = chosen_syntaxes(syntaxes) if tools else ()
        self._tools, self._syntaxes = tools, enabled
        self._catalogue = Catalogue(tools)
        self._openers = Openers([syntax for syntax in enabled if not syntax.only_first], self._catalogue.names)
        self._first_openers = Openers(enabled, self._catalogue.names)
        self._thinking_markers = Markers((*self._openers.markers.literals, THINK_CLOSER))
        self._thinks = thinking == "open"
        self._state: Callable[[bool], bool] = self._read_prose if thinking == "off" else self._read_beginning
        # Without tools no call can follow white space, and there is nothing to wait for.
        self._gap: Gap | None = "after_thinking" if self._thinks else "start" if tools else None
        self._space: list[str] = []
        self._quoting = Quoting()
        self._text = ""
        self._at = 0
        self._prose: list[str] = []
        self._pieces: list[Piece] = []
        self._tentative: list[str] = []
        self._cuts = 0
        self._finished = False

    def feed(self, text: str) -> list[DetectorEvent]:
        """Take the next piece of the answer, of any length; returns what is certain now."""
        if self._is_plain(text):
            self._quoting.feed(text)
            return [Thinking(text) if self._thinks else Text(text)]
        return [event for piece in self.consume(text) for event in piece.events]

    def finish(self) -> list[DetectorEvent]:
        """The answer is over; returns everything that was held back. The detector is spent."""
        return [event for piece in self.close() for event in piece.events]

    def consume(self, text: str) -> list[Piece]:
        """``feed`` with the input: the pieces that were settled by ``text``."""
        if self._finished:
            raise UsageError("this detector has finished its answer; make a new one for the next")
        self._text = self._text[self._at :] + text
        self._at = 0
        return self._advance(final=False)

    def close(self) -> list[Piece]:
        """``finish`` with the input: the pieces of everything that was held back."""
        if self._finished:
            return []
        pieces = self._advance(final=True)
        self._finished = True
        return pieces

    def _is_plain(self, text: str) -> bool:
        """Nothing is held and nothing in ``text`` can begin a marker: the path of nearly every token."""
        if not text or self._finished or self._gap is not None or self._at < len(self._text):
            return False
        return self._state == self._read_prose and self._markers().first_characters.isdisjoint(text)

    def _advance(self, final: bool) -> list[Piece]:
        while self._state(final):
            pass
        if final:
            self._settle_space(followed_by_text=self._gap == "start")
        self._flush_prose()
        pieces, self._pieces = self._pieces, []
        return pieces

    # Text and thinking

    def _markers(self) -> Markers:
        return self._thinking_markers if self._thinks else self._current_openers().markers

    def _current_openers(self) -> Openers:
        """Forms without a marker of their own are calls only where the answer begins."""
        is_first = not self._thinks and self._gap in {"start", "after_thinking"}
        return self._first_openers if is_first else self._openers

    def _read_beginning(self, final: bool) -> bool:
        """Before the first character of an answer that may begin with thinking."""
        bare = self._text.lstrip().lstrip("\ufeff").lstrip()
        lead = self._text[: len(self._text) - len(bare)]
        tags = (THINK_OPENER,) if self._thinks else (THINK_OPENER, THINK_CLOSER)
        tag = next((tag for tag in tags if bare.startswith(tag)), None)
        if len(lead) <= _MAX_LEADING_SPACE:
            if tag is not None:
                self._drop(lead + tag)
                self._at = len(lead) + len(tag)
                self._thinks, self._gap = tag == THINK_OPENER, "after_thinking"
            elif not final and any(tag.startswith(bare) for tag in tags):
                return False
        self._state = self._read_prose
        return True

    def _read_prose(self, final: bool) -> bool:
        """Text or thinking up to the next marker."""
        markers = self._markers()
        found = markers.search(self._text, self._at)
        place = len(self._text) if found is None else found[0]
        self._say(self._text[self._at : place])
        self._at = place
        if found is None:
            return False
        if self._markers() is not markers:
            return True  # What was said ended the beginning of the answer, and with it some openers.
        if self._thinks and self._text.startswith(THINK_CLOSER, place):
            self._stop_thinking()
            return True
        begun = self._begun_call(found[1], final)
        if begun is None:
            return False
        if begun is False:
            self._say(self._text[place])
            self._at += 1
        elif self._thinks:
            self._state = self._read_tentative
        else:
            self._open_call(*begun)
        return True

    def _begun_call(self, whole: bool, final: bool) -> tuple[Syntax, int] | Literal[False] | None:
        """What begins at the marker that stands here, if anything; None to wait for more."""
        may_close = self._thinks and not whole and not final and THINK_CLOSER.startswith(self._text[self._at :])
        if may_close:
            return None
        if self._quoting.quotes and self._text[self._at] != "`":
            return False
        return self._current_openers().decide(self._text, self._at, final=final)

    def _say(self, text: str) -> None:
        """Pass text or thinking on, except for white space whose fate is not known yet."""
        if self._gap is not None:
            bare = text.lstrip()
            self._space.append(text[: len(text) - len(bare)])
            if not bare:
                return
            self._settle_space(followed_by_text=self._gap != "after_thinking")
            self._gap = None
            text = bare
        if text:
            self._prose.append(text)
            self._quoting.feed(text)

    def _settle_space(self, *, followed_by_text: bool) -> None:
        space = "".join(self._space)
        self._space.clear()
        if space and followed_by_text:
            self._prose.append(space)
            self._quoting.feed(space)
        elif space:
            self._drop(space)

    def _flush_prose(self) -> None:
        text = "".join(self._prose)
        self._prose.clear()
        if text:
            self._pieces.append(Piece(text, (Thinking(text) if self._thinks else Text(text),)))

    def _drop(self, raw: str) -> None:
        self._flush_prose()
        self._pieces.append(Piece(raw))

    def _begin_gap(self, gap: Gap) -> None:
        self._settle_space(followed_by_text=False)
        self._flush_prose()
        self._gap = gap
        self._quoting = Quoting()

    # Thinking and its end

    def _stop_thinking(self) -> None:
        self._begin_gap("after_thinking")
        self._thinks = False
        self._drop(THINK_CLOSER)
        self._at += len(THINK_CLOSER)

    def _read_tentative(self, final: bool) -> bool:
        """A call inside thinking: only the end of the thinking, or of the answer, says which it was."""
        found = _CLOSES_THINKING.search(self._text, self._at)
        place = len(self._text) if found is None else found[0]
        self._tentative.append(self._text[self._at : place])
        self._at = place
        if found is not None and found[1]:
            self._say(self._taken_tentative())
            self._state = self._read_prose
            return True
        if not final:
            return False
        # Nobody closed the thinking, so the call did: what follows it is the answer.
        self._begin_gap("after_thinking")
        self._thinks = False
        self._text, self._at = self._taken_tentative() + self._text[place:], 0
        self._state = self._read_prose
        return True

    def _taken_tentative(self) -> str:
        text = "".join(self._tentative)
        self._tentative.clear()
        return text

    # Calls

    def _open_call(self, syntax: Syntax, begins: int) -> None:
        self._begin_gap("after_call")
        boundary = Markers((*syntax.closers, *self._openers.markers.literals))
        call = _Call(syntax, boundary, syntax.scanner(boundary), self._text[self._at : begins])
        self._at = begins
        self._state = partial(self._read_body, call)

    def _read_body(self, call: _Call, final: bool) -> bool:
        """The body of a call up to where its structure ends."""
        room = self._at + MAX_CALL_CHARACTERS - call.length
        window = self._text if len(self._text) < room else self._text[:room]
        verdict, place = call.scanner.scan(window, self._at)
        call.take(window[self._at : place])
        self._at = place
        if verdict is Verdict.COMPLETE:
            return self._body_ended(call)
        if verdict is Verdict.BROKEN:
            if any(self._text.startswith(closer, place) for closer in call.syntax.closers):
                return self._body_ended(call)
            return self._give_up(call, INTERRUPTED)
        if len(window) == room:
            return self._give_up(call, f"the call is longer than {MAX_CALL_CHARACTERS} characters", rest=window[place:])
        if not final:
            return False
        if call.scanner.may_end():
            return self._body_ended(call)
        return self._give_up(call, CUT_OFF, rest=window[place:])

    def _body_ended(self, call: _Call) -> bool:
        if call.syntax.closers or call.syntax.another:
            self._state = partial(self._read_ending, call)
        else:
            call.end_part("")
            self._settle(call)
        return True

    def _read_ending(self, call: _Call, final: bool) -> bool:
        """Behind a body: its closer, one more body, or nothing that belongs to the call."""
        ending = find_ending(call.syntax, self._text, self._at, final=final)
        if ending is None:
            return False
        call.end_part(self._text[self._at : ending.at])
        self._at = ending.at
        if ending.another:
            call.scanner = call.syntax.scanner(call.boundary)
            self._state = partial(self._read_body, call)
        else:
            self._settle(call)
        return True

    def _give_up(self, call: _Call, rule: str, rest: str = "") -> bool:
        """The current part has no end of its own."""
        call.take(rest)
        self._at += len(rest)
        call.end_part("", unended=rule)
        self._settle(call)
        return True

    def _settle(self, call: _Call) -> None:
        """Read the parts of a call that is over, and go back to text."""
        self._state = self._read_prose
        for index, part in enumerate(call.parts):
            outcome = settle(part, call.syntax, self._catalogue, self if self._cuts < MAX_CUTS else None)
            self._pieces.append(Piece(outcome.raw, outcome.events))
            if outcome.rest is not None:
                # What stands behind a cut is read again, as text.
                self._cuts += 1
                behind = (outcome.rest, *(later.raw for later in call.parts[index + 1 :]), self._text[self._at :])
                self._text, self._at = "".join(behind), 0
                return

    # What a cut asks about the text behind it (settling.RestReader)

    def next_call(self, text: str) -> int | None:
        """Where in ``text`` a call begins."""
        return self._openers.next_call(text)

    def only_calls(self, text: str) -> bool:
        """Whether ``text`` is complete calls and white space to its end."""
        reader = Detector(self._tools, self._syntaxes)
        reader._cuts = MAX_CUTS
        pieces = reader.consume(text) + reader.close()
        return all(isinstance(event, ToolCallDetected) for piece in pieces for event in piece.events)
