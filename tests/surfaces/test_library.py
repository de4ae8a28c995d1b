"""The assistant in a Python program: answers, streams, conversations, functions as tools, approvals, errors."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from rkllm_mcp import (
    Approval,
    Assistant,
    AsyncAssistant,
    End,
    GenerationError,
    ModelNotFoundError,
    PromptTooLongError,
    ToolCallDetected,
    ToolFinished,
    UsageError,
    tool,
)
from rkllm_mcp.builtin.python_tool import python_tool

WEATHER = "What is the weather in Tokyo?"
NOTE = "Save a note to notes.txt: buy milk"


@pytest.fixture(autouse=True)
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a configuration that names the demo, and a folder that the model may write to."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "mcp_config.toml").write_text(
        '[model]\nname = "demo"\n[[servers]]\nname = "notes"\nfolder = "notes"\nwrite = true\n', encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    return tmp_path


class Unit(Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclass
class Weather:
    summary_en: str
    measured: date


@tool
async def get_weather(location: str, unit: Unit = Unit.CELSIUS, day: date = date(2026, 11, 26)) -> Weather:
    """The weather at a place.

    Longer words about it.

    Args:
        location: a city,
            such as Tokyo
        unit (Unit): of the temperature
    """
    assert isinstance(day, date)
    return Weather(f"Sunny in {location}, {unit.name}", day)


def test_an_answer_a_stream_and_a_conversation_have_the_same_words() -> None:
    with Assistant() as assistant:
        answer = assistant.ask("Hello")
        assert answer.startswith("This is the emulated model")
        with closing(assistant.stream("Hello")) as pieces:
            words = list(pieces)
        assert len(words) > 5
        assert "".join(words).strip() == answer
        chat = assistant.chat(system="Be brief.")
        assert chat.ask("Hello") == answer
        *_, usage, end = chat.events("And again?")
        assert end == End("answered")
        # Nothing of the first exchange is read again.
        assert getattr(usage, "cached_tokens") > 60  # noqa: B009


def test_a_function_gets_values_of_its_types_and_its_result_is_json() -> None:
    with Assistant(tools=[get_weather]) as assistant:
        events = list(assistant.events(WEATHER))
        call = next(event for event in events if isinstance(event, ToolCallDetected))
        assert (call.server, call.name, call.arguments) == ("python", "get_weather", {"location": "Tokyo"})
        result = next(event for event in events if isinstance(event, ToolFinished))
        assert result.text == '{"summary_en":"Sunny in Tokyo, CELSIUS","measured":"2026-11-26"}'
        assert (result.ruling, result.is_error) == ("", False)
        assert assistant.ask(WEATHER) == "Sunny in Tokyo, CELSIUS"
        assert "No weather tool is connected" in assistant.ask(WEATHER, tools=False)
        assert "No weather tool is connected" in assistant.ask(WEATHER, tools=["write_file"])


def test_what_a_function_raises_goes_to_the_model() -> None:
    assistant = Assistant(servers=False)

    @assistant.tool
    def get_weather(location: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """The weather at a place."""
        raise LookupError(f"there is no sensor in {location}")

    with assistant:
        results = [event for event in assistant.events(WEATHER) if isinstance(event, ToolFinished)]
        assert [(each.is_error, "there is no sensor in Tokyo" in each.text) for each in results] == [(True, True)]
        with pytest.raises(UsageError, match="is open; add its tools before"):
            assistant.tool(get_weather)


def test_a_stream_that_is_left_frees_the_npu() -> None:
    with Assistant() as assistant:
        for _ in assistant.stream("Tell me a long story"):
            break
        assert assistant.ask("Hello")


@pytest.mark.parametrize(("decision", "is_written"), [("refuse", False), ("grant", True), (True, True), (False, False)])
def test_a_call_that_changes_something_needs_the_programs_consent(decision: Any, is_written: bool, board: Path) -> None:
    calls: list[Approval] = []

    def decide(call: Approval) -> bool:
        calls.append(call)
        return decision

    with Assistant(approve=decide if isinstance(decision, bool) else decision) as assistant:
        assistant.ask(NOTE)
    assert (board / "notes" / "notes.txt").exists() == is_written
    expected = [("write_file", {"path": "notes.txt", "content": "buy milk\n"})] if isinstance(decision, bool) else []
    assert [(call.name, call.arguments) for call in calls] == expected


def test_errors_are_raised_with_their_fields_and_the_next_answer_works() -> None:
    with Assistant() as assistant:
        with pytest.raises(PromptTooLongError) as failure:
            assistant.ask("word " * 9000)
        assert failure.value.prompt_tokens > failure.value.limit_tokens > 0
        assert list(assistant.events("word " * 9000))[-1].kind == "end"
        with pytest.raises(UsageError, match="there is no tool 'fly'"):
            assistant.ask("Hello", force_tool="fly")
        with pytest.raises(UsageError, match=r"give a list of names: tools=\['fly'\]"):
            assistant.ask("Hello", tools="fly")
        assert assistant.ask("Hello", max_tokens=2) == "This"
    with pytest.raises(UsageError, match="is not open"):
        assistant.ask("Hello")
    with pytest.raises(ModelNotFoundError, match="no model 'absent'"), Assistant(model="absent"):
        pass


def test_closing_ends_a_stream_of_another_thread_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far slower than this program, so the answer is not over when it is closed.
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "prefill 1000 decode 2")
    assistant = Assistant().open()
    pieces = assistant.stream("Tell me a long story")
    next(pieces)
    assistant.close()
    with pytest.raises(GenerationError, match="cancelled"):
        list(pieces)


@pytest.mark.anyio
async def test_asyncio_has_the_same_methods() -> None:
    async def decide(call: Approval) -> bool:
        return call.name == "write_file"

    async with AsyncAssistant(tools=[get_weather], approve=decide) as assistant:
        assert await assistant.ask(WEATHER) == "Sunny in Tokyo, CELSIUS"
        assert "buy milk" in await assistant.ask(NOTE)
        stream: AsyncGenerator[str] = assistant.stream("Hello")
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                assert piece
                break
        chat = assistant.chat()
        assert await chat.ask("Hello") == (await chat.ask("Hello")).strip()
    with pytest.raises(UsageError, match="is not open"):
        await assistant.ask("Hello")


def _sphinx(place: Annotated[str, Field(min_length=2)], title: str | None = None) -> None:
    """Do it.

    :param place: where,
        roughly
    :param str title: of it
    :returns: nothing
    """


STRING = {"type": "string"}
SCHEMAS: Sequence[tuple[Callable[..., Any], str, dict[str, Any]]] = [
    (
        _sphinx,
        "Do it.",
        {
            "place": {**STRING, "minLength": 2, "description": "where, roughly"},
            "title": {"anyOf": [STRING, {"type": "null"}], "default": None, "description": "of it"},
        },
    ),
    (
        get_weather,
        "The weather at a place.\n\nLonger words about it.",
        {
            "location": {**STRING, "description": "a city, such as Tokyo"},
            "unit": {"$ref": "#/$defs/Unit", "default": "celsius", "description": "of the temperature"},
            "day": {**STRING, "format": "date", "default": "2026-11-26"},
        },
    ),
]


@pytest.mark.parametrize(("function", "description", "properties"), SCHEMAS)
def test_the_model_reads_docstring_and_annotations(
    function: Callable[..., Any], description: str, properties: dict[str, Any]
) -> None:
    made = python_tool(function)
    assert (made.description, (made.input_schema or {})["properties"]) == (description, properties)


def _no_words(place: str) -> None: ...


def _unknown(place: Any) -> None:
    """Do it."""


_unknown.__annotations__["place"] = "Missing"


REFUSED: Sequence[tuple[Callable[..., Any], str]] = [
    (_no_words, "without a docstring; the model reads there when to call it"),
    (lambda: None, "give a function that has a name"),
    (print, r"its argument \*args has no name for the model to give"),
    (_unknown, "'Missing' is not defined; change the annotation"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        tool(function)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("question", "options", "error", "message"),
    [
        ("hi", {"temprature": 1}, TypeError, "a question has no option 'temprature'; did you mean 'temperature'?"),
        (None, {}, UsageError, "a question is text; found None"),
        ("hi", {"max_tokens": "9"}, UsageError, "max_tokens is a whole number above 0; found '9'"),
        ("hi", {"max_tokens": True}, UsageError, "max_tokens is a whole number above 0; found True"),
        ("hi", {"max_tokens": 0}, UsageError, "max_tokens is a whole number above 0; found 0"),
        ("hi", {"temperature": 3}, UsageError, "temperature is a number from 0 to 2; found 3"),
        ("hi", {"thinking": 1}, UsageError, "thinking is True or False; found 1"),
        ("hi", {"force_tool": ["a"]}, UsageError, "force_tool is the name of a tool; found ['a']"),
    ],
)
async def test_a_question_or_an_option_of_the_wrong_kind_is_refused(
    question: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    assistant = AsyncAssistant(servers=False)
    await assistant.open()
    try:
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            await assistant.ask(question, **options)
    finally:
        await assistant.close()
    with pytest.raises(UsageError, match="not open"):
        await assistant.ask("hi")


def refusal_of(ask: Callable[[str], str]) -> str:
    try:
        return ask("hi")
    except UsageError as error:
        return str(error)


def test_a_forked_process_is_told_to_open_its_own_assistant() -> None:
    read_end, write_end = os.pipe()
    with Assistant(servers=False) as assistant:
        chat = assistant.chat()
        if (child := os.fork()) == 0:
            said = [refusal_of(assistant.ask), refusal_of(chat.ask)]
            assistant.close()
            os.write(write_end, "\n".join(said).encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as told:
            lines = told.read().splitlines()
        assert os.waitpid(child, 0)[1] == 0
        sentence = "the assistant was opened before os.fork, by another process; open one of its own in this process"
        assert lines == [sentence, sentence]
        assert assistant.ask("Hello")
