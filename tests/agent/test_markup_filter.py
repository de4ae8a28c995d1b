"""What a person hears of calls that a model writes though it has no tools."""

from __future__ import annotations

import pytest

from rkllm_mcp.agent.markup_filter import MarkupFilter
from rkllm_mcp.catalogue import translate
from rkllm_mcp.events import End, Event, Text, ToolCallFailed, Usage
from rkllm_mcp.protocols import feed_through
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
FAILED = ToolCallFailed(CALL, f"no tool is switched on for this answer, which has {' '.join(CALL.split())}")
USAGE = Usage(1, 1, 0, 1, 1.0, 1.0, 1.0)
END = End("answered")


async def heard(text: str, *, has_tools: bool = False) -> tuple[list[Event], str]:
    """The events of an answer, its words in one, and what is kept of it."""
    shown: list[Event] = []

    @FunctionSink
    def sink(event: Event) -> None:
        last = shown[-1] if shown else None
        if isinstance(event, Text) and isinstance(last, Text):
            shown[-1] = Text(last.text + event.text)
        else:
            shown.append(event)

    hearing = MarkupFilter("en")
    hearing.has_tools = has_tools
    for event in (*map(Text, text), USAGE, END):
        feed_through([hearing], [event], sink)
    return shown, hearing.words(text)


async def test_an_answer_that_is_nothing_but_a_call_becomes_a_sentence() -> None:
    sentence = translate("answer.no_tool_on")
    assert await heard(CALL) == ([FAILED, Text(sentence), USAGE, END], sentence)


async def test_the_words_around_a_call_are_the_text_of_the_answer() -> None:
    assert await heard(f"Let me see. {CALL}") == ([Text("Let me see. "), FAILED, USAGE, END], "Let me see. ")


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
async def test_an_answer_requested_as_text_stays_text(text: str) -> None:
    assert await heard(text) == ([*([Text(text)] if text else []), USAGE, END], text)


async def test_with_tools_the_filter_leaves_the_markup_to_the_detector() -> None:
    assert await heard(CALL, has_tools=True) == ([Text(CALL), USAGE, END], CALL)
