"""The states of an answer that is being read, what each may find, and the table of what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.resolve import ResolvedPart
from rkllm_mcp.toolcalls.syntax import CallFormat, ThinkingTags


class AnswerState(Enum):
    """State of an answer that is being read."""

    BEGINNING = "beginning"  # white space, then perhaps a mark of thinking
    HEADER = "header"  # the line after the opener of thinking that names it
    THINKING = "thinking"
    TENTATIVE_CALL = "tentative call"  # inside thinking, whose end or the end of the answer decides if it is one
    TEXT = "text"
    BODY = "body"  # of a call, from its opener or a separator to the end of its structure
    ENDING = "ending"  # of a body: a closer, or the separator before another body
    AFTER_CALL = "after a call"  # what follows decides if a call without a marker is one
    FENCED_ANSWER = "fenced answer"  # a code fence that is a call if it is the whole answer
    RESPONSE = "response"  # of a tool, invented by the model
    DONE = "done"


# What a state has found, with the data that the next state needs.


@dataclass(frozen=True)
class TextFollows:
    """Text of the answer follows."""


@dataclass(frozen=True)
class ThinkingBegins:
    """The opener of ``tags`` has been read."""

    tags: ThinkingTags


@dataclass(frozen=True)
class ThinkingFollows:
    """Thinking follows that ``tags`` began; None if the prompt began it."""

    tags: ThinkingTags | None


@dataclass(frozen=True)
class CallInThinking:
    """A call begins in the thinking that ``tags`` began."""

    tags: ThinkingTags | None


@dataclass(frozen=True)
class FenceBegins:
    """A code fence with a call begins the answer."""


@dataclass(frozen=True)
class ResponseBegins:
    """The opener of a response has been read; ``then`` is what follows after its closer."""

    closer: str
    then: TextFollows | ThinkingFollows


@dataclass
class OpenCall:
    """One call that is being read, and further calls after the same opener."""

    call_format: CallFormat
    boundary: Markers  # markers that cannot occur in a body
    lead: str  # the part of the opener outside the body; empty for further bodies
    is_line: bool  # the format is not the family's, and it is a call only as its own line
    is_first: bool  # the answer begins with it
    must_be_whole: bool  # it is a code fence that is a call only if no text follows
    parts: list[ResolvedPart] = field(default_factory=list[ResolvedPart])  # its bodies that have ended
    characters: int = 0  # of all bodies

    def end_part(self, body: str, tail: str = "", unended: str = "") -> None:
        """Add a body that has ended; ``tail`` is the text after it that belongs to it."""
        self.parts.append(ResolvedPart(self.lead, body, tail, unended))
        self.lead = ""


@dataclass(frozen=True)
class BodyBegins:
    """A body of the call begins."""

    call: OpenCall


@dataclass(frozen=True)
class BodyEnds:
    """The structure of a body of the call has ended, and its closer may follow."""

    call: OpenCall
    body: str


@dataclass(frozen=True)
class CallEnds:
    """The call has ended."""

    call: OpenCall


Found = (
    TextFollows
    | ThinkingBegins
    | ThinkingFollows
    | CallInThinking
    | FenceBegins
    | ResponseBegins
    | BodyBegins
    | BodyEnds
    | CallEnds
)

TRANSITIONS: Mapping[AnswerState, Mapping[type[Found], AnswerState]] = {
    AnswerState.BEGINNING: {
        TextFollows: AnswerState.TEXT,
        ThinkingBegins: AnswerState.HEADER,
        ThinkingFollows: AnswerState.THINKING,
    },
    AnswerState.HEADER: {ThinkingFollows: AnswerState.THINKING},
    AnswerState.THINKING: {
        TextFollows: AnswerState.TEXT,
        CallInThinking: AnswerState.TENTATIVE_CALL,
        ResponseBegins: AnswerState.RESPONSE,
    },
    AnswerState.TENTATIVE_CALL: {
        ThinkingFollows: AnswerState.THINKING,
        TextFollows: AnswerState.TEXT,
    },
    AnswerState.TEXT: {
        ThinkingBegins: AnswerState.HEADER,
        BodyBegins: AnswerState.BODY,
        FenceBegins: AnswerState.FENCED_ANSWER,
        ResponseBegins: AnswerState.RESPONSE,
    },
    AnswerState.BODY: {BodyEnds: AnswerState.ENDING, CallEnds: AnswerState.AFTER_CALL},
    AnswerState.ENDING: {BodyBegins: AnswerState.BODY, CallEnds: AnswerState.AFTER_CALL},
    AnswerState.AFTER_CALL: {TextFollows: AnswerState.TEXT},
    AnswerState.FENCED_ANSWER: {TextFollows: AnswerState.TEXT},
    AnswerState.RESPONSE: {TextFollows: AnswerState.TEXT, ThinkingFollows: AnswerState.THINKING},
    AnswerState.DONE: {},
}
"""The state that follows each state, by what it has found."""
