"""Notices that name each remote service and the data sent to it; shown at start-up and by ``config check``."""

from __future__ import annotations

from rkllm_mcp.config import Config
from rkllm_mcp.providers.service import Service, services_of

_DATA = "questions, conversations, tool lists and tool results"
_OCCASIONS = {
    "failed": "an answer fails",
    "too_long": "a question does not fit",
    "no_answer": "the first model gives no answer",
    "busy": "the first model is busy",
}


def departures(config: Config) -> list[str]:
    """Return one line per remote service that receives data."""
    services = services_of(config)
    lines: list[str] = []
    if "model" in services:
        lines.append(f"[Model: {_DATA} go to {_named(services['model'])}]")
    if "fallback" in services and config.provider.fallback is not None:
        when = ", ".join(_OCCASIONS[occasion] for occasion in config.provider.fallback.when)
        lines.append(f"[Model: {_DATA} go to {_named(services['fallback'])} when {when}]")
    return lines


def _named(service: Service) -> str:
    return f"{service.host} (model '{service.model}')"
