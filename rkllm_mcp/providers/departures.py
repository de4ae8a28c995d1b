"""What leaves the board, in words: for whoever checks a configuration, and at every start."""

from __future__ import annotations

from rkllm_mcp.config import Config
from rkllm_mcp.providers.service import Service, services_of

_WHAT = "questions, conversations, tool lists and tool results"
_OCCASIONS = {
    "failed": "an answer fails",
    "too_long": "a question does not fit",
    "no_answer": "the first model says nothing",
    "busy": "the first model is busy",
}


def departures(config: Config) -> list[str]:
    """One line for each service that is told what is said here."""
    services = services_of(config)
    lines: list[str] = []
    if "model" in services:
        lines.append(f"[Model: {_WHAT} go to {_named(services['model'])}]")
    if "fallback" in services and config.provider.fallback is not None:
        when = ", ".join(_OCCASIONS[occasion] for occasion in config.provider.fallback.when)
        lines.append(f"[Model: {_WHAT} go to {_named(services['fallback'])} when {when}]")
    return lines


def _named(service: Service) -> str:
    return f"{service.host} (model '{service.model}')"
