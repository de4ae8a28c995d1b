"""What a service's stream is made of, whichever service it is: the words between its readers and ``answer``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Said:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class Thought:
    """A piece of what the model thinks."""

    text: str


@dataclass(frozen=True)
class CallPart:
    """A piece of a call.

    Args:
        index: which call of the answer.
        id: the service's id of it; empty where the piece does not say.
        name: the tool's name, or a piece of it.
        arguments: a piece of the arguments' JSON.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Counted:
    """The service's own count, so far, in tokens.

    Args:
        prompt: of the whole prompt.
        cached: of these, reused.
        generated: of the answer.
    """

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True)
class Stopped:
    """The answer is over: by itself, at the limit of tokens, or because the service holds the rest back."""

    why: Literal["end", "length", "withheld"]


Piece: TypeAlias = Said | Thought | CallPart | Counted | Stopped
