"""Opens the model behind a service that a configuration names, whatever its kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.providers.anthropic import AnthropicModel
from rkllm_mcp.providers.openai import OpenAIModel
from rkllm_mcp.providers.remote_model import RemoteModel
from rkllm_mcp.providers.service import Kind, Service

# The package for each kind, which is an extra of the same name, and whose it is.
_PACKAGES: Mapping[Kind, tuple[str, str]] = {"openai": ("openai", "OpenAI"), "anthropic": ("anthropic", "Anthropic")}
_MODELS: Mapping[Kind, type[RemoteModel]] = {"openai": OpenAIModel, "anthropic": AnthropicModel}


def check_sdk(service: Service) -> None:
    """Look whether the package that speaks to a service is installed.

    Raises:
        RuntimeUnusableError: it is not.
    """
    package, extra = _PACKAGES[service.kind]
    if find_spec(package) is None:
        raise RuntimeUnusableError(
            f"'{service.model}' at {service.host} is spoken to with {extra}'s package, which is not installed.",
            f"Install it: pip install 'rkllm-mcp[{package}]'",
        )


@asynccontextmanager
async def open_remote(service: Service) -> AsyncGenerator[RemoteModel, None]:
    """The model of a service; on leaving its connections are closed. Nothing is loaded or sent before it is asked.

    Args:
        service: which one (``service_of`` makes one of a section of the configuration).

    Raises:
        RuntimeUnusableError: the SDK for this kind is not installed.
    """
    check_sdk(service)
    model = _MODELS[service.kind](service)
    try:
        yield model
    finally:
        await model.close()
