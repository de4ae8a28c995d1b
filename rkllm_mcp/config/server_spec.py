"""Settings (``ServerSpec``) and current state (``ServerState``) of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from rkllm_mcp.config.servers import BuiltinServer, OpenAPIServer

Transport: TypeAlias = Literal["stdio", "http", "sse", "websocket", "inprocess"]
State: TypeAlias = Literal["waiting", "connecting", "ready", "failed", "died", "stopped"]

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@dataclass(frozen=True)
class OAuth:
    """OAuth settings of one server."""

    client_id: str = ""  # empty: the host registers itself (dynamic client registration)
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()  # empty: the scopes that the server advertises
    redirect_uri: str = ""  # loopback address; empty: any free port
    client_metadata_url: str = ""  # used as client id by authorization servers that support it
    without_person: bool = False  # client credentials grant instead of the browser
    issuer: str = ""  # authorization server the client id belongs to; empty: the one that the server names


@dataclass(frozen=True)
class Sandbox:
    """Access of a sandboxed program, in addition to reading the system's programs."""

    read: tuple[str, ...] = ()  # readable files and folders
    write: tuple[str, ...] = ()  # writable files and folders
    network: bool = False
    cache: str | None = None  # persistent download cache; None: an empty one at every start


@dataclass(frozen=True)
class ServerSpec:
    """Connection settings and policies of one MCP server; the transports that read a field stand in brackets."""

    name: str
    transport: Transport = "stdio"
    # [stdio] The command is found along the child's own PATH; no shell is involved.
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    # [stdio] False: only HOME, LOGNAME, PATH, SHELL, TERM and USER; True: all; names: these in addition.
    inherit_env: bool | tuple[str, ...] = False
    cwd: str | None = None
    # For the transports http, sse and websocket.
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Headers with ${token} placeholders; the server is connected per request.
    headers_template: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    ca_file: str | None = None  # CA certificates to trust in addition to the system's
    oauth: OAuth | None = None
    timeout_s: float = 30.0  # one call
    connect_timeout_s: float = 30.0  # start, handshake and first tools/list together
    lazy: bool = False  # start on first use; the tool list comes from the previous run
    idle_stop_s: float | None = None  # stop after this time without use
    ping_s: float = 60.0  # interval of pings on an idle connection; 0: none
    sandbox: Sandbox | None = None  # [stdio] None: unrestricted
    trusted: bool = False  # believe the server's readOnlyHint and destructiveHint
    approve: Literal["dangerous", "always", "never"] = "dangerous"
    # Tools by wire name, with shell patterns.
    always_allow: tuple[str, ...] = ()
    always_ask: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] | None = None
    excluded_tools: tuple[str, ...] = ()
    safe_tools: tuple[str, ...] = ()  # read-only tools without readOnlyHint
    system_instruction: str = ""  # added to the system prompt while the server is available
    response_instruction: str = ""  # added after a result of one of its tools
    auto_context_tool: str = ""  # called with every question
    sampling: Literal["ask", "allow", "deny"] = "ask"
    elicitation: Literal["ask", "defaults", "deny"] = "ask"
    roots: tuple[str, ...] = ()
    log_level: LogLevel | None = None  # None: the server's default
    task_timeout_s: float = 600.0  # one call that runs as a task


# Settings of any server: of an MCP server, or of one in this process, whose configuration is used as it is.
AnyServer: TypeAlias = "ServerSpec | BuiltinServer | OpenAPIServer"


@dataclass(frozen=True)
class ServerState:
    """State of a server at one moment.

    ``waiting``: connects on its next use, or with the first request that brings its token. ``failed``: never became
    ready. ``died``: was ready, and reconnects on its next call.
    """

    name: str
    state: State
    reason: str = ""  # why it is not ready, and the remedy
    last_lines: tuple[str, ...] = ()  # of stderr, log messages and invalid output on stdout
    tool_count: int = 0  # after allowed_tools and excluded_tools
    protocol_version: str = ""  # empty before the handshake
    connect_seconds: float = 0.0  # from start to the first tools/list
