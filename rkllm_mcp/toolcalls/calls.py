"""A call while it is being read: its text part by part, up to where its structure, its closer or the answer ends."""

from __future__ import annotations

from collections.abc import Callable

from rkllm_mcp.toolcalls.form import Form, find_ending
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.scan import Verdict
from rkllm_mcp.toolcalls.settling import CUT_OFF, INTERRUPTED, Part

# The contexts of these models end at 16 thousand tokens; a body beyond this is not going to end.
MAX_CALL_CHARACTERS = 256 * 1024
# So many tokens of a body are joined at a time, or the last would pay for all of them.
_MANY_PIECES = 256


class OpenCall:
    """Follows one call, and the further ones behind the same opener.

    Args:
        form: how it is written.
        boundary: what cannot stand in a body.
        lead: the opener, as far as it is not part of the body.
        watch: told every piece of a body, and None where a body ends.
    """

    def __init__(
        self, form: Form, boundary: Markers, lead: str, watch: Callable[[str | None], None] | None = None
    ) -> None:
        self.form = form
        self.parts: list[Part] = []
        self._boundary = boundary
        self._scanner = form.scanner(boundary)
        self._lead = lead
        self._watch = watch
        self._body: list[str] = []
        self._joined: list[str] = []
        self._length = 0
        self._in_body = True

    def advance(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Go on at ``at``; returns the place up to which the call is read, and whether it is over.

        Args:
            text: what is there.
            at: where to go on.
            final: nothing will follow.
        """
        while True:
            read = self._read_body if self._in_body else self._read_ending
            at, over = read(text, at, final)
            if over is not None:
                return at, over

    # Both return None to go on with the other, else whether the call is over; False waits for more text.

    def _read_body(self, text: str, at: int, final: bool) -> tuple[int, bool | None]:
        room = at + MAX_CALL_CHARACTERS - self._length
        window = text if len(text) < room else text[:room]
        verdict, place = self._scanner.scan(window, at)
        self._take(window[at:place])
        if verdict is Verdict.COMPLETE:
            return place, self._end_body()
        if verdict is Verdict.BROKEN:
            if any(text.startswith(closer, place) for closer in self.form.closers):
                return place, self._end_body()
            return self._give_up(window, place, INTERRUPTED, rest=False)
        if len(window) == room:
            return self._give_up(window, place, f"the call is longer than {MAX_CALL_CHARACTERS} characters")
        if not final:
            return place, False
        if self._scanner.may_end():
            return place, self._end_body()
        return self._give_up(window, place, CUT_OFF)

    def _take(self, text: str) -> None:
        self._body.append(text)
        self._length += len(text)
        if len(self._body) > _MANY_PIECES:
            self._body, self._joined = [], [*self._joined, "".join(self._body)]
        if self._watch is not None:
            self._watch(text)

    def _end_body(self) -> bool | None:
        if self.form.closers or self.form.another:
            self._in_body = False
            return None
        self._end_part("")
        return True

    def _read_ending(self, text: str, at: int, final: bool) -> tuple[int, bool | None]:
        """Behind a body: its closer, one more body, or nothing that belongs to the call."""
        ending = find_ending(self.form, text, at, final=final)
        if ending is None:
            return at, False
        self._end_part(text[at : ending.at])
        if not ending.another:
            return ending.at, True
        self._scanner, self._in_body = self.form.scanner(self._boundary), True
        return ending.at, None

    def _give_up(self, window: str, place: int, rule: str, *, rest: bool = True) -> tuple[int, bool]:
        """The current part has no end of its own."""
        if rest:
            self._body.append(window[place:])
            place = len(window)
        self._end_part("", unended=rule)
        return place, True

    def _end_part(self, tail: str, unended: str = "") -> None:
        """The current part ends here; ``tail`` is what follows its body and belongs to it."""
        body = "".join((*self._joined, *self._body))
        self.parts.append(Part(self._lead, body, tail, unended))
        self._lead, self._body, self._joined = "", [], []
        if self._watch is not None:
            self._watch(None)
