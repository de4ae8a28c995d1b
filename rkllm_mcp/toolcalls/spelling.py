"""How a body spells its calls: text between the markers becomes names and arguments as they were written.

One reader for each way of spelling; a syntax names the one it uses. Nothing is checked against tools here: a reader
only says which calls are there, or that the body cannot be read and why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rkllm_mcp.toolcalls.repair import Reading, UnreadableError, read_value


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
        positional: values without a name.
    """

    name: str
    arguments: Any
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    repaired: bool = False
    guessed: bool = False
    as_text: bool = False
    positional: tuple[Any, ...] = ()


# The first is what every template asks for; the others are what models trained on other interfaces write.
NAME_KEYS = ("name", "function", "tool", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
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
    for key in NAME_KEYS:
        if isinstance(rest.get(key), dict) and key == "function":
            return _json_call(cast("dict[str, Any]", rest[key]), reading)
        if isinstance(rest.get(key), str):
            name = rest.pop(key)
            break
    if not isinstance(name, str) or not name.strip():
        raise UnreadableError("the call has no 'name'")
    arguments: Any = None
    for key in ARGUMENT_KEYS:
        if key in rest:
            arguments = rest.pop(key)
            break
    rest = {key: item for key, item in rest.items() if key not in _IGNORED_KEYS}
    return SpelledCall(name.strip(), arguments, rest, reading.repaired, reading.guessed)


# What stands between a name and its object: markers, an id, the fence and its language.
_HEAD_NOISE = re.compile(r"```\s*[a-zA-Z_]*|\[ARGS\]|\[CALL_ID\][^\[]*|>")
_SEPARATORS = ("<｜tool▁sep｜>", "<|tool▁sep|>")


def read_named_json(body: str) -> tuple[SpelledCall, ...]:
    """One call whose name stands before the object of its arguments: ``get_weather[ARGS]{…}``.

    Args:
        body: the name, what separates it, the object and perhaps the end of a fence.

    Raises:
        UnreadableError: there is no name or no object.

    Mistral Small 3.2 (``[ARGS]``), DeepSeek R1 (``function<sep>name``, a fence) and V3.1 (``name<sep>``), Llama 3.1's
    own functions (``name>``).
    """
    head, brace, rest = body.partition("{")
    name = named_head(head)
    if not name:
        raise UnreadableError("the call has no name")
    if not brace:
        raise UnreadableError("the call has no arguments")
    reading = read_value(brace + rest)
    return (SpelledCall(name, reading.value, repaired=reading.repaired, guessed=reading.guessed),)


def named_head(head: str) -> str:
    """The name in what stands before the object; empty when there is none."""
    for separator in _SEPARATORS:
        kind, found, name = head.partition(separator)
        if found:
            head = _HEAD_NOISE.sub("", name).strip() or kind
    return _HEAD_NOISE.sub("", head).strip()


def read_keyed_calls(body: str) -> tuple[SpelledCall, ...]:
    """Calls spelled as objects whose only key is the name: ``[{"get_weather": {…}}]``.

    Args:
        body: the list.

    Raises:
        UnreadableError: it is no such list.

    Apertus.
    """
    reading = read_value(body[max(body.find("["), 0) :])
    value: Any = reading.value
    values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    calls: list[SpelledCall] = []
    for value in values:
        if not isinstance(value, dict):
            raise UnreadableError("the call is not a JSON object")
        for name, arguments in cast("dict[str, Any]", value).items():
            calls.append(SpelledCall(name, arguments, repaired=reading.repaired, guessed=reading.guessed))
    if not calls:
        raise UnreadableError("the call is not a JSON object")
    return tuple(calls)
