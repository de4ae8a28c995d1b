"""Arguments and a tool's JSON Schema: values take the type the schema asks for where nothing is lost, or are refused.

Rules: text becomes a number, a boolean, null, a list or an object only where the schema wants one and the text is one;
nothing else is converted. Checked are types, required and forbidden keys, ``enum`` and ``const``, through
``properties``, ``items``, ``anyOf``, ``oneOf``, ``allOf`` and local ``$ref``; limits, patterns and formats are the
server's to check. A schema that makes no sense is read as one that allows anything. Nothing here knows how a call is
written.

Bare text, of styles written in tags, says nothing about its type. Where the schema knows the argument it is as typed
and takes the schema's type; ``null`` is null, unless the argument is required and cannot be null; where no schema knows
the argument the text is the JSON number, boolean, list or object it looks like, and else text without the white space
around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

from rkllm_mcp.toolcalls.repair import UnreadableError, plain, read_value

Schema = Mapping[str, Any]

# A $ref that leads to itself ends here; no real schema needs as many steps for one value.
_MAX_HOPS = 16
# Branches that lead to branches multiply; behind so many steps anything is allowed.
_MOST_STEPS = 50_000
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


@dataclass
class MismatchError(Exception):
    """A value that the schema does not allow.

    Args:
        path: where, such as ``filter.tags[2]``; empty for the arguments as a whole.
        rule: what should be there, such as ``must be integer``.
        found: what is there, as JSON, shortened.
    """

    path: str
    rule: str
    found: str = ""

    def __str__(self) -> str:
        what = f"argument '{self.path}'" if self.path else "the arguments"
        return f"{what} {self.rule}" + (f", not {self.found}" if self.found else "")


@dataclass
class _Steps:
    """How many steps one reading may still take."""

    left: int = _MOST_STEPS


@dataclass(frozen=True)
class _Place:
    """Where in the arguments we are, and how values are taken there.

    Args:
        root: the schema that references start from.
        path: the place, empty for the arguments as a whole.
        hops: steps through the schema since the last step into the value.
        as_text: the values of this object are spelled as bare text.
        convert: text may become another type.
        steps: shared by all places of one reading.
    """

    root: Schema
    path: str = ""
    hops: int = 0
    as_text: bool = False
    convert: bool = True
    steps: _Steps = field(default_factory=_Steps)

    def at(self, step: str) -> _Place:
        """One step down into the value."""
        return replace(self, path=f"{self.path}{step}" if self.path else step.removeprefix("."), hops=0)

    def hop(self) -> _Place:
        """One step through the schema, at the same value."""
        return replace(self, hops=self.hops + 1)


def conform(arguments: Mapping[str, Any], schema: Schema, *, as_text: bool = False) -> dict[str, Any]:
    """The arguments with the types that the schema asks for.

    Args:
        arguments: as the model wrote them.
        schema: the tool's input schema.
        as_text: the top-level values are bare text without quotes, as in XML styles, so a schema of several types
            takes the first that fits before it takes text.

    Raises:
        MismatchError: an argument is missing, forbidden or of another type.

    JSON Schema 2020-12; which conversions are made is our choice.
    """
    return cast("dict[str, Any]", _conform(dict(arguments), schema, _Place(root=schema, as_text=as_text)))


def shown(value: Any, limit: int = 40) -> str:
    """The value as JSON on one line, cut to ``limit`` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _as_schema(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _as_list(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def _resolved(schema: Schema, place: _Place) -> Schema:
    """The schema behind local references."""
    for _ in range(_MAX_HOPS):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target: object = place.root
        for step in reference.removeprefix("#").strip("/").split("/") if reference.startswith("#") else ("$nowhere",):
            if step:
                target = _as_schema(target).get(step.replace("~1", "/").replace("~0", "~"))
        schema = _as_schema(target)
    return {}


def _conform(value: Any, schema: Schema, place: _Place) -> Any:
    schema = _resolved(schema, place)
    place.steps.left -= 1
    if place.hops > _MAX_HOPS or place.steps.left < 0:
        return value
    value = _typed(value, schema, place)
    for branch in _as_list(schema.get("allOf")):
        value = _conform(value, _as_schema(branch), place.hop())
    branches = [_as_schema(branch) for branch in (*_as_list(schema.get("anyOf")), *_as_list(schema.get("oneOf")))]
    if branches:
        value = _first_that_fits(value, branches, place.hop())
    # Only the arguments themselves can be bare text; what they hold is JSON in every style.
    inner = replace(place, as_text=False) if place.path else place
    if isinstance(value, dict):
        value = _conform_object(cast("dict[str, Any]", value), schema, inner)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        items = _as_schema(schema["items"])
        value = [_conform(item, items, inner.at(f"[{index}]")) for index, item in enumerate(cast("list[Any]", value))]
    _check_listed(value, schema, place)
    return cast("Any", value)


def _conform_object(value: dict[str, Any], schema: Schema, place: _Place) -> dict[str, Any]:
    properties = _as_schema(schema.get("properties"))
    required = [key for key in _as_list(schema.get("required")) if isinstance(key, str)]
    for key in required:
        if key not in value:
            raise MismatchError(place.at(f".{key}").path, "is missing")
    rest = schema.get("additionalProperties", True)
    result: dict[str, Any] = {}
    for key, item in value.items():
        if key not in properties and rest is False and not schema.get("patternProperties"):
            raise MismatchError(place.at(f".{key}").path, "does not exist")
        inner = _as_schema(properties.get(key, rest))
        if place.as_text and isinstance(item, str):
            required_here = key in required and not _allows_null(inner, place)
            if not required_here and _is_null(item):
                result[key] = None
                continue
            if key not in properties and not _types(_resolved(inner, place)):
                item = _inferred(item)
        if item is None and key not in required and not _allows_null(inner, place):
            continue  # An optional argument spelled null was not given: nothing else can be meant.
        result[key] = _conform(item, inner, place.at(f".{key}"))
    return result


def _is_null(text: str) -> bool:
    # A long text is not null, and need not be copied to see it.
    return len(text) <= 64 and text.strip().lower() == "null"


def _inferred(text: str) -> Any:
    """Bare text that no schema describes: the JSON value it is, or the text without white space around it."""
    text = text.strip()
    try:
        value = plain(json.loads(text, parse_constant=_no_constant), 0)
    except (ValueError, RecursionError, UnreadableError):
        return text
    # Quotes around bare text are part of it: who writes a style without quotes means them.
    return text if isinstance(value, str) else value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _allows_null(schema: Schema, place: _Place) -> bool:
    return _try(None, schema, replace(place.hop(), convert=False, as_text=False)) is None


def _first_that_fits(value: Any, branches: Sequence[Schema], place: _Place) -> Any:
    """The value as the first branch takes it: as it stands if one does, then converted."""
    attempts: list[tuple[Schema, _Place]] = []
    if isinstance(value, str) and place.as_text:
        # Bare text is taken as text last: 42 is a number for a schema that also allows text.
        ranked = sorted(branches, key=lambda branch: "string" in _types(_resolved(branch, place)))
        attempts = [(branch, place) for branch in ranked]
    else:
        attempts = [(branch, replace(place, convert=False)) for branch in branches]
        attempts += [(branch, place) for branch in branches if place.convert]
    tried = [_try(value, branch, how) for branch, how in attempts[:1]]
    for branch, how in attempts[1:]:
        if not isinstance(tried[-1], MismatchError):
            break
        tried.append(_try(value, branch, how))
    if not isinstance(tried[-1], MismatchError):
        return tried[-1]
    wanted = " or ".join(dict.fromkeys(name for branch in branches for name in _types(_resolved(branch, place))))
    deepest = max((mismatch for mismatch in tried if isinstance(mismatch, MismatchError)), key=_depth)
    if wanted and deepest.path == place.path:
        raise MismatchError(place.path, f"must be {wanted}", shown(value))
    raise deepest


def _try(value: Any, schema: Schema, place: _Place) -> Any:
    """The value as the schema takes it, or the mismatch."""
    try:
        return _conform(value, schema, place)
    except MismatchError as mismatch:
        return mismatch


def _depth(mismatch: MismatchError) -> int:
    return len(mismatch.path)


def _types(schema: Schema) -> tuple[str, ...]:
    wanted = schema.get("type")
    if isinstance(wanted, str):
        return (wanted,)
    return tuple(name for name in _as_list(wanted) if isinstance(name, str))


def _is(value: Any, name: str) -> bool:
    if name in {"integer", "number"}:
        allowed = isinstance(value, (int, float)) and not isinstance(value, bool)
        return allowed and (name == "number" or value == int(value))
    kinds: dict[str, type | None] = {"string": str, "boolean": bool, "array": list, "object": dict, "null": None}
    if name not in kinds:
        return True  # A type that JSON Schema does not have forbids nothing.
    kind = kinds[name]
    return value is None if kind is None else isinstance(value, kind)


def _typed(value: Any, schema: Schema, place: _Place) -> Any:
    wanted = _types(schema)
    if not wanted:
        return _listed_spelling(value, schema) if place.as_text else value
    bare = isinstance(value, str) and place.as_text
    if not bare and any(_is(value, name) for name in wanted):
        # 3.0 is an integer in JSON Schema, but not to every server.
        return int(value) if isinstance(value, float) and "integer" in wanted and value.is_integer() else value
    if isinstance(value, str) and place.convert:
        for name in (name for name in _CONVERSIONS if name in wanted):
            converted = _converted(value, name, exact="string" in wanted)
            if converted is not _NOT_CONVERTED:
                return converted
    if any(_is(value, name) for name in wanted):
        return value
    raise MismatchError(place.path, f"must be {' or '.join(wanted)}", shown(value))


_NOT_CONVERTED = object()


def _converted(text: str, name: str, *, exact: bool) -> Any:
    try:
        return _CONVERSIONS[name](text, exact)
    except ValueError:
        return _NOT_CONVERTED


def _to_null(text: str, exact: bool) -> None:
    if (text if exact else text.strip().lower()) not in {"null", *(() if exact else ("none",))}:
        raise ValueError(text)


def _to_boolean(text: str, exact: bool) -> bool:
    spelled = text if exact else text.strip().lower()
    if spelled not in {"true", "false"}:
        raise ValueError(text)
    return spelled == "true"


def _to_integer(text: str, exact: bool) -> int:
    spelled = text if exact else text.strip()
    if _WHOLE_NUMBER.fullmatch(spelled):
        value = int(spelled)
    else:
        number = _to_number(spelled, exact=False)
        value = int(number)
        if value != number or abs(value) >= 1 << 53:
            raise ValueError(text)
    if exact and str(value) != text:
        raise ValueError(text)
    return value


def _to_number(text: str, exact: bool) -> int | float:
    spelled = text if exact else text.strip()
    if not _NUMBER.fullmatch(spelled):
        raise ValueError(text)
    value = int(spelled) if _WHOLE_NUMBER.fullmatch(spelled) else float(spelled)
    if value in {float("inf"), float("-inf")} or (exact and json.dumps(value) != text):
        raise ValueError(text)
    return value


def _to_container(kind: type) -> Callable[[str, bool], Any]:
    def convert(text: str, exact: bool) -> Any:
        try:
            reading = read_value(text)
        except UnreadableError as error:
            raise ValueError(text) from error
        if not isinstance(reading.value, kind) or (exact and reading.repaired):
            raise ValueError(text)
        return reading.value

    return convert


def _to_string(text: str, _exact: bool) -> str:
    return text


# In the order of trial. ``exact`` is set where the schema allows text too: there only JSON's own spelling is taken for
# another type.
_CONVERSIONS: dict[str, Callable[[str, bool], Any]] = {
    "null": _to_null,
    "boolean": _to_boolean,
    "integer": _to_integer,
    "number": _to_number,
    "array": _to_container(list),
    "object": _to_container(dict),
    "string": _to_string,
}


def _listed_spelling(value: Any, schema: Schema) -> Any:
    """Bare text for an ``enum`` without a type: the listed value that is spelled so, text first."""
    listed = _as_list(schema.get("enum"))
    if isinstance(value, str) and value not in listed:
        return next((item for item in listed if json.dumps(item) == value.strip()), value)
    return value


def _check_listed(value: Any, schema: Schema, place: _Place) -> None:
    listed = _as_list(schema.get("enum")) or ((schema["const"],) if "const" in schema else ())
    if listed and not any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in listed):
        choices = ", ".join(shown(item, 30) for item in listed[:12]) + (", …" if len(listed) > 12 else "")
        raise MismatchError(place.path, f"must be one of {choices}", shown(value))
