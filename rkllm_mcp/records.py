"""What outlives a run, as values, and the ports to whoever keeps it: recorded calls, given approvals, switches.

``tools`` fills and asks these ports, ``store`` implements them on a file, and the composition root brings the two
together. Nothing here knows how anything is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from rkllm_mcp.events import EndReason

# free: nobody had to be asked; remembered: by an earlier "always"; granted and refused: decided before the run;
# off: the tool was switched off; stopped: it was cancelled; the others are what a person said.
Ruling: TypeAlias = Literal[
    "free", "remembered", "granted", "once", "conversation", "always", "deny", "never", "refused", "off", "stopped"
]
GrantKind: TypeAlias = Literal["always", "never", "configured"]
# How an answer that is kept came to its end; a question has none.
Ending: TypeAlias = EndReason | Literal[""]


@dataclass(frozen=True)
class CallRecord:
    """One call of a tool that is over.

    Args:
        at: when it ended, seconds since 1970.
        server: the configuration's name of the server; empty for tools that are not on a server.
        tool: the server's name of the tool.
        arguments: as compact JSON, secrets replaced, cut where it is long.
        ruling: how it came to be allowed or refused.
        is_error: it failed, or was refused.
        error: the first line of why; empty when it did not fail.
        result_chars: how long the result was that the model read, characters.
        seconds: how long the tool took, without the wait for a person.
        conversation: the conversation's id; empty when it belonged to none.
        request: the user's words that it served, secrets replaced, cut where they are long; empty when there were none.
    """

    at: float
    server: str
    tool: str
    arguments: str
    ruling: Ruling
    is_error: bool = False
    error: str = ""
    result_chars: int = 0
    seconds: float = 0.0
    conversation: str = ""
    request: str = ""


class Recorder(Protocol):
    """Keeps what was called."""

    def record(self, call: CallRecord) -> None:
        """Keep a record; returns at once and never raises."""
        ...


class PastCalls(Protocol):
    """Knows what served earlier requests."""

    async def served(self, limit: int) -> Sequence[tuple[str, str]]:
        """What a user asked, and the long name (``mcp__server__tool``) of a tool that was called for it and worked.

        Never raises; what cannot be read is nothing.

        Args:
            limit: at most so many, the newest first.
        """
        ...


@dataclass(frozen=True)
class Grant:
    """What the owner has said about a tool for good.

    Args:
        kind: ``always`` allowed, ``never`` to be asked again and refused, or allowed by the ``configured`` names.
        fingerprint: of the tool's definition at that time; with another definition the grant does not hold.
    """

    kind: GrantKind
    fingerprint: str


class Grants(Protocol):
    """Keeps what the owner has said for good."""

    async def find(self, server: str, tool: str) -> Grant | None:
        """What was said about a tool; None when nothing was, or when it cannot be read."""
        ...

    def keep(self, server: str, tool: str, grant: Grant) -> None:
        """Keep it in place of what was said before; returns at once and never raises."""
        ...


@dataclass(frozen=True)
class Switch:
    """A tool, or with an empty ``tool`` a whole server, that was switched on or off at run time.

    Args:
        server: the configuration's name of the server.
        tool: the server's name of the tool; empty for all of its tools.
        is_on: None takes the switch away, so that the server's own, or the configuration, holds again.
    """

    server: str
    tool: str
    is_on: bool | None


@dataclass(frozen=True)
class KeptTurn:
    """One side of a conversation as it is kept: a person's words, or the answer they got at last.

    Args:
        role: who speaks.
        text: the words; of an answer that did not come to its end, what had come.
        thinking: what the model thought for this answer.
        context: what the host put before a person's words.
        ending: how the answer ended; empty for a question.
        at: when it was asked, or the answer ended, seconds since 1970.
    """

    role: Literal["user", "assistant"]
    text: str
    thinking: str = ""
    context: str = ""
    ending: Ending = ""
    at: float = 0.0


@dataclass(frozen=True)
class KeptConversation:
    """A conversation as it is kept.

    Args:
        id: its name.
        title: what a person knows it by.
        created: when its first question was asked, seconds since 1970.
        updated: when its last answer ended, seconds since 1970.
        turns: what was said.
        system: a system text of its own; None where the configuration's holds.
        calls_made: how many calls of tools have an id.
    """

    id: str
    title: str
    created: float
    updated: float
    turns: tuple[KeptTurn, ...]
    system: str | None = None
    calls_made: int = 0


@dataclass(frozen=True)
class ConversationSummary:
    """A kept conversation without its words.

    Args:
        id: its name.
        title: what a person knows it by.
        created: when its first question was asked, seconds since 1970.
        updated: when its last answer ended, seconds since 1970.
        messages: how many turns it has.
    """

    id: str
    title: str
    created: float
    updated: float
    messages: int
