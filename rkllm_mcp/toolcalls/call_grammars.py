"""Grammars of calls: the body of a call and its closer in the notation of each format, with the tools' own schemas.

    tools, call format ─▶ call_grammar ─▶ Constraint, kept in the ``Constraints`` of a model

A grammar is Lark as llguidance reads it. It is stricter than what the detector reads: the arguments come in the order
of the schema, and each has the form that the family's own template writes. A body that was begun in another way is not
held.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rkllm_mcp.generation import AnswerGrammar
from rkllm_mcp.messages import ToolSpec, as_list, as_mapping, resolved_reference
from rkllm_mcp.toolcalls.constraint import SPACE_OPTIONS, Constraint, UnheldError, answer_constraint, held_schema
from rkllm_mcp.toolcalls.parsers import (
    read_brace_call,
    read_bracketed_call,
    read_json_calls,
    read_keyed_calls,
    read_named_json,
    read_python_calls,
)
from rkllm_mcp.toolcalls.syntax import CallFormat
from rkllm_mcp.toolcalls.tag_parser import TagReader

CONSTRAINTS_KEPT = 64
_MOST_GRAMMAR_CHARS = 200_000
_TERMINALS = r"""
WS: /[ \n\t]{1,32}/
NUMBER: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/
INTEGER: /-?(0|[1-9][0-9]{0,17})/
PYTHON_TEXT: /"([^"\\\n]|\\[^\n])*"|'([^'\\\n]|\\[^\n])*'/
"""
# Below this depth a value of Python or of Gemma 4 is any value.
_MAX_DEPTH = 4
# With more tools than this only the schema of the one that the call has named is compiled.
_MOST_TOOLS = 64
_NAME_IN_BODY = re.compile(r"[\w.\-/]+(?=[^\w.\-/])")


@dataclass(frozen=True)
class CallGrammar:
    """The grammar of a body and what may follow it."""

    lark: str
    has_space: bool  # white space outside of strings means nothing


@dataclass
class _Rules:
    """The rules of one grammar."""

    lines: list[str] = field(default_factory=list[str])

    def add(self, body: str, attributes: str = "") -> str:
        """Add a rule and return its name."""
        name = f"r{len(self.lines)}"
        self.lines.append(f"{name}{attributes}: {body}")
        return name


def literal(text: str) -> str:
    """Return a literal of Lark."""
    return json.dumps(text, ensure_ascii=False)


def call_grammar(call_format: CallFormat, tools: Sequence[ToolSpec], arguments_key: str) -> CallGrammar | None:
    """Return the grammar of a body of ``call_format``; None for a format that is not held, or without tools."""
    reader = call_format.read
    if not tools or not (isinstance(reader, TagReader) or reader in _HELD_READERS):
        return None
    rules = _Rules()
    calls = [_call_rule(rules, tool, call_format, arguments_key) for tool in tools]
    closers = [closer for closer in call_format.closers if not closer.endswith("</tool")]
    fence = 'WS? "```" ' if call_format.fenced and closers else ""
    end = "" if not closers or fence else f" (WS? {literal(closers[0])})?"
    start = f"WS? ({_body_of_calls(call_format, ' | '.join(calls))}){f' ({fence})?' if fence else end}"
    # White space has a meaning in tags and in Gemma's notation.
    has_space = not isinstance(reader, TagReader) and reader is not read_brace_call
    return CallGrammar(f"start: {start}\n" + "\n".join(rules.lines) + _TERMINALS, has_space)


_HELD_READERS = (
    read_json_calls,
    read_keyed_calls,
    read_bracketed_call,
    read_named_json,
    read_python_calls,
    read_brace_call,
)


def _body_of_calls(call_format: CallFormat, call: str) -> str:
    """Return the rule of a body of one ``call``, or of several where the format has lists."""
    reader, name = call_format.read, call_format.name
    several = f'"[" WS? ({call}) (WS? "," WS? ({call}))* WS? "]"'
    if isinstance(reader, TagReader):
        return f"{'WS?' if call_format.begins else ''} ({call})"
    if reader is read_json_calls:
        if name == "internlm2":
            return f'"<|plugin|>" WS? ({call})'
        if name == "functools" or name == "json_list":
            return several  # The opener of functools ends with the bracket of the list.
        if call_format.fenced:
            return f'"```" ("json" | "tool_call")? WS ({call})'
        fence = '("```json" WS)?' if name == "rwkv7" else ""
        return f"{fence} ({call}) | {several}"
    if reader is read_keyed_calls:
        return several
    if reader is read_python_calls:
        if name == "chatglm3" or call_format.fenced:
            return f"WS? ({call})"
        if name in ("python_calls", "python_line", "llama3_builtin"):
            return f"({call})"
        return f'("```python" WS)? ({several} | ({call})) (WS? "```")?'  # The fence is MiniCPM4's.
    return call


def _call_rule(rules: _Rules, tool: ToolSpec, call_format: CallFormat, arguments_key: str) -> str:
    """Return the rule of a call of ``tool``."""
    reader, name, root = call_format.read, literal(tool.name), tool.input_schema
    properties, required = as_mapping(root.get("properties")), frozenset(map(str, as_list(root.get("required"))))
    if isinstance(reader, TagReader):
        tags = reader.tags
        argument = tags.arguments[0]
        quote, close = (' name="', '">') if tags.quoted else ("", ">")
        parts: list[str] = [literal(f"{tags.begins}{quote}{tool.name}{close}") if tags.begins else name]
        for key, schema in properties.items():
            if tags.head_ends == ">":
                head = literal(f"{argument.opens}{quote}{key}{close}")
            else:
                head = f"{literal(f'{argument.opens}{key}</arg_key>')} WS? {literal(tags.head_ends)}"
            value = _tag_value(rules, schema, root, f"{argument.closes}>")
            tag_rule = rules.add(f"WS? {head} {value}")
            parts.append(tag_rule if key in required else f"{tag_rule}?")
        return rules.add(f"{' '.join(parts)} WS? {literal(f'{tags.ends[0]}>')}")
    if reader is read_python_calls:
        pairs = [
            (f"{literal(f'{key}=')} {_python_value(rules, schema, root, 0)}", key in required)
            for key, schema in properties.items()
        ]
        return rules.add(f'{literal(f"{tool.name}(")} {_sequence(rules, pairs)} ")"')
    if reader is read_brace_call:
        delimiter = "<escape>" if call_format.name == "functiongemma" else '<|"|>'
        pairs = [
            (f"{literal(f'{key}:')} {_brace_value(rules, schema, root, delimiter, 0)}", key in required)
            for key, schema in sorted(properties.items())
        ]
        return rules.add(f'{literal(f"call:{tool.name}{{")} {_sequence(rules, pairs)} "}}"')
    # The others have the arguments as one object of JSON.
    held = {"type": "object", **held_schema(dict(root)), "x-guidance": dict(SPACE_OPTIONS)}
    arguments = rules.add(f"%json {json.dumps(held)}")
    if reader is read_bracketed_call:
        word = "/\\[[A-Za-z_-]{8,14}:/"
        return rules.add(f'{word} WS? {name} WS? {arguments} WS? "]"')
    if reader is read_named_json:
        if call_format.name == "mistral_args":
            return rules.add(f'{name} ("[CALL_ID]" /[A-Za-z0-9]{{1,16}}/)? "[ARGS]" WS? {arguments}')
        if call_format.name == "function_json":
            return rules.add(f'{name} ">" WS? {arguments}')
        bar = "｜" if call_format.name == "deepseek" else "|"
        separator = literal(f"function<{bar}tool▁sep{bar}>{tool.name}")
        return rules.add(f'{separator} WS? ("```json" WS)? {arguments} (WS? "```")?')
    # Without ``arguments_key`` the name is the key of the arguments.
    quoted_name = literal(json.dumps(tool.name, ensure_ascii=False))
    if reader is read_json_calls and arguments_key:
        before = " WS? ".join((literal('"name"'), '":"', quoted_name, '","', literal(f'"{arguments_key}"')))
    else:
        before = quoted_name
    return rules.add(" WS? ".join(('"{"', before, '":"', arguments, '"}"')))


def _tag_value(rules: _Rules, schema: Any, root: Mapping[str, Any], closer: str) -> str:
    """Return the rule of a value and its closing tag; a text is bare, and another value is JSON."""
    table = _resolve(schema, root)
    values = as_list(table["enum"] if "enum" in table else [table["const"]] if "const" in table else [])
    end = f"{literal(closer)}"
    if values:
        words = (value if isinstance(value, str) else json.dumps(value) for value in values)
        return rules.add(f"WS? ({' | '.join(map(literal, words))}) WS? {end}")
    kind = table.get("type")
    if kind in ("integer", "number"):
        return rules.add(f"WS? {'INTEGER' if kind == 'integer' else 'NUMBER'} WS? {end}")
    if kind == "boolean":
        return rules.add(f'WS? ("true" | "false") WS? {end}')
    if kind in ("object", "array"):
        with_definitions = {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **table}
        return rules.add(f"WS? %json {json.dumps({**with_definitions, 'x-guidance': dict(SPACE_OPTIONS)})} WS? {end}")
    return rules.add("/(?s:.*)/", f"[suffix={literal(closer)}]")


def _sequence(rules: _Rules, pairs: Sequence[tuple[str, bool]]) -> str:
    """Return a rule of entries with commas between them, in their order; those that are not required may be missing."""
    if not pairs:
        return ""
    separator = rules.add('WS? "," WS?')
    # What follows the first entry that is there, from the last entry on.
    tail, alternatives = "", list[str]()
    for entry, is_required in reversed(pairs):
        here = rules.add(f"{entry} {tail}")
        alternatives = [here] if is_required else [here, *alternatives]
        follows = f"{separator} {entry} {tail}"
        tail = rules.add(follows if is_required else f"{follows} | {tail}" if tail else f"({follows})?")
    may_be_empty = not any(is_required for _, is_required in pairs)
    return f"({' | '.join(alternatives)}){'?' if may_be_empty else ''}"


def _python_value(rules: _Rules, schema: Any, root: Mapping[str, Any], depth: int) -> str:
    table = _resolve(schema, root)
    if "enum" in table or "const" in table:
        forms: list[str] = []
        for value in as_list(table["enum"] if "enum" in table else [table["const"]]):
            if isinstance(value, str):
                forms.append(json.dumps(value, ensure_ascii=False))
            forms.append(repr(value))
        return f"({' | '.join(map(literal, forms))})"
    kind = table.get("type")
    if isinstance(kind, str) and kind in _PYTHON_SCALARS:
        return _PYTHON_SCALARS[kind]
    if kind == "array" and depth < _MAX_DEPTH:
        item = _python_value(rules, table.get("items"), root, depth + 1)
        return rules.add(f'"[" WS? ({item} (WS? "," WS? {item})* WS?)? "]"')
    any_rule = next((line for line in rules.lines if line.endswith("# any")), None)
    if any_rule is not None:
        return any_rule.partition(":")[0]
    name = f"r{len(rules.lines)}"
    scalars = " | ".join(_PYTHON_SCALARS[kind] for kind in ("string", "number", "boolean", "null"))
    items = f'"[" WS? ({name} (WS? "," WS? {name})* WS?)? "]"'
    pairs = f'"{{" WS? (PYTHON_TEXT WS? ":" WS? {name} (WS? "," WS? PYTHON_TEXT WS? ":" WS? {name})* WS?)? "}}"'
    return rules.add(f"{scalars} | {items} | {pairs} # any")


_PYTHON_SCALARS: Mapping[str, str] = {
    "string": "PYTHON_TEXT",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": '("True" | "False" | "true" | "false")',
    "null": '("None" | "null")',
}


def _brace_value(rules: _Rules, schema: Any, root: Mapping[str, Any], quote: str, depth: int) -> str:
    table = _resolve(schema, root)
    if "enum" in table or "const" in table:
        values = as_list(table["enum"] if "enum" in table else [table["const"]])
        forms = (f"{quote}{value}{quote}" if isinstance(value, str) else json.dumps(value) for value in values)
        return f"({' | '.join(map(literal, forms))})"
    kind = table.get("type")
    scalars = {"integer": "INTEGER", "number": "NUMBER", "boolean": '("true" | "false")', "null": '"null"'}
    if isinstance(kind, str) and kind in scalars:
        return scalars[kind]
    words = rules.add("/(?s:.*)/", f"[suffix={literal(quote)}]")
    if kind == "array" and depth < _MAX_DEPTH:
        item = _brace_value(rules, table.get("items"), root, quote, depth + 1)
        return rules.add(f'"[" ({item} ("," WS? {item})*)? "]"')
    if kind == "object" and depth < _MAX_DEPTH and as_mapping(table.get("properties")):
        needed = frozenset(as_list(table.get("required")))
        inner = [
            (f"{literal(f'{key}:')} {_brace_value(rules, value, root, quote, depth + 1)}", key in needed)
            for key, value in sorted(as_mapping(table.get("properties")).items())
        ]
        return rules.add(f'"{{" {_sequence(rules, inner)} "}}"')
    return rules.add(f"{literal(quote)} {words}")


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema after the references within its document."""
    table, followed = as_mapping(schema), set[str]()
    while isinstance(reference := table.get("$ref"), str) and reference.startswith("#/") and reference not in followed:
        followed.add(reference)
        table = as_mapping(cast("Any", resolved_reference(root, reference)))
    return table


class _Nothing:
    """What is not in the cache."""


_NOTHING = _Nothing()


@dataclass(eq=False)
class Constraints:
    """The constraints of one model, compiled once each. None for what cannot be held."""

    most: int = CONSTRAINTS_KEPT
    _kept: dict[object, Constraint | None] = field(default_factory=dict[object, "Constraint | None"])  # last used last

    def of_answer(self, grammar: AnswerGrammar) -> Constraint | None:
        """Return the constraint of an answer."""
        return self._get(grammar, lambda: answer_constraint(grammar))

    def of_call(
        self, call_format: CallFormat, tools: Sequence[ToolSpec], arguments_key: str, body: str = ""
    ) -> Constraint | None:
        """Return the constraint of the body of a call of one of ``tools``, in the notation of a format.

        If these are many, it is that of the tool that ``body`` names, and None until it names one.
        """
        if len(tools) > _MOST_TOOLS:
            by_name = {tool.name: tool for tool in tools}
            tools = [by_name[word] for word in _NAME_IN_BODY.findall(body) if word in by_name][:1]
        described: list[Any] = [[tool.name, dict(tool.input_schema)] for tool in tools]
        key = (call_format.name, arguments_key, json.dumps(described, default=str))

        def build() -> Constraint:
            written = call_grammar(call_format, tools, arguments_key)
            if written is None or len(written.lark) > _MOST_GRAMMAR_CHARS:
                raise UnheldError("there is no grammar of this format, or of a named tool, or it is too long")
            return Constraint(written.lark, has_space=written.has_space, names=[tool.name for tool in tools])

        return self._get(key, build)

    def _get(self, key: object, build: Callable[[], Constraint]) -> Constraint | None:
        cached = self._kept.pop(key, _NOTHING)
        if not isinstance(cached, _Nothing):
            self._kept[key] = cached
            return cached
        try:
            constraint = build()
        except (ValueError, RecursionError):
            constraint = None
        self._kept[key] = constraint
        if len(self._kept) > self.most:
            self._kept.pop(next(iter(self._kept)), None)
        return constraint
