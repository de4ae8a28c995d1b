"""What a server would write into a blank of a prompt or of a resource's address, for whoever presses Tab."""

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
    """The server's suggestions; none when it makes none at all.

    Args:
        client: a connected client.
        reference: the prompt or the resource template.
        argument: the blank.
        value: what of it was typed.
        others: the blanks that are filled already.

    Raises:
        MCPError: the server refuses.
    """
    if client.server_capabilities.completions is None:
        return ()
    result = await client.complete(reference, {"name": argument, "value": value}, dict(others) or None)
    return tuple(result.completion.values)
