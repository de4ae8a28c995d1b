"""Stored data that commands and the chat read without a model: conversations, and decisions about tools."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rkllm_mcp.app.settings import store_limits
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import FILE_NAME, state_file
from rkllm_mcp.text import moment

if TYPE_CHECKING:
    from rkllm_mcp.store import Store


@asynccontextmanager
async def open_stored(config: Config, folder: Path | None = None) -> AsyncGenerator[Store, None]:
    """Open the owner's store in ``folder``, by default ``state_folder()``; a StoreError if it cannot be read."""
    limits, configured = store_limits(config)
    path = state_file(os.environ) if folder is None else folder / FILE_NAME
    async with open_store(path=path, limits=limits, given=configured, required=True, url=config.store.url) as memory:
        yield memory


async def find_conversation(store: Store, tenant: str, prefix: str) -> StoredConversation:
    """Return the conversation whose id begins with ``prefix``; a UsageError for none or several, or a StoreError."""
    matches = await store.conversations.matching(tenant, prefix) if prefix else []
    if len(matches) > 1:
        several = "\n".join(f"  {summary.id}  {moment(summary.updated)}  {summary.title}" for summary in matches)
        raise UsageError(f"several conversations begin with {prefix!r}; type more of the id:\n{several}")
    stored = await store.conversations.get(tenant, matches[0].id) if matches else None
    if stored is None:
        raise UsageError(f"there is no conversation {prefix!r}; 'rkllm-mcp conversations list' shows them")
    return stored


async def forget_approvals(store: Store, name: str) -> list[tuple[str, str]]:
    """Delete decisions about a tool, or a server's tools; return (server, tool) of each, or raise a UsageError."""
    stored = await store.grants.all()
    chosen = matching_tools(name, [(server, tool) for server, tool, _ in stored])
    if not chosen:
        raise UsageError(f"nothing is remembered about {name!r}; 'rkllm-mcp tools approvals' lists what is")
    for server, tool in chosen:
        await store.grants.forget(server, tool)
    return chosen


def matching_tools(name: str, tools: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of these (server, tool) that a name means: a tool in either spelling, or all tools of a server."""
    return [(server, tool) for server, tool in tools if name in (tool, server, f"mcp__{server}__{tool}")]
