"""``Holding``: the parts of one response that are held to what they have to be, and their corrections.

    token ─▶ admit ─▶ text to show ─▶ TurnBuilder
                └▶ correction: the run is aborted, and started again after the ids that stay

An answer with a grammar is held from its first character on, a call from the end of its opener to its closer. Text
and thinking are free. A correction keeps what was right of a token, and writes what only one way can go on with; the
KV cache has the tokens before it. Where there is a choice, the model is asked again, hotter. If that fails, an answer
is continued with the first value in what the model would go on with, or else in the shortest way, and a call as the
model wrote it: a tool and its values are the model's to choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from rkllm_mcp.generation import GenerationOptions, HeldLimits
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer, PlainText, Segment
from rkllm_mcp.sampling import Sampling
from rkllm_mcp.toolcalls.constraint import Constraint, HeldText
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.syntax import CallFormat

HOT_TRIES = 3
_HOT_TOKENS = 1
# So much of the model's own continuation is searched for a value.
_HEARD_TOKENS = 12
_HOTTEST = Sampling(temperature=1.0, top_k=40, top_p=0.95)
# Number of tokens that one character may take, four bytes each of its own, and the text before it.
_LONGEST_CHARACTER = 6


class _Phase(Enum):
    """What the next token of a response is."""

    FREE = auto()  # text, thinking, or what is not held any more
    WAITING = auto()  # the beginning of the held answer, or thinking before it
    ANSWER = auto()
    CALL = auto()


CallConstraint = Callable[[CallFormat, str], "Constraint | None"]


@dataclass(eq=False)
class _HeldPart:
    """An answer or a call that is held."""

    text: HeldText
    start: int  # of its first token among the ids
    shown: list[str] = field(default_factory=list[str])  # of each token


@dataclass(eq=False)
class _Cost:
    """What the corrections of a response have cost."""

    lost_s: float = 0.0
    began_at: float | None = None  # of the last correction, until its first token has come


class Holding:
    """What is held of one response.

    Args:
        tokenizer: writes the ids of what the host adds.
        detector: reads the response; asked if the text is thinking, and for the call that has begun.
        answer: what the answer consists of; None for free text.
        calls: returns the constraint of calls in a format, whose body has begun; None holds no calls.
        limits: the most that corrections may cost.
        markers: texts of calls that are control tokens of the model.
        may_call: the model may call tools: an answer is held only once it has begun as it has to.
        can_heat: the runtime takes the sampling of each run.
    """

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        detector: Detector,
        *,
        answer: Constraint | None = None,
        calls: CallConstraint | None = None,
        limits: HeldLimits | None = None,
        markers: Sequence[str] = (),
        may_call: bool = False,
        can_heat: bool = True,
    ) -> None:
        self.corrections = 0
        # True while the next token has to be admitted; False in free text.
        self.is_active = answer is not None
        self.is_over = False  # the held answer is complete: the run can end
        self.is_corrected = False  # the run has to be aborted, and started again with the ids that stay
        self.is_hot = False  # the next run is one of few tokens, with a higher temperature
        self._limits = limits or HeldLimits()
        self._cost = _Cost()
        self._tokenizer = tokenizer
        self._detector = detector
        self._answer = answer
        self._calls = calls
        named = "|".join(re.escape(text) for text in sorted(markers, key=len, reverse=True) if text.strip())
        self._markers = re.compile(f"({named})") if named else None
        self._may_call = may_call
        self._phase = _Phase.FREE if answer is None else _Phase.WAITING
        self._held: _HeldPart | None = None
        self._lead = ""  # written by the host before the first token, and not shown yet
        self._waited = ""  # what may begin thinking
        self._tries = 0
        self._most_tries = HOT_TRIES if can_heat else 0  # none once a choice stayed wrong
        self._heard: list[str] | None = None  # the model's own continuation, which is not shown

    def begin_answer(self, ids: list[int], started: str = "") -> None:
        """Hold the answer from the beginning of the run on, and write into ``ids`` what only one way begins with.

        ``started`` is the text that an earlier response has left.
        """
        if self._answer is not None:
            answer_text = self._answer.begin()
            if answer_text.feed(started) == len(started):
                self._hold(answer_text, _Phase.ANSWER, ids)
                self._write_lead(ids)
            else:
                self._release()

    def begin_call(
        self, ids: list[int], started: tuple[CallFormat, str] | None = None, *, writes: bool = False
    ) -> None:
        """Hold the call that the detector has met, if there is one and it was begun as it has to be.

        ``started`` is the format and the beginning of the body of a call that the prompt ends with; ``writes`` writes
        into ``ids`` what only one way goes on with.
        """
        if self._calls is None or (opened := self._detector.open_call or started) is None:
            return
        call_format, body = opened
        constraint = self._calls(call_format, body)
        if constraint is None:
            return
        call_text = constraint.begin()
        if call_text.feed(body) == len(body) and not call_text.is_over:
            self._hold(call_text, _Phase.CALL, ids)
            if writes:
                self._write_lead(ids)

    def admit(self, ids: list[int], text: str, *, is_end: bool = False) -> str:
        """Return the text that is shown of the last token of ``ids``, and correct them if it is wrong.

        ``is_end``: it is a token that ends the answer.
        """
        if self._cost.began_at is not None:
            # The correction before this token is over.
            self._cost.lost_s += self._limits.clock() - self._cost.began_at
            self._cost.began_at = None
        lead, self._lead = self._lead, ""
        if self._phase is _Phase.WAITING and self._answer is not None:
            return self._wait(ids, text, self._answer, is_end=is_end)
        held = self._held
        if held is None or self._phase is _Phase.FREE:
            return lead + text
        if self._heard is not None:
            return lead + self._hear(ids, held, self._heard, text, is_end=is_end)
        if is_end:
            if held.text.is_complete:
                self._release()
                return lead
            # The model ends a part that is not complete.
            held.shown.append("")
            return lead + self._reject(ids, held, "", "")
        held.shown.append(text)
        accepted = held.text.feed(text)
        if accepted == len(text):
            self._tries = 0 if text else self._tries
            if held.text.is_over:
                self.is_over = self._phase is _Phase.ANSWER
                self._release()
            return lead + text
        return lead + self._reject(ids, held, text[:accepted], text[accepted:])

    def flush(self, ids: list[int]) -> str:
        """Return the text to show at the end of a run that ended by itself, without a token that ends the answer."""
        lead, self._lead = self._lead, ""
        if self.is_corrected or self.is_over or self._held is None or self.is_hot:
            return lead
        if self._phase is _Phase.FREE or self._held.text.is_complete:
            return lead
        ids.append(-1)
        return lead + self.admit(ids, "", is_end=True)

    def run_options(self, options: GenerationOptions, written: int) -> GenerationOptions:
        """Return the options of the next run; ``options`` are those of the response, which has ``written`` tokens."""
        if not self.is_corrected:
            self.is_hot = False  # the few tokens were right
        self.is_corrected = False
        room = options.max_new_tokens - written
        most = _HOT_TOKENS if self.is_hot else room if self._heard is None else min(room, _HEARD_TOKENS)
        sampling = _HOTTEST if self.is_hot and options.sampling is not None else options.sampling
        return replace(options, max_new_tokens=max(1, most), sampling=sampling)

    def _hold(self, text: HeldText, phase: _Phase, ids: Sequence[int]) -> None:
        self._held, self._phase, self.is_active = _HeldPart(text, len(ids)), phase, True

    def _release(self) -> None:
        self._held, self._phase, self.is_active = None, _Phase.FREE, False

    def _write_lead(self, ids: list[int]) -> None:
        held = self._held
        written = "" if held is None else held.text.structure()
        if held is not None and written:
            held.text.feed(written)
            ids += self._tokenizer.encode(self._segments(written))
            held.start, self._lead = len(ids), written

    def _wait(self, ids: list[int], text: str, answer: Constraint, *, is_end: bool) -> str:
        """Let thinking and white space pass before the held answer; its first token begins it."""
        if not is_end and (not text.strip() or self._detector.reads_thinking(text)):
            self._waited = f"{self._waited}{text}".lstrip() if self._detector.is_at_beginning else ""
            return text
        held, bare = answer.begin(), text if self._waited else text.lstrip()
        is_right = held.feed(self._waited) == len(self._waited)
        if not is_right or (self._may_call and (is_end or not answer.begin().feed(self._waited + bare))):
            # It may be a call, or the words before one.
            self._release()
            return text
        last = ids.pop()
        self._hold(held, _Phase.ANSWER, ids)
        ids.append(last)
        return text[: len(text) - len(bare)] + self.admit(ids, bare, is_end=is_end)

    def _reject(self, ids: list[int], held: _HeldPart, kept: str, rejected: str) -> str:
        """Correct the last token of ``ids``, of which ``kept`` is right; return the text to show for it."""
        if held.text.is_complete and self._phase is _Phase.CALL:
            self._release()
            return kept + rejected
        if held.text.is_complete:
            # Words after a complete answer.
            self._replace_last(ids, held, kept, "")
            self.is_over = True
            self._release()
            return kept
        limits = self._limits
        if held.text.has_failed or self.corrections >= limits.corrections or self._cost.lost_s >= limits.seconds:
            if ids[-1] < 0:
                ids.pop()
            self._release()
            return kept + rejected
        was_hot, self.is_hot = self.is_hot, False
        written = held.text.other_spelling(rejected) if rejected and held.text.has_tool else ""
        held.text.feed(written)
        more = held.text.structure()
        held.text.feed(more)
        written += more
        if not written and rejected and held.text.has_tool and self._tries < self._most_tries:
            self.is_hot = True
            self._tries += 1
        elif not written and self._phase is _Phase.ANSWER and rejected:
            self._heard, self._most_tries = [], 0
        elif not written and self._phase is _Phase.ANSWER:
            written = held.text.shortest()
            held.text.feed(written)
        if not (written or self.is_hot or self._heard is not None):
            # The model's own word stays, and is read as without.
            self._release()
            if not was_hot or not rejected:
                if ids[-1] < 0:
                    ids.pop()
                return kept + rejected
            written = rejected
        else:
            self.corrections += 1
            self._cost.began_at = limits.clock()
        self.is_corrected = True
        self._replace_last(ids, held, kept, written)
        return kept + written

    def _hear(self, ids: list[int], held: _HeldPart, heard: list[str], text: str, *, is_end: bool) -> str:
        """Add a token to the model's own continuation, and at its end write the first value in it, or the shortest."""
        heard.append(text)
        if not is_end and len(heard) < _HEARD_TOKENS:
            del ids[-1]
            return ""
        self._heard, self._tries = None, 0
        written = held.text.first_value("".join(heard)) or held.text.shortest()
        held.text.feed(written)
        more = held.text.structure()
        held.text.feed(more)
        self.corrections += 1
        self._cost.began_at = self._limits.clock()
        self.is_corrected = True
        held.shown.append("")
        self._replace_last(ids, held, "", written + more)
        if held.text.is_over:
            self.is_over = True
        if held.text.is_over or not written:
            self._release()
        return written + more

    def _replace_last(self, ids: list[int], held: _HeldPart, kept: str, written: str) -> None:
        """Replace the last token by ``kept`` and ``written``, with the tokens before it of one character or word."""
        del ids[-1]
        held.shown = held.shown[: len(ids) - held.start]
        text = self._take_character(ids, held) + kept
        if held.shown and held.shown[-1] and (text or written) and ids[-1] not in self._tokenizer.control_ids:
            # The words are cut up as the model would have done it.
            del ids[-1]
            text = held.shown.pop() + text
            text = self._take_character(ids, held) + text
        added = self._tokenizer.encode([PlainText(text), *self._segments(written)])
        ids += added
        held.shown += [text + written, *[""] * (len(added) - 1)] if added else []

    def _take_character(self, ids: list[int], held: _HeldPart) -> str:
        """Remove the tokens of a character that is not complete; return the text that they had before it."""
        text = ""
        while held.shown and self._tokenizer.decode(ids[-_LONGEST_CHARACTER:]).endswith("\ufffd"):
            text = held.shown.pop() + text
            del ids[-1]
        return text

    def _segments(self, written: str) -> list[Segment]:
        if self._markers is None:
            return [PlainText(written)]
        pieces = self._markers.split(written)
        return [ControlText(piece) if index % 2 else PlainText(piece) for index, piece in enumerate(pieces)]
