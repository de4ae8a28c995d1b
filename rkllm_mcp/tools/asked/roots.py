"""Which folders a server is told to work in: those of the configuration, and none without it.

Nothing is told by default, not even the current folder: a server that knows a folder's name knows more than it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext, ListRootsFnT
    from mcp_types import ListRootsResult

    from rkllm_mcp.tools.servers import ServerSpec


def roots_of(spec: ServerSpec) -> ListRootsFnT | None:
    """What answers a server that asks for its roots; None when it is told of none, and then it cannot ask."""
    if not spec.roots:
        return None

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        from mcp_types import ListRootsResult, Root
        from pydantic import FileUrl

        del context
        paths = [Path(folder) for folder in spec.roots]
        return ListRootsResult(roots=[Root(uri=FileUrl(path.as_uri()), name=path.name or str(path)) for path in paths])

    return list_roots
