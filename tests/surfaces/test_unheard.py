"""What a person reads of calls that a model writes though it has no tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from rkllm_mcp.events import End, Event, Text, ToolCallFailed, Usage
from rkllm_mcp.surfaces.unheard import NO_TOOLS, without_markup

pytestmark = pytest.mark.anyio
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
FAILED = ToolCallFailed(CALL, f"no tool is switched on for this answer, which has {' '.join(CALL.split())}")
USAGE = Usage(1, 1, 0, 1, 1.0, 1.0, 1.0)
END = End("answered")


async def heard(text: str, *, has_tools: bool = False) -> list[Event]:
    async def answer() -> AsyncGenerator[Event, None]:
        for character in text:
            yield Text(character)
        yield USAGE
        yield END

    shown: list[Event] = []
    async for event in without_markup(answer(), lambda: has_tools):
        last = shown[-1] if shown else None
        if isinstance(event, Text) and isinstance(last, Text):
            shown[-1] = Text(last.text + event.text)
        else:
            shown.append(event)
    return shown


async def test_an_answer_that_is_nothing_but_a_call_becomes_a_sentence_and_its_markup_is_kept() -> None:
    assert await heard(CALL) == [FAILED, Text(NO_TOOLS), USAGE, END]


async def test_words_beside_a_call_are_what_is_left() -> None:
    assert await heard(f"Let me see. {CALL}") == [Text("Let me see. "), FAILED, USAGE, END]


@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        '{"name": "Bob", "parameters": {"a": 1}}',
        f"So it is written:\n```\n{CALL}\n```\n",
        "`<tool_call>` begins it.",
        "print('x')\n",
        "",
    ],
)
async def test_what_is_asked_for_as_text_stays_text(text: str) -> None:
    assert await heard(text) == [*([Text(text)] if text else []), USAGE, END]


async def test_where_there_are_tools_the_model_is_read_elsewhere() -> None:
    assert await heard(CALL, has_tools=True) == [Text(CALL), USAGE, END]
