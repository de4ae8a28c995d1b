"""``completion/complete`` for arguments of prompts and of resource templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import PromptReference, ResourceTemplateReference


async def complete(
    client: Client,
    reference: PromptReference | ResourceTemplateReference,
    argument: str,
    value: str,
    others: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the server's suggestions for ``argument``, of which ``value`` is typed; empty if it supports none.

    ``others`` are the arguments that are already filled in.

    Raises:
        MCPError: the server refused the request.
    """
    if client.server_capabilities.completions is None:
        return ()
    result = await client.complete(reference, {"name": argument, "value": value}, dict(others) or None)
    return tuple(result.completion.values)
