"""Parts of a remote model's stream, independent of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Said:
    """Part of the answer's text."""

    text: str


@dataclass(frozen=True)
class Thought:
    """Part of the model's thinking."""

    text: str


@dataclass(frozen=True)
class CallPart:
    """Part of a tool call."""

    index: int  # position of the call in the answer
    id: str = ""
    name: str = ""  # the tool's name or a part of it
    arguments: str = ""  # a part of the arguments' JSON


@dataclass(frozen=True)
class Counted:
    """Usage reported by the service so far, in tokens; ``cached`` is the reused part of ``prompt``."""

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True)
class Stopped:
    """The end of the answer: regular, at the token limit, or withheld by the service."""

    why: Literal["end", "length", "withheld"]


Piece: TypeAlias = Said | Thought | CallPart | Counted | Stopped
