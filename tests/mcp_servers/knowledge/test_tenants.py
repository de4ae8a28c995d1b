"""Tenants over stdio: each has a server of its own on the folder that all share."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_servers.knowledge.settings import SettingsError, load_settings
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.mcp_client.client import MCPClient

pytestmark = pytest.mark.anyio

CONFIG = """
[[servers]]
name = "knowledge"
command = "${PYTHON}"
args = ["-m", "mcp_servers.knowledge"]
env = {KNOWLEDGE_TENANT = "", KNOWLEDGE_DEFAULT_BASE = "規程"}

[[tenants]]
name = "own"
api_key = "k1-of-a-tenant"
documents = "own"
may_write = true

[[tenants]]
name = "other"
api_key = "k2-of-a-tenant"
documents = "own"
may_write = true

[[tenants]]
name = "before"
api_key = "k3-of-a-tenant"
may_write = true

[[tenants]]
name = "reader"
api_key = "k4-of-a-tenant"
"""


class Caller:
    """Calls of one tenant, or of the owner."""

    def __init__(self, client: MCPClient) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool(tool, arguments)
        assert not result["isError"], result["content"]
        return json.loads(result["content"][0]["text"])

    async def problem(self, tool: str, **arguments: Any) -> str:
        result = await self._client.call_tool(tool, arguments)
        assert result["isError"]
        return result["content"][0]["text"]

    async def names(self) -> list[str]:
        return [each["name"] for each in (await self.call("list_knowledge_bases"))["knowledge_bases"]]

    async def upload(self, name: str, text: str, base: str) -> dict[str, Any]:
        data = base64.b64encode(text.encode()).decode()
        return await self.call("add_document", data=data, file_name=name, knowledge_base_id=base)

    async def titles(self, base: str) -> list[tuple[str, str]]:
        listed = await self.call("list_knowledge_bases", knowledge_base_id=base)
        return sorted((each["title"], each["tenant"]) for each in listed["documents"])


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Mapping[str, Caller], None]:
    """Start the server of each tenant as the host does, and that of the owner under an empty name."""
    (folder / "rkllm-mcp.toml").write_text(CONFIG, "utf-8")
    config = load_config(folder / "rkllm-mcp.toml")
    sections = {"": None, **{tenant.name: tenant for tenant in config.tenants}}
    callers: dict[str, Caller] = {}
    with anyio.fail_after(120):
        async with AsyncExitStack() as stack:
            for name, section in sections.items():
                server = config.for_tenant(section).servers[0]
                assert isinstance(server, StdioServer)
                env = {**server.env, "KNOWLEDGE_FOLDER": str(folder / "data")}
                client = MCPClient(sys.executable, ("-m", "mcp_servers.knowledge"), env=env, timeout_s=60)
                callers[name] = Caller(await stack.enter_async_context(client))
                if not name:
                    await callers[""].call("create_knowledge_base", name="規程")
            yield callers


async def test_a_new_tenant_has_its_own_base_and_an_existing_one_reads_the_shared_base(tmp_path: Path) -> None:
    async with opened(tmp_path) as callers:
        added = await callers[""].upload("rules.txt", "手当は月額五千円です。", "規程")
        (document,) = added["documents"]
        assert {name: await caller.names() for name, caller in callers.items()} == {
            "": ["other", "own", "規程"],
            "own": ["own"],
            "other": ["other"],
            "before": ["規程"],
            "reader": ["規程"],
        }
        for name in ("own", "other"):
            found = await callers[name].problem("search_documents", query="手当", knowledge_base_id="*")
            assert found.startswith("No results found")
            for tool in ("remove_document", "read_passages"):
                assert "not found" in await callers[name].problem(tool, document_id=document["document_id"])
            shared = await callers[name].problem(
                "search_documents", query="手当", knowledge_base_id=added["knowledge_base_id"]
            )
            assert shared.startswith("Access denied")
        for name in ("before", "reader"):
            found = await callers[name].call("search_documents", query="手当", knowledge_base_id="*")
            assert [each["content"] for each in found["results"]] == ["手当は月額五千円です。"]


async def test_a_tenant_changes_only_its_own_documents_and_the_owner_sees_who_added_each(tmp_path: Path) -> None:
    async with opened(tmp_path) as callers:
        (of_owner,) = (await callers[""].upload("rules.txt", "所有者の文です。", "規程"))["documents"]
        # A file of the same name replaces nothing of the owner, nor of another tenant.
        (of_tenant,) = (await callers["before"].upload("rules.txt", "別の文です。", "規程"))["documents"]
        await callers["own"].upload("rules.txt", "自分の文です。", "*")
        await callers["other"].upload("rules.txt", "他人の文です。", "*")
        assert of_tenant["document_id"] != of_owner["document_id"]
        assert await callers[""].titles("規程") == [("rules", ""), ("rules", "before")]
        assert await callers[""].titles("own") == [("rules", "own")]
        assert await callers["own"].titles("*") == [("rules", "own")]
        assert await callers["reader"].titles("規程") == [("rules", "")]
        refused = await callers["before"].problem("remove_document", document_id=of_owner["document_id"])
        assert refused.startswith("Access denied")
        assert "may not" in await callers["reader"].problem("create_knowledge_base", name="mine")
        assert "may not" in await callers["reader"].problem("add_document", text="文", knowledge_base_id="規程")
        await callers["before"].call("remove_document", document_id=of_tenant["document_id"])
        assert await callers[""].titles("規程") == [("rules", "")]


async def test_a_tenant_reaches_no_file_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("秘密", "utf-8")
    async with opened(tmp_path) as callers:
        for name in ("own", "before"):
            path, base = str(tmp_path / "secret.txt"), (await callers[name].names())[0]
            for tool, arguments in (
                ("add_document", {"path": path, "knowledge_base_id": base}),
                ("export_knowledge_base", {"path": str(tmp_path / "x"), "knowledge_base_id": base}),
                ("import_knowledge_base", {"path": path}),
                ("back_up", {"path": str(tmp_path / "x")}),
            ):
                assert "server's machine" in await callers[name].problem(tool, **arguments)
        assert not (tmp_path / "x").exists()


async def test_what_the_owner_puts_into_the_base_of_a_tenant_is_read_there_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as callers:
        await callers[""].upload("for-own.txt", "あなたへの文です。", "own")
        assert await callers["own"].titles("own") == [("for-own", "")]
        found = await callers["own"].call("search_documents", query="文", knowledge_base_id="*", threshold=0)
        assert [each["content"] for each in found["results"]] == ["あなたへの文です。"]
        assert await callers["other"].names() == ["other"]


async def test_tenants_write_to_the_shared_folder_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as callers, anyio.create_task_group() as tasks:
        for name, caller in callers.items():
            if name == "reader":
                continue
            for at in range(5):
                tasks.start_soon(
                    caller.upload, f"{at}.txt", f"{name} {at}", "*" if name in ("own", "other") else "規程"
                )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"KNOWLEDGE_TENANT_DOCUMENTS": "all"}, "tenant_documents is 'all': give own or shared"),
        ({"KNOWLEDGE_TENANT_ROLE": "owner"}, "tenant_role is 'owner': give read or write"),
        ({"KNOWLEDGE_TENANT": "a", "KNOWLEDGE_HTTP": "1"}, "tenant is for stdio"),
    ],
)
async def test_settings_of_a_tenant_that_cannot_be_are_refused(values: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings({}, values)
