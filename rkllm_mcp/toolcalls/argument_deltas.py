"""The arguments of a call while they are written, as pieces of JSON text, for a display and for programs that stream.

Rules: the pieces of one call, joined, are the JSON of its arguments as the model wrote them, before types are mended;
what counts is the event that follows, and a call that fails takes its pieces back. JSON is passed on as it comes; of
text in tags the strings are, other values when they are complete; calls in a program's spelling when they are over.
Only declared tools are told of. Each character is looked at a bounded number of times.
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
from rkllm_mcp.toolcalls.scanners import JsonScanner, ScanState, TagScanner
from rkllm_mcp.toolcalls.syntax import CallFormat
from rkllm_mcp.toolcalls.tag_parser import TagReader


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a call's arguments.

    Args:
        index: which call of the answer it is, from 0.
        name: the tool's name as shown to the model.
        arguments: the next piece of the arguments' JSON; the first of a call may be empty.
    """

    index: int
    name: str
    arguments: str


Tell = Callable[[str, str], None]
"""Told the name of a call, as written, and a piece of its arguments."""


class Writer(Protocol):
    """Follows the bodies of one call and tells of their arguments."""

    def write(self, text: str) -> None:
        """Take the next piece of the body."""
        ...

    def end(self) -> None:
        """The body is over; another may follow."""
        ...


class DeltaWriter:
    """Tells of the arguments of every call in an answer.

    Args:
        catalogue: the declared tools.
        on_delta: whom to tell.
    """

    def __init__(self, catalogue: ToolCatalogue, on_delta: Callable[[ToolCallDelta], None]) -> None:
        self._catalogue = catalogue
        self._on_delta = on_delta
        self._index = -1

    def watch(self, form: CallFormat) -> Callable[[str | None], None]:
        """What has to be told the body of a call in this form: its pieces, and None where it ends."""
        writer: Writer
        if isinstance(form.read, TagReader):
            writer = _TagWriter(form.read, self._schema, self._begin, self._tell)
        elif form.spells == "json":
            writer = _JsonWriter(self._begin, self._tell, named=False)
        elif form.spells == "named_json":
            writer = _JsonWriter(self._begin, self._tell, named=True)
        else:
            writer = _WholeWriter(form, self._begin, self._tell)

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
            self._tell(name, "")

    def _tell(self, name: str, arguments: str) -> None:
        tool = self._catalogue.tool(name)
        if tool is not None:
            self._on_delta(ToolCallDelta(self._index, tool.name, arguments))


_NAMED = re.compile(rf"""["'](?:{"|".join(NAME_KEYS)})["']\s*:\s*["']([^"']{{1,128}})["']""")
_ARGUMENTS = re.compile(rf"""["'](?:{"|".join(ARGUMENT_KEYS)})["']\s*:\s*(?=\{{)""")
_OBJECT = re.compile(r"(?=\{)")
# A name and the key before the arguments stand within so much.
_KEPT_CHARACTERS = 512


class _JsonWriter:
    """Passes the object of the arguments on as it comes, once the name is known."""

    def __init__(self, begin: Callable[[str], None], tell: Tell, *, named: bool) -> None:
        self._begin, self._tell, self._named = begin, tell, named
        self._head = ""
        self._name = ""
        self._scanner: JsonScanner | None = None
        # Arguments that come before the name wait for it.
        self._waiting: list[str] = []

    def write(self, text: str) -> None:
        """Take the next piece of the body."""
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
        self._scanner = JsonScanner(Markers(()))
        return head[end:]

    def _look_for_name(self, head: str, end: int, *, is_head: bool) -> int:
        """Look for names before ``end``; returns where to look for the next."""
        if self._named:
            if is_head:
                self._announce(named_head(head[:end]))
            return 0
        begin = 0
        for found in _NAMED.finditer(head, 0, end):
            if not self._name:
                self._announce(found.group(1))
                # A name that is not kept was that of arguments before it, and is done with.
                begin = begin if self._name else found.end()
        return begin

    def _inside(self, text: str, scanner: JsonScanner) -> str:
        verdict, place = scanner.scan(text, 0)
        self._pass(text[:place])
        if verdict is not ScanState.COMPLETE:
            return ""
        self._scanner, self._name = None, ""
        return text[place:]

    def _announce(self, name: str) -> None:
        self._begin(name)
        if not self._waiting:
            self._name = name
            return
        for piece in self._waiting:
            self._tell(name, piece)
        self._waiting.clear()

    def _pass(self, text: str) -> None:
        if self._name:
            self._tell(self._name, text)
        else:
            self._waiting.append(text)

    def end(self) -> None:
        """The body is over."""
        self._head, self._name, self._scanner = "", "", None
        self._waiting.clear()


class _TagWriter:
    """Makes JSON of text in tags: strings as they come, other values when they are complete."""

    def __init__(
        self, reader: TagReader, schema: Callable[[str], Mapping[str, Any]], begin: Callable[[str], None], tell: Tell
    ) -> None:
        self._reader, self._schema_of, self._begin, self._tell = reader, schema, begin, tell
        self.end()

    def end(self) -> None:
        """The body is over."""
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
        """Take the next piece of the body."""
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
            self._tell(self._name, "}" if self._keys else "{}")

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
            self._tell(self._name, f"{', ' if self._keys else '{'}{json.dumps(self._key, ensure_ascii=False)}: ")
            self._keys.add(self._key)

    def _take_value(self, *, closed: bool) -> None:
        if not self._is_streaming and not self._held and not closed and self._may_stream():
            self._is_streaming = True
            self._gathered = self._gathered.removeprefix("\n")
            self._tell(self._name, '"')
        if self._is_streaming:
            self._tell_text(closed=closed)
        elif closed:
            text = "".join((*self._held, self._gathered))
            self._tell(self._name, self._typed(self._reader.value_of(text)))
        elif self._held or len(self._gathered) > _KEPT_CHARACTERS:
            # Nothing that comes will make it a string; what is held is not looked at again.
            self._held.append(self._gathered)
            self._gathered = ""
        if closed:
            self._gathered, self._held, self._is_streaming = "", [], False

    def _may_stream(self) -> bool:
        """What has come is the beginning of a string, and not of a section or of nothing but its frame."""
        begun = self._gathered.lstrip()
        properties = self._schema_of(self._name).get("properties")
        schema = cast("Mapping[str, Any]", properties).get(self._key) if isinstance(properties, Mapping) else None
        is_text = isinstance(schema, Mapping) and cast("Mapping[str, Any]", schema).get("type") == "string"
        # An argument that may be left out is null when the text is just that.
        return is_text and bool(begun) and not "null".startswith(begun.lower()) and begun[0] != "<"

    def _tell_text(self, *, closed: bool) -> None:
        """A piece of a string; a line break at its end may be its frame and waits."""
        frame = "\n" if self._gathered.endswith("\n") else ""
        text = self._gathered.removesuffix(frame)
        self._gathered = "" if closed else frame
        self._tell(self._name, json.dumps(text, ensure_ascii=False)[1:-1] + ('"' if closed else ""))

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
    """Tells the arguments of a call that is over."""

    def __init__(self, form: CallFormat, begin: Callable[[str], None], tell: Tell) -> None:
        self._form, self._begin, self._tell = form, begin, tell
        self._body: list[str] = []

    def write(self, text: str) -> None:
        """Take the next piece of the body."""
        self._body.append(text)

    def end(self) -> None:
        """The body is over."""
        body = "".join(self._body)
        self._body.clear()
        try:
            calls = self._form.read(body)
        except UnreadableError:
            return
        for call in calls:
            self._begin(call.name)
            self._tell(call.name, json.dumps(call.arguments or {}, ensure_ascii=False))
