"""What a configuration may ask for and does not get: named in a line, never ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator

from rkllm_mcp.config import Config


def ineffective(config: Config) -> list[str]:
    """One line for every wish that has no effect, by itself or beside the rest of the configuration."""
    return [*config.remarks, *_without_effect(config)]


def _without_effect(config: Config) -> Iterator[str]:
    provider = config.provider
    if provider.kind != "rkllm" and config.agent.embedding_model is not None:
        yield f"agent.embedding_model has no effect: with provider.kind = '{provider.kind}' no model runs on the NPU"
    if provider.fallback is not None and not provider.fallback.when:
        yield "provider.fallback has no effect while its 'when' is empty; list the occasions on which it takes over"
