"""The texts of the bundled servers' tools: in every language, for every argument, and read by the host."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rkllm_mcp.builtin.function import definitions
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.text import LANGUAGES, Language
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio

KEYS = {f"{vendor}_API_KEY": "k" for vendor in ("OPENAI", "GEMINI", "ANTHROPIC")}
JAPANESE = re.compile("[ぁ-ゖァ-ヺ一-鿿]")


@asynccontextmanager
async def bundled(name: str, home: Path, code: str = "") -> AsyncGenerator[Toolbox, None]:
    env = {**KEYS, "RKLLM_MCP_KB_PATH": str(home / "knowledge.db"), "PYTHONPATH": str(REPOSITORY)}
    arguments = ("-c", code) if code else ("-m", f"mcp_servers.{name}")
    spec = StdioServer(name=name, command=sys.executable, args=arguments, env=env)
    async with open_toolbox([spec]) as toolbox:
        yield toolbox


def texts_of(tool: ToolSpec, language: Language) -> list[str]:
    """The title, the description and the descriptions of all arguments in a language."""
    told = tool.in_language(language)
    properties = told.input_schema["properties"]
    return [told.title, told.description, *(properties[name].get("description", "") for name in properties)]


def check_texts(tools: list[ToolSpec]) -> None:
    for tool in tools:
        assert set(tool.texts) == set(LANGUAGES), tool.name
        for language in LANGUAGES:
            texts = texts_of(tool, language)
            assert [text for text in texts if not text or (JAPANESE.search(text) is None) is (language == "ja")] == []
            assert set(tool.texts[language]["parameters"]) == set(tool.input_schema["properties"]), tool.name


@pytest.mark.parametrize("name", ["weather", "knowledge", "cloud"])
async def test_each_tool_of_a_bundled_server_has_its_texts_in_every_language(name: str, tmp_path: Path) -> None:
    async with bundled(name, tmp_path) as toolbox:
        await toolbox.wait_until_connected()
        tools = list(toolbox.tools())
    assert tools
    check_texts(tools)


def test_each_built_in_tool_has_its_texts_in_every_language() -> None:
    check_texts(list(definitions().values()))


LYING = """
from tests.support.mcp_servers.tiny import TinyServer, tool
parameters = {"path": "The path", "x": "y", "n": 1}
texts = {
    "en": {"title": "A\\u200b title", "description": 3, "parameters": parameters},
    "ja": "no object",
    "fr": {"title": "Un titre"},
}
TinyServer([{**tool("look", "Looks.", path="string"), "_meta": {"rkllm-mcp/texts": texts}}], {}).run()
"""


async def test_what_is_not_a_text_is_left_out_and_invisible_characters_are_removed(tmp_path: Path) -> None:
    async with bundled("lying", tmp_path, LYING) as toolbox:
        await toolbox.wait_until_connected()
        (tool,) = toolbox.tools()
    assert tool.texts == {"en": {"title": "A title", "parameters": {"path": "The path", "x": "y"}}}
    assert texts_of(tool, "en") == ["A title", "Looks.", "The path"]
    assert tool.in_language("ja") == tool


async def test_a_person_and_the_model_read_an_error_in_the_language_of_the_question(tmp_path: Path) -> None:
    async with bundled("weather", tmp_path) as toolbox:
        await toolbox.wait_until_connected()
        call = ToolCall("call_1", "get_forecast", {"location": "東京", "days": 99})
        results = {name: await toolbox.call(call, CallContext(language=name)) for name in LANGUAGES}
    assert {name: (result.is_error, JAPANESE.search(result.text) is None) for name, result in results.items()} == {
        "en": (True, True),
        "ja": (True, False),
    }
    assert {name: result.shown for name, result in results.items()} == {
        "en": "days must be from 1 to 7, not 99.",
        "ja": "daysは1から7までで指定してください(99は指定できません)。",
    }
