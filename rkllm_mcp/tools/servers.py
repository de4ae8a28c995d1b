"""What the tools layer knows about a server: how to reach it (``ServerSpec``) and how it is (``ServerState``).

Values only. The composition root makes a ``ServerSpec`` of each configured server; nothing here knows the file it came
from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Transport: TypeAlias = Literal["stdio", "http", "sse", "websocket", "inprocess", "builtin", "openapi"]
State: TypeAlias = Literal["waiting", "connecting", "ready", "failed", "died", "stopped"]

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

# What there is to say about the machine: pairs of a thing and how it is. Reads files, so it runs in a thread.
DeviceReader: TypeAlias = Callable[[], Sequence[tuple[str, str]]]


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class OAuth:
    """How the host logs in to a server by OAuth.

    Args:
        client_id: the host's name at the authorization server; registered there by the host itself when empty.
        client_secret: the secret to that name; together with ``without_person`` it replaces a person's consent.
        scopes: what to ask for; what the server advertises when empty.
        redirect_uri: the loopback address that the browser comes back to; one of the host's choice when empty.
        client_metadata_url: an address that describes the host, for authorization servers that take it as a name.
        without_person: log in as the program itself (client credentials) instead of as a person with a browser.
        issuer: the authorization server that the name and secret belong to; whichever the server names when empty.
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    redirect_uri: str = ""
    client_metadata_url: str = ""
    without_person: bool = False
    issuer: str = ""


@dataclass(frozen=True)
class LocalTool:
    """A tool of a ``builtin`` server, as it was configured.

    Args:
        name: its name; one of ours where there is no ``entry_point``.
        description: what the model reads; that of our own tool when empty.
        input_schema: JSON Schema of its arguments; that of our own tool when None.
        entry_point: ``package.module:function``, what runs; empty for one of ours.
        read_only: it changes nothing; None when that was not said.
        destructive: it may destroy something; None when that was not said.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    entry_point: str = ""
    read_only: bool | None = None
    destructive: bool | None = None


@dataclass(frozen=True)
class Sandbox:
    """What a program in the sandbox may see and do, beyond the system's own programs, which it may read.

    Args:
        read: files and folders it may read.
        write: files and folders it may change.
        network: it may use the network.
        cache: the folder that keeps what it downloads; None for one that is empty at every start.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False
    cache: str | None = None


@dataclass(frozen=True)
class ServerSpec:
    """How to reach one MCP server, and what of it to offer.

    Args:
        name: the configuration's name of it; tools, status lines and commands use it.
        transport: how to speak to it.
        command: the program, found along the child's own PATH (stdio).
        args: its arguments; no shell reads them.
        env: environment variables for it, placeholders already filled.
        inherit_env: False: HOME, LOGNAME, PATH, SHELL, TERM and USER only; True: all; names: these as well.
        cwd: the folder it starts in; the host's own when None.
        url: its address (http, sse, websocket).
        headers: HTTP headers, as they are sent.
        headers_template: HTTP headers with placeholders that a request's tokens fill; such a server is connected per
            request. For openapi all headers, with placeholders or without.
        ca_file: a file with certificates to trust besides the system's (https, wss).
        oauth: how it is logged in to; None when it is not.
        served: the server itself, an ``MCPServer`` of the SDK or what makes one (inprocess).
        local_tools: its tools (builtin).
        read_device: how the machine is, for the tool that tells it (builtin).
        openapi_spec: the specification: a path, a URL, its text, or its values (openapi).
        openapi_base_url: the address of the API; the specification's own when empty (openapi).
        include: the only operations to offer, by name, id, tag, path or ``METHOD path``, shell patterns allowed; all
            when None (openapi).
        exclude: operations not to offer, likewise (openapi).
        timeout_s: the longest a call may take, seconds.
        connect_timeout_s: the longest start, handshake and first list of tools may take together, seconds.
        stop_grace_s: how long it may take to leave after its input is closed, and again after SIGTERM, seconds.
        lazy: start it at its first use; its tools are remembered from the time before.
        idle_stop_s: end it after so long without use, and start it again at the next, seconds; never when None.
        ping_s: ask so often whether it is still there while nothing else is said, seconds; never when 0.
        restart_pause_s: the pause before its second restart in a row, seconds; it doubles up to a minute.
        allowed_commands: the only programs that may be started, see ``commands``; any when None (stdio).
        sandbox: what it may see and do; everything when None (stdio).
        trusted: what it says about its tools (read-only, destructive) is believed.
        approve: which calls need a yes: those that change something, all, or none.
        always_allow: tools that need none, by the server's own names or shell patterns.
        always_ask: tools that always need one, likewise.
        allowed_tools: the only tools to offer, by the server's own names or shell patterns; all when None.
        excluded_tools: tools not to offer, likewise.
        safe_tools: tools that only read though the server does not say so, likewise.
        system_instruction: what the system prompt says while this server is there.
        response_instruction: what the model is told after one of its tools has answered.
        auto_context_tool: a tool that is called with every question.
        sampling: whether it may ask our model: after a yes, always, or never.
        elicitation: who answers its questions: a person, the form's own defaults, or nobody.
        roots: folders it is told to work in; it is told of none when empty.
        log_level: from which level on it is asked for its log; None leaves it as it is.
        task_timeout_s: the longest a call may take that it runs as a task, seconds.
        problem: why it cannot be had at all, and what to do about it; empty when it can.
    """

    name: str
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_nothing)
    inherit_env: bool | tuple[str, ...] = False
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    headers_template: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    ca_file: str | None = None
    oauth: OAuth | None = None
    served: object = None
    local_tools: tuple[LocalTool, ...] = ()
    read_device: DeviceReader | None = None
    openapi_spec: str | Mapping[str, Any] = ""
    openapi_base_url: str = ""
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    timeout_s: float = 30.0
    connect_timeout_s: float = 30.0
    stop_grace_s: float = 2.0
    lazy: bool = False
    idle_stop_s: float | None = None
    ping_s: float = 60.0
    restart_pause_s: float = 1.0
    allowed_commands: tuple[str, ...] | None = None
    sandbox: Sandbox | None = None
    trusted: bool = False
    approve: Literal["dangerous", "always", "never"] = "dangerous"
    always_allow: tuple[str, ...] = ()
    always_ask: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] | None = None
    excluded_tools: tuple[str, ...] = ()
    safe_tools: tuple[str, ...] = ()
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""
    sampling: Literal["ask", "allow", "deny"] = "ask"
    elicitation: Literal["ask", "defaults", "deny"] = "ask"
    roots: tuple[str, ...] = ()
    log_level: LogLevel | None = None
    task_timeout_s: float = 600.0
    problem: str = ""


@dataclass(frozen=True)
class ServerState:
    """How a server is at the moment.

    Args:
        name: the configuration's name of it.
        state: ``ready`` serves; ``waiting`` is connected at its next use, or by the first request that brings its
            token; ``failed`` never came up; ``died`` was there and is tried again at its next call.
        reason: why it is not ready, a sentence that ends with what to do; empty when it is.
        last_lines: the last lines it wrote on stderr, logged, or printed where only messages belong.
        tool_count: tools it offers after ``allowed_tools`` and ``excluded_tools``.
        protocol_version: the negotiated revision; empty before there is one.
        connect_seconds: from its start to its first list of tools.
    """

    name: str
    state: State
    reason: str = ""
    last_lines: tuple[str, ...] = ()
    tool_count: int = 0
    protocol_version: str = ""
    connect_seconds: float = 0.0
