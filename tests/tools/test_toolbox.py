"""Every server's tools under one set of names, called for real."""

from __future__ import annotations

import anyio
import pytest

from rkllm_mcp.errors import ToolboxError
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.calling import call, said
from tests.support.mcp_servers.leftovers import Holdings
from tests.support.mcp_servers.specs import PATIENCE_S, hostile, timed, tiny

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_of_either_era_is_listed_and_called(era: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("t", era)]) as toolbox:
            await toolbox.wait_until_connected()
            (state,) = toolbox.servers()
            assert (state.state, state.tool_count, state.reason) == ("ready", 7, "")
            assert state.protocol_version == {"legacy": "2025-11-25", "modern": "2026-07-28"}[era]
            (spec,) = [tool for tool in toolbox.tools() if tool.name == "add"]
            assert (spec.description, spec.server, spec.wire_name) == ("Add two numbers.", "t", "add")
            assert spec.input_schema["required"] == ["a", "b"]
            result = await call(toolbox, "add", a=2, b=3)
            assert (result.text, result.is_error, result.truncated) == ("5", False, False)
            assert result.seconds > 0


async def test_without_servers_no_tools_exist() -> None:
    async with open_toolbox([]) as toolbox:
        await toolbox.wait_until_connected()
        assert toolbox.tools() == ()
        assert await said(toolbox, "add") == ("There is no tool 'add'; no tools are available.", True)


async def test_every_error_of_the_sdk_is_a_result_of_one_sentence() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("refusing"), hostile("asking"), hostile("malformed"), tiny()]) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "anything") == ("The call failed: quota exceeded (code -32010).", True)
            assert await said(toolbox, "ask") == ("The call failed: Sampling not supported (code -32600).", True)
            # A result that does not fit the output schema of its server is read all the same.
            assert await said(toolbox, "checked") == ('{"m":2}', False)
            assert await said(toolbox, "fail", why="no such city") == ("no such city", True)


async def test_bad_definitions_and_results_do_not_spoil_the_good_ones() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("malformed")]) as toolbox:
            await toolbox.wait_until_connected()
            names = [tool.name for tool in toolbox.tools()]
            assert names == [
                "no_schema",
                "null_schema",
                "empty_schema",
                "list_type",
                "any_of",
                "string_schema",
                "bad_hints",
                "bad_text",
                "bad_output",
                "must_be_a_task",
                "echo",
                "checked",
            ]
            assert all(tool.input_schema["type"] == "object" for tool in toolbox.tools())
            assert await said(toolbox, "echo", text="good") == ("good", False)
            assert await said(toolbox, "no_schema") == ('{"n":1}', False)
            assert await said(toolbox, "null_schema") == ("(no output)", False)
            assert await said(toolbox, "empty_schema") == ("only a text", False)
            text, _ = await said(toolbox, "any_of")
            assert text == '{"type":"hologram","data":"?"}\n{"type":"text"}\nbare text'
            lines = toolbox.servers()[0].last_lines
            assert any("without a name was dropped" in line for line in lines)
            assert any("'costly' is left out: its input schema takes too much work" in line for line in lines)


async def test_all_pages_of_tools_are_listed_and_an_endless_list_is_cut() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("pages"), hostile("endless"), hostile("toolless")]) as toolbox:
            await toolbox.wait_until_connected()
            pages, endless, toolless = toolbox.servers()
            assert (pages.tool_count, endless.tool_count, toolless.tool_count) == (10, 100, 0)
            assert (toolless.state, toolless.reason) == ("ready", "")
            assert endless.last_lines == ("(its list of tools does not end; the first 100 are used)",)


async def test_names_are_short_while_unique_and_every_spelling_is_understood() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("one"), tiny("two", excluded_tools=("[!a]*",)), hostile("names")]) as toolbox:
            await toolbox.wait_until_connected()
            names = [tool.name for tool in toolbox.tools()]
            assert names[:8] == [
                "mcp__one__add",
                "steps",
                "learn",
                "fail",
                "environment",
                "wait",
                "cancellations",
                "mcp__two__add",
            ]
            for alias in ("steps", "mcp__one__steps"):
                spec = toolbox.resolve(alias)
                assert spec is not None
                assert (spec.name, spec.server, spec.wire_name) == ("steps", "one", "steps")
            assert await said(toolbox, "mcp__two__add", a=1, b=2) == ("3", False)
            assert toolbox.resolve("add") is None
            text, _ = await said(toolbox, "add", a=1, b=2)
            assert text == "Several servers have a tool 'add'; name one of mcp__one__add, mcp__two__add."
            assert await said(toolbox, "天気") == ("I am 天気", False)
            assert await said(toolbox, "mcp__names__a/b") == ("I am a/b", False)
            for spec in toolbox.tools()[8:]:
                assert await said(toolbox, spec.name) == (f"I am {spec.wire_name}", False)


async def test_a_misspelt_name_gets_a_suggestion() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("one"), tiny("two", excluded_tools=("[!a]*",))]) as toolbox:
            await toolbox.wait_until_connected()
            assert toolbox.suggest("Step") == "steps"
            assert toolbox.suggest("mcp__one__enviroment") == "environment"
            assert toolbox.suggest("ad") == "mcp__one__add"
            assert toolbox.suggest("zzzz") is None
            assert await said(toolbox, "stepps") == ("There is no tool 'stepps'; did you mean 'steps'?", True)


async def test_tools_and_servers_are_switched_off_and_on() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("one", allowed_tools=("add", "steps", "fail")), hostile("pages")]) as toolbox:
            await toolbox.wait_until_connected()
            assert [tool.name for tool in toolbox.switch("add", is_on=False)] == ["add"]
            assert len(toolbox.switch("pages", is_on=False)) == 10
            assert [tool.name for tool in toolbox.tools()] == ["steps", "fail"]
            assert len(toolbox.tools(disabled=True)) == 11
            assert await said(toolbox, "add", a=1, b=1) == ("Tool 'add' is switched off; answer without it.", True)
            toolbox.switch("mcp__one__add", is_on=True)
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)
            with pytest.raises(ToolboxError, match="There is no tool 'subtract'"):
                toolbox.switch("subtract", is_on=False)


async def test_instructions_come_from_the_servers_that_are_there() -> None:
    servers = [
        tiny(
            "one",
            system_instruction="Add with add.",
            response_instruction="Say the sum.",
            auto_context_tool="environment",
        ),
        hostile("exits", system_instruction="Never seen."),
    ]
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(servers) as toolbox:
            await toolbox.wait_until_connected()
            assert toolbox.system_instructions() == ("Add with add.",)
            assert toolbox.response_instruction("add") == "Say the sum."
            assert [tool.name for tool in toolbox.auto_context_tools()] == ["environment"]


async def test_the_tools_that_a_server_is_to_list_are_listed_and_the_others_are_on_demand() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("one", listed_tools=["ad*"])]) as toolbox:
            await toolbox.wait_until_connected()
            assert [tool.name for tool in toolbox.tools() if not tool.on_demand] == ["add"]
            assert len(toolbox.tools()) == 7


async def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ToolboxError, match="two servers are named 'same'"):
        async with open_toolbox([tiny("same"), tiny("same")]):
            pass


async def test_nothing_is_left() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny()]) as toolbox:  # what the SDK keeps open for good is opened now
            await toolbox.wait_until_connected()
        before = Holdings()
        ready = anyio.Event()
        up: set[str] = set()

        def hear(line: str) -> None:
            up.update(name for name in ("tiny", "dying") if line.startswith(f"[MCP: Server '{name}' is ready"))
            if len(up) == 2:
                ready.set()

        # Left while one server is still connecting, another has failed, and a third has died.
        servers = [tiny(), hostile("dying"), hostile("exits"), hostile("silent")]
        async with open_toolbox(servers, on_status=hear, host=timed(stop_grace_s=0.1)) as toolbox:
            await ready.wait()
            await call(toolbox, "die")
            assert Holdings() != before
        assert Holdings() == before
    assert await said(toolbox, "add", a=1, b=1) == ("Server 'tiny' is not available: it was stopped.", True)


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(KeyError, match="mine"):
        async with open_toolbox([tiny()]) as toolbox:
            await toolbox.wait_until_connected()
            raise KeyError("mine")
