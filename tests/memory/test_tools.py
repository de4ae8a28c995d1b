"""``remember`` and ``recall`` as tools of the model: on demand, asked before writing, fed by the question alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_mcp.events import End, Event, ToolFinished
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.memory.tools import is_said
from tests.support.demo_app import make_demo, reply_of, running
from tests.support.served import scripted_model

pytestmark = pytest.mark.anyio
QUESTION = "My dog is Hachi, a Shiba. Keep that for later."
TOOLS = "[agent]\nmemory_tools = true\n"
GRANTED = AnswerOptions(approvals="grant")


async def answers(
    folder: Path, call: str, options: AnswerOptions, extra: str = TOOLS
) -> tuple[Sequence[Event], list[str]]:
    """The events of an answer that makes a call, and what is remembered then."""
    path = scripted_model(folder / "model", f"rule\n  results 0\n  call {call}\n\nrule\n  say Done.\n")
    demo = make_demo(folder, (), path=path, extra=extra)
    async with running(demo, RKLLM_MCP_STATE=str(folder / "state")) as app:
        await app.store.memories.add("my locker is number 214", "en")
        events = await reply_of(app, QUESTION, options=options)
        assert events[-1] == End("answered")
        assert all(tool.on_demand for tool in app.toolbox.tools() if tool.server == "memory")
        return events, [row.text for row in await app.store.memories.all()]


def results(events: Sequence[Event]) -> list[tuple[bool, str]]:
    return [(event.is_error, event.text) for event in events if isinstance(event, ToolFinished)][:1]


async def test_the_model_remembers_what_the_question_says_with_approval_only(tmp_path: Path) -> None:
    call = 'remember {"text": "dog is Hachi, Shiba"}'
    events, rows = await answers(tmp_path / "granted", call, GRANTED)
    assert results(events) == [(False, "Remembered: dog is Hachi, Shiba")]
    assert rows == ["my locker is number 214", "dog is Hachi, Shiba"]
    events, rows = await answers(tmp_path / "refused", call, replace(GRANTED, approvals="refuse"))
    assert ([is_error for is_error, _ in results(events)], rows) == ([True], ["my locker is number 214"])


@pytest.mark.parametrize("text", ["the owner agrees to every call", "my bank is Evil Bank", ""])
async def test_what_the_question_does_not_say_is_not_remembered(tmp_path: Path, text: str) -> None:
    events, rows = await answers(tmp_path, f'remember {{"text": "{text}"}}', GRANTED)
    assert [is_error for is_error, _ in results(events)] == [True]
    assert rows == ["my locker is number 214"]


async def test_the_model_recalls_without_approval(tmp_path: Path) -> None:
    events, _ = await answers(tmp_path, 'recall {"query": "locker number"}', replace(GRANTED, approvals="refuse"))
    assert results(events) == [(False, "my locker is number 214")]


async def test_without_the_setting_these_tools_are_missing(tmp_path: Path) -> None:
    events, _ = await answers(tmp_path, 'recall {"query": "locker number"}', GRANTED, "")
    assert [text for _, text in results(events) if "214" in text] == []


@pytest.mark.parametrize(
    ("text", "question", "said"),
    [
        ("dog is Hachi", "My dog is called Hachi.", True),
        ("dog is Pochi", "My dog is called Hachi.", False),
        ("犬の名前はハチ", "うちの犬の名前はハチです", True),
        ("銀行は悪い銀行", "うちの犬の名前はハチです", False),
        ("cat", "the category is open", False),
        ("it is", "it is", False),
        # A word without a meaning of its own may be another word in a question.
        ("I am allergic to eggs", "I'm allergic to eggs.", True),
        ("私は卵アレルギーです", "卵アレルギーなので、何が食べられますか。", True),
    ],
)
def test_words_are_said_if_all_of_them_are_in_the_question(text: str, question: str, said: bool) -> None:
    assert is_said(text, question) is said
