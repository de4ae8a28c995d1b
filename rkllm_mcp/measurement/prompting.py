"""What it takes the host to write prompts: a conversation with many tools, and the next question in it.

The tools are of our own making, so that figures of different configurations can be compared.
"""

from __future__ import annotations

import time

from rkllm_mcp.measurement.figures import PromptFigures
from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.prompt.budget import Budget
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.providers.rkllm import ModelForm

TOOL_COUNTS = (0, 5, 20, 50)
# No real window: what is measured is the writing, not what fits.
_WINDOW = Budget(1_000_000, 512)
_RUNS = 3


def measure_prompts(form: ModelForm) -> tuple[PromptFigures, ...]:
    """Write prompts with more and more tools, the fastest of some tries each."""
    return tuple(
        min((_written(form, count) for _ in range(_RUNS)), key=lambda one: one.first_ms) for count in TOOL_COUNTS
    )


def _written(form: ModelForm, count: int) -> PromptFigures:
    tools = [_tool(number) for number in range(count)]
    prompt = ConversationPrompt(form.vocabulary, form.template, thinking=form.think)
    messages = [Message("system", "You answer briefly."), Message("user", "What is the weather in Tokyo?")]
    began = time.perf_counter()
    first = prompt.prepare(messages, tools, _WINDOW)
    first_ms = (time.perf_counter() - began) * 1000
    answer = Message("assistant", "It is sunny in Tokyo.")
    prompt.answered(answer, form.vocabulary.encode([]))
    messages += [answer, Message("user", "And tomorrow?")]
    began = time.perf_counter()
    prompt.prepare(messages, tools, _WINDOW)
    return PromptFigures(count, len(first.ids), first_ms, (time.perf_counter() - began) * 1000)


def _tool(number: int) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "A place, as people write it."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "How many days."},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["place"],
    }
    return ToolSpec(f"look_up_{number}", "Looks something up for a place and a number of days.", schema)
