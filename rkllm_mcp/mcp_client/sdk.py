"""The modules of the MCP SDK that this package uses, each imported when it is first named.

Importing the SDK takes 0.6 s of CPU. ``Connection`` has it imported in a thread, after the servers were started, so
no module here may import it at its top.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2
    import mcp
    import mcp_types as types
    from mcp import server
    from mcp.client import auth as client_auth
    from mcp.client import sse, streamable_http, subscriptions
    from mcp.client.auth import utils as auth_utils
    from mcp.client.auth.extensions import client_credentials
    from mcp.server import mcpserver
    from mcp.shared import auth, message
    from mcp_types import version as versions

__all__ = [
    "auth",
    "auth_utils",
    "client_auth",
    "client_credentials",
    "httpx2",
    "mcp",
    "mcpserver",
    "message",
    "server",
    "sse",
    "streamable_http",
    "subscriptions",
    "types",
    "versions",
]

_MODULES = {
    "auth": "mcp.shared.auth",
    "auth_utils": "mcp.client.auth.utils",
    "client_auth": "mcp.client.auth",
    "client_credentials": "mcp.client.auth.extensions.client_credentials",
    "httpx2": "httpx2",
    "mcp": "mcp",
    "mcpserver": "mcp.server.mcpserver",
    "message": "mcp.shared.message",
    "server": "mcp.server",
    "sse": "mcp.client.sse",
    "streamable_http": "mcp.client.streamable_http",
    "subscriptions": "mcp.client.subscriptions",
    "types": "mcp_types",
    "versions": "mcp_types.version",
}


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = import_module(_MODULES[name])
    return module
