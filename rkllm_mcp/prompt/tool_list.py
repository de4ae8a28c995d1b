"""Tools, calls and results as a model reads them, and their cost in tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec, as_mapping, resolved_reference
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer, PlainText, Segment
from rkllm_mcp.text import collapse_whitespace

_UNIONS = ("anyOf", "oneOf")
# Below this depth, and where a schema refers to itself, an object is written without its properties.
_MAX_DEPTH = 4
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class _Position:
    """Position of a type in a schema: the document for references, and the objects being written around it."""

    root: Mapping[str, Any]
    within: frozenset[str] = frozenset()
    depth: int = 0


def signature(tool: ToolSpec) -> str:
    """Return ``tool`` as one line."""
    schema = tool.shown_schema
    notes = [
        f"{_name(name)}: {description}"
        for name, inner in as_mapping(schema.get("properties")).items()
        if (description := collapse_whitespace(str(as_mapping(inner).get("description", ""))))
    ]
    description = collapse_whitespace(tool.description)
    if description and notes and description[-1] not in ".!?。！？":
        description += "."
    words = " ".join(filter(None, (description, "; ".join(notes))))
    line = f"{tool.name}({_parameters(schema, _Position(schema))})" + (f" — {words}" if words else "")
    # A description must not end the list, which is plain text to some models.
    return line.replace("</tool", "< /tool")


def _parameters(schema: Mapping[str, Any], position: _Position) -> str:
    required = cast("Sequence[str]", schema.get("required") or ())
    return ", ".join(
        f"{_name(name)}{'' if name in required else '?'}: {_type(inner, position)}"
        for name, inner in as_mapping(schema.get("properties")).items()
    )


def _type(schema: Any, position: _Position) -> str:
    table, references = _resolve(as_mapping(schema), position.root)
    if "enum" in table or "const" in table:
        values: Sequence[Any] = table["enum"] if "enum" in table else [table["const"]]
        return "|".join(json.dumps(value, ensure_ascii=False) for value in values)
    if position.depth > _MAX_DEPTH or references & position.within:
        return "object"
    inner = replace(position, within=position.within | references, depth=position.depth + 1)
    for keyword in _UNIONS:
        if table.get(keyword):
            return "|".join(dict.fromkeys(_type(branch, inner) for branch in table[keyword]))
    kind: Any = table.get("type")
    if isinstance(kind, list):
        return "|".join(dict.fromkeys(_kind_text(str(name), table, inner) for name in cast("list[Any]", kind)))
    return _kind_text(str(kind or ("object" if "properties" in table else "any")), table, inner)


def _kind_text(kind: str, table: Mapping[str, Any], position: _Position) -> str:
    if kind == "array":
        inner = _type(table["items"], position) if "items" in table else "any"
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object" and as_mapping(table.get("properties")):
        return f"{{{_parameters(table, position)}}}"
    return kind


def _resolve(table: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the schema after references within the document, and the references followed; others stay."""
    followed: set[str] = set()
    while isinstance(reference := table.get("$ref"), str) and reference.startswith("#/") and reference not in followed:
        followed.add(reference)
        table = {
            **as_mapping(resolved_reference(root, reference)),
            **{key: value for key, value in table.items() if key != "$ref"},
        }
    return table, frozenset(followed)


def _name(name: str) -> str:
    return name if _IDENTIFIER.match(name) else json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True)
class CallStyle:
    """One way to write a call."""

    begin: Callable[[str], str]  # the call up to its arguments, from its name
    rest: Callable[[Mapping[str, Any]], list[Segment]]  # the arguments and the end of the call
    arguments_opening: str = ""  # how every object of arguments begins


def spaced_json(value: Any) -> str:
    """Return JSON with one space after each separator, as in training data; other scripts are not escaped."""
    return json.dumps(value, ensure_ascii=False)


def json_call_style(arguments_key: str) -> CallStyle:
    """Return the style ``{"name": …, "arguments": {…}}``; some families write ``parameters``."""
    return CallStyle(
        lambda name: f'{{"name": {spaced_json(name)}, "{arguments_key}": ',
        lambda arguments: [PlainText(f"{spaced_json(dict(arguments))}}}")],
        "{",
    )


def _tagged_arguments(arguments: Mapping[str, Any]) -> list[Segment]:
    parameters = (
        f"<parameter={key}>\n{value if isinstance(value, str) else spaced_json(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return [PlainText(f"{''.join(parameters)}</function>")]


JSON_CALL = json_call_style("arguments")
JSON_CALL_WITH_PARAMETERS = json_call_style("parameters")
# f(k='v', n=3, flag=True): JSON's values are Python's, so repr writes each of them.
PYTHON_CALL = CallStyle(
    lambda name: f"{name}(",
    lambda arguments: [PlainText(f"{', '.join(f'{key}={value!r}' for key, value in arguments.items())})")],
)
# The name, then the arguments alone in a code fence (DeepSeek R1).
FENCED_CALL = CallStyle(
    lambda name: f"{name}\n```json\n", lambda arguments: [PlainText(f"{spaced_json(dict(arguments))}\n```")], "{"
)
# A tag for the function and one for each parameter, strings bare (Qwen3.5, Qwen3-Coder).
TAGGED_CALL = CallStyle(lambda name: f"<function={name}>\n", _tagged_arguments)


# Keywords that cost tokens and do not help to write a call.
_DROPPED_KEYWORDS = frozenset({"$schema", "$id", "title", "examples"})
# Maps of a schema whose keys are property names, not keywords.
_NAME_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
# Characters that a tool's name cannot contain.
_UNNAMELY = re.compile(r"[^\w.-]")
# Placeholder for a name, where a call is split before it.
_SOME_NAME = "TOOL_NAME"
# "\\/" is the same JSON; a description must not end the list, which is plain text to some models.
_END_TAG = ("</tool", "<\\/tool")
_SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})

ToolListing = Literal["json", "compact"]
"""json: as the family was trained; compact: one line for each tool, about half the tokens."""


def compact_schema(schema: Any) -> Any:
    """Return ``schema`` without keywords that do not help to write a call; a property named ``title`` stays."""
    if not isinstance(schema, Mapping):
        return schema
    compact: dict[str, Any] = {}
    for key, part in cast("Mapping[str, Any]", schema).items():
        if key in _NAME_MAPS and isinstance(part, dict):
            schemas = cast("dict[str, Any]", part)
            compact[key] = {name: compact_schema(inner) for name, inner in schemas.items()}
        elif key in _SCHEMA_LISTS and isinstance(part, list):
            compact[key] = [compact_schema(inner) for inner in cast("list[Any]", part)]
        elif key not in _DROPPED_KEYWORDS:
            compact[key] = compact_schema(part)
    return compact


def _function(tool: ToolSpec) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description}
    # The parameters of a tool without a schema are shown later (two-step listing).
    return {**described, "parameters": compact_schema(tool.shown_schema)} if tool.input_schema else described


def wrapped_tool(tool: ToolSpec) -> list[Segment]:
    """Return ``{"type":"function","function":{…}}``, as in OpenAI's API and the Qwen template."""
    return [PlainText(to_json({"type": "function", "function": _function(tool)}).replace(*_END_TAG))]


def bare_tool(tool: ToolSpec) -> list[Segment]:
    """Return ``{"name":…,"description":…,"parameters":{…}}``, for families whose lists have no wrapper."""
    return [PlainText(to_json(_function(tool)).replace(*_END_TAG))]


def signed_tool(tool: ToolSpec) -> list[Segment]:
    """Return the tool's ``signature``."""
    return [PlainText(signature(tool))]


@dataclass(frozen=True)
class ToolForm:
    """One way to write tools, calls and results; ``HERMES`` and ``MARKERS`` below are shared by several families."""

    introduction: str  # before the list
    conclusion: str  # after the list; ends with the format of a call
    # Around one call.
    call_opening: str
    call_closing: str
    # Around one result; ``{name}`` is replaced by the tool's name.
    result_opening: str
    result_closing: str
    syntaxes: tuple[str, ...]  # for the detector of a model with a prompt like that
    tool: Callable[[ToolSpec], Sequence[Segment]] = wrapped_tool  # writes one tool of the list
    # Around one tool of the list, and between two.
    tool_opening: str = "\n"
    tool_closing: str = ""
    tool_separator: str = ""
    call_style: CallStyle = JSON_CALL  # name and arguments of a call between its markers
    # Around all calls of an answer.
    calls_opening: str = ""
    calls_closing: str = ""
    # Between an answer's text and its calls, and between two calls.
    text_separator: str = "\n"
    call_separator: str = "\n"
    result_separator: str = "\n"
    result_text: Callable[[str], str] = str  # writes a result's text; unchanged by default
    note_is_result: bool = False  # a note of the host is written as one more result, if only results may stand there

    def listed_as(self, listing: ToolListing) -> ToolForm:
        """Return the same format with this kind of tool list."""
        if listing == "json":
            return self
        # One line for each, also where the family's list is one line of JSON.
        opening = self.tool_opening or ("" if self.tool_closing == "\n" else "\n")
        return replace(self, tool=signed_tool, tool_opening=opening, tool_separator="")

    def listing(self, tools: Sequence[ToolSpec]) -> list[Segment]:
        """Return the block for the prefix, empty without tools."""
        if not tools:
            return []
        segments: list[Segment] = [ControlText(self.introduction)]
        for index, tool in enumerate(tools):
            segments += self.list_entry(tool, self.tool_separator if index else "")
        return [*segments, ControlText(self.conclusion)]

    def cards(self, tools: Sequence[ToolSpec]) -> list[Segment]:
        """Return the block before the words of a question, empty without tools; as the list, without blank lines."""
        if not tools:
            return []
        first, *middle, last = self.listing(tools)
        introduction, conclusion = first.text.lstrip("\n"), last.text.rstrip("\n")
        return [ControlText(introduction), *middle, ControlText(f"{conclusion}\n\n")]

    def list_entry(self, tool: ToolSpec, separator: str = "") -> list[Segment]:
        """Return one tool as it is in the list."""
        return [ControlText(separator + self.tool_opening), *self.tool(tool), ControlText(self.tool_closing)]

    def calls(self, calls: Sequence[ToolCall], *, after_text: bool = False) -> list[Segment]:
        """Return all calls of an answer as the model would have written them, empty without calls.

        They are for turns without stored tokens.
        """
        if not calls:
            return []
        segments: list[Segment] = [ControlText((self.text_separator if after_text else "") + self.calls_opening)]
        for index, call in enumerate(calls):
            segments += [
                ControlText((self.call_separator if index else "") + self.call_opening),
                PlainText(self.call_style.begin(call.name)),
                *self.call_style.rest(call.arguments),
                ControlText(self.call_closing),
            ]
        return [*segments, ControlText(self.calls_closing)]

    def in_language(self, language: str) -> ToolForm:
        """Return the form with its instructions in a language, where they are our own words."""
        words = read_catalogue("ja" if language == "ja" else "en").table("model.tool_markers")
        texts = {_OWN_WORDS[key]: text for key, text in words.items()}
        introduction = texts.get(self.introduction, self.introduction)
        return replace(self, introduction=introduction, conclusion=texts.get(self.conclusion, self.conclusion))

    def results(self, results: Sequence[ToolResult], note: str = "") -> list[Segment]:
        """Return the results of one round, in order, and a note of the host to the model."""
        entries = [(result.name, f"Error: {result.text}" if result.is_error else result.text) for result in results]
        if note and self.note_is_result:
            entries.append(("host", note))
        segments: list[Segment] = []
        for index, (name, text) in enumerate(entries):
            separator = self.result_separator if index else ""
            before, placeholder, after = self.result_opening.partition("{name}")
            segments += [
                ControlText(separator + before),
                # The model may have invented the name.
                PlainText(_UNNAMELY.sub("_", name) if placeholder else ""),
                ControlText(after),
                PlainText(self.result_text(text)),
                ControlText(self.result_closing),
            ]
        if note and not self.note_is_result:
            segments.append(PlainText(f"\n{note}" if results else note))
        return segments

    def call_beginning(self, name: str | None, *, opens_arguments: bool = False) -> list[Segment]:
        """Return the beginning of a call of ``name``, or of any tool up to its name, for the model to complete.

        With ``opens_arguments`` the beginning of the arguments is part of it.
        """
        begin = self.call_style.begin
        beginning = begin(_SOME_NAME).partition(_SOME_NAME)[0] if name is None else begin(name)
        if name is not None and opens_arguments:
            beginning += self.call_style.arguments_opening
        return [ControlText(self.calls_opening + self.call_opening), PlainText(beginning)]


# hermes: what Qwen2.5 and Qwen3 were trained on; the wording is the format (reference: toolcall-formats, section 6).
# markers: the project's own, for models without their own format. The format comes last, because small models
# follow the last text they read. Texts that a family was trained on have no translation.
_FORMS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("tool_forms.json").read_text("utf-8"))
# Instructions in our own words, which exist in each language.
_OWN_WORDS: Mapping[str, str] = read_catalogue("en").table("model.tool_markers")
_FORMS["markers"] |= _OWN_WORDS

TOOL_FORMS: Mapping[str, ToolForm] = {
    name: ToolForm(syntaxes=tuple(texts.pop("syntaxes")), **texts) for name, texts in _FORMS.items()
}
HERMES, MARKERS = TOOL_FORMS["hermes"], TOOL_FORMS["markers"]


@dataclass(eq=False)
class ToolCosts:
    """Token counts of listed tools, each counted once."""

    _tokenizer: ModelTokenizer
    _tool_form: ToolForm
    _tokens: dict[tuple[Segment, ...], int] = field(default_factory=dict[tuple[Segment, ...], int])

    def of(self, tool: ToolSpec) -> int:
        """Return the cost of ``tool`` in tokens; one token more or less where it joins its neighbours in the list."""
        segments = tuple(self._tool_form.list_entry(tool, self._tool_form.tool_separator))
        tokens = self._tokens.get(segments)
        if tokens is None:
            tokens = self._tokens[segments] = len(self._tokenizer.encode(segments))
        return tokens
