"""The ``[[servers]]`` of a configuration: where tools come from, one class per way of reaching them.

Which class an entry is follows from its ``transport``, and without one from the key that only one of them has:
``command``, ``url``, ``tools`` or ``openapi_spec``. Knows nothing of MCP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from rkllm_mcp.config.section import Approve, FilePath, Names, Seconds, Section, combination

# Every spelling that other hosts write, in lower case and without separators -> ours.
TRANSPORT_SPELLINGS: Mapping[str, str] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "https": "http",
    "streamablehttp": "http",
    "httpstream": "http",
    "remote": "http",
    "sse": "sse",
    "httpsse": "sse",
    "ws": "websocket",
    "wss": "websocket",
    "websocket": "websocket",
    "builtin": "builtin",
    "openapi": "openapi",
}
TRANSPORTS = ("stdio", "http", "sse", "websocket", "builtin", "openapi")
_IMPLIED_BY = {"command": "stdio", "url": "http", "tools": "builtin", "openapi_spec": "openapi"}


class ServerBase(Section):
    """What every server has."""

    name: Annotated[str, Field(min_length=1)]
    """The name that tools, status lines and commands use."""
    enabled: bool = True
    """false leaves the server out without deleting it."""
    timeout_s: Seconds = 30.0
    """The longest a call may take."""
    connect_timeout_s: Seconds = 30.0
    """The longest the start and the handshake may take; the first run of npx and uvx downloads."""
    allowed_tools: Names | None = None
    """The only tools to offer, by the server's own names or shell patterns; all when not given."""
    excluded_tools: Names = ()
    """Tools not to offer, likewise."""
    approve: Approve | None = None
    """Which calls wait for a person, where this server differs from security.approve."""
    always_allow: Names = ()
    """Tools that never wait for a person (other hosts: alwaysAllow)."""
    lazy: bool = False
    """Connect at the first use instead of at the start."""
    system_instruction: str | None = None
    """Added to the system prompt."""
    response_instruction: str | None = None
    """Added after one of this server's tools has answered."""
    auto_context_tool: str | None = None
    """A tool that is called with every question; its result goes into the prompt."""


class StdioServer(ServerBase):
    """A program on this machine, spoken to over its standard input and output."""

    transport: Literal["stdio"] = "stdio"
    """stdio"""
    command: Annotated[str, Field(min_length=1)]
    """The program; ${PYTHON} is the Python that runs rkllm-mcp."""
    args: Names = ()
    """Its arguments, as they are: no shell reads them."""
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Environment variables for it."""
    inherit_env: bool | Names = False
    """false: PATH, HOME and the like; true: the whole environment; a list: these variables as well."""
    cwd: FilePath | None = None
    """The folder it starts in; relative to the configuration file."""
    sandbox: bool | None = None
    """Where this server differs from security.sandbox."""


class RemoteServer(ServerBase):
    """A server behind a URL."""

    transport: Literal["http", "sse", "websocket"] = "http"
    """http (Streamable HTTP), sse or websocket."""
    url: str
    """http:// or https://; ws:// or wss:// for websocket."""
    headers_template: dict[str, str] = Field(default_factory=dict[str, str])
    """HTTP headers; ${token} is filled from a request's tokens when a call is made, never from the environment."""

    @model_validator(mode="after")
    def _check_url(self) -> RemoteServer:
        schemes = ("ws", "wss") if self.transport == "websocket" else ("http", "https")
        # A server that is switched off may still name variables that are not set.
        if "${" not in self.url:
            _check_url(self.url, "url", schemes, self.transport)
        return self


class BuiltinTool(Section):
    """A tool without a process; what it does is declared by further keys."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class BuiltinServer(ServerBase):
    """Tools inside this process."""

    transport: Literal["builtin"] = "builtin"
    """builtin"""
    tools: Annotated[tuple[BuiltinTool, ...], Field(strict=False)]
    """name, description and input_schema of each."""


class OpenAPIServer(ServerBase):
    """A REST API as tools, one per operation of its specification."""

    transport: Literal["openapi"] = "openapi"
    """openapi"""
    openapi_spec: str | dict[str, Any]
    """A path (relative to the configuration file), a URL, or the specification itself."""
    openapi_base_url: str | None = None
    """The address of the API, where the specification's own is not the one to use."""
    headers_template: dict[str, str] = Field(default_factory=dict[str, str])
    """HTTP headers; ${token} is filled from a request's tokens when a call is made, never from the environment."""
    include: Names | None = None
    """The only operations to offer; all when not given."""
    exclude: Names = ()
    """Operations not to offer."""

    @field_validator("openapi_base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is not None:
            _check_url(value, "", ("http", "https"), "openapi")
        return value


def _check_url(url: str, key: str, schemes: tuple[str, ...], transport: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        raise combination(key, f"{without_secrets(url)!r}", f"{transport} needs an address that begins with {wanted}")


def without_secrets(url: str) -> str:
    """The address without its query and without a user's password."""
    head = url.split("?", 1)[0].split("#", 1)[0]
    scheme, separator, rest = head.partition("://")
    return f"{scheme}{separator}{rest.rsplit('@', 1)[-1]}" if separator else head


def transport_of(entry: Mapping[str, Any]) -> str | None:
    """The transport an entry names or implies; None when neither."""
    named = entry.get("transport")
    if named is not None:
        return str(named)
    return next((transport for key, transport in _IMPLIED_BY.items() if key in entry), None)


def _tag(entry: Any) -> str | None:
    is_raw = isinstance(entry, Mapping)
    transport = transport_of(cast("Mapping[str, Any]", entry)) if is_raw else getattr(entry, "transport", None)
    return "remote" if transport in {"http", "sse", "websocket"} else transport


ServerConfig: TypeAlias = Annotated[
    Annotated[StdioServer, Tag("stdio")]
    | Annotated[RemoteServer, Tag("remote")]
    | Annotated[BuiltinServer, Tag("builtin")]
    | Annotated[OpenAPIServer, Tag("openapi")],
    Discriminator(_tag),
]

SERVER_TYPES: Mapping[str, type[ServerBase]] = {
    "stdio": StdioServer,
    "remote": RemoteServer,
    "builtin": BuiltinServer,
    "openapi": OpenAPIServer,
}
SERVER_KEYS = tuple(dict.fromkeys(key for kind in SERVER_TYPES.values() for key in kind.model_fields))
