"""Roots: the configured folders that a server may learn of. Without configuration the capability is not declared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext, ListRootsFnT
    from mcp_types import ListRootsResult

    from rkllm_mcp.tools.servers import ServerSpec


def roots_of(spec: ServerSpec) -> ListRootsFnT | None:
    """Return the ``roots/list`` callback; None if no roots are configured."""
    if not spec.roots:
        return None

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        from mcp_types import ListRootsResult, Root
        from pydantic import FileUrl

        del context
        paths = [Path(folder) for folder in spec.roots]
        return ListRootsResult(roots=[Root(uri=FileUrl(path.as_uri()), name=path.name or str(path)) for path in paths])

    return list_roots
