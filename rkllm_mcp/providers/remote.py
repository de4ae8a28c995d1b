"""Open the remote model that the configuration names, of any kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.providers.anthropic import AnthropicModel
from rkllm_mcp.providers.openai import OpenAIModel
from rkllm_mcp.providers.remote_model import RemoteModel
from rkllm_mcp.providers.service import Kind, Service

# Package of each kind, equal to the name of the extra, and its vendor.
_PACKAGES: Mapping[Kind, tuple[str, str]] = {"openai": ("openai", "OpenAI"), "anthropic": ("anthropic", "Anthropic")}
_MODELS: Mapping[Kind, type[RemoteModel]] = {"openai": OpenAIModel, "anthropic": AnthropicModel}


def check_sdk(service: Service) -> None:
    """Check that the SDK for a service is installed.

    Raises:
        RuntimeUnusableError: it is not installed.
    """
    package, vendor = _PACKAGES[service.kind]
    if find_spec(package) is None:
        raise RuntimeUnusableError(
            f"'{service.model}' at {service.host} needs {vendor}'s package, which is not installed.",
            f"Install it: pip install 'rkllm-mcp[{package}]'",
        )


@asynccontextmanager
async def open_remote(service: Service) -> AsyncGenerator[RemoteModel, None]:
    """Open a remote model; close its connections on exit. Nothing is loaded or sent before the first request.

    Raises:
        RuntimeUnusableError: the SDK for this kind is not installed.
    """
    check_sdk(service)
    model = _MODELS[service.kind](service)
    try:
        yield model
    finally:
        await model.close()
