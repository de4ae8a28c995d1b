"""A search in the MCP registry, at the wish of the owner: the only request of the page that names what was searched."""

from __future__ import annotations

import json
from typing import Any

from rkllm_mcp.config.registry import RegistryList, next_cursor, read_servers
from rkllm_mcp.errors import ServerUnavailableError

_LIMIT_S = 15.0
_LONGEST_BYTES = 4 * 2**20
_PAGE = 30


async def search_registry(url: str, words: str, cursor: str = "") -> RegistryList:
    """Return the latest versions of the registry's servers whose names contain ``words``, a page of them.

    Args:
        url: the registry, whose list is ``/v0/servers``.
        words: sent as they are.
        cursor: of a further page.

    Raises:
        ServerUnavailableError: the registry does not answer, or not with a list.
    """
    import httpx2

    query = {"search": words, "version": "latest", "limit": str(_PAGE), **({"cursor": cursor} if cursor else {})}
    content = bytearray()
    try:
        client = httpx2.AsyncClient(timeout=_LIMIT_S)
        async with client, client.stream("GET", f"{url.rstrip('/')}/v0/servers", params=query) as answer:
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > _LONGEST_BYTES:
                    raise _unusable(url, "its answer is too long")
            status = answer.status_code
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ServerUnavailableError(f"the registry {url} cannot be reached ({reason}); check the network") from error
    if status != 200:
        raise _unusable(url, f"it answered {status}")
    try:
        read: Any = json.loads(bytes(content))
    except ValueError:
        raise _unusable(url, "its answer is no JSON") from None
    if not isinstance(read, dict) or "servers" not in read:
        raise _unusable(url, "its answer is no list of servers")
    return RegistryList(servers=read_servers(read), cursor=next_cursor(read))


def _unusable(url: str, reason: str) -> ServerUnavailableError:
    return ServerUnavailableError(f"the registry {url} cannot be used: {reason}; correct registry_url in [service]")
