"""Tenants of a host: each has its own server on the folder that all share."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_servers.knowledge.server import create_server, stdio_access
from mcp_servers.knowledge.service import open_service
from mcp_servers.knowledge.settings import SettingsError, load_settings
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.mcp_client.client import MCPClient
from tests.support.knowledge_server import Said, said

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

    def __init__(self, call_tool: Callable[[str, dict[str, Any]], Awaitable[Said]]) -> None:
        self._call_tool = call_tool

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._call_tool(tool, arguments)
        assert not answer.is_error, answer.texts
        return answer.facts

    async def problem(self, tool: str, **arguments: Any) -> str:
        answer = await self._call_tool(tool, arguments)
        assert answer.is_error
        return answer.text

    async def names(self) -> list[str]:
        return [each["name"] for each in (await self.call("list_knowledge_bases"))["knowledge_bases"]]

    async def upload(self, name: str, text: str, base: str) -> dict[str, Any]:
        data = base64.b64encode(text.encode()).decode()
        return await self.call("add_document", data=data, file_name=name, knowledge_base_id=base)

    async def titles(self, base: str) -> list[tuple[str, str]]:
        listed = await self.call("list_knowledge_bases", knowledge_base_id=base)
        return sorted((each["title"], each["tenant"]) for each in listed["documents"])


@asynccontextmanager
async def in_process(env: Mapping[str, str]) -> AsyncGenerator[Caller, None]:
    """The server that the program would run with these variables, in this process."""
    settings = load_settings({}, env)
    access = stdio_access(settings)
    async with open_service(settings) as service, Client(create_server(service, lambda _: access)) as client:

        async def call_tool(tool: str, arguments: dict[str, Any]) -> Said:
            return said(await client.call_tool(tool, arguments))

        yield Caller(call_tool)


@asynccontextmanager
async def over_stdio(env: Mapping[str, str]) -> AsyncGenerator[Caller, None]:
    """The server as the host starts it."""
    async with MCPClient(sys.executable, ("-m", "mcp_servers.knowledge"), env=dict(env), timeout_s=60) as client:

        async def call_tool(tool: str, arguments: dict[str, Any]) -> Said:
            result = await client.call_tool(tool, arguments)
            texts = [block["text"] for block in result["content"]]
            return Said(result["isError"], texts, {} if result["isError"] else json.loads(texts[0]))

        yield Caller(call_tool)


@asynccontextmanager
async def opened(
    folder: Path,
    start: Callable[[Mapping[str, str]], AbstractAsyncContextManager[Caller]] = in_process,
    tenants: Sequence[str] = ("own", "other", "before", "reader"),
) -> AsyncGenerator[Mapping[str, Caller], None]:
    """The server of each tenant with the variables that the host gives it; that of the owner has an empty name."""
    (folder / "rkllm-mcp.toml").write_text(CONFIG, "utf-8")
    config = load_config(folder / "rkllm-mcp.toml")
    sections = {tenant.name: tenant for tenant in config.tenants}
    callers: dict[str, Caller] = {}
    with anyio.fail_after(120):
        async with AsyncExitStack() as stack:
            for name in ("", *tenants):
                server = config.for_tenant(sections.get(name)).servers[0]
                assert isinstance(server, StdioServer)
                env = {**server.env, "KNOWLEDGE_FOLDER": str(folder / "data")}
                callers[name] = await stack.enter_async_context(start(env))
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


async def test_tenants_write_to_the_shared_folder_at_once_from_separate_processes(tmp_path: Path) -> None:
    async with opened(tmp_path, over_stdio, ("own", "before")) as callers:
        async with anyio.create_task_group() as tasks:
            for name, caller in callers.items():
                for at in range(5):
                    tasks.start_soon(caller.upload, f"{name}{at}.txt", f"{name} {at}", "*" if name == "own" else "規程")
        assert await callers["own"].titles("*") == [(f"own{at}", "own") for at in range(5)]
        assert await callers["before"].titles("規程") == [
            (f"{name}{at}", name) for name in ("", "before") for at in range(5)
        ]
        assert await callers["own"].names() == ["own"]


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
