"""Resolve a complete call body into ``ToolCallDetected`` or ``ToolCallFailed`` events."""

from __future__ import annotations

import difflib
import keyword
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec, as_list, as_mapping
from rkllm_mcp.text import collapse_whitespace, shorten
from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments, shown
from rkllm_mcp.toolcalls.lenient_json import ParsedCall, UnreadableError, read_value
from rkllm_mcp.toolcalls.syntax import CallFormat, Openers

INTERRUPTED = "another call begins before this one is complete"
CUT_OFF = "the call was cut off before its end"

# A reason becomes part of the prompt of a model with a few thousand tokens of context.
# Longer names are called by their short form alone: what looks for calls grows with the square of the longest name.
_MOST_NAME_CHARS = 256
_MAX_NAMES = 12
_MAX_SIGNATURE = 240
# A call names its tool early, so only this much of a failed call is searched for tool names.
_NAME_IS_WITHIN = 4096
# Character of a word. In an example TOOL stands for the name; ``[TOOL_CALL]`` is a marker.
_WORDLY = re.compile(r"\w")
# Elements in which models put all arguments as one object.
_WRAPPERS = frozenset({"arguments", "parameters", "properties"})
_TOOL = re.compile(r"\bTOOL\b")


_KEY = r"""["']?\b(?:name|function|tool|tool_name)["']?\s*[:=]\s*["']"""
# The position of a call's name, in every syntax.
_NAMES = re.compile(
    # Names of arguments are skipped.
    r"<(?:argument|parameter|param|arg)\s[^>]{0,128}>|"
    rf"""{_KEY}([\w.\-]{{1,64}})["']|<function=([^>\s]{{1,64}})>|call:([\w.\-]{{1,64}})\{{"""
    r"""|\[TOOL_CALLS\]\s{0,8}([\w.\-]{1,64})[\[{]|<tool_call>\s{0,8}([\w.\-]{1,64})\s{0,8}<"""
    r"""|▁sep[|｜]>([\w.\-]{1,64})|▁begin[|｜]>([\w.\-]{1,64})(?=<[|｜]tool▁sep)"""
    r"""|<\|tools_prefix\|>\[\{"([\w.\-]{1,64})\"|(?:\A|\n)([\w.\-]{1,64})\s{0,8}\n```python\s{1,8}tool_call\("""
    r"""|(?:\A|[\[>\n,(])[ ]{0,8}([A-Za-z_][\w.\-]{0,63})\((?=\)|["']|\w{1,64}\s?=)"""
)


class RefusedError(Exception):
    """A call that cannot be made; ``str()`` is the line shown to the model."""


class ToolCatalogue:
    """The declared tools under every name that a model may use.

    Calls are reported under the name shown to the model; long names (``mcp__server__tool``) are accepted too, and the
    name of the tool's own program where only one tool has it.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._by_name = {tool.name: tool for tool in tools}
        wire_names = Counter(tool.wire_name for tool in tools if tool.wire_name)
        by_wire_name = {tool.wire_name: tool for tool in tools if wire_names[tool.wire_name] == 1}
        by_other_name = {**by_wire_name, **{tool.qualified_name: tool for tool in tools}}
        by_other_name = {name: tool for name, tool in by_other_name.items() if len(name) <= _MOST_NAME_CHARS}
        self._names = {**by_other_name, **self._by_name}
        self.names = frozenset(self._names)

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool that ``name`` calls, which may be written as OpenAI's namespace has it."""
        return self._names.get(name) or self._names.get(name.removeprefix("functions."))

    def accept(self, call: ParsedCall, raw: str) -> ToolCallDetected:
        """Return the call under the tool's shown name, with coerced arguments.

        Raises:
            RefusedError: the tool is unknown, or the arguments do not match its schema.
        """
        tool = self.tool(call.name)
        if tool is None:
            raise RefusedError(self.unknown(call.name))
        declared, arguments = as_mapping(tool.input_schema.get("properties")), as_mapping(call.arguments)
        # Declared arguments that begin in the middle of a line, or that a value mentions and the call does not give.
        doubtful = declared.keys() & {*call.inline, *(set(call.mentions) - arguments.keys())}
        if call.mentions and declared and (doubtful or not arguments.keys() <= declared.keys()):
            again = f"Call again: {signature(tool)}"
            raise RefusedError(f"it is not clear where an argument ends; end each with its closing tag. {again}")
        try:
            value, misplaced = _arguments(call, tool)
            coerced = coerce_arguments(value, tool.input_schema, as_text=call.as_text)
        except MismatchError as mismatch:
            raise RefusedError(f"{collapse_whitespace(str(mismatch))}. Call again: {signature(tool)}") from None
        repaired = call.repaired or misplaced or coerced.repaired
        return ToolCallDetected(tool.name, coerced.value, raw, repaired=repaired)

    def named_in(self, text: str) -> ToolSpec | None:
        """Return the tool whose name occurs first, as a word, near the beginning of ``text``."""
        text = text[:_NAME_IS_WITHIN]
        positions: list[tuple[int, int, str]] = []
        for name in self._names:
            start = text.find(name)
            end = start + len(name)
            if start >= 0 and not _WORDLY.match(text[start - 1 : start]) and not _WORDLY.match(text[end : end + 1]):
                positions.append((start, -len(name), name))
        return self._names[min(positions)[2]] if positions else None

    def unknown(self, name: str) -> str:
        """Return the line for a call of a tool that is not declared."""
        nearest = difflib.get_close_matches(name[:80], sorted(self._names), n=1, cutoff=0.6)
        tool_names = list(self._by_name)
        hint = ""
        if nearest:
            tool = self._names[nearest[0]]
            hint = f"; did you mean '{tool.name}'?"
            tool_names = [tool.name, *(other for other in tool_names if other != tool.name)]
        names = ", ".join(tool_names[:_MAX_NAMES]) + (", …" if len(tool_names) > _MAX_NAMES else "")
        again = f" Call again: {signature(self._names[nearest[0]])}" if nearest else " Call again with one of these."
        return f"unknown tool '{collapse_whitespace(name)[:60]}'{hint or '.'} Available: {names}.{again}"


@dataclass(frozen=True)
class Resolution:
    """The result of one body: its calls and failed calls."""

    events: tuple[ToolCallDetected | ToolCallFailed, ...]
    sure: bool  # False if a repair had to guess
    named: bool = True  # True if the body is a call of a declared tool, right or wrong


def resolve_call(call_format: CallFormat, body: str, raw: str, catalogue: ToolCatalogue) -> Resolution:
    """Return the calls of one body, each as a call of a declared tool or with the reason why it is not one.

    ``raw`` is the body with its markers. If a body holds several calls, the first event carries ``raw`` and the others
    an empty text, so the raw texts of all events, joined, are the input.
    """
    try:
        calls = call_format.read(body)
    except UnreadableError as error:
        failed = ToolCallFailed(raw, unreadable(str(error), body, call_format, catalogue))
        return Resolution((failed,), sure=False, named=catalogue.named_in(body) is not None)
    events: list[ToolCallDetected | ToolCallFailed] = []
    for call in calls:
        part = "" if events else raw
        try:
            events.append(catalogue.accept(call, part))
        except RefusedError as refused:
            events.append(ToolCallFailed(part, str(refused)))
    is_declared = any(
        isinstance(event, ToolCallDetected) or call.arguments is not None
        for event, call in zip(events, calls, strict=True)
        if catalogue.tool(call.name) is not None and not _is_data(call)
    )
    return Resolution(tuple(events), sure=not any(call.guessed for call in calls), named=is_declared)


# Under these keys models write a result that they invent into the call itself; it is ignored.
_INVENTED = frozenset({"result", "results", "response", "output", "answer", "observation", "tool_response"})


def _is_data(call: ParsedCall) -> bool:
    """Return True for an object with other keys than a call's, such as the declaration of a tool."""
    has_schema = as_mapping(call.arguments).get("type") == "object"
    return call.arguments is not None and (not call.rest.keys() <= _INVENTED or has_schema)


def refusal_of(part: ResolvedPart, call_format: CallFormat, catalogue: ToolCatalogue) -> str:
    """Return why objects of a name and arguments are not calls that can be made; empty for other data and for calls."""
    if part.unended not in {"", CUT_OFF} or not any(catalogue.names):
        return ""
    # Small models end an answer before the last brace.
    body = f"{part.body.rstrip()}}}" if part.unended else part.body
    try:
        calls = call_format.read(body)
    except UnreadableError:
        return ""
    for call in calls:
        is_named = call.arguments is not None and catalogue.tool(call.name) is not None
        if not (is_named or isinstance(call.arguments, Mapping)) or _is_data(call):
            return ""
    events = resolve_call(call_format, body, part.raw, catalogue).events
    return next((event.reason for event in events if isinstance(event, ToolCallFailed)), "")


def unreadable(rule: str, body: str, call_format: CallFormat, catalogue: ToolCatalogue) -> str:
    """Return the line for a call that cannot be parsed: the rule, the tool it seems to mean, and the call format."""
    meant = catalogue.named_in(body)
    if meant is None:
        unknown = next((name for name in names_in(body[:_NAME_IS_WITHIN]) if catalogue.tool(name) is None), None)
        if unknown is not None:
            return catalogue.unknown(unknown)
        return f"{rule}. Call again in exactly this form: {collapse_whitespace(call_format.example)}"
    example = _TOOL.sub(lambda _: meant.name, collapse_whitespace(call_format.example))
    return f"{rule}. Call again: {signature(meant)}, in exactly this form: {example}"


def names_in(text: str) -> tuple[str, ...]:
    """Return every name under which ``text`` may contain a call, in any syntax."""
    names = (next((name for name in match.groups() if name), "") for match in _NAMES.finditer(text))
    return tuple(name for name in dict.fromkeys(names) if name not in {"", "function", "print", "tool_call"})


def signature(tool: ToolSpec) -> str:
    """Return the tool as one short line: ``get_weather(location: string, days?: integer)``."""
    schema = tool.shown_schema
    properties, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    inside = ", ".join(
        f"{key}{'' if key in required else '?'}: {_type_name(as_mapping(item))}" for key, item in properties.items()
    )
    line = collapse_whitespace(f"{tool.name}({inside})")
    return line if len(line) <= _MAX_SIGNATURE else f"{shorten(line, _MAX_SIGNATURE - 1)})"


def _type_name(schema: Mapping[str, Any]) -> str:
    if choices := as_list(schema.get("enum")):
        return "|".join(shown(item, 30) for item in choices[:8])
    types: object = schema.get("type")
    if isinstance(types, str):
        return types
    if kinds := as_list(types):
        return "|".join(map(str, kinds))
    if branches := as_list(schema.get("anyOf") or schema.get("oneOf")):
        return "|".join(dict.fromkeys(_type_name(as_mapping(branch)) for branch in branches))
    return "object" if "$ref" in schema else "any"


def _arguments(call: ParsedCall, tool: ToolSpec) -> tuple[dict[str, Any], bool]:
    """Return the arguments as an object under the tool's own names, and True if names or structure had to change."""
    value, properties = call.arguments, as_mapping(tool.input_schema.get("properties"))
    if isinstance(value, str) and value.strip()[:1] not in {"", "{", "[", '"'} and len(properties) == 1:
        ((key, parameter),) = properties.items()
        if key and as_mapping(parameter).get("type") == "string":
            return {key: value}, True
    for _ in range(2):  # The deepest nesting seen in practice is JSON in a string of JSON in a string.
        if not isinstance(value, str):
            break
        value = _decode(value)
    if value is None or value == []:
        # Arguments next to the name instead of under ``arguments`` count if all of them belong to the tool.
        stray = [key for key in call.rest if key not in properties]
        if stray:
            raise MismatchError("", "must stand in an object under 'arguments'", stray[0])
        return dict(call.rest), bool(call.rest)
    if not isinstance(value, dict):
        raise MismatchError("", "must be a JSON object", value)
    written = cast("dict[str, Any]", value)
    if call.as_text and len(written) == 1:
        (key, text), *_ = written.items()
        if key in _WRAPPERS and key not in properties and isinstance(text, str) and text.lstrip().startswith("{"):
            inner = _decode(text)
            return (cast("dict[str, Any]", inner), True) if isinstance(inner, dict) else (written, False)
    # Under the tool's own names: keywords have an underscore, tags may have quotes.
    renamed: dict[str, Any] = {}
    for key, item in written.items():
        unmarked = key[:-1] if keyword.iskeyword(key[:-1]) and key.endswith("_") else ""
        own_names = (name for name in (key, unmarked, key.strip("\"'")) if name in properties)
        renamed[next(own_names, key)] = item
    if not call.positional:
        return renamed, renamed.keys() != written.keys()
    free = [key for key in properties if key not in renamed]
    # One value belongs to the first free argument; several values must match all free arguments, in order.
    if not free or (len(call.positional) > 1 and len(free) != len(call.positional)):
        raise MismatchError("", "must be given by name", list(call.positional))
    return {**renamed, **dict(zip(free, call.positional, strict=False))}, True


def _decode(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return read_value(text).value
    except UnreadableError:
        raise MismatchError("", "must be a JSON object", text) from None


@dataclass(frozen=True)
class RestReader:
    """What finds calls in the text after a cut, which the detector would read again."""

    openers: Openers
    only_calls: Callable[[str], bool]  # returns True if a text consists of complete calls and white space


@dataclass(frozen=True)
class ResolvedPart:
    """One body with the markers that belong to it."""

    lead: str  # the opener; empty for a further body after the same one
    body: str  # the text that the scanner followed
    tail: str  # closer and white space
    unended: str = ""  # reason why the body has no end of its own; empty if it has one

    @cached_property
    def raw(self) -> str:
        """The whole text."""
        return f"{self.lead}{self.body}{self.tail}"


@dataclass(frozen=True)
class Outcome:
    """Result of one part: the text that is finished, its events, and the text to read again (None for none)."""

    raw: str
    events: tuple[Text | ToolCallDetected | ToolCallFailed, ...]
    rest: str | None = None


def resolve(
    part: ResolvedPart, call_format: CallFormat, catalogue: ToolCatalogue, reader: RestReader | None
) -> Outcome:
    """Resolve one part of a call; ``reader`` is None when no more cuts are allowed in this answer."""
    if part.unended:
        if call_format.bare and catalogue.named_in(part.body) is None:
            return Outcome(part.raw, (Text(part.raw),))
        events = (ToolCallFailed(part.raw, unreadable(part.unended, part.raw, call_format, catalogue)),)
    else:
        resolution = resolve_call(call_format, part.body, part.raw, catalogue)
        if call_format.bare and not resolution.named:
            return Outcome(part.raw, (Text(part.raw),))
        # Extra closing brackets were left out of the body, which is a repair.
        has_extra = part.tail.lstrip()[:1] in {"}", "]"}
        events = tuple(
            replace(event, repaired=True) if has_extra and isinstance(event, ToolCallDetected) else event
            for event in resolution.events
        )
        if resolution.sure:
            return Outcome(part.raw, events)
    cut = None if reader is None else _cut(part, call_format, catalogue, reader)
    return cut or Outcome(part.raw, events)


def _cut(part: ResolvedPart, call_format: CallFormat, catalogue: ToolCatalogue, reader: RestReader) -> Outcome | None:
    """Return the outcome of the part up to a possible cut; None if a cut could take quoted text for calls."""
    behind_own = part.body.find(call_format.begins) + len(call_format.begins)
    opener = reader.openers.next_call(part.body, behind_own)
    closer = call_format.gives_up.search(part.body, 0, len(part.body) if opener is None else opener)
    if closer is not None and not part.unended and closer.end() >= len(part.body.rstrip()):
        closer = None  # The part's own end is not a cut.
    if closer is not None:
        position = len(part.lead) + closer.end()
        raw, unread = part.raw[:position], part.raw[position:]
        if not unread.strip() or closer.end() + len(unread) - len(unread.lstrip()) == opener:
            # Where the end of a call is part of its body, the pattern has no group for a closer after it.
            body = part.body[: closer.start(1) if closer.re.groups else closer.end()]
            resolution = resolve_call(call_format, body, raw, catalogue)
            if resolution.sure:
                return Outcome(raw, resolution.events, unread)
        elif opener is not None:
            return None  # Prose and then a call: both may be quoted in a string that was cut off later.
        reason = unreadable("a string is not closed", raw, call_format, catalogue)
        return Outcome(raw, (ToolCallFailed(raw, reason),), unread)
    if opener is None or part.unended != CUT_OFF:
        return None
    # An open string with a call in it: if only calls follow, the model left the string for the call; otherwise the
    # string may quote the call, and a quoted call must not be made.
    position = len(part.lead) + opener
    raw, unread = part.raw[:position], part.raw[position:]
    if not reader.only_calls(unread):
        return None
    return Outcome(raw, (ToolCallFailed(raw, unreadable(INTERRUPTED, raw, call_format, catalogue)),), unread)
