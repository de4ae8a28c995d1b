"""What servers offer besides tools, as values: resources, templates of resources, prompts, and what was read of them.

Frozen dataclasses only; ``tools`` makes them from what servers say, surfaces show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.messages import Message


@dataclass(frozen=True)
class Resource:
    """Something a server lets others read.

    Args:
        server: the configuration's name of the server.
        uri: what the server knows it by.
        name: its short name, in the server's words.
        description: what it is; may be empty.
        mime_type: what kind of content it has; empty when the server does not say.
        size: its size in bytes; None when the server does not say.
    """

    server: str
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None

    @property
    def reference(self) -> str:
        """``server:uri``, as a message names it behind an ``@``."""
        return f"{self.server}:{self.uri}"


@dataclass(frozen=True)
class ResourceTemplate:
    """A family of resources, by an address with blanks such as ``docs://{page}`` (RFC 6570)."""

    server: str
    uri_template: str
    name: str = ""
    description: str = ""
    mime_type: str = ""


@dataclass(frozen=True)
class ResourceContent:
    """What a resource held when it was read.

    Args:
        server: whose it is.
        uri: what was asked for.
        text: what a model reads of it; what is no text is described.
        truncated: ``text`` was cut to the size asked for.
        contents: the server's content objects as they came: ``uri``, and ``text`` or ``blob`` (base64).
    """

    server: str
    uri: str
    text: str
    truncated: bool = False
    contents: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class PromptArgument:
    """A blank in a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True)
class PromptTemplate:
    """A conversation that a server has prepared, with blanks."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = field(default=())

    @property
    def reference(self) -> str:
        """``server:name``, which is unique."""
        return f"{self.server}:{self.name}"


@dataclass(frozen=True)
class FilledPrompt:
    """A prompt with its blanks filled: turns of the user and the assistant, in order."""

    template: PromptTemplate
    messages: tuple[Message, ...]
