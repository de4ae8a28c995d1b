"""What a configuration may ask for and this version does not do: named in a line, never ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator

from rkllm_mcp.config import Config

LATER = "not available in this version"


def ineffective(config: Config) -> list[str]:
    """One line for every wish that has no effect in this version."""
    return [f"{key} is {LATER} and has no effect" for key in _ineffective_keys(config)]


def _ineffective_keys(config: Config) -> Iterator[str]:
    if config.provider.kind != "rkllm":
        yield "provider.kind"
    if config.tenants:
        yield "tenants"
