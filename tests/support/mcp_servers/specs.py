"""How to start the servers of this folder."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from rkllm_mcp.config.servers import RemoteServer, ServerBase, StdioServer
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from tests.support.shared import REPOSITORY

# Far beyond what a server needs on a loaded machine; a test that meets it has found a hang.
PATIENCE_S = 60.0
_Server = TypeVar("_Server", bound=ServerBase)


def local_server(name: str, *, command: str = "no-such-server", **settings: Any) -> StdioServer:
    """A server that is a program."""
    return StdioServer.model_validate({"name": name, "command": command, **settings})


def remote_server(
    name: str, transport: str = "http", url: str = "http://127.0.0.1/mcp", **settings: Any
) -> RemoteServer:
    """A server behind an address."""
    return RemoteServer.model_validate({"name": name, "transport": transport, "url": url, **settings})


def altered(server: _Server, **settings: Any) -> _Server:
    """The same server with other settings, checked as those of a configuration are."""
    return type(server).model_validate({**dict(server), **settings})


def tiny(name: str = "tiny", *words: str, **settings: Any) -> StdioServer:
    """The well-behaved server; ``words`` are ``legacy`` or ``modern``."""
    return _spec(name, "tiny", words, settings)


def asking(name: str = "asking", *words: str, **settings: Any) -> StdioServer:
    """One that offers resources and prompts, and asks; ``words`` are ``legacy`` or ``modern``."""
    return _spec(name, "asking", words, settings)


def hostile(behaviour: str, name: str = "", **settings: Any) -> StdioServer:
    """A server that misbehaves in one way."""
    return _spec(name or behaviour, "hostile", (behaviour,), settings)


def unruly(behaviour: str, name: str = "", **settings: Any) -> StdioServer:
    """Another one, at one message of the protocol or without end."""
    return _spec(name or behaviour, "unruly", (behaviour,), settings)


def timed(**timings: Any) -> ConnectionServices:
    """Services with other timings than the default ones."""
    return ConnectionServices(**timings)


def _spec(name: str, module: str, words: tuple[str, ...], settings: dict[str, Any]) -> StdioServer:
    program: dict[str, Any] = {
        "command": sys.executable,
        "args": ("-S", "-m", f"tests.support.mcp_servers.{module}", *words),
        "cwd": str(REPOSITORY),
        "timeout_s": PATIENCE_S,
        "connect_timeout_s": PATIENCE_S,
    }
    return local_server(name, **{**program, **settings})
