"""Calls in the forms that small models drop into, and texts about tools that are none; a third of them is set aside.

The cases are built by rule: every form with several payloads, contexts and cards. ``is_set_aside`` picks a third by a
hash of the name; those were not looked at while the detector was changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rkllm_mcp.messages import ToolSpec
from tests.support.shared import REPOSITORY

Arguments = Mapping[str, Any]


def _tool(name: str, required: str, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": required.split()}
    return ToolSpec(name, "", schema)


_TEXT = {"type": "string"}
TOOLS: tuple[ToolSpec, ...] = (
    _tool("get_weather", "city", city=_TEXT, days={"type": "integer"}, unit={"enum": ["celsius", "fahrenheit"]}),
    _tool("search_files", "query", query=_TEXT, limit={"type": "integer"}, hidden={"type": "boolean"}),
    _tool("create_event", "title start", title=_TEXT, start=_TEXT, guests={"type": "array", "items": _TEXT}),
    _tool("send-mail", "to body", to=_TEXT, body=_TEXT, options={"type": "object"}),
    _tool("set_light", "room on", room=_TEXT, on={"type": "boolean"}, level={"type": "number"}),
)

PAYLOADS: tuple[tuple[str, Arguments], ...] = (
    ("get_weather", {"city": "Kyoto"}),
    ("get_weather", {"city": "東京", "days": 3}),
    ("search_files", {"query": 'a "quoted" word {x}', "limit": 10, "hidden": False}),
    ("create_event", {"title": "会議 (週次)", "start": "2026-11-24T10:00", "guests": ["Aki", "Bo"]}),
    ("send-mail", {"to": "a@example.org", "body": "Hi,\nit's done; see f(x).", "options": {"cc": ["b"], "html": True}}),
    ("set_light", {"room": "kitchen", "on": True, "level": 0.5}),
)

# The syntaxes of the catalogue's cards.
CARDS: tuple[tuple[str, ...], ...] = (
    ("hermes", "project_json", "project_xml"),
    ("qwen3_xml", "hermes"),
    ("json_list", "hermes"),
    ("minicpm3", "hermes"),
    ("project_json", "project_xml"),
    ("rwkv7",),
    ("gemma4",),
    ("gemma3", "pythonic_list"),
    ("internlm2",),
    ("deepseek_r1", "hermes", "bare_json"),
    ("llama3_json", "pythonic_list", "functionary_v31"),
    ("hermes", "smollm3_python", "bare_json"),
    ("hermes", "bare_json"),
    ("xlam_json",),
)


@dataclass(frozen=True)
class Case:
    """An answer, the syntaxes of its model, and the calls in it; ``text`` is what else the user sees."""

    name: str
    answer: str
    syntaxes: tuple[str, ...]
    calls: tuple[tuple[str, Arguments], ...] = ()
    text: str = ""
    tools: Sequence[ToolSpec] = TOOLS

    @property
    def is_set_aside(self) -> bool:
        """True for a third of the cases, by a hash of the name."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 3 == 0


def _json(name: str, arguments: Arguments, key: str = "arguments", indent: int | None = None) -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False, indent=indent)


def _python(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _qwen(name: str, arguments: Arguments) -> str:
    values = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<function={name}>\n{inside}</function>"


def _around(
    opener: str, closer: str, write: Callable[[str, Arguments], str] = _json
) -> Callable[[str, Arguments], str]:
    return lambda name, arguments: f"{opener}{write(name, arguments)}{closer}"


def _tags(opener: str, closer: str, write: Callable[[str, Arguments], str] = _json) -> Callable[[str, Arguments], str]:
    return _around(f"{opener}\n", f"\n{closer}", write)


def _pretty(name: str, arguments: Arguments) -> str:
    return _json(name, arguments, indent=2)


def _parameters(name: str, arguments: Arguments) -> str:
    return _json(name, arguments, "parameters")


def _wrapped(name: str, arguments: Arguments) -> str:
    return json.dumps({"type": "function", "function": {"name": name, "arguments": arguments}}, ensure_ascii=False)


def _fence(language: str, write: Callable[[str, Arguments], str] = _json) -> Callable[[str, Arguments], str]:
    return _around(f"```{language}\n", "\n```", write)


# Forms without a marker: calls where they are the whole answer or lines of their own.
LINES: Mapping[str, Callable[[str, Arguments], str]] = {
    "object": _json,
    "object over lines": _pretty,
    "object with parameters": _parameters,
    "object as OpenAI has it": _wrapped,
    "list": _around("[", "]"),
    "python": _python,
}
# Forms without a marker that count only as the whole answer.
WHOLE: Mapping[str, Callable[[str, Arguments], str]] = {
    "json fence": _fence("json"),
    "plain fence": _fence(""),
    "json fence over lines": _fence("json", _pretty),
    "tags in a fence": _fence("xml", _tags("<tool_call>", "</tool_call>")),
    "tags in a plain fence": _fence("", _tags("<tool_call>", "</tool_call>")),
    "tags with python in a fence": _fence("xml", _tags("<tool_call>", "</tool_call>", _python)),
    "tags of Qwen3.5 in a fence": _fence("xml", _tags("<tool_call>", "</tool_call>", _qwen)),
    "project tags in a fence": _fence("", _tags("[TOOL_CALL]", "[END_TOOL_CALL]")),
}
MARKED: Mapping[str, Callable[[str, Arguments], str]] = {
    "tags": _tags("<tool_call>", "</tool_call>"),
    "tags on one line": _around("<tool_call>", "</tool_call>"),
    "tags with a fence inside": _tags("<tool_call>", "</tool_call>", _fence("json")),
    "python in tags": _around("<tool_call>", "</tool_call>", _python),
    "a list of python in tags": _around("<tool_call>[", "]</tool_call>", _python),
    "python in tags over lines": _tags("<tool_call>", "</tool_call>", _python),
    "Qwen3.5": _tags("<tool_call>", "</tool_call>", _qwen),
    "Qwen3.5 without an opener": _around("", "\n</tool_call>", _qwen),
    "project": _tags("[TOOL_CALL]", "[END_TOOL_CALL]"),
    "no closer": _around("<tool_call>\n", ""),
    "toolcall": _tags("<toolcall>", "</toolcall>"),
    "tool_calls": _tags("<tool_calls>", "</tool_calls>"),
    "tool_calls with a list": _around("<tool_calls>[", "]</tool_calls>"),
    "tool-call": _tags("<tool-call>", "</tool-call>"),
    "ToolCall": _around("<ToolCall>", "</ToolCall>"),
    "TOOL_CALL": _around("<TOOL_CALL>", "</TOOL_CALL>"),
    "toolcalls": _tags("<toolcalls>", "</toolcalls>"),
    "function_call": _around("<function_call>", "</function_call>"),
    "function_calls": _around("<function_calls>", "</function_calls>"),
    "functioncall": _around("<functioncall>", "</functioncall>"),
    "function-call": _around("<function-call>", "</function-call>"),
    "FunctionCall": _around("<FunctionCall>", "</FunctionCall>"),
    "bars": _around("<|tool_call|>", "<|/tool_call|>"),
    "bars without a closer": _around("<|tool_call|>", ""),
    "bars and a plain closer": _tags("<|tool_call|>", "</tool_call>"),
    "half bars": _tags("<|tool_call>", "</tool_call>"),
    "bars with calls": _tags("<|tool_calls|>", "<|/tool_calls|>"),
    "bars with function": _tags("<|function_call|>", "<|/function_call|>"),
    "a closer without its end": _tags("<tool_call>", "</tool_cal>"),
    "a closer without a bracket": _tags("<tool_call>", "</tool_call"),
    "another closer": _tags("<tool_call>", "</toolcall>"),
    "a plural closer": _tags("<tool_call>", "</tool_calls>"),
    "a capital closer": _tags("<tool_call>", "</TOOL_CALL>"),
    "a closer of functions": _tags("<tool_call>", "</function_call>"),
    "brackets in small letters": _tags("[tool_call]", "[end_tool_call]"),
    "brackets without an underscore": _tags("[TOOLCALL]", "[/TOOLCALL]"),
    "python in toolcall": _tags("<toolcall>", "</toolcall>", _python),
    "python in function_call": _around("<function_call>", "</function_call>", _python),
    "python in bars": _around("<|tool_call|>", "<|/tool_call|>", _python),
    "Qwen3.5 in toolcall": _tags("<toolcall>", "</toolcall>", _qwen),
    "Qwen3.5 in tool_calls": _tags("<tool_calls>", "</tool_calls>", _qwen),
}

# Before and after a call: names, and the text on each side.
AROUND: Mapping[str, tuple[str, str]] = {
    "alone": ("", ""),
    "behind a line": ("I will look that up.\n", ""),
    "behind a paragraph": ("はい、確認します。\n\n", "\n"),
    "before a line": ("", "\n\nOne moment, please."),
}


def calls() -> Iterator[Case]:
    """Yield the answers with calls."""
    forms = [(LINES, ("alone", "behind a line", "behind a paragraph")), (WHOLE, ("alone",)), (MARKED, tuple(AROUND))]
    count = 0
    for table, contexts in forms:
        for form, write in table.items():
            for number, payload in enumerate(PAYLOADS):
                if ("python" in form) and "-" in payload[0]:
                    continue  # Not a name in Python.
                context = contexts[number % len(contexts)]
                before, after = AROUND[context]
                syntaxes = CARDS[count % len(CARDS)]
                count += 1
                answer = f"{before}{write(*payload)}{after}"
                yield Case(f"{form}, {number}, {context}", answer, syntaxes, (payload,), (before + after).strip())
    for form in ("object", "python", "tags", "tool_calls", "python in tags", "list"):
        write = {**LINES, **MARKED}[form]
        pair = (PAYLOADS[0], PAYLOADS[5])
        for card in CARDS[::3]:
            answer = "\n".join(write(*payload) for payload in pair)
            yield Case(f"two of {form}, {card[0]}", answer, card, pair)


_QUESTION_WORDS = (
    ("The {name} tool takes the {key} and returns a short text.", "en"),
    ("Call {name}({key}=...) when you need it; it needs {key}.", "en"),
    ("To use it, write <tool_call> followed by the name {name}, then </tool_call>.", "en"),
    ("{name}は{key}を受け取るツールです。<tool_call>タグの中に書きます。", "ja"),
    ("ツール「{name}」を呼び出すと、{key}に応じた結果が返ります。", "ja"),
    ('`{name}({key}="Kyoto")` is how a program would call it.', "en"),
    ('例えば `{{"name": "{name}", "arguments": {{"{key}": "京都"}}}}` のように書きます。', "ja"),
    ('The markers [TOOL_CALL] and [END_TOOL_CALL] enclose JSON such as {{"name": …}}.', "en"),
    ("- {name}: needs {key}\n- `{name}` may fail\n\nWhich one do you want?", "en"),
    ("1. `{name}`（{key}が必要）\n2. その他\n\nどちらにしますか。", "ja"),
    ('result = {name}({key}="Kyoto")\nprint(result)', "code"),
    ("def {pname}({key}: str) -> str:\n    return lookup({key})\n\n\nassert {pname}.__name__", "code"),
    ('```python\nfrom tools import {pname}\n\nprint({pname}({key}="Kyoto"))\n```', "code"),
    ('Here is the code:\n\n```python\n{pname}({key}="Kyoto")\n```\n\nIt prints the result.', "code"),
    ('次のように書けます。\n\n```python\nx = {pname}({key}="京都")\n```\n\n結果はxに入ります。', "code"),
    ('const r = await {pname}({{ {key}: "Kyoto" }});\nconsole.log(r);', "code"),
    ('curl -d \'{{"name": "{name}", "arguments": {{"{key}": "x"}}}}\' localhost:8080', "code"),
    ('An example:\n\n```json\n{{"name": "{name}", "arguments": {{"{key}": "Kyoto"}}}}\n```\n\nThat is all.', "json"),
    ('例です。\n\n```json\n{{"name": "{name}", "arguments": {{"{key}": "京都"}}}}\n```\n\n以上です。', "json"),
    ('```json\n{{"name": "{name}", "arguments": {{"{key}": "Kyoto"}}}}\n```\n\nThis object asks for it.', "json"),
    ('```json\n{{"name": "{name}", "description": "A tool", "parameters": {{"type": "object"}}}}\n```', "json"),
    ('{{"name": "{name}", "description": "A tool", "parameters": {{"type": "object", "properties": {{}}}}}}', "json"),
    ('{{"tools": [{{"name": "{name}", "arguments": {{"{key}": "Kyoto"}}}}]}}', "json"),
    ('[{{"name": "{name}", "count": 3}}, {{"name": "other", "count": 1}}]', "json"),
    ('{{"name": "{name}", "stars": 5}}', "json"),
    ('The log says {{"name": "{name}", "arguments": {{"{key}": "Kyoto"}}}} and nothing else.', "json"),
    ('> {{"name": "{name}", "arguments": {{"{key}": "Kyoto"}}}}\n\nThat is a quotation.', "json"),
    ('| form | example |\n|---|---|\n| JSON | {{"name": "{name}", "arguments": {{"{key}": "x"}}}} |\n', "json"),
    ('The event was {{"type": "tool_call", "name": "{name}"}}, and then the answer.', "json"),
    (
        '```xml\n<tool_call>\n{{"name": "{name}", "arguments": {{"{key}": "x"}}}}\n</tool_call>\n```\n\nSo it looks.',
        "json",
    ),
    (
        'Qwen writes:\n\n```\n<tool_call>\n{{"name": "{name}", "arguments": {{"{key}": "x"}}}}\n</tool_call>\n```\n',
        "json",
    ),
    ("<ul><li>{name}</li><li>{key}</li></ul>\n<p>Tools: {{{{ tools }}}}</p>", "code"),
    ('{name}() takes one value. {name}("Kyoto") is shorter, and both are fine.', "en"),
    ('{name}を使うと便利です。{name}("京都")と書くこともできます。', "ja"),
    ("I called {name} and it said: sunny, 21 degrees. Anything else?", "en"),
    ("I cannot call {name} because no {key} was given. Which {key} do you mean?", "en"),
    ("tools:\n  - name: {name}\n    arguments:\n      {key}: Kyoto\n", "code"),
    ('[[tools]]\nname = "{name}"\nrequired = ["{key}"]\n', "code"),
    ("SELECT name, arguments FROM calls WHERE name = '{name}' AND {key} = 'Kyoto';", "code"),
    ('{{"result": {{"name": "{name}", "{key}": "Kyoto"}}, "ok": true}}', "json"),
    ("if ({pname}(x) > 3) {{ y = [{pname}(x, {{}})]; }} // {name}", "code"),
    ("The <function_call> tag is older than <tool_calls>; neither needs {name}.", "en"),
    ("<toolcall>という書き方は誤りで、<tool_call>が正しいです（{name}の例）。", "ja"),
)

_LEADS = ("", "Sure. ", "もちろんです。\n\n")


def _texts() -> Iterator[tuple[str, str, tuple[ToolSpec, ...]]]:
    for number, (text, kind) in enumerate(_QUESTION_WORDS):
        for tool in TOOLS:
            key = tool.input_schema["required"][0]
            written = text.format(name=tool.name, key=key, pname=tool.name.replace("-", "_"))
            for lead in _LEADS if kind in {"en", "ja"} else _LEADS[:1]:
                yield f"{kind} {number} {tool.name} {len(lead)}", lead + written, TOOLS


def _pages() -> Iterator[tuple[str, str, tuple[ToolSpec, ...]]]:
    """Yield the sections of our own documentation; every tool they speak of is declared, with one required key."""
    declared = (*TOOLS, *(_tool(name, "city", city=_TEXT) for name in ("TOOL", "f", "weather", "read_file", "search")))
    for page in sorted([*(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "README.md", REPOSITORY / "README.ja.md"]):
        text = page.read_text(encoding="utf-8")
        for number, section in enumerate(text.split("\n## ")):
            yield f"page {page.name} {number}", section, declared


def texts() -> Iterator[Case]:
    """Yield the answers without calls."""
    for count, (name, text, tools) in enumerate((*_texts(), *_pages())):
        # Gemma 4's closing mark of thinking is dropped wherever it stands outside quotes.
        cards = [card for card in CARDS if card != ("gemma4",)] if "<channel|>" in text else CARDS
        yield Case(name, text, cards[count % len(cards)], (), text.strip(), tools)
