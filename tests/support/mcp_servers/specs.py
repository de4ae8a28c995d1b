"""How to start the servers of this folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from rkllm_mcp.config.server_spec import ServerSpec
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices, Timings
from tests.support.shared import REPOSITORY

# Far beyond what a server needs on a loaded machine; a test that meets it has found a hang.
PATIENCE_S = 60.0


def tiny(name: str = "tiny", *words: str, **settings: Any) -> ServerSpec:
    """The well-behaved server; ``words`` are ``legacy`` or ``modern``."""
    return _spec(name, "tiny", words, settings)


def asking(name: str = "asking", *words: str, **settings: Any) -> ServerSpec:
    """One that offers resources and prompts, and asks; ``words`` are ``legacy`` or ``modern``."""
    return _spec(name, "asking", words, settings)


def hostile(behaviour: str, name: str = "", **settings: Any) -> ServerSpec:
    """A server that misbehaves in one way."""
    return _spec(name or behaviour, "hostile", (behaviour,), settings)


def unruly(behaviour: str, name: str = "", **settings: Any) -> ServerSpec:
    """Another one, at one message of the protocol or without end."""
    return _spec(name or behaviour, "unruly", (behaviour,), settings)


def timed(**timings: float) -> ConnectionServices:
    """Services with other timings than the default ones."""
    return ConnectionServices(timings=Timings(**timings))


def _spec(name: str, module: str, words: tuple[str, ...], settings: dict[str, Any]) -> ServerSpec:
    spec = ServerSpec(
        name=name,
        command=sys.executable,
        args=("-S", "-m", f"tests.support.mcp_servers.{module}", *words),
        cwd=str(REPOSITORY),
        timeout_s=PATIENCE_S,
        connect_timeout_s=PATIENCE_S,
    )
    return replace(spec, **settings)
