"""Coercion of a call's arguments to the types of the tool's JSON Schema, or a one-line refusal.

Text becomes a number, boolean, null, list or object only if the schema requires one and the text is one; a number or
boolean becomes text, as written, if only text is allowed; a single value becomes a list of one, and a list of
one its value; a word of an ``enum`` may be in other letters; an optional null is dropped.
Checked are types, required and forbidden keys, ``enum`` and ``const``, through ``properties``, ``items``, ``anyOf``,
``oneOf``, ``allOf`` and local ``$ref``; the server checks limits, patterns and formats. An invalid schema allows
anything. Work is limited in steps; values beyond the limit stay unchanged.

Bare text, of formats in tags, has no type of its own. With a schema the text stays as written and takes the schema's
type; ``null`` is null if the argument can be null. Without a schema the text becomes the JSON number, boolean, list or
object that it looks like, otherwise text without surrounding white space.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

from rkllm_mcp.messages import as_list, as_mapping, resolved_reference
from rkllm_mcp.text import shorten
from rkllm_mcp.toolcalls.lenient_json import (
    ParsedValue,
    SourceFloat,
    UnreadableError,
    iter_nested,
    no_constant,
    plain,
    read_value,
)

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "array": (list, tuple),
    "object": dict,
    "null": type(None),
}


def is_of_type(value: Any, name: str) -> bool:
    """Return True if a value is of a type, by its name in JSON Schema."""
    if name in {"integer", "number"}:
        allowed = isinstance(value, (int, float)) and not isinstance(value, bool)
        return allowed and (name == "number" or value == int(value))
    # An unknown type forbids nothing.
    return isinstance(value, _KINDS[name]) if name in _KINDS else True


def is_null(text: str) -> bool:
    """Return True if a text is the word null, or Python's None."""
    # A long text is not null; checking its length avoids a copy.
    return len(text) <= 64 and (text.strip().lower() == "null" or text.strip() == "None")


def infer_value(text: str) -> Any:
    """Return the value of bare text without a schema: the JSON value it is, or the stripped text."""
    text = text.strip()
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    try:
        value = plain(json.loads(text, parse_constant=no_constant), 0)
    except (ValueError, RecursionError, UnreadableError):
        return text
    # Quotes around bare text are part of it, because the format has no quotes of its own.
    return text if isinstance(value, str) else value


_PYTHON_WORDS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}
_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "on", "はい", "オン", "有効"), True),
    **dict.fromkeys(("false", "no", "off", "いいえ", "オフ", "無効"), False),
}


# Words for a constant, by its type; those of JSON alone are exact.
_CONSTANTS: Mapping[str, Mapping[str, bool | None]] = {"null": {"null": None, "none": None}, "boolean": _BOOLEANS}
_EXACT_WORDS = frozenset({"null", "true", "false"})
_CONVERTED = ("null", "boolean", "integer", "number", "array", "object", "string")  # in the order of trial


def converted_text(text: str, name: str, *, exact: bool) -> Any:
    """Return the value of a text as a type without parts.

    ``exact`` is set if the schema allows text too: then only JSON's own notation is taken for another type.

    Raises:
        ValueError: the text is none.
    """
    if name in _CONSTANTS:
        words, word = _CONSTANTS[name], text if exact else text.strip().lower()
        if word not in words or (exact and word not in _EXACT_WORDS):
            raise ValueError(text)
        return words[word]
    if name not in {"integer", "number"}:
        return text
    # Digits of full width are read if the text cannot be meant as text.
    spelled = text if exact else text.strip() if text.isascii() else unicodedata.normalize("NFKC", text.strip())
    if not _NUMBER.fullmatch(spelled):
        raise ValueError(text)
    is_whole = _WHOLE_NUMBER.fullmatch(spelled) is not None
    number = int(spelled) if is_whole else float(spelled)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(text)
    if name == "integer" and not is_whole:
        if number != int(number) or abs(number) >= 1 << 53:
            raise ValueError(text)
        number = int(number)
    if exact and json.dumps(number) != text:
        raise ValueError(text)
    return number


Schema = Mapping[str, Any]

_SHOWN_CHARS = 60
# A step takes up to 5 µs. A long value gets additional steps, once.
_MOST_STEPS = 1000
_STEPS_FOR_VALUE = 8
_CHARS_OF_STEP = 200
_ITEMS_OF_STEP = 32

# Allowed change of a value: none; text and numbers; also a single value into a list.
_Level = Literal[0, 1, 2]
_NOTHING = object()


class ArgumentError(ValueError):
    """Arguments that cannot be passed on; ``str()`` is a sentence for the model."""


@dataclass
class MismatchError(ArgumentError):
    """A value that the schema does not allow.

    ``path``: position such as ``filter.tags[2]``, empty for the arguments as a whole. ``rule``: the requirement, such
    as ``must be integer``. ``found``: the actual value.
    """

    path: str
    rule: str
    found: Any = _NOTHING

    def __str__(self) -> str:
        what = f"argument '{self.path}'" if self.path else "the arguments"
        return f"{what} {self.rule}" + ("" if self.found is _NOTHING else f", not {shown(self.found)}")

    @property
    def sentence(self) -> str:
        """The message as a whole sentence."""
        words = str(self)
        return f"The {words.removeprefix('the ')}."


def coerce_arguments(arguments: Mapping[str, Any], schema: Schema, *, as_text: bool = False) -> ParsedValue:
    """Return the arguments with the types that the schema requires, and True if values had to change.

    ``as_text``: the top-level values are text without quotes, as in tags. A schema with several types takes the first
    that fits before it takes text, and the conversion to that type is not counted as a repair.

    Raises:
        MismatchError: an argument is missing, forbidden or of another type.

    JSON Schema 2020-12; the choice of conversions is ours.
    """
    original = dict(arguments)
    coerced = cast("dict[str, Any]", _Coercion(schema, original).take(original, schema, "", as_text, 2))
    if not as_text:
        return ParsedValue(coerced, repaired=original != coerced)
    # Bare text is repaired if more than its type changed: a single text became a list.
    is_changed = False
    for key, text in original.items():
        value = coerced.get(key, _NOTHING)
        if not isinstance(text, str) or isinstance(value, str):
            is_changed |= value != text
        elif isinstance(value, list):
            is_changed |= not text.lstrip().startswith("[")
        else:
            word = text.strip().lower()
            is_changed |= word not in {"true", "false"} if isinstance(value, bool) else not word.isascii()
    return ParsedValue(coerced, repaired=is_changed)


def shown(value: Any, limit: int = _SHOWN_CHARS) -> str:
    """Return the value as JSON on one line, cut to ``limit`` characters."""
    if isinstance(value, str):
        value = value[:limit]
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += piece
        if len(text) > limit:
            break
    return shorten(text, limit)


class _Coercion:
    """Coercion of one set of arguments; the size of the arguments adds to the steps."""

    def __init__(self, root: Schema, arguments: Mapping[str, Any]) -> None:
        self._root, self._arguments = root, arguments
        self._steps_left, self._is_extended = _MOST_STEPS, False
        self._references: dict[str, Schema] = {}
        self._texts: dict[str, ParsedValue | None] = {}
        # Outcomes by value, schema and mode. The value is stored too, so that its id stays unique.
        self._outcomes: dict[tuple[int, int, bool, int], tuple[Any, Any]] = {}
        self._active: set[tuple[str, int, bool, int]] = set()

    def take(self, value: Any, schema: Schema, path: str, bare: bool, level: _Level) -> Any:
        """Return the value as the schema requires it.

        Raises:
            MismatchError: it does not fit.
        """
        schema = self._resolve(schema)
        if not self._has_steps(1):
            return value
        types = _types(schema)
        typed = self._coerce_to_types(value, schema, types, bare=bare, level=level)
        if typed is _NOTHING:
            # Text that begins like a list was meant as one and could not be read.
            is_list = isinstance(value, str) and value.lstrip().startswith("[")
            alternatives = [[value]] if "array" in types and value is not None and not is_list else []
            if isinstance(value, list) and len(cast("list[Any]", value)) == 1 and not path.endswith("]"):
                alternatives += cast("list[Any]", value)
            for other in alternatives if level == 2 else ():
                outcome = self._attempt(other, schema, path, False, 1)
                if not isinstance(outcome, MismatchError):
                    return outcome
            raise MismatchError(path, f"must be {' or '.join(types)}{self._form(schema, types)}", value)
        value = typed
        if not schema.keys().isdisjoint(_COMBINED):
            value = self._combine(value, schema, path, bare, level)
        if isinstance(value, dict):
            # Only the arguments themselves can be bare text; nested values are JSON in every format.
            value = self._object(cast("dict[str, Any]", value), schema, path, bare and not path, level)
        elif isinstance(value, (list, tuple)):
            items, inner = cast("Sequence[Any]", value), schema.get("items")
            value = list(items)
            if isinstance(inner, Mapping):
                inner = cast("Schema", inner)
                value = [self.take(item, inner, f"{path}[{index}]", False, level) for index, item in enumerate(items)]
        # ``enum`` or ``const`` has the value, or it is one of them in other letters.
        enumerated = as_list(schema.get("enum")) or ((schema["const"],) if "const" in schema else ())
        if not enumerated or not self._has_steps(len(enumerated) // _ITEMS_OF_STEP):
            return value
        if any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in enumerated):
            return value
        folded = str(value).strip().casefold()
        meant = [item for item in enumerated if level and str(item).strip().casefold() == folded]
        if len(meant) == 1:
            return meant[0]
        choices = ", ".join(shown(item, 30) for item in enumerated[:12]) + (", …" if len(enumerated) > 12 else "")
        raise MismatchError(path, f"must be one of {choices}", value)

    def _form(self, schema: Schema, types: Sequence[str]) -> str:
        """Return the items of the list, or the fields of the object, that is wanted: they help a model to write it."""
        if "array" in types and isinstance(schema.get("items"), Mapping):
            kind = " or ".join(_types(self._resolve(as_mapping(schema["items"])))) or "any"
            return f" of {kind}, such as {_EXAMPLES.get(kind, '[…]')}"
        fields: Schema = as_mapping(schema.get("properties")) if "object" in types else {}
        required = as_list(schema.get("required"))
        descriptions = (
            f"{key}{'' if key in required else '?'}: {' or '.join(_types(self._resolve(as_mapping(item)))) or 'any'}"
            for key, item in list(fields.items())[:_MOST_FIELDS]
        )
        return f" with {', '.join(descriptions)}" if fields else ""

    def _has_steps(self, count: int) -> bool:
        self._steps_left -= count
        if self._steps_left < 0 and not self._is_extended:
            self._is_extended = True
            self._steps_left += _STEPS_FOR_VALUE * sum(1 for _ in iter_nested(self._arguments))
        return self._steps_left >= 0

    def _resolve(self, schema: Schema) -> Schema:
        """Return the schema behind local references."""
        followed: set[str] = set()
        while isinstance(reference := schema.get("$ref"), str):
            if reference in followed:
                return {}
            followed.add(reference)
            if reference not in self._references:
                if not self._has_steps(1 + len(reference) // _ITEMS_OF_STEP):
                    return {}
                self._references[reference] = as_mapping(resolved_reference(self._root, reference))
            schema = self._references[reference]
        return schema

    # --- several schemas for one value -------------------------------------------------------------------------------

    def _combine(self, value: Any, schema: Schema, path: str, bare: bool, level: _Level) -> Any:
        """Return the value for every schema of ``allOf``, and for the branch that fits with the smallest change."""
        key = (path, id(schema), bare, level)
        if key in self._active:
            return value  # The schema leads back to itself, which forbids nothing.
        self._active.add(key)
        try:
            for branch in as_list(schema.get("allOf")):
                value = self.take(value, as_mapping(branch), path, bare, level)
            branches = [as_mapping(branch) for name in ("anyOf", "oneOf") for branch in as_list(schema.get(name))]
            if not branches:
                return value
            first: _Level = 0
            if isinstance(value, str) and bare:
                # Bare text is taken as text last: 42 is a number for a schema that also allows text.
                branches.sort(key=lambda branch: "string" in _types(self._resolve(branch)))
                first = 1
            mismatches: list[MismatchError] = []
            for how in _LEVELS[first : level + 1]:
                for branch in branches:
                    outcome = self._attempt(value, branch, path, bare, how)
                    if not isinstance(outcome, MismatchError):
                        return outcome
                    mismatches.append(outcome)
            types = dict.fromkeys(name for branch in branches for name in _types(self._resolve(branch)))
            nothing = MismatchError(path, "does not fit", value)
            deepest = max(mismatches, key=lambda mismatch: len(mismatch.path), default=nothing)
            if types and deepest.path == path:
                raise MismatchError(path, f"must be {' or '.join(types)}", value)
            raise deepest
        finally:
            self._active.discard(key)

    def _attempt(self, value: Any, schema: Schema, path: str, bare: bool, level: _Level) -> Any:
        """Return the coerced value or the mismatch; each is computed once."""
        schema = self._resolve(schema)
        key = (id(value), id(schema), bare, level)
        outcome = self._outcomes.get(key)
        if outcome is None:
            try:
                outcome = (value, self.take(value, schema, path, bare, level))
            except MismatchError as mismatch:
                outcome = (value, mismatch)
            self._outcomes[key] = outcome
        return outcome[1]

    # --- what holds other values -------------------------------------------------------------------------------------

    def _object(self, value: dict[str, Any], schema: Schema, path: str, bare: bool, level: _Level) -> dict[str, Any]:
        properties = as_mapping(schema.get("properties"))
        required = as_list(schema.get("required"))
        if not self._has_steps(len(required) // _ITEMS_OF_STEP):
            return value
        additional = schema.get("additionalProperties", True)
        prefix = f"{path}." if path else ""
        unknown = [key for key in value if key not in properties] if properties else []
        for key in required:
            if isinstance(key, str) and key not in value:
                # A single unknown key was probably meant for it, whatever its name.
                near = difflib.get_close_matches(key, unknown, n=1) or unknown[: len(unknown) == 1]
                if near:
                    raise MismatchError(f"{prefix}{near[0]}", f"does not exist; did you mean '{key}'?")
                raise MismatchError(f"{prefix}{key}", "is missing")
        result: dict[str, Any] = {}
        for key, item in value.items():
            if key not in properties and additional is False and not schema.get("patternProperties"):
                free = [name for name in properties if name not in value]
                near = difflib.get_close_matches(key, free, n=1)
                meant = f"; did you mean '{near[0]}'?" if near else ""
                raise MismatchError(f"{prefix}{key}", f"does not exist{meant}")
            inner = as_mapping(properties.get(key, additional))
            if bare and isinstance(item, str):
                is_word = is_null(item)
                if is_word and self._attempt(None, inner, "", False, 0) is None:
                    result[key] = None
                    continue
                # A tag that is empty or says null, for an optional argument that can be neither, was not given.
                if (is_word or not item.strip()) and key not in required:
                    as_it_is = self._attempt(item, inner, "", False, 0)
                    if isinstance(as_it_is, MismatchError):
                        continue
                if key not in properties and not _types(self._resolve(inner)):
                    item = infer_value(item)
            if item is None and key not in required and self._attempt(None, inner, "", False, 0) is not None:
                continue  # An optional argument spelled null was not given: nothing else can be meant.
            result[key] = self.take(item, inner, f"{prefix}{key}", bare, level)
        return result

    # --- one value ---------------------------------------------------------------------------------------------------

    def _coerce_to_types(self, value: Any, schema: Schema, types: Sequence[str], *, bare: bool, level: _Level) -> Any:
        """Return the value as one of the types; ``_NOTHING`` if it fits none."""
        if not types:
            choices = as_list(schema.get("enum"))
            if not (bare and isinstance(value, str)) or value in choices:
                return value
            # The choice that bare text names, for an enum without a type; text first.
            spelled = infer_value(value)
            return next((item for item in choices if item == spelled and type(item) is type(spelled)), value)
        is_text = isinstance(value, str)
        if not (bare and is_text) and any(is_of_type(value, name) for name in types):
            if not isinstance(value, float):
                return value
            # 3.0 is an integer in JSON Schema, but not to every server.
            return int(value) if "integer" in types and value.is_integer() else float(value)
        if is_text and level:
            exact = "string" in types
            for name in (name for name in _CONVERTED if name in types):
                if name not in _CONTAINERS:
                    with suppress(ValueError):
                        return converted_text(value, name, exact=exact)
                    continue
                # Each text is parsed once.
                if value not in self._texts:
                    self._steps_left -= len(value) // _CHARS_OF_STEP
                    try:
                        self._texts[value] = read_value(value)
                    except UnreadableError:
                        self._texts[value] = None
                reading = self._texts[value]
                fits = reading is not None and isinstance(reading.value, _CONTAINERS[name])
                if reading and fits and not (exact and reading.repaired):
                    return reading.value
        if level and "string" in types and isinstance(value, (bool, int, float)):
            return value.text if isinstance(value, SourceFloat) else json.dumps(value)
        return value if any(is_of_type(value, name) for name in types) else _NOTHING


_EXAMPLES: Mapping[str, str] = {"string": '["a", "b"]', "integer": "[1, 2]", "number": "[1.5, 2]", "object": "[{…}]"}
_MOST_FIELDS = 8
# Names of types in schemas that were written for Python.
_TYPE_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("int", "long"), "integer"),
    **dict.fromkeys(("str", "text"), "string"),
    **dict.fromkeys(("list", "tuple"), "array"),
    "bool": "boolean",
    "dict": "object",
    "None": "null",
}
_COMBINED = frozenset({"allOf", "anyOf", "oneOf"})
_LEVELS: tuple[_Level, ...] = (0, 1, 2)
_CONTAINERS: Mapping[str, type] = {"array": list, "object": dict}


def _types(schema: Schema) -> tuple[str, ...]:
    declared = schema.get("type")
    names = (declared,) if isinstance(declared, str) else as_list(declared)[:_ITEMS_OF_STEP]
    return tuple(_TYPE_NAMES.get(name, name) for name in names if isinstance(name, str))
