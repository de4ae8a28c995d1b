"""User configuration -> checked values: ``mcp_config.toml`` or JSON, the environment, and ``model.toml``.

    file ─▶ loading ─▶ expansion (${VAR}) ─▶ claude (other hosts' format) ─▶ overrides ─▶ sections (checked)

Rules: every value of a loaded ``Config`` is checked and frozen; an invalid value is a ``ConfigError`` with file, key,
value and allowed values; this package starts no server, loads no model and prints nothing.
"""

from rkllm_mcp.config.loading import load_config, search_order
from rkllm_mcp.config.sections import (
    AgentSection,
    Config,
    ModelSection,
    ProviderSection,
    RuntimeSection,
    SecuritySection,
    ServiceSection,
    TenantSection,
)
from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool, OpenAPIServer, RemoteServer, ServerConfig, StdioServer

__all__ = [
    "AgentSection",
    "BuiltinServer",
    "BuiltinTool",
    "Config",
    "ModelSection",
    "OpenAPIServer",
    "ProviderSection",
    "RemoteServer",
    "RuntimeSection",
    "SecuritySection",
    "ServerConfig",
    "ServiceSection",
    "StdioServer",
    "TenantSection",
    "load_config",
    "search_order",
]
