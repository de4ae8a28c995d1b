"""Models next to the chat model: each in its own process and domain, and one of them helps to choose tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.models import open_auxiliary_models
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.errors import ModelNotFoundError
from rkllm_mcp.events import End
from tests.support.demo_app import make_demo

pytestmark = pytest.mark.anyio

CHOOSING = '[agent]\nauto_select = true\nembedding_model = "demo"\n'
TOOLS = '[[servers]]\nname = "here"\ntools = [{name = "clock"}, {name = "calculator"}]\n'


async def test_a_second_model_has_its_own_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = make_demo(tmp_path, ())
    log = tmp_path / "calls.jsonl"
    for name, value in {**demo.environment, "RKLLM_EMULATOR_LOG": str(log)}.items():
        monkeypatch.setenv(name, value)
    with anyio.fail_after(60):
        async with open_auxiliary_models(load_config(demo.config), ["demo"]) as auxiliary_models:
            cat, cats, weather = await auxiliary_models["demo"].embed(
                ["a cat sleeps", "the cat sleeps", "rain tomorrow"]
            )
    assert _product(cat, cats) > _product(cat, weather)
    init = next(line for line in map(json.loads, log.read_text("utf-8").splitlines()) if line["call"] == "rkllm_init")
    assert init["args"]["param"]["extend_param"]["base_domain_id"] == 1


async def test_the_embedding_model_is_asked_when_tools_have_to_be_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = make_demo(tmp_path, (), extra=CHOOSING + TOOLS)
    log = tmp_path / "calls.jsonl"
    for name, value in {**demo.environment, "RKLLM_EMULATOR_LOG": str(log)}.items():
        monkeypatch.setenv(name, value)
    with anyio.fail_after(60):
        async with open_app(load_config(demo.config)) as app:
            conversation = app.new_conversation()
            async with aclosing(app.reply(conversation, "What time is it?")) as events:
                assert End("answered") in [event async for event in events]
    assert conversation.listed_tools is not None
    assert conversation.listed_tools[0].name == "find_tools"
    assert '"mode": "hidden"' in log.read_text("utf-8")


async def test_a_missing_model_is_named(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        async with open_auxiliary_models(load_config(demo.config), ["nowhere"]):
            pass


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))
