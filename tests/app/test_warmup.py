"""The system text and the tools are in the KV cache before the first question, from disk where that was asked for."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app import idle_requests
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import End, Usage
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.models.cards import list_models
from tests.support.demo_app import make_demo
from tests.support.demo_model import DEMO_FOLDER

pytestmark = pytest.mark.anyio

KEPT = 'name = "demo"\nprompt_cache = true\n'
NAMES = ("clock", "calculator", "convert_units", "device_status")
TOOLS = (
    '[[servers]]\nname = "own"\ntransport = "builtin"\ntools = ['
    + ", ".join(f'{{ name = "{name}" }}' for name in NAMES)
    + "]\n"
)


class Started:
    """An assistant, and what it said while it started."""

    def __init__(self, app: App, said: list[str]) -> None:
        self.app = app
        self.said = said

    @property
    def about_prompts(self) -> list[str]:
        return [line for line in self.said if line.startswith("[NPU: ")]

    async def warm(self) -> None:
        """Wait until the warm-up shows no further activity."""
        await self.app.ready()
        while not await self.app.model_host.board.engine.kv_cache_size():
            await anyio.lowlevel.checkpoint()

    async def ask(self, options: AnswerOptions | None = None) -> Usage:
        async with aclosing(self.app.reply(self.app.new_conversation(), "Hello", options)) as stream:
            events = [event async for event in stream]
        assert events[-1] == End("answered")
        (usage,) = [event for event in events if isinstance(event, Usage)]
        return usage


@asynccontextmanager
async def started(
    folder: Path, model: str = "", *, one_shot: bool = False, servers: bool = True, extra: str = ""
) -> AsyncGenerator[Started, None]:
    demo = make_demo(folder, [], extra=(TOOLS if servers else "") + extra)
    text = demo.config.read_text("utf-8")
    if model:
        demo.config.write_text(text.replace('name = "demo"\n', model, 1), encoding="utf-8")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        patch.delenv("XDG_CACHE_HOME", raising=False)
        with anyio.fail_after(60):
            async with open_app(load_config(demo.config), status=said.append, one_shot=one_shot) as app:
                yield Started(app, said)


async def test_the_second_start_reads_system_text_and_tools_from_disk(tmp_path: Path) -> None:
    async with started(tmp_path, KEPT) as first:
        usage = await first.ask()
        head = first.app.prompt_prefix()
        assert usage.cached_tokens == len(head) > 300
    assert [line.split(",")[0] for line in first.about_prompts] == [
        f"[NPU: {len(head)} tokens of system text and tools are kept in a file"
    ]
    for one_shot in (False, True):
        async with started(tmp_path, KEPT, one_shot=one_shot) as again:
            usage = await again.ask()
            assert again.app.prompt_prefix() == head
        assert again.about_prompts == [f"[NPU: {len(head)} tokens of system text and tools are loaded from a file]"]
        assert usage.prefilled_tokens == usage.prompt_tokens - len(head) < 0.05 * usage.prompt_tokens


async def test_other_tools_are_another_prefix_and_both_are_stored(tmp_path: Path) -> None:
    for servers in (True, False, True, False):
        async with started(tmp_path, KEPT, servers=servers) as opened:
            usage = await opened.ask()
            assert usage.cached_tokens == len(opened.app.prompt_prefix())
    assert "are loaded from a file" in opened.about_prompts[0]
    assert len(list((tmp_path / ".cache/rkllm-mcp/prompts").glob("*/prompt.bin"))) == 2


LATE = """
import os, runpy, sys, time
gate = sys.argv.pop()
while not os.path.exists(gate):
    time.sleep(0.05)
runpy.run_module("mcp_server_time", run_name="__main__")
"""


def late_server(folder: Path) -> tuple[str, Path]:
    """The configuration of a server that starts when a file is there, and the file, which is there."""
    script, gate = folder / "late.py", folder / "gate"
    script.write_text(LATE, "utf-8")
    gate.touch()
    return f'[[servers]]\nname = "late"\ncommand = "{sys.executable}"\nargs = ["{script}", "{gate}"]\n', gate


async def test_a_file_of_the_tools_of_the_last_time_is_read_before_a_slow_server_is_there(tmp_path: Path) -> None:
    server, gate = late_server(tmp_path)
    late = f"{server}[agent]\nwait_for_servers_s = 1\n"
    async with started(tmp_path, KEPT, extra=late) as first:
        await first.app.toolbox.wait_until_connected()
        await first.ask()
        head = first.app.prompt_prefix()
        assert any(tool.server == "late" for tool in first.app.tools())
        # As after the test of setup, which waits for the servers.
        await first.app.renew_beginning()
    gate.unlink()
    async with started(tmp_path, KEPT, extra=late) as again:
        while len(again.about_prompts) < 1:
            await anyio.lowlevel.checkpoint()
        assert again.app.prompt_prefix() != head == again.app.prompt_prefix(is_remembered=True)
        gate.touch()
        await again.app.toolbox.wait_until_connected()
        usage = await again.ask()
    assert again.about_prompts == [f"[NPU: {len(head)} tokens of system text and tools are loaded from a file]"]
    assert usage.prefilled_tokens == usage.prompt_tokens - len(head)


SLOW = """
import time

def water() -> str:
    'Say how high the water is.'
    return "3 m"

time.sleep(0.5)
"""


@pytest.mark.parametrize("is_asked", [True, False])
async def test_a_file_with_a_slow_function_is_read_before_a_slow_server_is_there_unless_a_question_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    server, gate = late_server(tmp_path)
    (tmp_path / "slow_function_of_warm_up.py").write_text(SLOW, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    slow = (
        '[[servers]]\nname = "slow"\ntransport = "builtin"\n'
        'tools = [{ name = "water", entry_point = "slow_function_of_warm_up:water" }]\n'
        f"{server}[agent]\nwait_for_servers_s = 1.5\n"
    )
    async with started(tmp_path, KEPT, extra=slow) as first:
        await first.app.toolbox.wait_until_connected()
        await first.ask()
        head = first.app.prompt_prefix()
        await first.app.renew_beginning()
    gate.unlink()
    monkeypatch.delitem(sys.modules, "slow_function_of_warm_up")
    async with started(tmp_path, KEPT, extra=slow) as again:
        if is_asked:
            # It goes without the tools of the late server, with which the file begins.
            await again.ask()
        while len(again.about_prompts) < (not is_asked):
            await anyio.lowlevel.checkpoint()
        gate.touch()
    loaded = f"[NPU: {len(head)} tokens of system text and tools are loaded from a file]"
    assert again.about_prompts == ([] if is_asked else [loaded])


@pytest.mark.parametrize("is_asked", [True, False])
async def test_what_prompts_begin_with_while_a_server_is_late_is_never_saved_and_the_whole_list_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    monkeypatch.setattr(idle_requests, "IDLE_S", 0.05)
    server, gate = late_server(tmp_path)
    gate.unlink()
    late = f"{server}connect_timeout_s = 50\n[agent]\nwait_for_servers_s = 0.05\n"
    files = tmp_path / ".cache/rkllm-mcp/prompts"
    async with started(tmp_path, KEPT, extra=late) as opened:
        if is_asked:
            await opened.ask(AnswerOptions(save=True))
            partial = opened.app.prompt_prefix()
            # The idle requests after the answer come and go.
            await anyio.sleep(0.5)
        else:
            await opened.app.model_host.ready()
            while not await opened.app.model_host.board.engine.kv_cache_size():
                await anyio.lowlevel.checkpoint()
            partial = opened.app.prompt_prefix()
        assert (opened.about_prompts, [*files.glob("*/manifest.json")]) == ([], [])
        gate.touch()
        await opened.app.toolbox.wait_until_connected()
        if is_asked:
            await opened.ask(AnswerOptions(save=True))
        while not [*files.glob("*/manifest.json")]:
            await anyio.lowlevel.checkpoint()
        whole = opened.app.prompt_prefix()
        assert len(whole) > len(partial)
    async with started(tmp_path, KEPT, extra=late) as again:
        await again.app.toolbox.wait_until_connected()
        usage = await again.ask()
        assert (usage.cached_tokens, again.app.prompt_prefix()) == (len(whole), whole)
    assert again.about_prompts == [f"[NPU: {len(whole)} tokens of system text and tools are loaded from a file]"]


async def test_after_a_change_of_tools_the_next_start_reads_a_file_and_each_beginning_is_saved_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_requests, "IDLE_S", 0.1)
    folder = tmp_path / ".cache/rkllm-mcp/prompts"
    save = AnswerOptions(save=True)
    async with started(tmp_path, KEPT) as opened:
        await opened.ask()
        for changed in (True, False, True):
            opened.app.toolbox.switches.turn("own", "clock", is_on=not changed)
            await opened.ask(save)
            while len([*folder.glob("*/manifest.json")]) < 2:
                await anyio.lowlevel.checkpoint()
            await anyio.sleep(0.3)
        head = opened.app.prompt_prefix()
    assert len([line for line in opened.about_prompts if "are kept in a file" in line]) == 2
    async with started(tmp_path, KEPT) as again:
        usage = await again.ask()
        assert again.app.prompt_prefix() == head
    assert again.about_prompts == [f"[NPU: {len(head)} tokens of system text and tools are loaded from a file]"]
    assert usage.prefilled_tokens == usage.prompt_tokens - len(head)


async def test_the_head_is_prefilled_before_the_first_question(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await opened.warm()
        usage = await opened.ask()
        assert usage.cached_tokens == len(opened.app.prompt_prefix())
    assert opened.about_prompts == []


@pytest.mark.parametrize(
    ("model", "one_shot"), [('name = "demo"\nwarm_up = false\n', False), ("", True)], ids=["switched off", "one shot"]
)
async def test_no_prompt_is_prefilled_in_advance_where_that_saves_no_time(
    tmp_path: Path, model: str, one_shot: bool
) -> None:
    async with started(tmp_path, model, one_shot=one_shot, servers=False) as opened:
        await opened.app.ready()
        await anyio.lowlevel.checkpoint()
        usage = await opened.ask()
        assert usage.cached_tokens == 0


def test_the_families_that_cannot_keep_prompts_are_known() -> None:
    cannot = {folder.card.template for folder in list_models() if not folder.keeps_prompts}
    assert cannot == {"lfm2", "lfm2.5", "qwen3.5", "rwkv7"}


async def test_a_family_that_cannot_keep_prompts_is_left_alone_and_the_wish_is_answered(tmp_path: Path) -> None:
    card = (DEMO_FOLDER / "model.toml").read_text("utf-8")
    folder = tmp_path / "recurrent"
    folder.mkdir()
    card = card.replace('"demo"', '"recurrent"').replace("emulated = true", "emulated = true\nprompt_cache = false")
    (folder / "model.toml").write_text(card, encoding="utf-8")
    for name in ("demo.rkllm", "tokenizer.json"):
        (folder / name).symlink_to(DEMO_FOLDER / name)
    model = f'path = "{folder}"\nprompt_cache = true\n'
    async with started(tmp_path, model, servers=False) as opened:
        usage = await opened.ask()
        assert usage.cached_tokens == 0
    assert opened.about_prompts == ["[NPU: model 'recurrent' cannot keep prompts; prompt_cache has no effect]"]


async def test_a_cache_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("in the way")
    async with started(tmp_path, KEPT, servers=False) as opened:
        await opened.ask()
    assert "[NPU: no prompt can be kept in " in opened.about_prompts[0]


async def test_leaving_at_once_does_not_wait_for_it(tmp_path: Path) -> None:
    async with started(tmp_path, KEPT, servers=False):
        pass
