"""``[[servers]]`` of a configuration: one class per transport.

The class of an entry follows from its ``transport``, or else from the key that only one class has: ``command``,
``url``, ``tools`` or ``openapi_spec``. Independent of MCP.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

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

# Annotated, because typing caches unions: an equal union of literals in another order, such as the SDK's, would replace
# this one.
LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"], Field()
]
# Tools of a builtin server that need no entry point.
OWN_TOOLS = ("clock", "calculator", "convert_units", "device_status")
_ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_IMPLIED_BY = {"command": "stdio", "url": "http", "tools": "builtin", "folder": "builtin", "openapi_spec": "openapi"}


# Default of timeout_s by transport, seconds: programs and streams may work for long, a request should not.
CALL_TIMEOUTS_S = {"stdio": 60.0, "http": 30.0, "sse": 60.0, "websocket": 60.0, "builtin": 10.0, "openapi": 30.0}


# Each connection writes these itself; RFC 9110, 7.6.1 has those that belong to one connection.
_OWN_HEADERS = frozenset(
    {"connection", "content-length", "host", "keep-alive", "proxy-authenticate", "proxy-authorization"}
    | {"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise combination(name, f"the header name {name!r}", "letters, digits and hyphens are allowed")
        if name.lower() in _OWN_HEADERS:
            raise combination(name, f"the header {name}", "the connection sends it itself; leave it out")
        # A tab is allowed inside of a value.
        if _CONTROL.search(value.replace("\t", "")):
            raise combination(
                name, f"a line break or another control character in the header {name}", "one line is allowed"
            )
    return headers


# HTTP headers of a server, by name.
Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_checked_headers)]


class ServerBase(Section):
    """Settings common to all servers."""

    @model_validator(mode="before")
    @classmethod
    def _set_timeout(cls, value: Any) -> Any:
        """Set the time limit of the transport where the entry has none."""
        if not isinstance(value, Mapping):
            return value
        entry = cast("Mapping[str, Any]", value)
        transport = transport_of(entry) or cls.model_fields["transport"].default
        return {"timeout_s": CALL_TIMEOUTS_S.get(transport, 30.0), **entry}

    name: Annotated[str, Field(min_length=1)]
    """The name in tool names, status lines and commands."""
    enabled: bool = True
    """false leaves the server out without deleting it."""
    timeout_s: Seconds = 30.0
    """Time limit for a call; by default 60 for stdio, sse and websocket, 30 for http and openapi, 10 for builtin."""
    connect_timeout_s: Seconds = 30.0
    """Time limit for start and handshake; the first run of npx and uvx downloads."""
    allowed_tools: Names | None = None
    """The only tools to offer, by the server's own names or shell patterns; all when not given."""
    excluded_tools: Names = ()
    """Tools not to offer, by the server's own names or shell patterns."""
    listed_tools: Names | None = None
    """The tools that the model reads in every question, by the server's own names or shell patterns; it finds the
    others with find_tools. All when not given.
    """
    approve: Approve | None = None
    """Calls that need approval, if different from security.approve."""
    always_allow: Names = ()
    """Tools that never need approval (other hosts: alwaysAllow), by name or shell pattern."""
    always_ask: Names = ()
    """Tools that always need approval, by name or shell pattern."""
    safe_tools: Names = ()
    """Tools that are read-only although the server does not declare it, by name or shell pattern: they run in parallel.
    """
    trusted: bool | None = None
    """Believe the server's declaration that a tool is read-only; true for the servers of rkllm-mcp, else false."""
    lazy: bool = False
    """Connect at the first use instead of at the start, with the tool list of the previous connection."""
    idle_stop_s: Seconds | None = None
    """Stop the server after this idle time and restart it at the next use; never when not given."""
    ping_s: NotNegativeSeconds = 60.0
    """Interval of pings to an idle server; 0 never."""
    system_instruction: str | None = None
    """Added to the system prompt."""
    response_instruction: str | None = None
    """Added after a result of this server's tools."""
    auto_context_tool: str | None = None
    """A tool that is called with every question; its result goes into the prompt."""
    sampling: Literal["ask", "allow", "deny"] = "ask"
    """Permission for the server to use the model: after approval, always, or never."""
    elicitation: Literal["ask", "defaults", "deny"] = "ask"
    """Answers to the server's questions: by the user, by the form's defaults, or declined."""
    roots: FilePaths | None = None
    """Roots, if different from security.roots; relative to the configuration file."""
    log_level: LogLevel | None = None
    """Minimum level of log messages to request from the server; the server's default when not given."""
    task_timeout_s: Seconds = 600.0
    """Time limit for a call that the server runs as a task."""


class StdioServer(ServerBase):
    """A program on this machine, with messages over its standard input and output."""

    transport: Literal["stdio"] = "stdio"
    """stdio"""
    command: Annotated[str, Field(min_length=1)]
    """The program; ${PYTHON} is the Python that runs rkllm-mcp."""
    args: Names = ()
    """Its arguments, passed without a shell."""
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Environment variables for it."""
    inherit_env: bool | Names = False
    """false: PATH, HOME and the like; true: the whole environment; a list: these variables as well."""
    cwd: FilePath | None = None
    """Its working directory; relative to the configuration file."""
    sandbox: bool | None = None
    """If different from security.sandbox."""
    sandbox_read: FilePaths = ()
    """Files and folders it may read in the sandbox; relative to the configuration file."""
    sandbox_write: FilePaths = ()
    """Files and folders it may change in the sandbox; relative to the configuration file."""
    sandbox_network: bool = False
    """It may use the network in the sandbox."""

    @property
    def folder(self) -> str | None:
        """The working directory; None for that of this process."""
        return None if self.cwd is None else str(self.cwd)


class RemoteServer(ServerBase):
    """A server behind a URL."""

    transport: Literal["http", "sse", "websocket"] = "http"
    """http (Streamable HTTP), sse or websocket."""
    url: str
    """http:// or https://; ws:// or wss:// for websocket."""
    headers_template: Headers = Field(default_factory=dict[str, str], repr=False)
    """HTTP headers; ${token} is filled from a request's tokens when a call is made, never from the environment."""
    ca_file: FilePath | None = None
    """Certificates to trust in addition to the system's, for https:// and wss://; relative to the configuration file.
    """
    auth: Literal["none", "oauth", "client_credentials"] = "none"
    """oauth: the user logs in once with a browser; client_credentials: the program logs in as itself."""
    client_id: str | None = None
    """Client id at the authorization server; the program registers itself when not given."""
    client_secret: str | None = Field(default=None, repr=False)
    """Client secret; preferably as ${VAR}."""
    scopes: Names = ()
    """Scopes to request; those that the server advertises when empty."""
    issuer: str | None = None
    """The authorization server of client_id; the one that the server names when not given. It may be in any network."""
    redirect_uri: str | None = None
    """Redirect URI of the browser, such as http://127.0.0.1:8765/callback; a free port when not given."""

    @model_validator(mode="after")
    def _check_login_and_url(self) -> RemoteServer:
        if self.auth != "none" and self.transport == "websocket":
            raise combination("auth", repr(self.auth), "websocket has no OAuth; put a key into headers_template")
        if self.auth == "client_credentials" and not (self.client_id and self.client_secret and self.issuer):
            raise combination("auth", repr(self.auth), "it needs client_id, client_secret and their issuer")
        schemes = ("ws", "wss") if self.transport == "websocket" else ("http", "https")
        # A disabled server may still name variables that are not set.
        if "${" not in self.url:
            _check_url(self.url, "url", schemes, self.transport)
        return self


class BuiltinTool(Section):
    """A tool in this process: a built-in one by its name alone, or a Python function."""

    name: Annotated[str, Field(min_length=1)]
    """clock, calculator, convert_units or device_status; any name with entry_point."""
    description: str = ""
    """Description for the model; built-in tools have one."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments; built-in tools have one."""
    entry_point: str | None = None
    """package.module:function, called with the arguments by name; async or not."""
    read_only: bool | None = None
    """true: it changes no data."""
    destructive: bool | None = None
    """true: it may destroy data."""

    @property
    def problem(self) -> str:
        """The reason why nothing runs the tool, and the remedy; empty if it names what runs."""
        if self.entry_point is None and self.name not in OWN_TOOLS:
            return f"it has no entry_point; name its function, or call it one of {', '.join(OWN_TOOLS)}"
        if self.entry_point is not None and not _ENTRY_POINT.fullmatch(self.entry_point):
            return f"its entry_point is {self.entry_point!r}; write package.module:function"
        return ""


class BuiltinServer(ServerBase):
    """Tools inside this process."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["tools"]}, {"required": ["folder"]}]})

    transport: Literal["builtin"] = "builtin"
    """builtin"""
    tools: Annotated[tuple[BuiltinTool, ...], Field(strict=False)] = ()
    """{name = "clock"} for a built-in one; name, description, input_schema and entry_point for others."""
    folder: FilePath | None = None
    """A folder whose files the model may list, read and search; relative to the configuration file."""
    write: bool = False
    """The model may also write files of `folder`."""

    @model_validator(mode="after")
    def _check_tools(self) -> BuiltinServer:
        if self.folder is None and "tools" not in self.model_fields_set:
            raise combination("tools", "nothing", "give the tools, or a folder whose files are read")
        return self


class OpenAPIServer(ServerBase):
    """A REST API as tools, one per operation of its specification."""

    transport: Literal["openapi"] = "openapi"
    """openapi"""
    openapi_spec: str | dict[str, Any]
    """A path (relative to the configuration file), a URL, or the specification itself, as a table or as text."""
    openapi_base_url: str | None = None
    """The address of the API, if different from the one in the specification; it may be in any network."""
    headers_template: Headers = Field(default_factory=dict[str, str])
    """HTTP headers; ${token} is filled from a request's tokens when a call is made, never from the environment. A key
    that the API expects in the query or a cookie is sent there under its name.
    """
    include: Names | None = None
    """The only operations to offer, by tool name, operationId, tag, path or 'GET /path', shell patterns allowed."""
    exclude: Names = ()
    """Operations not to offer, by tool name, operationId, tag, path or 'GET /path', shell patterns allowed."""

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
    # urlsplit removes line breaks, which must not reach a request line.
    if re.search(r"[\x00-\x20\x7f]", url):
        raise combination(key, f"{without_secrets(url)!r}", "an address without spaces and line breaks is allowed")
    if not usable:
        expected = " or ".join(f"{scheme}://" for scheme in schemes)
        raise combination(key, f"{without_secrets(url)!r}", f"{transport} needs an address that begins with {expected}")


def without_secrets(url: str) -> str:
    """Return the address without its query and password."""
    head = url.split("?", 1)[0].split("#", 1)[0]
    scheme, separator, location = head.partition("://")
    return f"{scheme}{separator}{location.rsplit('@', 1)[-1]}" if separator else head


def transport_of(entry: Mapping[str, Any]) -> str | None:
    """Return the transport that an entry names or implies; None if neither."""
    transport = entry.get("transport")
    if transport is not None:
        return str(transport)
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

# A server behind a transport of MCP, unlike the tools inside this process.
MCPServerConfig: TypeAlias = StdioServer | RemoteServer

SERVER_TYPES: Mapping[str, type[ServerBase]] = {
    "stdio": StdioServer,
    "remote": RemoteServer,
    "builtin": BuiltinServer,
    "openapi": OpenAPIServer,
}


# Transport -> the configuration class of its servers.
TYPE_OF = {transport: SERVER_TYPES.get(transport, RemoteServer) for transport in CALL_TIMEOUTS_S}


def is_own(server: ServerConfig) -> bool:
    """Return True for a server that is part of rkllm-mcp, or that it makes of the configuration."""
    if isinstance(server, StdioServer):
        module = server.args[1] if server.args[:1] == ("-m",) and len(server.args) > 1 else ""
        return server.command == sys.executable and module.startswith("mcp_servers.")
    return not isinstance(server, RemoteServer)


_KNOWLEDGE = ("mcp_servers.knowledge", "rkllm-mcp-knowledge")


def is_knowledge(server: ServerConfig) -> bool:
    """Return True for a knowledge server: by its name, or by the program that it starts."""
    started = " ".join((server.command, *server.args)) if isinstance(server, StdioServer) else ""
    return server.name == "knowledge" or any(program in started for program in _KNOWLEDGE)


def target_of(server: ServerConfig) -> list[Any]:
    """Return the transport, and the program or URL, of a server; stored hashes are made of it."""
    if isinstance(server, StdioServer):
        return [server.transport, server.command, server.args, server.folder, ""]
    if isinstance(server, BuiltinServer) and server.folder is not None:
        return [server.transport, "", (), str(server.folder), ""]
    return [server.transport, "", (), None, server.url if isinstance(server, RemoteServer) else ""]


SERVER_KEYS = tuple(dict.fromkeys(key for kind in SERVER_TYPES.values() for key in kind.model_fields))


def is_offered(spec: ServerBase, tool: str) -> bool:
    """Return True if ``allowed_tools`` and ``excluded_tools`` admit a tool, given its wire name."""
    allowed = spec.allowed_tools is None or matches_any(tool, spec.allowed_tools)
    return allowed and not matches_any(tool, spec.excluded_tools)


def matches_any(tool: str, patterns: Iterable[str]) -> bool:
    """Return True if a tool's name is, or fits, one of several names and shell patterns."""
    return any(tool == pattern or fnmatchcase(tool, pattern) for pattern in patterns)
