"""A search in the MCP registry, at the wish of the owner: the only request of the page that names what was searched."""

from __future__ import annotations

from rkllm_base.answers import AnswerLimits, AnswerRefusedError, fetch, read_json
from rkllm_mcp.config.registry import RegistryList, next_cursor, read_servers
from rkllm_mcp.errors import ServerUnavailableError

_LIMITS = AnswerLimits(total_s=15.0, size_bytes=4 * 2**20)
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
    problem, read = "", None
    try:
        client = httpx2.AsyncClient(timeout=_LIMITS.total_s)
        async with client:
            answer = await fetch(client, "GET", f"{url.rstrip('/')}/v0/servers", _LIMITS, params=query)
        if answer.status == 200:
            read = read_json(answer.content)
        else:
            problem = f"it answered {answer.status}"
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ServerUnavailableError(f"the registry {url} cannot be reached ({reason}); check the network") from error
    except AnswerRefusedError as refusal:
        problem = str(refusal)
    if not isinstance(read, dict) or "servers" not in read:
        problem = problem or "its answer is no list of servers"
        raise ServerUnavailableError(f"the registry {url} cannot be used: {problem}; correct registry_url in [service]")
    return RegistryList(servers=read_servers(read), cursor=next_cursor(read))
