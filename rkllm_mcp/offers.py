"""Values for resources, resource templates and prompts of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.messages import Message


@dataclass(frozen=True)
class Resource:
    """A resource of a server."""

    server: str
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None  # bytes

    @property
    def reference(self) -> str:
        """``server:uri``, the form used after ``@`` in a message."""
        return f"{self.server}:{self.uri}"


@dataclass(frozen=True)
class ResourceTemplate:
    """A family of resources with a URI template such as ``docs://{page}`` (RFC 6570)."""

    server: str
    uri_template: str
    name: str = ""
    description: str = ""
    mime_type: str = ""


@dataclass(frozen=True)
class ResourceContent:
    """Content of a resource at the time of reading."""

    server: str
    uri: str
    text: str  # for the model; other content is described in one line
    truncated: bool = False
    contents: tuple[Mapping[str, Any], ...] = ()  # as received: uri, and text or blob (base64)


@dataclass(frozen=True)
class PromptArgument:
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt of a server, with arguments."""

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
    """A prompt with its arguments filled in: user and assistant messages, in order."""

    template: PromptTemplate
    messages: tuple[Message, ...]
