"""Each question that the page suggests is answered by the demo, with every set of servers that offers it."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.events import End, Text, ToolFinished
from rkllm_mcp.generation import AnswerOptions
from tests.support.demo_app import make_demo, running
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio
PAGE = REPOSITORY / "rkllm_mcp" / "surfaces" / "web" / "js"
LOCAL = (
    '[[servers]]\nname = "local"\ntransport = "builtin"\n'
    'tools = [{ name = "clock" }, { name = "calculator" }, { name = "convert_units" }]\n'
)
WEATHER = (
    f'[[servers]]\nname = "weather"\ncommand = "{sys.executable}"\nargs = ["-m", "mcp_servers.weather"]\n'
    'env = { WEATHER_SAMPLE = "1", JMA_BASE_URL = "http://127.0.0.1:9" }\n'
)
FILES = '[[servers]]\nname = "files"\nfolder = "notes"\nwrite = true\n'
TIME = f'[[servers]]\nname = "time"\ncommand = "{sys.executable}"\nargs = ["-m", "mcp_server_time"]\n'
# The servers of the demo, of ``setup``, and of both with files that may be written.
SETS = {"demo": WEATHER + TIME + FILES, "setup": LOCAL + WEATHER + FILES.replace("true", "false"), "all": LOCAL + FILES}


def suggestions() -> Iterator[tuple[str, str, str]]:
    """Yield what a tool must be called for each question that needs one, and the question in both languages."""
    welcome = (PAGE / "chat" / "welcome.js").read_text("utf-8")
    catalogues = [(PAGE / f"phrases.{language}.js").read_text("utf-8") for language in ("en", "ja")]
    for pattern, phrase in re.findall(r'\[/(.+)/i, "(suggest\.\w+)"\]', welcome):
        english, japanese = (dict(re.findall(r'"([\w.]+)": "([^"]*)"', catalogue)) for catalogue in catalogues)
        yield pattern, english[phrase], japanese[phrase]


@asynccontextmanager
async def assistant(folder: Path, servers: str) -> AsyncGenerator[App, None]:
    (folder / "notes").mkdir()
    (folder / "notes" / "notes.txt").write_text("tea\n", "utf-8")
    async with running(make_demo(folder, (), extra=servers)) as app:
        await app.ready()
        yield app


@pytest.mark.parametrize("servers", SETS)
async def test_a_suggested_question_calls_its_tool_and_is_answered(tmp_path: Path, servers: str) -> None:
    asked = 0
    async with assistant(tmp_path, SETS[servers]) as app:
        for pattern, *questions in suggestions():
            tools = [tool.name for tool in app.tools() if re.search(pattern, tool.name, re.IGNORECASE)]
            for question in questions if tools else ():
                asked += 1
                text, results, end = "", list[ToolFinished](), End("failed")
                options = AnswerOptions(approvals="grant")
                with anyio.fail_after(60):
                    async with aclosing(app.reply(app.new_conversation(), question, options)) as stream:
                        async for event in stream:
                            text += event.text if isinstance(event, Text) else ""
                            results += [event] if isinstance(event, ToolFinished) else []
                            end = event if isinstance(event, End) else end
                assert end == End("answered"), question
                assert [(result.name in tools, result.is_error) for result in results] == [(True, False)], (
                    question,
                    results,
                )
                assert text.strip()
                assert "emulated model" not in text, (question, text)
                assert "エミュレート" not in text, (question, text)
                assert "つながっていません" not in text, (question, text)
    assert asked >= 6


async def test_a_note_is_written_as_the_question_says(tmp_path: Path) -> None:
    async with assistant(tmp_path, FILES) as app:
        for question in ("Save a note to notes.txt: buy milk.", "memo.txt に「牛乳を買う」とメモしてください。"):
            async with aclosing(
                app.reply(app.new_conversation(), question, AnswerOptions(approvals="grant"))
            ) as stream:
                assert [event async for event in stream][-1] == End("answered")
    assert (tmp_path / "notes" / "notes.txt").read_text("utf-8") == "buy milk\n"
    assert (tmp_path / "notes" / "memo.txt").read_text("utf-8") == "牛乳を買う\n"
