"""Limits on the cost of a JSON Schema, and validation of values in a bounded number of steps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, cast

from rkllm_base.json_values import size_of
from rkllm_mcp.messages import as_list, as_mapping, resolved_reference
from rkllm_mcp.text import shorten

MOST_PATTERN_CHARS = 1000  # compiling takes up to 5 µs for each character
# Ways in which a text can be tried, the first place and every repetition and choice multiplied.
_MOST_WAYS = 50_000
_WITHOUT_END = 1 << 20
_ESCAPED_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
# Groups that only look around have separate ways; flags in a pattern make sets slow to compile.
_FLAGS = re.compile(r"\(\?[a-zA-Z]*-?[a-zA-Z]+[:)]")
_TOKEN = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})[?+]?|\(\?(?:[:=!>]|<[=!]|P?<\w+>)|.", re.DOTALL)


def is_slow_to_compile(pattern: str) -> bool:
    """Return True if compiling a pattern may take long, because of its length or its flags."""
    return len(pattern) > MOST_PATTERN_CHARS or _FLAGS.search(_ESCAPED_OR_SET.sub("x", pattern)) is not None


def may_run_long(pattern: str, length: int) -> bool:
    """Return True if searching ``chars`` characters is not certain to end within a few milliseconds.

    Always true for patterns that backtrack without end; also true for some that are fast.
    """
    if is_slow_to_compile(pattern):
        return True
    plain = _ESCAPED_OR_SET.sub("x", pattern)
    starts = 1 if plain.startswith("^") and "|" not in plain else length + 1
    # The ways to try the pattern at one position: for each open group those of its finished choices, and of the present
    # one up to the last item and with it; at most the limit plus one.
    groups: list[list[int]] = [[0, 1, 1]]
    for match in _TOKEN.finditer(plain):
        item, group = match.group(), groups[-1]
        mark, least, comma, most = match.group(1, 2, 3, 4)
        if item.startswith("("):
            groups.append([0, 1, 1])
        elif item == ")" and len(groups) > 1:
            finished, before, last = groups.pop()
            groups[-1][1] *= groups[-1][2]
            groups[-1][2] = finished + before * last
        elif item == "|":
            groups[-1] = [group[0] + group[1] * group[2], 1, 1]
        elif mark:
            # The numbers of repetitions; braces with nothing in them are text.
            if mark == "?":
                times = 0, 1
            elif mark not in {"*", "+"} and not (least or comma):
                times = 1, 1
            elif mark in {"*", "+"} or (comma and not most) or len(least) > 6 or len(most) > 6:
                times = 0, _WITHOUT_END
            else:
                times = int(least or 0), int(most if comma else least)
            at_most = min(times[1], length)
            choices = 1 if times[0] >= at_most else at_most - times[0] + 1
            group[2] = choices if group[2] == 1 else choices * group[2] ** min(at_most, 32)
        else:
            group[1], group[2] = group[1] * group[2], 1
        groups[-1] = [min(ways, _MOST_WAYS + 1) for ways in groups[-1]]
    finished, before, last = groups[0]
    return len(groups) > 1 or starts * (finished + before * last) > _MOST_WAYS


Schema = Mapping[str, Any]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

# A step takes about 15 µs.
_MOST_STEPS = 500
_STEPS_FOR_VALUE = 4
_MOST_STEPS_FOR_VALUES = 40_000
_VALUES_OF_STEP = 32
_COMPARED_OF_STEP = 16
_QUOTED_OF_STEP = 500
_CHARS_OF_STEP = 2000
_MOST_PATTERNS_CHARS = 3000  # patterns are compiled: 2 to 5 µs for each character


class TooManyStepsError(Exception):
    """A value that cannot be validated, because its schema takes too many steps."""


def first_violation(value: Any, schema: Schema) -> tuple[str, str] | None:
    """Return the most specific violation of the schema as path and sentence; None if the value conforms.

    Nothing is fetched. A pattern that could take long on a text is not checked there; ``unevaluatedProperties`` and
    ``unevaluatedItems`` are not checked.

    Raises:
        TooManyStepsError: the limit of steps was reached.
        UnresolvableError: the schema refers to a schema outside itself.
        RecursionError: the schema refers to itself without end.
    """
    from jsonschema import Draft202012Validator, exceptions
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With its own registry a validator fetches nothing from the network.
    registry: Any = cast("Any", Registry)()
    token = _BUDGET.set(_Budget(value))
    try:
        dialect = {"$schema": name} if isinstance(name := schema.get("$schema"), str) else {}
        validator_class = cast("Any", validator_for)(dialect, default=Draft202012Validator)
        validator = _with_budget(validator_class)(schema, registry=registry)
        error: Any = cast("Any", exceptions).best_match(validator.iter_errors(value))
    except Unresolvable:
        raise UnresolvableError("the schema refers to something that is not in it") from None
    finally:
        _BUDGET.reset(token)
    return None if error is None else (".".join(str(step) for step in error.absolute_path), str(error.message))


class UnresolvableError(Exception):
    """A schema with a reference that cannot be resolved."""


class _Budget:
    """The number of steps left in one validation."""

    def __init__(self, value: Any) -> None:
        # References at a value, by identity: those that are being followed, and those that were found to fit.
        self.active: set[tuple[int, int]] = set()
        self.fitting: set[tuple[int, int]] = set()
        self._sizes: dict[int, int] = {}
        self._quoted: dict[int, int] = {}
        self._compared = 0
        self._steps_left = _MOST_STEPS + min(_STEPS_FOR_VALUE * self._measure(value), _MOST_STEPS_FOR_VALUES)
        self.patterns: set[str] = set()
        self.pattern_chars_left = _MOST_PATTERNS_CHARS

    def _measure(self, value: Any) -> int:
        if isinstance(value, (dict, list)):
            inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
            self._sizes[id(cast("object", value))] = size = 1 + sum(self._measure(item) for item in inner)
            return size
        return 1

    def is_equal(self, one: Any, other: Any) -> bool:
        """Return True if two values are equal as in JSON; all that is compared counts."""
        self._compared += (
            1 + (min(len(one), len(other)) if isinstance(one, str) and isinstance(other, str) else 0) // 64
        )
        if self._compared >= _COMPARED_OF_STEP:
            self._take_steps(self._compared // _COMPARED_OF_STEP)
            self._compared %= _COMPARED_OF_STEP
        if isinstance(one, list) and isinstance(other, list):
            items, other_items = cast("list[Any]", one), cast("list[Any]", other)
            return len(items) == len(other_items) and all(map(self.is_equal, items, other_items))
        if isinstance(one, dict) and isinstance(other, dict):
            table, theirs = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
            return table.keys() == theirs.keys() and all(self.is_equal(table[key], theirs[key]) for key in table)
        return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)

    def take_quoted(self, keyword_value: Any) -> None:
        """Count a keyword's value that a message quotes."""
        size = self._quoted.get(id(keyword_value))
        if size is None:
            self._quoted[id(keyword_value)] = size = size_of(keyword_value, _MOST_STEPS * _QUOTED_OF_STEP)
        self._take_steps(size // _QUOTED_OF_STEP)

    def take(self, instance: Any, keyword_value: Any) -> None:
        """Count a keyword: messages contain the value, and loops iterate over the value or the keyword."""
        steps = 1
        if isinstance(instance, str):
            steps += len(instance) // _CHARS_OF_STEP
        elif isinstance(instance, (dict, list)):
            steps += self._sizes.get(id(cast("object", instance)), 1) // _VALUES_OF_STEP
        if isinstance(keyword_value, (dict, list)):
            steps += len(cast("list[Any]", keyword_value)) // _VALUES_OF_STEP
        self._take_steps(steps)

    def _take_steps(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooManyStepsError("its schema branches too often to be checked")


_BUDGET: ContextVar[_Budget] = ContextVar("validation budget")


@cache
def _with_budget(kind: Any) -> Any:
    """Return the same kind of validator with every keyword counted."""
    from jsonschema import validators

    replaced = {name: check for name, check in _OWN_KEYWORDS.items() if name in kind.VALIDATORS}
    counted: dict[str, Any] = {
        name: partial(_count_and_check, check) for name, check in {**kind.VALIDATORS, **replaced}.items()
    }
    for name in _REFERENCES:
        if name in counted:
            counted[name] = partial(_count_and_check, partial(_follow_once, counted[name]))
    return cast("Any", validators).extend(kind, counted)


def _count_and_check(check: Any, validator: Any, keyword_value: Any, instance: Any, schema: Any) -> Any:
    _BUDGET.get().take(instance, keyword_value)
    return check(validator, keyword_value, instance, schema)


def _follow_once(follow: Any, validator: Any, keyword_value: Any, instance: Any, schema: Any) -> Any:
    """Check a reference only once for each value that conforms."""
    key, budget = (id(instance), id(schema)), _BUDGET.get()
    if key in budget.fitting:
        return ()
    if key in budget.active:
        # Without this the library's own recursion ends in native code, which takes the process with it.
        raise RecursionError("the schema refers to itself without end")
    budget.active.add(key)
    errors = list(follow(validator, keyword_value, instance, schema))
    budget.active.discard(key)
    if not errors:
        budget.fitting.add(key)
    return errors


def _violation(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _matches(pattern: str, text: str) -> bool:
    """Return True if a pattern is found in a text.

    A pattern that could take long, or that is written in the regular expressions of another language, counts as found.
    """
    if may_run_long(pattern, len(text)):
        return True
    budget = _BUDGET.get()
    if pattern not in budget.patterns:
        # Compiling takes time for each character.
        if len(pattern) > budget.pattern_chars_left:
            return True
        budget.patterns.add(pattern)
        budget.pattern_chars_left -= len(pattern)
    compiled = _compile(pattern)
    return compiled is None or compiled.search(text) is not None


def _compile(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern ready for use; None if it is not one of Python's."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None


def _pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield _violation(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    for pattern, inner in patterns.items() if isinstance(instance, dict) else ():
        for key, value in cast("dict[str, Any]", instance).items():
            _BUDGET.get().take(None, None)
            if _matches(pattern, key):
                yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras: list[str] = []
    for key, value in as_mapping(instance).items():
        if key in declared:
            continue
        for _ in patterns:
            _BUDGET.get().take(None, None)
        if any(_matches(pattern, key) for pattern in patterns):
            continue
        extras.append(key)
        if isinstance(allowed, Mapping):
            yield from validator.descend(value, allowed, path=key)
    if extras and allowed is False:
        were = "was" if len(extras) == 1 else "were"
        names = ", ".join(repr(key) for key in sorted(extras))
        yield _violation(f"Additional properties are not allowed ({names} {were} unexpected)")


def _unique_items(_validator: Any, is_unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if is_unique and isinstance(instance, list):
        items = cast("list[Any]", instance)
        if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
            yield _violation(f"{items!r} has non-unique elements")


def _const(_validator: Any, expected: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if not _BUDGET.get().is_equal(instance, expected):
        _BUDGET.get().take_quoted(expected)
        yield _violation(f"{expected!r} was expected")


def _enum(_validator: Any, allowed: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    budget = _BUDGET.get()
    if not any(budget.is_equal(instance, value) for value in allowed):
        budget.take_quoted(allowed)
        yield _violation(f"{instance!r} is not one of {allowed!r}")


def _skip_check(_validator: Any, _keyword_value: Any, _instance: Any, _schema: Any) -> tuple[Any, ...]:
    return ()


_OWN_KEYWORDS: Mapping[str, Any] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "const": _const,
    "enum": _enum,
    "unevaluatedProperties": _skip_check,
    "unevaluatedItems": _skip_check,
}


# Schemas in a schema with every reference written out. No tool that is used has a tenth of it.
MOST_NODES = 2000
MOST_DEPTH = 64
_TOO_LARGE = f"it leads to more than {MOST_NODES} schemas with its references written out; send a smaller one"
_ITEMS_OF_NODE = 32  # keys, choices and names are compared much faster than schemas are read
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


class SchemaError(ValueError):
    """A schema that cannot be used; ``str()`` gives the reason and the remedy."""


class SchemaCostError(SchemaError):
    """A schema that is too large or too deeply nested."""


def measure_schema(schema: Schema) -> None:
    """Check the size of a schema, not its validity.

    Raises:
        SchemaCostError: it is too large.
    """
    _Walk(schema, is_checked=False, is_closed=False).visit(schema, (), 0)


def check_schema(schema: Schema, *, is_closed: bool = True) -> None:
    """Check that a schema is valid JSON Schema and small enough.

    ``is_closed`` is for schemas of other programs: they must refer to nothing outside themselves, and their patterns
    may be those of another language. Otherwise every pattern must be a regular expression of Python.

    Raises:
        SchemaError: it is not valid, or too large.
    """
    _Walk(schema, is_checked=True, is_closed=is_closed).visit(schema, (), 0)


_TYPE_NAMES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SUBSCHEMAS = frozenset({"items", "additionalProperties", "contains", "not", "if", "then", "else"})
_TEXTS_OF_SCHEMAS = frozenset(
    {"$schema", "$id", "$ref", "$anchor", "$comment", "title", "description", "pattern", "format"}
)


def _mended_schema(schema: Schema, depth: int) -> dict[str, Any]:
    """Return a schema whose keywords have their forms: PHP writes an empty object as [], Gemini types in capitals."""
    if depth > MOST_DEPTH:
        return dict(schema)
    mended: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _MAPS_OF_SCHEMAS:
            table = as_mapping(value)
            mended[keyword] = {name: _mended_value(subschema, depth) for name, subschema in table.items()}
        elif keyword in _LISTS_OF_SCHEMAS:
            if items := as_list(value):
                mended[keyword] = [_mended_value(subschema, depth) for subschema in items]
        elif keyword in _SUBSCHEMAS:
            mended[keyword] = _mended_value(value, depth)
        elif keyword == "required":
            # A boolean is the keyword of draft 3, where it is at the property.
            if isinstance(value, (list, Mapping)):
                mended[keyword] = [name for name in as_list(cast("Any", value)) if isinstance(name, str)]
        elif keyword == "type":
            names = [value] if isinstance(value, str) else as_list(value)
            type_names = [
                name.lower() if name.lower() in _TYPE_NAMES else name for name in names if isinstance(name, str)
            ]
            if type_names:
                mended[keyword] = type_names[0] if isinstance(value, str) else type_names
        elif keyword == "enum":
            if isinstance(value, list):
                mended[keyword] = value
        elif not (keyword in _TEXTS_OF_SCHEMAS and not isinstance(value, str)):
            mended[keyword] = value
    return mended


def _mended_value(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _mended_schema(cast("Schema", value), depth + 1)
    # A list of schemas is the older form of prefixItems.
    return value if isinstance(value, bool) or as_list(value) else {}


def arguments_schema(schema: object, note: Callable[[str], None]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, repaired if it does not describe an object; ``note`` gets the reason.

    The schema is shown to the model and need not be valid: the tool's own program checks what the model writes.
    """
    if isinstance(schema, str):
        # Some send it as text.
        with suppress(ValueError, RecursionError):
            schema = json.loads(schema)
    sent = dict(as_mapping(schema))
    table = _mended_schema(sent, 0)
    if table != sent:
        note("its input schema has parts that JSON Schema does not have; they are left out")
    kind = table.get("type")
    if kind == "object":
        return table
    if table and (kind is None or (isinstance(kind, list) and "object" in kind)):
        note("its input schema has no type; it is treated as an object")
        return {**table, "type": "object"}
    if schema:
        note(f"its input schema does not describe an object; any arguments are accepted: {_short(schema)}")
    return {"type": "object", "properties": {}}


class _Walk:
    """One traversal of a schema; each subschema is visited once, also with several references to it."""

    def __init__(self, root: Schema, *, is_checked: bool, is_closed: bool) -> None:
        self._root, self._is_checked, self._is_closed = root, is_checked, is_closed
        self._nodes = self._pattern_chars = 0
        self._is_current = str(root.get("$schema", "2020-12")).find("2020-12") >= 0
        # Schemas with all that they refer to, by identity; 1 while it is being counted, so a circle ends.
        self._sizes: dict[int, int] = {}

    def visit(self, schema: object, path: tuple[Any, ...], depth: int) -> int:
        """Count a schema and every schema it leads to."""
        self._count()
        if not isinstance(schema, Mapping):
            if self._is_checked and not isinstance(schema, bool):
                raise _schema_error(path, f"{_short(schema)} is not of type 'object', 'boolean'")
            return 1
        if depth > MOST_DEPTH:
            raise SchemaCostError(f"it is nested too deeply, more than {MOST_DEPTH} levels; send a flatter one")
        table = cast("Schema", schema)
        earlier_size = self._sizes.get(id(table))
        if earlier_size is not None:
            return earlier_size
        self._sizes[id(table)] = size = 1
        for keyword, value in table.items():
            size += self._size_of(keyword, value, path, depth)
            if size > MOST_NODES:
                raise SchemaCostError(_TOO_LARGE)
        self._sizes[id(table)] = size
        return size

    def _count(self, items: int = 1) -> None:
        self._nodes += items
        if self._nodes > MOST_NODES:
            raise SchemaCostError(_TOO_LARGE)

    def _size_of(self, keyword: str, value: Any, path: tuple[Any, ...], depth: int) -> int:
        """Return the size that a keyword adds to its schema."""
        if isinstance(value, (list, Mapping)):
            self._count(len(cast("list[Any]", value)) // _ITEMS_OF_NODE)
        value = cast("Any", value)
        here = (path, keyword)
        if self._is_checked:
            self._check(keyword, value, here, is_root=not path)
        if keyword in _REFERENCES:
            self._count(1 + len(str(value)) // _ITEMS_OF_NODE)
            target = resolved_reference(self._root, value) if isinstance(value, str) else None
            return self.visit(cast("Schema", target), here, depth + 1) if isinstance(target, Mapping) else 1
        if keyword in _DEFINITIONS:
            # Their content counts where it is referred to.
            for name, inner in as_mapping(value).items():
                self.visit(inner, (here, name), depth + 1)
            return 0
        # The subschemas of the keyword, each with its name or index.
        subschemas: Iterable[tuple[Any, Any]] = ()
        if keyword in _NAMED:
            # In older drafts a name may depend on others instead of on a schema.
            subschemas = ((name, inner) for name, inner in as_mapping(value).items() if not isinstance(inner, list))
        elif keyword in _LISTED or (keyword == "items" and isinstance(value, list)):
            subschemas = enumerate(as_list(cast("Any", value)))
        elif keyword in _SINGLE:
            subschemas = ((None, value),)
        size = 0
        for name, inner in subschemas:
            size += self.visit(inner, (here, name) if name is not None else here, depth + 1)
            if size > MOST_NODES:
                raise SchemaCostError(_TOO_LARGE)
        return size

    def _check(self, keyword: str, value: Any, path: tuple[Any, ...], *, is_root: bool) -> None:
        if keyword == "items" and isinstance(value, list) and self._is_current:
            raise _schema_error(path, f"{_short(cast('object', value))} is not of type 'object', 'boolean'")
        value = cast("Any", value)
        if problem := _problem_of(keyword, value):
            raise _schema_error(path, problem)
        if keyword == "$schema" and not is_root and isinstance(value, str):
            # Each would need its own kind of validator, whose references are not counted.
            raise SchemaError("it names a $schema inside; leave that at the top alone")
        if keyword in _REFERENCES and self._is_closed and not value.startswith("#"):
            raise SchemaError(f"it refers to {value[:80]!r}; put the definition into its $defs")
        if self._is_closed or keyword not in ("pattern", "patternProperties"):
            return
        for pattern in (value,) if keyword == "pattern" else value:
            self._pattern_chars += len(pattern)
            if self._pattern_chars > _MOST_PATTERNS_CHARS:
                raise SchemaCostError(f"it has patterns of more than {_MOST_PATTERNS_CHARS} characters; send fewer")
            if not is_slow_to_compile(pattern) and _compile(pattern) is None:
                raise _schema_error(path, f"{_short(pattern)} is not a 'regex'")


def _schema_error(path: tuple[Any, ...], problem: str) -> SchemaError:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(str(step))
    return SchemaError(f"it is not JSON Schema: {'.'.join(reversed(steps)) or 'it'}: {problem[:200]}")


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return "{…}"
    text = repr(cast("str", value)[:80] if isinstance(value, (str, list)) else value)
    return shorten(text, 80)


_DEFINITIONS = frozenset({"$defs", "definitions"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalItems", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)


_NUMBER_TYPES = (int, float)
# The types of a keyword's value: their name in JSON Schema, and Python's.
_KEYWORD_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(_DEFINITIONS | _NAMED | {"dependentRequired"}, ("object", (dict,))),
    **dict.fromkeys(("required", "enum", "examples"), ("array", (list,))),
    **dict.fromkeys((*_REFERENCES, "$schema", "$id", "$anchor", "$comment", "pattern", "format"), ("string", (str,))),
    **dict.fromkeys(("title", "description", "$dynamicAnchor"), ("string", (str,))),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), ("string", (str,))),
    **dict.fromkeys(("minimum", "maximum"), ("number", _NUMBER_TYPES)),
    # A boolean in draft 4.
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), ("number", (*_NUMBER_TYPES, bool))),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), ("boolean", (bool,))),
}
_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)


def _problem_of(keyword: str, value: Any) -> str:
    """Return what is wrong with the value of a keyword; empty if nothing is, or no rule is known."""
    type_name, kinds = _KEYWORD_TYPES.get(keyword, ("", (object,)))
    if not isinstance(value, kinds) or (type_name and isinstance(value, bool) and bool not in kinds):
        return f"{_short(value)} is not of type {type_name!r}"
    if keyword in _LISTED and not as_list(value):
        return f"{_short(value)} is no list of schemas"
    if keyword in _COUNTS and not (isinstance(value, _NUMBER_TYPES) and 0 <= value < math.inf and value == int(value)):
        return f"{_short(value)} is no count"
    is_number = isinstance(value, _NUMBER_TYPES) and not isinstance(value, bool)
    if keyword == "multipleOf" and not (is_number and value > 0):
        return f"{_short(value)} is no number above 0"
    if keyword == "type":
        type_names = cast("list[Any]", value) if isinstance(value, list) else [value]
        unknown = [name for name in type_names[:_ITEMS_OF_NODE] if name not in _TYPES]
        return f"{_short(unknown[0])} is no type" if unknown else ""
    lists_of_names: list[Any] = [value] if keyword == "required" else []
    if keyword == "dependentRequired":
        lists_of_names += as_mapping(value).values()
    for names in lists_of_names:
        if not isinstance(names, list):
            return f"{_short(names)} is not of type 'array'"
        if not all(isinstance(name, str) for name in cast("list[Any]", names)):
            return "not every name is a string"
    return ""
