"""Thinking: where it begins and ends, and what a call inside it is."""

from __future__ import annotations

import pytest

from rkllm_mcp.events import Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from tests.toolcalls.streams import TOOLS, events_of, told

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
XML = '<tool_call name="get_weather"><argument name="city">Tokyo</argument></tool_call>'
TOKYO = ("get_weather", {"city": "Tokyo"})

CASES: dict[str, tuple[ThinkingMode, str, list[object]]] = {
    "thinking and an answer": ("auto", "<think>\nHm.\n</think>\n\nYes.", [("thinking", "Hm.\n"), "Yes."]),
    "white space before thinking": ("auto", " \n<think>Hm.</think>Yes.", [("thinking", "Hm."), "Yes."]),
    "a byte order mark before thinking": ("auto", "\ufeff<think>Hm.</think>Yes.", [("thinking", "Hm."), "Yes."]),
    "empty thinking": ("auto", "<think>\n\n</think>\n\nYes.", ["Yes."]),
    "no thinking": ("auto", " Yes, <think>.", [" Yes, <think>."]),
    "half a tag": ("auto", "<thin", ["<thin"]),
    "a tag in the middle is text": ("auto", "Yes. <think>Hm.</think>", ["Yes. <think>Hm.</think>"]),
    "a closer at the beginning": ("auto", "</think>\n\nYes.", ["Yes."]),
    "the prompt ended inside thinking": ("open", "Hm.\n</think>\n\nYes.", [("thinking", "Hm.\n"), "Yes."]),
    "the prompt ended inside thinking and the model opens it again": (
        "open",
        "\n<think>\nHm.</think>Yes.",
        [("thinking", "Hm."), "Yes."],
    ),
    "thinking that never ends": ("open", "Hm. <thi", [("thinking", "Hm. <thi")]),
    "thinking that is cut off in its closer": ("open", "Hm.</thin", [("thinking", "Hm.</thin")]),
    "a call behind thinking": ("open", f"Hm.</think>\n\n{CALL}", [("thinking", "Hm."), TOKYO]),
    "a call inside closed thinking": (
        "open",
        f"I could {CALL} or not.\n</think>\n\n{CALL}",
        [("thinking", f"I could {CALL} or not.\n"), TOKYO],
    ),
    "a call inside thinking that never ends": ("open", f"So I call.\n{CALL}", [("thinking", "So I call.\n"), TOKYO]),
    "two calls inside thinking that never ends": (
        "auto",
        f"<think>So.{CALL}\n{XML}\n",
        [("thinking", "So."), TOKYO, TOKYO],
    ),
    "text behind a call inside thinking that never ends": (
        "auto",
        f"<think>So. {CALL}\nDone.",
        [("thinking", "So. "), TOKYO, "\nDone."],
    ),
    "a call cut off inside thinking": (
        "open",
        'So. <tool_call>{"name": "get_w',
        [("thinking", "So. "), ("failed", '<tool_call>{"name": "get_w')],
    ),
    "a marker mentioned inside thinking": (
        "open",
        "The <tool_call> tag. Then",
        [("thinking", "The <tool_call> tag. Then")],
    ),
    "a call in a fence inside thinking": (
        "open",
        f"Form:\n```\n{CALL}\n```\nok",
        [("thinking", f"Form:\n```\n{CALL}\n```\nok")],
    ),
    "the closer ends thinking in a fence as well": ("open", "```\na</think>b", [("thinking", "```\na"), "b"]),
    "an open fence in thinking does not quote the answer": (
        "open",
        f"```\na</think>{CALL}",
        [("thinking", "```\na"), TOKYO],
    ),
    "the closer in an argument": (
        "auto",
        CALL.replace("Tokyo", "a</think>b"),
        [("get_weather", {"city": "a</think>b"})],
    ),
}


@pytest.mark.parametrize(("mode", "text", "expected"), CASES.values(), ids=CASES.keys())
def test_thinking_is_separated(mode: ThinkingMode, text: str, expected: list[object]) -> None:
    assert told(text, thinking=mode) == expected


FAMILIES: dict[str, tuple[str, ThinkingMode, str, list[object]]] = {
    "Gemma 4's channel": ("gemma4", "auto", "<|channel>thought\nHm.<channel|>Yes.", [("thinking", "Hm."), "Yes."]),
    "Gemma 4's channel without its header": (
        "gemma4",
        "auto",
        "<|channel>Hm.<channel|>Yes.",
        [("thinking", "Hm."), "Yes."],
    ),
    "Gemma 4 thinks twice": (
        "gemma4",
        "auto",
        "<|channel>a<channel|>So <|channel>thought\nb<channel|>yes.",
        [("thinking", "a"), "So ", ("thinking", "b"), "yes."],
    ),
    "Gemma 4's closer that closes nothing": ("gemma4", "auto", "Yes<channel|>.<channel|>", ["Yes."]),
    "Gemma 4 opens twice": (
        "gemma4",
        "auto",
        "<|channel><|channel>thought\n<channel|>Yes.",
        [("thinking", "<|channel>thought\n"), "Yes."],
    ),
    "Gemma 4's prompt opened it": ("gemma4", "open", "Hm.<channel|>Yes.", [("thinking", "Hm."), "Yes."]),
    "Gemma 4 calls inside thinking that never ends": (
        "gemma4",
        "auto",
        '<|channel>thought\nHm. <|tool_call>call:get_weather{city:<|"|>Tokyo<|"|>}<tool_call|>',
        [("thinking", "Hm. "), TOKYO],
    ),
    "MiniCPM3's tags": (
        "minicpm3",
        "auto",
        "<|thought_start|>\nHm.\n<|thought_end|>\n<|tool_call_start|>\n```python\nget_weather(city='Tokyo')\n```\n<|tool_call_end|>",
        [("thinking", "Hm.\n"), TOKYO],
    ),
    "MiniCPM3's prompt opened it": ("minicpm3", "open", "Hm.<|thought_end|>Yes.", [("thinking", "Hm."), "Yes."]),
    "Mistral's brackets": ("mistral_args", "auto", "[THINK]Hm.[/THINK]Yes.", [("thinking", "Hm."), "Yes."]),
    "Mistral's brackets in the middle": (
        "mistral_args",
        "auto",
        "So [THINK]Hm.[/THINK]yes.",
        ["So ", ("thinking", "Hm."), "yes."],
    ),
    "Mistral's prompt opened it": ("mistral_json", "open", "Hm.[/THINK]Yes.", [("thinking", "Hm."), "Yes."]),
    "Seed's tags": ("seed_oss", "auto", "<seed:think>Hm.</seed:think>\nYes.", [("thinking", "Hm."), "Yes."]),
    "Apriel's headings": ("apriel", "open", "Hm.\n[BEGIN FINAL RESPONSE]\nYes.", [("thinking", "Hm.\n"), "Yes."]),
    "another family's tags are text": ("hermes", "auto", "[THINK]Hm.[/THINK]Yes.", ["[THINK]Hm.[/THINK]Yes."]),
    "the common tags count in every family": (
        "gemma4",
        "auto",
        "<think>Hm.</think>Yes.",
        [("thinking", "Hm."), "Yes."],
    ),
}


@pytest.mark.parametrize(("syntax", "mode", "text", "expected"), FAMILIES.values(), ids=FAMILIES.keys())
def test_thinking_is_recognised_by_family(syntax: str, mode: ThinkingMode, text: str, expected: list[object]) -> None:
    assert told(text, thinking=mode, syntaxes=[syntax]) == expected


def test_of_an_unknown_model_only_the_beginning_of_an_answer_is_thinking() -> None:
    assert told("[THINK]Hm.[/THINK]Use [THINK] so.", thinking="auto") == [("thinking", "Hm."), "Use [THINK] so."]


def test_thinking_is_separated_without_tools_and_calls_in_it_are_not() -> None:
    assert told(f"<think>a {CALL}</think>\n{XML}", thinking="auto", tools=()) == [("thinking", f"a {CALL}"), XML]


def test_thinking_streams_character_by_character() -> None:
    detector = Detector(TOOLS, thinking="open")
    assert detector.feed("I") == [Thinking("I")]
    assert detector.feed(" <") == [Thinking(" ")]
    assert detector.feed("b") == [Thinking("<b")]
    assert detector.feed("</thin") == []
    assert detector.feed("k>\n\n") == []
    assert detector.feed("Yes") == [Text("Yes")]


def test_the_same_words_are_thinking_or_a_call_only_by_what_comes_later() -> None:
    kinds = [type(event) for event in events_of(f"So {CALL}", thinking="open")]
    assert kinds == [Thinking, ToolCallDetected]
    kinds = [type(event) for event in events_of(f"So {CALL}</think>", thinking="open")]
    assert kinds == [Thinking]
    kinds = [type(event) for event in events_of(f"So {CALL[:30]}", thinking="open")]
    assert kinds == [Thinking, ToolCallFailed]
