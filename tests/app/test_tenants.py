"""Several assistants over one model: each sees its own, and a new configuration keeps what it does not change."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import StatusSink
from rkllm_mcp.app.tenants import Tenants, open_tenants
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ModelNotFoundError, UsageError
from rkllm_mcp.events import End, Event, Text
from tests.support.demo_app import TIME_SERVER, Demo, make_demo

pytestmark = pytest.mark.anyio
QUESTION = "What time is it in London?"
TENANTS = """
[[tenants]]
name = "ann"
api_key = "key-of-ann"
servers = ["time"]
tools = ["get_current_time"]
system_prompt = "You serve Ann."

[[tenants]]
name = "bob"
api_key = "key-of-bob"
servers = []
"""


@asynccontextmanager
async def opened(demo: Demo, status: StatusSink | None = None) -> AsyncGenerator[Tenants, None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        with anyio.fail_after(120):
            async with open_tenants(load_config(demo.config), status=status) as tenants:
                yield tenants


def changed(demo: Demo, old: str, new: str) -> Config:
    text = demo.config.read_text("utf-8")
    assert old in text
    demo.config.write_text(text.replace(old, new), "utf-8")
    return load_config(demo.config)


async def events_of(app: App, text: str) -> list[Event]:
    async with aclosing(app.reply(app.new_conversation(), text)) as stream:
        return [event async for event in stream]


async def test_a_tenant_has_its_own_servers_tools_instructions_and_memory(tmp_path: Path) -> None:
    async with opened(make_demo(tmp_path, [TIME_SERVER], extra=TENANTS)) as tenants:
        owner, ann, bob = (tenants.tenant(name).app for name in ("", "ann", "bob"))
        for app in (owner, ann, bob):
            await app.ready()
        assert {tool.name for tool in owner.tools()} == {"get_current_time", "convert_time"}
        assert [tool.name for tool in ann.tools()] == ["get_current_time"]
        assert bob.tools() == ()
        assert ann.new_conversation().messages[0].text == "You serve Ann."
        assert ann.config.tenants == ()
        await events_of(ann, QUESTION)
        assert [call.tool for call in await ann.store.calls.latest(10)] == ["get_current_time"]
        assert not await owner.store.calls.latest(10)
        assert not await bob.store.calls.latest(10)
        assert owner.model_host is ann.model_host is bob.model_host


async def test_a_line_about_a_tenants_server_names_the_tenant(tmp_path: Path) -> None:
    told: list[str] = []
    fallback = '[provider.fallback]\nkind = "openai"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    async with opened(make_demo(tmp_path, [TIME_SERVER], extra=f"{fallback}{TENANTS}"), told.append) as tenants:
        for name in ("", "ann", "bob"):
            await tenants.tenant(name).app.toolbox.wait_until_connected()
    assert sorted(line for line in told if "is ready" in line) == [
        "Tenant 'ann': [MCP: Server 'time' is ready: 1 tool]",
        "[MCP: Server 'time' is ready: 2 tools]",
    ]
    # What is wrong with the configuration as a whole is told once.
    assert [line for line in told if "has no effect" in line] == [
        "provider.fallback has no effect while its 'when' is empty; list the occasions on which it takes over"
    ]


async def test_a_new_configuration_keeps_the_model_and_the_assistants_that_it_does_not_change(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [TIME_SERVER], extra=TENANTS)
    async with opened(demo) as tenants:
        await tenants.model_host.ready()
        model_host, owner, ann, bob = tenants.model_host, *(tenants.tenant(name).app for name in ("", "ann", "bob"))
        pid = model_host.board.engine.worker_pid
        assert await tenants.reload(changed(demo, "You serve Ann.", "You serve Ann well."))
        assert tenants.model_host is model_host
        assert tenants.model_host.board.engine.worker_pid == pid
        assert tenants.tenant("").app is owner
        assert tenants.tenant("bob").app is bob
        assert tenants.tenant("ann").app is not ann
        assert tenants.tenant("ann").app.new_conversation().messages[0].text == "You serve Ann well."
        assert isinstance((await events_of(tenants.tenant("ann").app, QUESTION))[-1], End)


async def test_an_answer_under_way_ends_before_its_assistant_is_replaced(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [TIME_SERVER], extra=TENANTS)
    async with opened(demo) as tenants:
        await tenants.model_host.ready()
        ann = tenants.tenant("ann").app
        async with aclosing(ann.reply(ann.new_conversation(), QUESTION)) as stream:
            await anext(stream)
            await tenants.reload(changed(demo, "You serve Ann.", "You serve Ann well."))
            assert tenants.tenant("ann").app is not ann
            rest = [event async for event in stream]
        assert rest[-1] == End("answered")
        assert any(isinstance(event, Text) for event in rest)


async def test_another_model_is_loaded_anew_and_one_that_is_missing_changes_nothing(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [], model="max_new_tokens = 100\n")
    async with opened(demo) as tenants:
        await tenants.model_host.ready()
        model_host = tenants.model_host
        with pytest.raises(ModelNotFoundError):
            await tenants.reload(changed(demo, 'name = "demo"', 'name = "nonesuch"'))
        assert tenants.model_host is model_host
        assert isinstance((await events_of(tenants.tenant("").app, "Hello"))[-1], End)
        demo.config.write_text(demo.config.read_text("utf-8").replace("nonesuch", "demo"), "utf-8")
        assert not await tenants.reload(changed(demo, "max_new_tokens = 100", "max_new_tokens = 101"))
        assert tenants.model_host is not model_host
        assert (await events_of(tenants.tenant("").app, "Hello"))[-1] == End("answered")


async def test_a_tenant_that_is_taken_out_is_not_there_any_more(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [], extra=TENANTS.replace('servers = ["time"]\n', ""))
    async with opened(demo) as tenants:
        config = load_config(demo.config)
        await tenants.reload(config.model_copy(update={"tenants": config.tenants[1:]}))
        assert set(tenants.by_name) == {"", "bob"}
        with pytest.raises(UsageError, match="no tenant 'ann'"):
            tenants.tenant("ann")
