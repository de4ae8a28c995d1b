"""What a user wrote becomes checked values: ``mcp_config.toml`` or JSON, the environment, and ``model.toml``.

    file ─▶ loading ─▶ expansion (${VAR}) ─▶ claude (other hosts' spelling) ─▶ overrides ─▶ sections (checked)

Rules: every value of a loaded ``Config`` is checked and frozen; whatever cannot be used is a ``ConfigError`` that
names file, key, what was found and what is allowed; nothing here starts a server, loads a model or prints.
"""

from rkllm_mcp.config.loading import load_config, search_order
from rkllm_mcp.config.models import ModelCard, ModelFolder, choose_model, list_models, load_model
from rkllm_mcp.config.provider import ProviderSection
from rkllm_mcp.config.sections import AgentSection, Config, ModelSection, RuntimeSection, SecuritySection
from rkllm_mcp.config.servers import (
    BuiltinServer,
    BuiltinTool,
    OpenAPIServer,
    RemoteServer,
    ServerConfig,
    StdioServer,
)
from rkllm_mcp.config.service import ServiceSection, TenantSection

__all__ = [
    "AgentSection",
    "BuiltinServer",
    "BuiltinTool",
    "Config",
    "ModelCard",
    "ModelFolder",
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
    "choose_model",
    "list_models",
    "load_config",
    "load_model",
    "search_order",
]
