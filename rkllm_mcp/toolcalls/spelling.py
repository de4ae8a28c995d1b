"""How a body spells its calls: text between the markers becomes names and arguments as they were written.

One reader for each way of spelling; a syntax names the one it uses. Nothing is checked against tools here: a reader
only says which calls are there, or that the body cannot be read and why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.repair import Reading, UnreadableError, read_value
from rkllm_mcp.toolcalls.scan import ARGUMENT_TAGS, Span, Verdict, XmlScanner


@dataclass(frozen=True)
class SpelledCall:
    """A call as it was written.

    Args:
        name: the name as written, white space around it removed.
        arguments: the value that stood for them; an object, or whatever else the model put there.
        rest: other keys beside name and arguments; models that forget the nesting put the arguments there.
        repaired: the text was not valid as written.
        guessed: even where its strings end had to be guessed.
        as_text: the values are bare text whose type only the schema knows.
    """

    name: str
    arguments: Any
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    repaired: bool = False
    guessed: bool = False
    as_text: bool = False


# The first is what every template asks for; the others are what models trained on other interfaces write.
_NAME_KEYS = ("name", "function", "tool", "tool_name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
# Keys of OpenAI's interface that say nothing about the call.
_IGNORED_KEYS = frozenset({"id", "type", "index", "call_id"})


def read_json_calls(body: str) -> tuple[SpelledCall, ...]:
    """Calls spelled as one JSON object, or as a list of them: ``{"name": …, "arguments": {…}}``.

    Args:
        body: the value with anything but brackets before it.

    Raises:
        UnreadableError: the body is no value, or no object with a name in it.

    Hermes and the templates of Qwen2.5, Qwen3 and Granite 4; ``parameters`` as Llama 3 writes it.
    """
    starts = [place for place in (body.find("{"), body.find("[")) if place >= 0]
    reading = read_value(body[min(starts) :] if starts else body)
    value: Any = reading.value
    values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    calls = [_json_call(cast("dict[str, Any]", value), reading) for value in values if isinstance(value, dict)]
    if not calls:
        raise UnreadableError("the call is not a JSON object")
    return tuple(calls)


def _json_call(value: dict[str, Any], reading: Reading) -> SpelledCall:
    rest = dict(value)
    name: Any = None
    for key in _NAME_KEYS:
        if isinstance(rest.get(key), dict) and key == "function":
            return _json_call(cast("dict[str, Any]", rest[key]), reading)
        if isinstance(rest.get(key), str):
            name = rest.pop(key)
            break
    if not isinstance(name, str) or not name.strip():
        raise UnreadableError("the call has no 'name'")
    arguments: Any = None
    for key in _ARGUMENT_KEYS:
        if key in rest:
            arguments = rest.pop(key)
            break
    rest = {key: item for key, item in rest.items() if key not in _IGNORED_KEYS}
    return SpelledCall(name.strip(), arguments, rest, reading.repaired, reading.guessed)


_ATTRIBUTE = re.compile(r"""([A-Za-z_][\w-]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#x([0-9a-fA-F]{1,6}));")
_NAMED_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CALL_END = re.compile(r"</tool_call\s*>?\s*\Z")
_TAGS = "|".join(ARGUMENT_TAGS)
# An argument whose closing tag is missing or misspelled (</argument1>, </arg) ends at the next one.
_LOOSE_ARGUMENT = re.compile(rf"<(?:{_TAGS})\s([^>]*)>(.*?)(?=<(?:{_TAGS})\s|\Z)", re.DOTALL)
_LOOSE_CLOSER = re.compile(rf"\s*</(?:{_TAGS})\w*\s*>?\s*\Z")


def read_xml_calls(body: str) -> tuple[SpelledCall, ...]:
    """One call in the project's XML style, from behind ``<tool_call`` on.

    Args:
        body: attributes, arguments and closing tag.

    Raises:
        UnreadableError: no name, an argument without name or twice, text outside arguments.

    The project's own style. One line break on each side of a value is framing; entities are decoded where the whole
    value is written in them, and left where it also has bare ``<`` or ``&``: then it was typed, not escaped.
    """
    scanner = XmlScanner(Markers(()))
    verdict, _ = scanner.scan(body, 0)
    if verdict is not Verdict.COMPLETE:
        return (_loose_xml_call(body),)
    name = _attribute(body[slice(*scanner.head)])
    values = {_argument_name(body[slice(*head)]): _xml_value(body[slice(*value)]) for head, value in scanner.arguments}
    if len(values) < len(scanner.arguments):
        raise UnreadableError("an argument is given twice")
    outside = _outside(body, scanner)
    if not outside:
        return (SpelledCall(name, values, as_text=True),)
    if not values and outside.startswith("{"):
        reading = read_value(outside)
        return (SpelledCall(name, reading.value, repaired=True),)
    raise UnreadableError("there is text outside <argument>")


def _outside(body: str, scanner: XmlScanner) -> str:
    """What stands in the call but in no argument."""
    text = body[scanner.head[1] :]
    places: list[Span] = [(head[0] - scanner.head[1], value[1] - scanner.head[1]) for head, value in scanner.arguments]
    for begin, end in reversed(places):
        text = text[:begin] + text[end:]
    text = _CALL_END.sub("", text)
    return re.sub(rf"\A\s*/?>|</?(?:{_TAGS})(?:\s*>)?", "", text).strip()


def _loose_xml_call(body: str) -> SpelledCall:
    """The call of a body whose arguments were not closed properly but which has its own closing tag."""
    ended = _CALL_END.search(body)
    head_end = body.find(">")
    if ended is None or head_end < 0:
        raise UnreadableError("the call is not closed")
    name = _attribute(body[:head_end])
    values: dict[str, str] = {}
    for found in _LOOSE_ARGUMENT.finditer(body, head_end + 1, ended.start()):
        key = _argument_name(found.group(1))
        if key in values:
            raise UnreadableError("an argument is given twice")
        values[key] = _xml_value(_LOOSE_CLOSER.sub("", found.group(2)))
    if not values or "<tool_call" in body:
        raise UnreadableError("an argument is not closed")
    return SpelledCall(name, values, repaired=True, as_text=True)


def _attribute(head: str) -> str:
    for found in _ATTRIBUTE.finditer(head):
        if found.group(1) == "name":
            value = next(group for group in found.groups()[1:] if group is not None)
            return _decoded(value).strip()
    raise UnreadableError("the call has no name")


def _argument_name(head: str) -> str:
    try:
        return _attribute(head)
    except UnreadableError:
        raise UnreadableError("an argument has no name") from None


def _xml_value(text: str) -> str:
    pieces: list[str] = []
    bare = text.strip()
    # White space around a CDATA section frames it.
    is_section = bare.startswith("<![CDATA[") and bare.endswith("]]>")
    text = bare if is_section else re.sub(r"\A\r?\n|\r?\n\Z", "", text)
    at = 0
    for found in _CDATA.finditer(text):
        pieces += [_decoded(text[at : found.start()]), found.group(1)]
        at = found.end()
    return "".join((*pieces, _decoded(text[at:])))


def _decoded(text: str) -> str:
    """The text with its entities decoded, if all of it is written in entities."""
    if "&" not in text or "<" in text or "&" in _ENTITY.sub("", text):
        return text
    return _ENTITY.sub(_character, text)


def _character(entity: re.Match[str]) -> str:
    name, decimal, hexadecimal = entity.groups()
    if name:
        return _NAMED_ENTITIES[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    # Codes that are no characters stay as they were written.
    return chr(code) if 0 < code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else entity.group()
