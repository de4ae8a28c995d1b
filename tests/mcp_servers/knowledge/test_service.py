from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mcp_servers.knowledge.errors import BadArgumentError, BaseNotFoundError
from mcp_servers.knowledge.importing.folders import WatchRules
from mcp_servers.knowledge.service import open_service
from mcp_servers.knowledge.settings import ModelSettings, Settings, WatchedFolder
from tests.support.knowledge_server import RULES, Tools, open_tools

pytestmark = pytest.mark.anyio

QUICK = WatchRules(debounce_s=0.05, interval_s=0.1)


async def until_found(tools: Tools, query: str, count: int) -> None:
    """Asks until a search finds this many; bounded by ``open_tools``."""
    while True:
        found = await tools.call("search_documents", query=query)
        if found.facts.get("count", 0) == count:
            return
        await anyio.sleep(0.05)


async def test_a_watched_folder_is_in_the_knowledge_base_of_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rules.md").write_text(RULES, "utf-8")
    settings = Settings(tmp_path, watch=(WatchedFolder(folder, "規程"),), default_base="規程")
    async with open_tools(tmp_path, settings, watching=QUICK) as tools:
        await until_found(tools, "リモートワーク手当", 1)
        (tmp_path / "more.md").write_text("# 出張\n\n日当は2,000円とする。", "utf-8")
        (tmp_path / "more.md").rename(folder / "more.md")
        await until_found(tools, "日当", 1)
        (folder / "rules.md").unlink()
        await until_found(tools, "リモートワーク手当", 0)
    async with open_tools(tmp_path, settings, watching=QUICK) as tools:
        await until_found(tools, "日当", 1)
        bases = await tools.call("list_knowledge_bases")
    assert [base["name"] for base in bases.facts["knowledge_bases"]] == ["規程"]


async def test_what_cannot_be_watched_or_asked_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    nowhere = WatchedFolder(tmp_path, "00000000-0000-4000-8000-000000000000")
    with pytest.raises(BaseNotFoundError):
        async with open_service(Settings(tmp_path, watch=(nowhere,))):
            pass
    for models, words in (
        (ModelSettings(llm="magic"), "llm names no model"),
        (ModelSettings(embedder="magic"), "embedder is 'magic', which is not a model"),
    ):
        with pytest.raises(BadArgumentError, match=words):
            async with open_service(Settings(tmp_path, models)):
                pass
    async with open_service(Settings(tmp_path)) as service:
        for _ in range(2):
            await service.library.create("規程")
    with pytest.raises(BadArgumentError, match="several knowledge bases"):
        async with open_service(Settings(tmp_path, watch=(WatchedFolder(tmp_path, "規程"),))):
            pass
