"""What the tools layer knows about a server: how to reach it (``ServerSpec``) and how it is (``ServerState``).

Values only. The composition root makes a ``ServerSpec`` of each configured server; nothing here knows the file it came
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Transport: TypeAlias = Literal["stdio", "http", "sse", "websocket", "builtin", "openapi"]
State: TypeAlias = Literal["connecting", "ready", "failed", "died", "stopped"]


def _nothing() -> Mapping[str, str]:
    return {}


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
        url: its address (http, sse).
        headers: HTTP headers, placeholders already filled.
        timeout_s: the longest a call may take, seconds.
        connect_timeout_s: the longest start, handshake and first list of tools may take together, seconds.
        stop_grace_s: how long it may take to leave after its input is closed, and again after SIGTERM, seconds.
        restart_pause_s: the pause before its second restart in a row, seconds; it doubles up to a minute.
        allowed_tools: the only tools to offer, by the server's own names or shell patterns; all when None.
        excluded_tools: tools not to offer, likewise.
        system_instruction: what the system prompt says while this server is there.
        response_instruction: what the model is told after one of its tools has answered.
        auto_context_tool: a tool that is called with every question.
    """

    name: str
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_nothing)
    inherit_env: bool | tuple[str, ...] = False
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=_nothing)
    timeout_s: float = 30.0
    connect_timeout_s: float = 30.0
    stop_grace_s: float = 2.0
    restart_pause_s: float = 1.0
    allowed_tools: tuple[str, ...] | None = None
    excluded_tools: tuple[str, ...] = ()
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""


@dataclass(frozen=True)
class ServerState:
    """How a server is at the moment.

    Args:
        name: the configuration's name of it.
        state: ``ready`` serves; ``failed`` never came up; ``died`` was there and is tried again at its next call.
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
