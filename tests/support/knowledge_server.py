"""The knowledge server for tests: in process, and as plain values."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio
from mcp import Client
from mcp_types import CallToolResult, TextContent

from mcp_servers.knowledge.importing.folders import WatchRules
from mcp_servers.knowledge.server import AccessOf, create_server
from mcp_servers.knowledge.service import KnowledgeService, open_service
from mcp_servers.knowledge.settings import Settings
from mcp_servers.knowledge.types import UNRESTRICTED

RULES = "# 就業規則\n\n## 手当\n\nリモートワーク手当は月額5,000円を支給する。\n\n## 副業\n\n副業は届出により許可する。"
Mode = Literal["auto", "legacy"]


@dataclass(frozen=True)
class Said:
    """What a tool answered.

    Args:
        is_error: it is a tool error.
        texts: its text blocks.
        facts: its structured content.
    """

    is_error: bool
    texts: list[str]
    facts: dict[str, Any]

    @property
    def text(self) -> str:
        return self.texts[0]


class Tools:
    """A client of the server."""

    def __init__(self, client: Client, service: KnowledgeService) -> None:
        self.client = client
        self.service = service

    async def call(self, tool: str, /, **arguments: Any) -> Said:
        return said(await self.client.call_tool(tool, arguments))

    async def base(self, name: str = "社内規程", text: str = "") -> str:
        """A new knowledge base, perhaps with one document."""
        base_id = (await self.call("create_knowledge_base", name=name)).facts["knowledge_base_id"]
        if text:
            added = await self.call("add_document", knowledge_base_id=base_id, text=text)
            assert not added.is_error, added.texts
        return base_id


def said(result: CallToolResult) -> Said:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return Said(result.is_error, texts, result.structured_content or {})


@asynccontextmanager
async def open_tools(
    folder: Path,
    settings: Settings | None = None,
    *,
    access_of: AccessOf = lambda _: UNRESTRICTED,
    watching: WatchRules | None = None,
    mode: Mode = "auto",
    **client: Any,
) -> AsyncGenerator[Tools, None]:
    """The server in this process, with a client; everything is kept below ``folder``, and nothing takes long."""
    settings = replace(settings or Settings(folder), folder=folder / "kept")
    with anyio.fail_after(300):
        async with (
            open_service(settings, watching) as service,
            Client(create_server(service, access_of), mode=mode, **client) as connected,
        ):
            yield Tools(connected, service)
