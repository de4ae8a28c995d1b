"""The ``[[servers]]`` of a configuration: where tools come from, one class per way of reaching them.

Which class an entry is follows from its ``transport``, and without one from the key that only one of them has:
``command``, ``url``, ``tools`` or ``openapi_spec``. Knows nothing of MCP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import Discriminator, Field, Tag, field_validator, model_validator
from typing_extensions import Self

from rkllm_mcp.config.section import (
    Approve,
    FilePath,
    FilePaths,
    Names,
    NotNegativeSeconds,
    Seconds,
    Section,
    combination,
)

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
# Annotated, because typing takes a union of the same literals in another order, such as the SDK's, for this very one.
LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"], Field()
]
# The tools that a builtin server has without an entry point.
OWN_TOOLS = ("clock", "calculator", "convert_units", "device_status")
_ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
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
    """Tools that never wait for a person (other hosts: alwaysAllow), by name or shell pattern."""
    always_ask: Names = ()
    """Tools that always wait for a person, likewise."""
    safe_tools: Names = ()
    """Tools that change nothing though the server does not say so, likewise: they run side by side with others."""
    trusted: bool | None = None
    """Believe it when it says that a tool changes nothing; true for what comes with rkllm-mcp, else false."""
    lazy: bool = False
    """Connect at the first use instead of at the start; its tools are remembered from the time before."""
    idle_stop_s: Seconds | None = None
    """Stop the server after so long without use and start it again at the next; never when not given."""
    ping_s: NotNegativeSeconds = 60.0
    """How often to ask a quiet server whether it is still there; 0 never."""
    system_instruction: str | None = None
    """Added to the system prompt."""
    response_instruction: str | None = None
    """Added after one of this server's tools has answered."""
    auto_context_tool: str | None = None
    """A tool that is called with every question; its result goes into the prompt."""
    sampling: Literal["ask", "allow", "deny"] = "ask"
    """Whether the server may ask the model: after a yes, always, or never."""
    elicitation: Literal["ask", "defaults", "deny"] = "ask"
    """Who answers the server's questions: a person, the form's own defaults, or nobody."""
    roots: FilePaths | None = None
    """Where this server differs from security.roots; relative to the configuration file."""
    log_level: LogLevel | None = None
    """From which level on the server is asked for its log; whatever it sends by itself when not given."""
    task_timeout_s: Seconds = 600.0
    """The longest a call may take that the server runs as a task."""

    def narrowed(self, tools: Sequence[str] | None) -> Self:
        """The same server, offering less.

        Args:
            tools: the only tools to offer, by the server's own names or ``mcp__{server}__{tool}``; all when None.
        """
        if tools is None:
            return self
        own = [name.removeprefix(f"mcp__{self.name}__") for name in tools]
        allowed = self.allowed_tools
        still = tuple(name for name in own if allowed is None or any(fnmatchcase(name, each) for each in allowed))
        return self.model_copy(update={"allowed_tools": still})


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
    sandbox_read: FilePaths = ()
    """Files and folders it may read in the sandbox; relative to the configuration file."""
    sandbox_write: FilePaths = ()
    """Files and folders it may change in the sandbox, likewise."""
    sandbox_network: bool = False
    """It may use the network in the sandbox."""


class RemoteServer(ServerBase):
    """A server behind a URL."""

    transport: Literal["http", "sse", "websocket"] = "http"
    """http (Streamable HTTP), sse or websocket."""
    url: str
    """http:// or https://; ws:// or wss:// for websocket."""
    headers_template: dict[str, str] = Field(default_factory=dict[str, str])
    """HTTP headers; ${token} is filled from a request's tokens when a call is made, never from the environment."""
    ca_file: FilePath | None = None
    """Certificates to trust besides the system's, for https:// and wss://; relative to the configuration file."""
    auth: Literal["none", "oauth", "client_credentials"] = "none"
    """oauth: a person logs in with a browser, once; client_credentials: the program logs in as itself."""
    client_id: str | None = None
    """The name that the authorization server knows this program by; it registers itself when not given."""
    client_secret: str | None = None
    """The secret to it; better as ${VAR}."""
    scopes: Names = ()
    """What to ask the authorization server for; what the server advertises when empty."""
    issuer: str | None = None
    """The authorization server that client_id belongs to; whichever the server names when not given."""
    redirect_uri: str | None = None
    """Where the browser comes back to, such as http://127.0.0.1:8765/callback; a port of its own when not given."""

    @model_validator(mode="after")
    def _check_auth(self) -> RemoteServer:
        if self.auth != "none" and self.transport == "websocket":
            raise combination("auth", repr(self.auth), "websocket has no OAuth; put a key into headers_template")
        if self.auth == "client_credentials" and not (self.client_id and self.client_secret and self.issuer):
            raise combination("auth", repr(self.auth), "it needs client_id, client_secret and the issuer of both")
        return self

    @model_validator(mode="after")
    def _check_url(self) -> RemoteServer:
        schemes = ("ws", "wss") if self.transport == "websocket" else ("http", "https")
        # A server that is switched off may still name variables that are not set.
        if "${" not in self.url:
            _check_url(self.url, "url", schemes, self.transport)
        return self


class BuiltinTool(Section):
    """A tool without a process: one of ours by its name alone, or a Python function."""

    name: Annotated[str, Field(min_length=1)]
    """clock, calculator, convert_units or device_status; any name with entry_point."""
    description: str = ""
    """What the model reads; our own tools have theirs."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments; our own tools have theirs."""
    entry_point: str | None = None
    """package.module:function, what runs, with the arguments by name; async or not."""
    read_only: bool | None = None
    """true: it changes nothing."""
    destructive: bool | None = None
    """true: it may destroy something."""

    @model_validator(mode="after")
    def _check_what_runs(self) -> BuiltinTool:
        if self.entry_point is None and self.name not in OWN_TOOLS:
            known = ", ".join(OWN_TOOLS)
            raise combination("name", f"{self.name!r} without entry_point", f"name what runs, or one of {known}")
        if self.entry_point is not None and not _ENTRY_POINT.fullmatch(self.entry_point):
            raise combination("entry_point", repr(self.entry_point), "write package.module:function")
        return self


class BuiltinServer(ServerBase):
    """Tools inside this process."""

    transport: Literal["builtin"] = "builtin"
    """builtin"""
    tools: Annotated[tuple[BuiltinTool, ...], Field(strict=False)]
    """{name = "clock"} for one of ours; name, description, input_schema and entry_point for others."""


class OpenAPIServer(ServerBase):
    """A REST API as tools, one per operation of its specification."""

    transport: Literal["openapi"] = "openapi"
    """openapi"""
    openapi_spec: str | dict[str, Any]
    """A path (relative to the configuration file), a URL, or the specification itself, as a table or as text."""
    openapi_base_url: str | None = None
    """The address of the API, where the specification's own is not the one to use."""
    headers_template: dict[str, str] = Field(default_factory=dict[str, str])
    """HTTP headers; ${token} is filled from a request's tokens when a call is made, never from the environment. A key
    that the API wants in the query or a cookie goes there under its name."""
    include: Names | None = None
    """The only operations to offer, by tool name, operationId, tag, path or 'GET /path', shell patterns allowed."""
    exclude: Names = ()
    """Operations not to offer, likewise."""

    @field_validator("openapi_base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is not None and "${" not in value:
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


def type_of(transport: str) -> type[ServerBase]:
    """What a server of a transport may be configured with."""
    return SERVER_TYPES["remote" if transport in {"http", "sse", "websocket"} else transport]


SERVER_KEYS = tuple(dict.fromkeys(key for kind in SERVER_TYPES.values() for key in kind.model_fields))
