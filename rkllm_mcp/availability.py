"""What a configuration may ask for and this version does not do: said, never ignored in silence.

A wish that protects somebody is refused, because going on without it would be a lie; any other is named in a line and
has no effect.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rkllm_mcp.config import Config
from rkllm_mcp.config.servers import ServerConfig, StdioServer
from rkllm_mcp.errors import ConfigError

LATER = "not available in this version"
TRANSPORTS = frozenset({"stdio", "http", "sse"})


def refuse_unprotected(config: Config) -> None:
    """Refuse a configuration whose protections this version cannot give.

    Raises:
        ConfigError: for the first of them, with its key.
    """
    source = str(config.source or "configuration")
    for key, found, allowed in _protections(config):
        raise ConfigError(source, key, found, allowed)


def ineffective(config: Config) -> list[str]:
    """One line for every wish that has no effect in this version."""
    return [f"{key} is {LATER} and has no effect" for key in _ineffective_keys(config)]


def unavailable_transport(server: ServerConfig) -> str:
    """Why a server's transport cannot be used in this version; empty when it can."""
    return "" if server.transport in TRANSPORTS else f"transport '{server.transport}' is {LATER}"


def _protections(config: Config) -> Iterator[tuple[str, str, str]]:
    security = config.security
    if security.approve == "always":
        yield "security.approve", "'always'", f"asking before each call is {LATER}; leave tools out with --no-tools"
    if security.sandbox:
        yield "security.sandbox", "true", f"a sandbox is {LATER}; start the server inside one of your own"
    for index, server in enumerate(config.servers):
        if not server.enabled:
            continue
        if server.approve == "always":
            yield f"servers[{index}].approve", "'always'", f"asking before each call is {LATER}; use allowed_tools"
        if isinstance(server, StdioServer):
            if server.sandbox:
                yield f"servers[{index}].sandbox", "true", f"a sandbox is {LATER}"
            allowed = security.allowed_commands
            if allowed is not None and not _is_allowed(server.command, allowed):
                names = ", ".join(allowed) or "none"
                yield f"servers[{index}].command", repr(server.command), f"security.allowed_commands allows {names}"


def _is_allowed(command: str, allowed: Sequence[str]) -> bool:
    """Whether ``command`` is one of ``allowed``, or the program that the PATH finds under an allowed name."""
    if command in allowed:
        return True
    name = Path(command).name
    found = shutil.which(name) if name in allowed else None
    # The name alone proves nothing: anybody may call a program "npx".
    return found is not None and Path(found).resolve() == Path(command).resolve()


def _ineffective_keys(config: Config) -> Iterator[str]:
    if config.provider.kind != "rkllm":
        yield "provider.kind"
    if config.model.prompt_cache:
        yield "model.prompt_cache"
    if config.agent.auto_select:
        yield "agent.auto_select"
    if config.security.log_wire:
        yield "security.log_wire"
    if config.tenants:
        yield "tenants"
    for index, server in enumerate(config.servers):
        wishes = {
            "lazy": server.lazy,
            "system_instruction": server.system_instruction,
            "response_instruction": server.response_instruction,
            "auto_context_tool": server.auto_context_tool,
        }
        if server.enabled:
            yield from (f"servers[{index}].{key}" for key, wish in wishes.items() if wish)
