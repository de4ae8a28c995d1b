"""Resources of servers of both eras: listed, read, watched."""

from __future__ import annotations

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver.resources import TextResource

from rkllm_mcp.errors import ServerRefusedError, ServerUnavailableError, ToolboxError, ToolTimeoutError
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from rkllm_mcp.messages import Resource, ResourceTemplate
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.calling import call, said, toolbox_with
from tests.support.mcp_servers.specs import PATIENCE_S, asking, hostile, local_server, tiny

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
async def test_resources_and_templates_are_listed_with_their_known_properties(era: str) -> None:
    async with toolbox_with(asking("memos", era), tiny("nothing", era)) as toolbox:
        first, second, *_ = await toolbox.offerings.resources()
        assert first == Resource("memos", "memo://monday", "Monday", "What is to be done.", "text/plain", 9)
        assert (second.uri, second.name, second.reference) == ("memo://tuesday", "tuesday", "memos:memo://tuesday")
        assert await toolbox.offerings.templates() == (ResourceTemplate("memos", "memo://day/{date}", "day"),)
        assert await toolbox.offerings.resources("nothing") == ()


@ERAS
async def test_a_resource_is_read_as_text_and_binary_content_is_described(era: str) -> None:
    async with toolbox_with(asking("memos", era)) as toolbox:
        monday = await toolbox.offerings.read_resource("memos:memo://monday")
        assert (monday.text, monday.truncated, monday.uri) == ("Buy milk.", False, "memo://monday")
        assert monday.contents[0]["text"] == "Buy milk."
        picture = await toolbox.offerings.read_resource("memos:memo://picture")
        assert picture.text == "[resource memo://picture: image/png, 1.2 kB, not shown]"
        assert (await toolbox.offerings.read_resource("memos:memo://packed")).text == '{"n":1}'
        assert (await toolbox.offerings.read_resource("memos:memo://買い物")).text == "牛乳"
        assert (await toolbox.offerings.read_resource("memos:memo://folder")).text == (
            "[resource memo://a]\na\n[resource memo://b]\nb"
        )


async def test_a_long_resource_is_cut_with_a_note() -> None:
    async with toolbox_with(asking("memos")) as toolbox:
        monday = await toolbox.offerings.read_resource("memos:memo://monday", 3)
    assert (monday.text, monday.truncated) == ("Buy\n… truncated, 6 more characters", True)


async def test_what_a_model_reads_of_a_server_is_cleaned_like_the_result_of_a_tool() -> None:
    server = MCPServer("notes")
    text = "Milk.\u202e<tool_call>"
    server.add_resource(TextResource(uri="memo://a", name="a", text=text))

    @server.prompt()
    def shop() -> str:  # pyright: ignore[reportUnusedFunction]
        return text

    host = ConnectionServices(in_process={"notes": server})
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([local_server("notes")], host=host) as toolbox:
            content = await toolbox.offerings.read_resource("notes:memo://a")
            filled = await toolbox.offerings.fill_prompt("shop", {})
    assert (content.text, content.contents[0]["text"]) == ("Milk.<tool_call>", text)
    assert [(turn.text, turn.foreign) for turn in filled.messages] == [("Milk.<tool_call>", True)]


async def test_an_address_alone_is_enough_where_one_server_has_it_or_makes_it() -> None:
    async with toolbox_with(tiny(), asking("memos")) as toolbox:
        assert (await toolbox.offerings.read_resource("memo://tuesday")).text == "Call the plumber."
        assert (await toolbox.offerings.read_resource("memo://day/2026-11-21")).text == "Nothing on 2026-11-21."


async def test_what_cannot_be_read_is_named() -> None:
    async with toolbox_with(asking("memos"), asking("others")) as toolbox:
        with pytest.raises(ToolboxError, match=r"^several servers have a resource 'memo://monday'; name one of memos:"):
            await toolbox.offerings.read_resource("memo://monday")
        with pytest.raises(ToolboxError, match=r"^there is no resource 'memu://mnday'; did you mean 'memo://monday'\?"):
            await toolbox.offerings.read_resource("memu://mnday")
        with pytest.raises(ServerRefusedError, match=r"^resource 'memo://x' of server 'memos' could not be read: "):
            await toolbox.offerings.read_resource("memos:memo://x")
        with pytest.raises(ToolboxError, match=r"^there is no server 'memo'; did you mean 'memos'\?"):
            await toolbox.offerings.resources("memo")


async def test_servers_that_cannot_list_cost_only_their_own_resources() -> None:
    heard: list[str] = []
    with anyio.fail_after(PATIENCE_S):
        specs = [asking("advertising", "advertising"), hostile("exits"), asking("memos")]
        async with open_toolbox(specs, on_status=heard.append) as box:
            await box.wait_until_connected()
            assert {resource.server for resource in await box.offerings.resources()} == {"memos"}
            assert await box.offerings.prompts("advertising") == ()
    assert any(line.startswith("[MCP: the resources of server 'exits' could not be listed: Server") for line in heard)


async def test_an_unreachable_server_is_reported_once_for_resources_and_templates() -> None:
    heard: list[str] = []
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("exits"), asking("memos")], on_status=heard.append) as box:
            await box.wait_until_connected()
            resources, templates = await box.offerings.readable()
    assert {resource.server for resource in resources} == {"memos"}
    assert [template.uri_template for template in templates] == ["memo://day/{date}"]
    (told,) = [line for line in heard if "could not be listed" in line]
    assert told.startswith("[MCP: the resources of server 'exits' could not be listed: Server")


async def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rkllm_mcp.mcp_client.session._RESOURCES_PATIENCE_S", 0.1)
    async with toolbox_with(asking("mute", "mute", timeout_s=0.2)) as toolbox:
        with pytest.raises(ToolTimeoutError, match=r"it did not answer within 0.2 s; raise timeout_s"):
            await toolbox.offerings.resources("mute")


@ERAS
async def test_a_subscriber_is_notified_of_each_change_until_it_unsubscribes(era: str) -> None:
    heard: list[str] = []
    news = anyio.Event()

    async def note(uri: str) -> None:
        heard.append(uri)
        news.set()

    async with toolbox_with(asking("memos", era)) as toolbox:
        async with anyio.create_task_group() as listening:
            await listening.start(toolbox.offerings.subscribe, "memos:memo://monday", note)
            await call(toolbox, "touch", uri="memo://tuesday")
            await call(toolbox, "touch", uri="memo://monday/evening")
            await news.wait()
            listening.cancel_scope.cancel()
        assert heard == ["memo://monday/evening"]
        if era == "legacy":
            assert (await said(toolbox, "seen"))[0] == "subscribed\nunsubscribed"


@ERAS
async def test_a_subscription_ends_with_its_connection_and_says_so(era: str) -> None:
    ended: list[ToolboxError] = []

    async def ignore(uri: str) -> None:
        del uri

    async def listen(toolbox: Toolbox, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await toolbox.offerings.subscribe("memos:memo://monday", ignore, task_status=task_status)
        except ToolboxError as error:
            ended.append(error)

    async with toolbox_with(asking("memos", era)) as toolbox, anyio.create_task_group() as listening:
        await listening.start(listen, toolbox)
        await call(toolbox, "leave")
    assert isinstance(ended[0], ServerUnavailableError)
    assert str(ended[0]) == "the connection to server 'memos' was lost; subscribe to memo://monday again"


async def test_a_server_without_subscriptions_says_so() -> None:
    async def ignore(uri: str) -> None:
        del uri

    async with toolbox_with(asking("old", "legacy", "advertising")) as toolbox:
        with pytest.raises(ServerRefusedError, match=r"Method not found"):
            await toolbox.offerings.subscribe("old:memo://x", ignore)
