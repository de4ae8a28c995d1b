"""The model lists and reads the resources of real servers."""

from __future__ import annotations

import json

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver.resources import TextResource

from rkllm_mcp.events import Event, ResourceRead, Status
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.approvals import Approvals
from rkllm_mcp.tools.execution import ExecutionPolicies
from rkllm_mcp.tools.search import ToolSearch
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.calling import said, toolbox_with
from tests.support.mcp_servers.specs import altered, asking, local_server, tiny
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio


def offering(toolbox: Toolbox) -> list[str]:
    return [tool.name for tool in toolbox.tools() if tool.server == "resources"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_model_lists_and_reads_what_a_server_offers(era: str) -> None:
    async with toolbox_with(asking("memos", era), tiny("nothing", era)) as toolbox:
        assert offering(toolbox) == ["list_resources", "read_resource"]
        tool = toolbox.resolve("read_resource")
        assert tool is not None
        assert (tool.description, tool.read_only) == ("Read a resource of: memos.", True)
        text, is_error = await said(toolbox, "list_resources")
        assert not is_error
        assert text.splitlines()[:2] == ["memo://monday — Monday: What is to be done.", "memo://tuesday — tuesday"]
        assert "memo://day/{date} — day" in text.splitlines()
        assert await said(toolbox, "read_resource", uri="memo://monday") == ("Buy milk.", False)
        assert await said(toolbox, "read_resource", uri="memos:memo://monday") == ("Buy milk.", False)
        text, is_error = await said(toolbox, "read_resource", uri="memo://mondy")
        assert (text, is_error) == ("There is no resource 'memo://mondy'; did you mean 'memo://monday'?", True)


async def test_servers_without_resources_cost_no_tools() -> None:
    host = ConnectionServices(in_process={"empty": MCPServer("empty")})
    async with toolbox_with(local_server("empty"), tiny(), host=host) as toolbox:
        assert offering(toolbox) == []
        text, is_error = await said(toolbox, "read_resource", uri="a:b")
        assert is_error
        assert text.startswith("There is no tool 'read_resource'")


def many(count: int) -> ConnectionServices:
    server = MCPServer("many")
    for number in range(count):
        server.add_resource(TextResource(uri=f"note://n{number}", name=f"note {number}", text="x" * 9000))
    records = json.dumps({"rows": [1, 2, 3]})
    server.add_resource(TextResource(uri="note://rows", name="rows", text=records, mime_type="application/json"))
    server.add_resource(TextResource(uri="note://table", name="table", text="a,b\n1,2\n", mime_type="text/csv"))
    return ConnectionServices(in_process={"many": server})


async def test_lists_and_contents_are_bounded_and_a_query_finds_what_a_long_list_hides() -> None:
    policies = ExecutionPolicies(result_chars=500)
    async with toolbox_with(local_server("many"), host=many(100), policies=policies) as toolbox:
        text, _ = await said(toolbox, "list_resources")
        assert len(text.splitlines()) <= 21
        content, _ = await said(toolbox, "read_resource", uri="note://n1")
        assert content.startswith("xxx")
        assert len(content) < 700
        found, _ = await said(toolbox, "list_resources", query="table")
        assert found.splitlines()[0] == "note://table — table"
    async with toolbox_with(local_server("many"), host=many(100)) as toolbox:
        text, _ = await said(toolbox, "list_resources")
        assert text.splitlines()[-1] == "… and 82 more; name what you look for in a query."


async def test_the_status_lines_name_the_server_the_resource_and_its_records() -> None:
    told: list[Event] = []

    context = CallContext(sink=FunctionSink(told.append))
    async with toolbox_with(local_server("many"), host=many(1)) as toolbox:
        for uri in ("note://rows", "note://table", "note://n0"):
            await toolbox.call(ToolCall("1", "read_resource", {"uri": uri}), context)
    connecting = Status("[MCP: Connecting to many server...]")
    assert told == [
        connecting,
        ResourceRead("note://rows"),
        Status("[MCP: Fetched resource: note://rows]"),
        Status("[MCP: Loaded 3 records]"),
        connecting,
        ResourceRead("note://table"),
        Status("[MCP: Fetched resource: note://table]"),
        Status("[MCP: Loaded 1 record]"),
        connecting,
        ResourceRead("note://n0"),
        Status("[MCP: Fetched resource: note://n0]"),
    ]


async def test_a_server_that_is_switched_off_offers_nothing_and_one_that_asks_always_asks_here_too() -> None:
    async with toolbox_with(asking("memos"), asking("others")) as toolbox:
        assert (await said(toolbox, "list_resources"))[0].startswith("memos:memo://monday — ")
        toolbox.switch("others", is_on=False)
        assert "others" not in (await said(toolbox, "list_resources"))[0]
        assert (await said(toolbox, "read_resource", uri="others:memo://monday"))[1]
        toolbox.switch("memos", is_on=False)
        assert offering(toolbox) == []
        # As the page does it.
        toolbox.switches.turn("memos", is_on=True)
        toolbox.switch("read_resource", is_on=False)
        assert offering(toolbox) == ["list_resources"]
    policies = ExecutionPolicies(approvals=Approvals())
    async with toolbox_with(altered(asking("memos"), approve="always"), policies=policies) as toolbox:
        text, is_error = await said(toolbox, "read_resource", uri="memo://monday")
        assert is_error
        assert "was not run" in text


async def test_the_tools_of_resources_are_chosen_like_others_by_the_names_of_the_resources() -> None:
    async with toolbox_with(asking("memos"), tiny()) as toolbox:
        found = await ToolSearch().search("What do I have to do on Monday?", toolbox.tools())
        assert {tool.name for tool, _ in found[:2]} == {"list_resources", "read_resource"}


async def test_a_server_named_resources_keeps_its_name() -> None:
    async with toolbox_with(asking("resources")) as toolbox:
        tool = toolbox.resolve("read_resource")
        assert tool is not None
        assert tool.server == "host_resources"
        assert await said(toolbox, "read_resource", uri="memo://monday") == ("Buy milk.", False)
