"""Calibration samples for quantisation: this project's prompts and tool lists, rendered for a model.

Calibration preserves the behaviour on similar input best, so the samples are the assistant's own traffic: system text,
tool lists, calls, results and answers, in English and Japanese. Each consists of the whole prompt and the expected
continuation, in the format that rkllm-toolkit reads (``[{"input": …, "target": …}]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rkllm_mcp.agent.instructions import system_text
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tokenizer import ModelTokenizer


def _tool(name: str, description: str, required: Sequence[str] = (), **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, description, schema)


_STRING = {"type": "string"}
WEATHER = _tool(
    "get_weather",
    "The weather forecast for a place, for today and the coming days.",
    ["location"],
    location={"type": "string", "description": "A city or prefecture, such as 東京 or Osaka"},
    days={"type": "integer", "minimum": 1, "maximum": 7, "description": "How many days"},
)
CLOCK = _tool("get_current_time", "The time in a time zone.", ["timezone"], timezone=_STRING)
FILES = _tool(
    "search_files", "Find files whose names match a pattern.", ["path", "pattern"], path=_STRING, pattern=_STRING
)
READ = _tool("read_file", "Read a text file.", ["path"], path=_STRING, head={"type": "integer"})
LIGHT = _tool(
    "set_light",
    "Switch a light, or change its brightness.",
    ["room", "state"],
    room=_STRING,
    state={"type": "string", "enum": ["on", "off"]},
    brightness={"type": "number", "minimum": 0, "maximum": 100},
)
SEARCH = _tool(
    "knowledge_search",
    "Search the documents of the knowledge base.",
    ["query"],
    query=_STRING,
    limit={"type": "integer"},
)
TOOLS = (WEATHER, CLOCK, FILES, READ, LIGHT, SEARCH)


@dataclass(frozen=True)
class SampleExchange:
    """A question, the required call, its result, and the answer."""

    question: str  # of the user
    answer: str  # final answer
    tool: str = ""  # tool to call; empty if none is needed
    arguments: Mapping[str, Any] | None = None  # of the call
    result: str = ""  # of the tool
    is_error: bool = False  # the tool fails


EXCHANGES: tuple[SampleExchange, ...] = (
    SampleExchange(
        "Hello! What can you do?",
        "I can answer questions and use tools: weather, time, files, lights and search.",
    ),
    SampleExchange(
        "こんにちは。自己紹介してください。",
        "小さなボードの上で動くアシスタントです。天気や時刻を調べられます。",
    ),
    SampleExchange("What is 17 times 23?", "17 × 23 = 391."),
    SampleExchange("「猫」を英語で言うと？", "「猫」は英語で cat です。"),
    SampleExchange(
        "Write a haiku about rain.",
        "Soft rain on the roof,\nthe small board hums in the dark,\nmorning smells of earth.",
    ),
    SampleExchange(
        "明日の東京の天気は？", "明日の東京は曇りのち雨、最高気温は18℃の予報です。", "get_weather",
        {"location": "東京", "days": 2},
        '{"location":"東京","days":[{"date":"2026-11-22","summary":"晴れ"},{"date":"2026-11-23","summary":"曇りのち雨","high_c":18}]}',
    ),
    SampleExchange(
        "Will it rain in Osaka today?", "No, Osaka stays sunny today with a high of 21 °C.", "get_weather",
        {"location": "Osaka"}, '{"location":"大阪","days":[{"summary":"sunny","high_c":21,"rain_percent":0}]}',
    ),
    SampleExchange(
        "アトランティスの天気を教えて", "アトランティスという地名は見つかりませんでした。別の地名を教えてください。",
        "get_weather", {"location": "アトランティス"}, "unknown place: アトランティス", is_error=True,
    ),
    SampleExchange(
        "What time is it in Berlin?", "It is 14:05 in Berlin.", "get_current_time", {"timezone": "Europe/Berlin"},
        '{"timezone":"Europe/Berlin","datetime":"2026-11-21T14:05:00+01:00","is_dst":false}',
    ),
    SampleExchange(
        "今何時ですか？", "東京は22時05分です。", "get_current_time", {"timezone": "Asia/Tokyo"},
        '{"timezone":"Asia/Tokyo","datetime":"2026-11-21T22:05:00+09:00"}',
    ),
    SampleExchange(
        "Which Python files are in the project?", "There are two: main.py and tests/test_main.py.", "search_files",
        {"path": ".", "pattern": "*.py"}, "main.py\ntests/test_main.py",
    ),
    SampleExchange(
        "Read the first lines of notes/todo.txt.", "The list begins with: buy milk, call the dentist.", "read_file",
        {"path": "notes/todo.txt", "head": 2}, "- buy milk\n- call the dentist",
    ),
    SampleExchange(
        "Turn on the kitchen light at half brightness.", "The kitchen light is on at 50 %.", "set_light",
        {"room": "kitchen", "state": "on", "brightness": 50}, '{"ok":true}',
    ),
    SampleExchange(
        "リビングの電気を消して", "リビングの電気を消しました。", "set_light", {"room": "リビング", "state": "off"},
        '{"ok":true}',
    ),
    SampleExchange(
        "How long may I return a purchase?", "You may return a purchase within 30 days, with the receipt.",
        "knowledge_search", {"query": "return policy", "limit": 3},
        '[{"document":"terms.md","text":"Goods may be returned within 30 days when the receipt is shown."}]',
    ),
)  # fmt: skip


def calibration(tokenizer: ModelTokenizer, template: ChatTemplate) -> list[dict[str, str]]:
    """Return the samples for one model: one per assistant turn of every exchange."""
    prompt = ConversationPrompt(tokenizer, template)
    return [
        {"input": before, "target": target}
        for messages, tools in _conversations()
        for before, target in [_sample(prompt, messages, tools)]
    ]


def questions() -> list[tuple[list[Message], tuple[ToolSpec, ...]]]:
    """Return some first questions with their tool lists, for testing a model's answers."""
    firsts = [(messages[:-1], tools) for messages, tools in _conversations() if len(messages) == _FIRST_ANSWER]
    return firsts[:2] + firsts[len(EXCHANGES) // 2 :][:2]


# System text, question, answer.
_FIRST_ANSWER = 3


def _conversations() -> Iterator[tuple[list[Message], tuple[ToolSpec, ...]]]:
    for number, exchange in enumerate(EXCHANGES):
        system, question = Message("system", system_text()), Message("user", exchange.question)
        answer = Message("assistant", exchange.answer)
        if not exchange.tool:
            # Answers that need no tool, without a tool list.
            yield [system, question, answer], ()
            yield [system, question, answer], TOOLS
            continue
        # Short and long lists, with the tool at a different position each time.
        used = next(tool for tool in TOOLS if tool.name == exchange.tool)
        tools = TOOLS if number % 2 else (used, *(tool for tool in TOOLS[number % 3 :: 3] if tool is not used))
        call = ToolCall("call_1", exchange.tool, dict(exchange.arguments or {}))
        result = ToolResult("call_1", exchange.tool, exchange.result, is_error=exchange.is_error)
        called = [system, question, Message("assistant", calls=(call,))]
        yield called, tools
        yield [*called, Message("tool", results=(result,)), answer], tools


def _sample(prompt: ConversationPrompt, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[str, str]:
    """Return the prompt before the last turn and the expected continuation: the text after their common prefix."""
    before = "".join(part.text for part in prompt.parts(messages[:-1], tools))
    whole = "".join(part.text for part in prompt.parts(messages, tools)[:-1])
    shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(before, whole, strict=False)))
    return before, whole[len(shared) :]
