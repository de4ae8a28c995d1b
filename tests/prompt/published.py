"""Conversations as a family's published chat template renders them, for comparison with ours.

A ``Family`` says how a conversation has to be put to its template (some render no tools and no calls, so these are text
to them) and which of our documented differences have to be applied to what comes out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from rkllm_base.settings import parse_toml
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.template import Before, ChatTemplate, before_next
from rkllm_mcp.prompt.tokenizer import Segment
from rkllm_mcp.prompt.tool_list import wrapped_tool

FOLDER = Path(__file__).parent / "templates"

WEATHER = ToolSpec(
    "get_weather",
    "天気 in a place",
    {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "a city"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "integer"},
            "names": {"type": "array", "items": {"type": "string"}},
            "area": {"type": "object", "properties": {"radius": {"type": "number"}}, "required": ["radius"]},
        },
        "required": ["place"],
    },
)
CLOCK = ToolSpec("get_time", "Time now", {"type": "object", "properties": {"zone": {"type": "string"}}})
TOOLS = (WEATHER, CLOCK)

SYSTEM = Message("system", "You help.")
QUESTION = Message("user", "東京の天気は？")
CALL = ToolCall("call_1", "get_weather", {"place": "東京", "days": 3, "names": ["a", "b"], "area": {"radius": 1.5}})
OTHER_CALL = ToolCall("call_2", "get_time", {"zone": "Asia/Tokyo"})
RESULT = ToolResult("call_1", "get_weather", 'sunny, "20"\nwindy')
OTHER_RESULT = ToolResult("call_2", "get_time", "12:00")
ANSWER = Message("assistant", "It is sunny.")
THANKS = Message("user", "Thanks. And tomorrow?")
ONE_CALL = (Message("assistant", calls=(CALL,)), Message("tool", results=(RESULT,)))
TWO_CALLS = (
    Message("assistant", calls=(CALL, OTHER_CALL)),
    Message("tool", results=(RESULT, OTHER_RESULT)),
)


@dataclass(frozen=True)
class Conversation:
    """What is said, and which tools are offered."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


CONVERSATIONS: dict[str, Conversation] = {
    "a question": Conversation((QUESTION,)),
    "a question with a system text": Conversation((SYSTEM, QUESTION)),
    "several turns": Conversation((SYSTEM, QUESTION, ANSWER, THANKS)),
    "several turns without a system text": Conversation((QUESTION, ANSWER, THANKS)),
    "tools": Conversation((SYSTEM, QUESTION), TOOLS),
    "tools without a system text": Conversation((QUESTION,), TOOLS),
    "a result": Conversation((SYSTEM, QUESTION, *ONE_CALL), TOOLS),
    "an answer after a result": Conversation((SYSTEM, QUESTION, *ONE_CALL, ANSWER, THANKS), TOOLS),
    "two calls": Conversation((SYSTEM, QUESTION, *TWO_CALLS), TOOLS),
    "a call behind text": Conversation(
        (SYSTEM, QUESTION, Message("assistant", "I look.", calls=(CALL,)), ONE_CALL[1]), TOOLS
    ),
    "two rounds of calls": Conversation((SYSTEM, QUESTION, *ONE_CALL, *TWO_CALLS, ANSWER, THANKS), TOOLS),
}


def _same(text: str) -> str:
    return text


@dataclass(frozen=True)
class Family:
    """One family's published rendering.

    Args:
        name: of the template, ours and the file's.
        bos: its beginning-of-text token.
        tools_are_text: it renders no tools; our list is handed to it within the system text.
        calls_are_text: it renders no calls; they are handed to it as content.
        results_are_user: it has no role for results; ours are handed to it as a user turn.
        thinks: it knows thinking; both ways are compared.
        only_thinking: it knows no way to switch thinking off; only thinking is compared.
        not_for: conversations that it refuses or loses a part of.
        adjusted: our documented differences, applied to what it renders.
    """

    name: str
    bos: str = ""
    tools_are_text: bool = False
    calls_are_text: bool = False
    results_are_user: bool = False
    thinks: bool = False
    only_thinking: bool = False
    not_for: tuple[str, ...] = ()
    adjusted: Callable[[str], str] = _same

    @property
    def template(self) -> ChatTemplate:
        return TEMPLATES[self.name]


def read_family(name: str, adjusted: Callable[[str], str] | None = None) -> Family:
    """The family of a template, with what its file's line ``{#- Family: … -#}`` says."""
    said = re.search(r"^\{#- Family: (.*)-#\}$", (FOLDER / f"{name}.jinja").read_text("utf-8"), re.MULTILINE)
    assert said, f"{name}.jinja has no line '{{#- Family: … -#}}'"
    fields: dict[str, Any] = parse_toml(f"family = {{ {said[1]} }}")["family"]
    not_for = tuple(fields.pop("not_for", ()))
    return Family(name, not_for=not_for, adjusted=adjusted or _same, **fields)


def text_of(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)


def ours(template: ChatTemplate, conversation: Conversation, *, thinking: bool) -> str:
    """Our rendering of a conversation, up to where the model begins."""
    messages = conversation.messages
    system = messages[0].text if messages[0].role == "system" else ""
    text = text_of(template.head(system, conversation.tools, thinking=thinking))
    before: Before = template.before_first(system, conversation.tools)
    for message in messages:
        if message.role != "system":
            text += text_of(template.turn(message, before))
            before = before_next(message)
    return text + text_of(template.opening(thinking=thinking, before=before))


def published(family: Family, conversation: Conversation, *, thinking: bool) -> str:
    """The template's rendering of a conversation, with our documented differences."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.ChainableUndefined)
    environment.filters["tojson"] = _json
    template = environment.from_string((FOLDER / f"{family.name}.jinja").read_text("utf-8"))
    messages = _messages(family, conversation)
    tools = [] if family.tools_are_text else [json.loads(wrapped_tool(tool)[0].text) for tool in conversation.tools]
    text = template.render(
        messages=messages,
        tools=tools,
        bos_token=family.bos,
        add_generation_prompt=True,
        enable_thinking=thinking,
    )
    for tool in tools:
        # Our lists are minified.
        for value in (tool, tool["function"]):
            for indent in (None, 4):
                text = text.replace(_json(value, indent), json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return family.adjusted(text)


def _json(value: Any, indent: int | None = None) -> str:
    """As transformers renders ``tojson``."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _messages(family: Family, conversation: Conversation) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for message in conversation.messages:
        messages += _of_message(family, message)
    if family.tools_are_text and conversation.tools:
        listing = text_of(family.template.tool_form.listing(conversation.tools)).rstrip("\n")
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": listing.lstrip("\n")})
        else:
            joined = "" if listing.startswith("\n") else family.template.head_form.after_system
            messages[0]["content"] += joined + listing
    return messages


def _of_message(family: Family, message: Message) -> list[dict[str, Any]]:
    form = family.template.tool_form
    if message.role == "tool" and family.results_are_user:
        return [{"role": "user", "content": text_of(form.results(message.results))}]
    if message.role == "tool":
        return [{"role": "tool", "name": result.name, "content": result.text} for result in message.results]
    if family.calls_are_text:
        calls = text_of(form.calls(message.calls, after_text=bool(message.text)))
        return [{"role": message.role, "content": message.text + calls}]
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in message.calls
    ]
    return [{"role": message.role, "content": message.text, **({"tool_calls": calls} if calls else {})}]
