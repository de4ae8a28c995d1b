"""Calibration samples for quantisation: this project's prompts and tool lists, rendered for a model.

Calibration preserves the behaviour on similar input best, so the samples are the assistant's own traffic: system text,
tool lists, calls, results and answers, in English and Japanese. Each consists of the whole prompt and the expected
continuation, in the format that rkllm-toolkit reads (``[{"input": …, "target": …}]``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from rkllm_mcp.agent.system_text import system_text
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tokenizer import ModelTokenizer


@dataclass(frozen=True)
class SampleExchange:
    """A question, the required call, its result, and the answer."""

    question: str  # of the user
    answer: str  # final answer
    tool: str = ""  # tool to call; empty if none is needed
    arguments: Mapping[str, Any] | None = None  # of the call
    result: str = ""  # of the tool
    is_error: bool = False  # the tool fails


_SAMPLES = json.loads(Path(__file__).with_name("calibration.json").read_text("utf-8"))
TOOLS = tuple(ToolSpec(**tool) for tool in _SAMPLES["tools"])
EXCHANGES = tuple(SampleExchange(**exchange) for exchange in _SAMPLES["exchanges"])


def calibration(tokenizer: ModelTokenizer, template: ChatTemplate) -> list[dict[str, str]]:
    """Return the samples for one model: one per assistant turn of every exchange."""
    prompt = ConversationPrompt(tokenizer, template)
    samples: list[dict[str, str]] = []
    for messages, tools in _conversations():
        before = "".join(part.text for part in prompt.parts(messages[:-1], tools))
        full_text = "".join(part.text for part in prompt.parts(messages, tools)[:-1])
        # The expected continuation is the text after their common prefix.
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(before, full_text, strict=False)))
        samples.append({"input": before, "target": full_text[len(shared) :]})
    return samples


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
        with_call = [system, question, Message("assistant", calls=(call,))]
        yield with_call, tools
        yield [*with_call, Message("tool", results=(result,)), answer], tools
