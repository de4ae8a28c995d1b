"""The arguments of a call while they are generated, as pieces of JSON, for displays and streaming clients.

The pieces of one call, joined, are the JSON of its arguments as the model wrote them, before coercion; the final event
is authoritative, and a failed call invalidates its pieces. JSON is passed on as it arrives; of text in tags, strings as
they arrive and other values once complete; Python-like calls once complete. Only declared tools are reported. Each
character is examined a bounded number of times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments
from rkllm_mcp.toolcalls.lenient_json import UnreadableError
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.parsers import ARGUMENT_KEYS, NAME_KEYS, named_head
from rkllm_mcp.toolcalls.resolve import ToolCatalogue
from rkllm_mcp.toolcalls.scanners import BracketScanner, ScanState, TagScanner, json_scanner
from rkllm_mcp.toolcalls.syntax import CallFormat
from rkllm_mcp.toolcalls.tag_parser import TagReader


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a call's arguments.

    Args:
        index: number of the call in the answer, from 0.
        name: the tool's name as shown to the model.
        arguments: the next piece of the arguments' JSON; the first of a call may be empty.
    """

    index: int
    name: str
    arguments: str


Report = Callable[[str, str], None]
"""Told the name of a call, as written, and a piece of its arguments."""


class Writer(Protocol):
    """Follows the bodies of one call and reports their arguments."""

    def write(self, text: str) -> None:
        """Process the next piece of the body."""
        ...

    def end(self) -> None:
        """End the body; another may follow."""
        ...


class DeltaWriter:
    """Reports the arguments of every call in an answer to ``on_delta``."""

    def __init__(self, catalogue: ToolCatalogue, on_delta: Callable[[ToolCallDelta], None]) -> None:
        self._catalogue = catalogue
        self._on_delta = on_delta
        self._index = -1

    def watch(self, call_format: CallFormat) -> Callable[[str | None], None]:
        """Return a function that takes the pieces of a call's body in this format, and None at its end."""
        writer: Writer
        if isinstance(call_format.read, TagReader):
            writer = _TagWriter(call_format.read, self._schema, self._begin, self._report)
        elif call_format.argument_style == "json":
            writer = _JsonWriter(self._begin, self._report, named=False)
        elif call_format.argument_style == "named_json":
            writer = _JsonWriter(self._begin, self._report, named=True)
        else:
            writer = _WholeWriter(call_format, self._begin, self._report)

        def watch(text: str | None) -> None:
            if text is None:
                writer.end()
            else:
                writer.write(text)

        return watch

    def _schema(self, name: str) -> Mapping[str, Any]:
        tool = self._catalogue.tool(name)
        return {} if tool is None else tool.input_schema

    def _begin(self, name: str) -> None:
        if self._catalogue.tool(name) is not None:
            self._index += 1
            self._report(name, "")

    def _report(self, name: str, arguments: str) -> None:
        tool = self._catalogue.tool(name)
        if tool is not None:
            self._on_delta(ToolCallDelta(self._index, tool.name, arguments))


_NAMED = re.compile(rf"""["'](?:{"|".join(NAME_KEYS)})["']\s*:\s*["']([^"']{{1,128}})["']""")
_ARGUMENTS = re.compile(rf"""["'](?:{"|".join(ARGUMENT_KEYS)})["']\s*:\s*(?=\{{)""")
_OBJECT = re.compile(r"(?=\{)")
# Maximum text between a name and the key of the arguments.
_KEPT_CHARACTERS = 512


class _JsonWriter:
    """Passes the object of the arguments on as it arrives, once the name is known."""

    def __init__(self, begin: Callable[[str], None], report: Report, *, named: bool) -> None:
        self._begin, self._report, self._named = begin, report, named
        self._head = ""
        self._name = ""
        self._scanner: BracketScanner | None = None
        # Arguments that arrive before the name are held until it is known.
        self._waiting: list[str] = []

    def write(self, text: str) -> None:
        """Process the next piece of the body."""
        while text:
            text = self._inside(text, self._scanner) if self._scanner else self._outside(text)

    def _outside(self, text: str) -> str:
        head = self._head + text
        found = (_OBJECT if self._named else _ARGUMENTS).search(head)
        end = len(head) if found is None else found.end()
        begin = self._look_for_name(head, end, is_head=found is not None)
        if found is None:
            self._head = head[begin:][-_KEPT_CHARACTERS:]
            return ""
        self._head = ""
        self._scanner = json_scanner(Markers(()))
        return head[end:]

    def _look_for_name(self, head: str, end: int, *, is_head: bool) -> int:
        """Look for names before ``end``; return the position where the next search begins."""
        if self._named:
            if is_head:
                self._report_name(named_head(head[:end]))
            return 0
        begin = 0
        for found in _NAMED.finditer(head, 0, end):
            if not self._name:
                self._report_name(found.group(1))
                # A name that is not kept was that of arguments before it, and is done with.
                begin = begin if self._name else found.end()
        return begin

    def _inside(self, text: str, scanner: BracketScanner) -> str:
        verdict, place = scanner.scan(text, 0)
        self._pass(text[:place])
        if verdict is not ScanState.COMPLETE:
            return ""
        self._scanner, self._name = None, ""
        return text[place:]

    def _report_name(self, name: str) -> None:
        self._begin(name)
        if not self._waiting:
            self._name = name
            return
        for piece in self._waiting:
            self._report(name, piece)
        self._waiting.clear()

    def _pass(self, text: str) -> None:
        if self._name:
            self._report(self._name, text)
        else:
            self._waiting.append(text)

    def end(self) -> None:
        """End the body."""
        self._head, self._name, self._scanner = "", "", None
        self._waiting.clear()


class _TagWriter:
    """Converts text in tags to JSON: strings as they arrive, other values once complete."""

    def __init__(
        self,
        reader: TagReader,
        schema: Callable[[str], Mapping[str, Any]],
        begin: Callable[[str], None],
        report: Report,
    ) -> None:
        self._reader, self._schema_of, self._begin, self._report = reader, schema, begin, report
        self.end()

    def end(self) -> None:
        """End the body."""
        self._scanner = TagScanner(self._reader.tags, Markers(()))
        self._text = ""
        self._at = 0
        self._name = ""
        self._key = ""
        self._keys: set[str] = set()
        self._gathered = ""
        self._held: list[str] = []
        self._is_streaming = False

    def write(self, text: str) -> None:
        """Process the next piece of the body."""
        self._text, self._at = self._text[self._at :] + text, 0
        verdict: ScanState | None = None
        while verdict is None:
            scanner, begin = self._scanner, self._at
            part, count = scanner.part, len(scanner.arguments)
            verdict, self._at = scanner.step(self._text, begin)
            closed = len(scanner.arguments) > count
            end = scanner.arguments[-1][1][1] if closed else self._at
            self._gathered += self._text[begin:end]
            if scanner.part != part:
                self._part_ended(part)
            if part == "value" or (closed and part == "argument_head"):
                self._take_value(closed=closed)
        if verdict is ScanState.COMPLETE and self._name:
            self._report(self._name, "}" if self._keys else "{}")

    def _part_ended(self, part: str) -> None:
        tags = self._reader.tags
        head, between = self._gathered, part in {"before", "between"}
        if part == "value":
            return
        self._gathered = ""
        if part == "head" or (between and not tags.begins and not self._name):
            self._name = self._reader.name_of(head)
            self._begin(self._name)
        elif part == "argument_head":
            self._key = self._reader.key_of(head)
            self._report(self._name, f"{', ' if self._keys else '{'}{json.dumps(self._key, ensure_ascii=False)}: ")
            self._keys.add(self._key)

    def _take_value(self, *, closed: bool) -> None:
        if not self._is_streaming and not self._held and not closed and self._may_stream():
            self._is_streaming = True
            self._gathered = self._gathered.removeprefix("\n")
            self._report(self._name, '"')
        if self._is_streaming:
            self._report_text(closed=closed)
        elif closed:
            text = "".join((*self._held, self._gathered))
            self._report(self._name, self._typed(self._reader.value_of(text)))
        elif self._held or len(self._gathered) > _KEPT_CHARACTERS:
            # Nothing that comes will make it a string; what is held is not looked at again.
            self._held.append(self._gathered)
            self._gathered = ""
        if closed:
            self._gathered, self._held, self._is_streaming = "", [], False

    def _may_stream(self) -> bool:
        """Return True if the text so far begins a string, and is not a CDATA section or only the value's frame."""
        begun = self._gathered.lstrip()
        properties = self._schema_of(self._name).get("properties")
        schema = cast("Mapping[str, Any]", properties).get(self._key) if isinstance(properties, Mapping) else None
        is_text = isinstance(schema, Mapping) and cast("Mapping[str, Any]", schema).get("type") == "string"
        # An argument that may be left out is null when the text is just that.
        return is_text and bool(begun) and not "null".startswith(begun.lower()) and begun[0] != "<"

    def _report_text(self, *, closed: bool) -> None:
        """Report a piece of a string; a line break at its end is held back, because it may be the frame."""
        frame = "\n" if self._gathered.endswith("\n") else ""
        text = self._gathered.removesuffix(frame)
        self._gathered = "" if closed else frame
        self._report(self._name, json.dumps(text, ensure_ascii=False)[1:-1] + ('"' if closed else ""))

    def _typed(self, value: str) -> str:
        typed: Any = value
        try:
            schema = dict(self._schema_of(self._name))
            schema["required"] = [key for key in schema.get("required") or () if key == self._key]
            typed = coerce_arguments({self._key: value}, schema, as_text=True).value.get(self._key)
        except MismatchError:
            pass  # The event will say what is wrong; this is what was written.
        return json.dumps(typed, ensure_ascii=False)


class _WholeWriter:
    """Reports the arguments of a call once it is complete."""

    def __init__(self, call_format: CallFormat, begin: Callable[[str], None], report: Report) -> None:
        self._call_format, self._begin, self._report = call_format, begin, report
        self._body: list[str] = []

    def write(self, text: str) -> None:
        """Process the next piece of the body."""
        self._body.append(text)

    def end(self) -> None:
        """End the body."""
        body = "".join(self._body)
        self._body.clear()
        try:
            calls = self._call_format.read(body)
        except UnreadableError:
            return
        for call in calls:
            self._begin(call.name)
            self._report(call.name, json.dumps(call.arguments or {}, ensure_ascii=False))
