"""The cost and the soundness of a JSON Schema, found out in one bounded walk.

The meta-schema is not used: validation with it takes jsonschema 350 µs for each node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from rkllm_mcp.toolcalls.arguments import resolved_reference
from rkllm_mcp.toolcalls.patterns import MOST_PATTERN_CHARS, is_slow_to_compile, may_run_long

Schema = Mapping[str, Any]

# Schemas in a schema with every reference written out. No tool that is used has a tenth of it.
MOST_NODES = 2000
MOST_DEPTH = 64
# Keys, choices and names are compared much faster than schemas are read.
_ITEMS_OF_NODE = 32
# Patterns are compiled: 2 to 5 µs for each character.
_MOST_PATTERNS_CHARS = 3000
# An answer nearly always ends before so many characters of what a pattern is for.
USUAL_CHARS = 40
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


class SchemaError(ValueError):
    """A schema that cannot be used; ``str()`` says why, and what to do."""


class SchemaCostError(SchemaError):
    """A schema that is too large or too nested to be worked with."""


def measure_schema(schema: Schema) -> None:
    """See that a schema is small enough; whether it makes sense is not looked at.

    Raises:
        SchemaCostError: it is not.
    """
    _Walk(schema, is_checked=False, is_closed=False).visit(schema, (), 0)


def check_schema(schema: Schema, *, is_closed: bool = True, text_chars: int = USUAL_CHARS) -> None:
    """See that a schema is small enough, and JSON Schema.

    Args:
        schema: the schema, as plain JSON.
        is_closed: it refers to nothing outside itself, and every pattern in it ends soon.
        text_chars: on texts of so many characters.

    Raises:
        SchemaError: it is not.
    """
    _Walk(schema, is_checked=True, is_closed=is_closed, text_chars=text_chars).visit(schema, (), 0)


class _Walk:
    """One look at a whole schema: each schema in it is visited once, whatever refers to it."""

    def __init__(self, root: Schema, *, is_checked: bool, is_closed: bool, text_chars: int = USUAL_CHARS) -> None:
        self._text_chars = text_chars
        self._root, self._is_checked, self._is_closed = root, is_checked, is_closed
        self._nodes = self._pattern_chars = 0
        self._is_current = str(root.get("$schema", "2020-12")).find("2020-12") >= 0
        # Schemas with all that they refer to, by identity; 1 while it is being counted, so a circle ends.
        self._sizes: dict[int, int] = {}

    def visit(self, schema: object, path: tuple[Any, ...], depth: int) -> int:
        """Count a schema with all that it leads to."""
        self._count()
        if not isinstance(schema, Mapping):
            if self._is_checked and not isinstance(schema, bool):
                raise _broken(path, f"{_short(schema)} is not of type 'object', 'boolean'")
            return 1
        if depth > MOST_DEPTH:
            raise SchemaCostError(f"it is nested too deeply, more than {MOST_DEPTH} levels; send a flatter one")
        known = self._sizes.get(id(cast("Schema", schema)))
        if known is not None:
            return known
        self._sizes[id(cast("Schema", schema))] = 1
        size = 1
        for keyword, value in cast("Mapping[str, Any]", schema).items():
            size += self._size_of(keyword, value, path, depth)
            if size > MOST_NODES:
                raise _too_large()
        self._sizes[id(cast("Schema", schema))] = size
        return size

    def _count(self, items: int = 1) -> None:
        self._nodes += items
        if self._nodes > MOST_NODES:
            raise _too_large()

    def _size_of(self, keyword: str, value: Any, path: tuple[Any, ...], depth: int) -> int:
        """What a keyword adds to the size of its schema."""
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
            # What is in them counts where it is referred to.
            for name, inner in _items(value):
                self.visit(inner, (here, name), depth + 1)
            return 0
        size = 0
        for name, inner in _inner(keyword, value):
            size += self.visit(inner, (here, name) if name is not None else here, depth + 1)
            if size > MOST_NODES:
                raise _too_large()
        return size

    def _check(self, keyword: str, value: Any, path: tuple[Any, ...], *, is_root: bool) -> None:
        rule = _RULES.get(keyword)
        if keyword == "items" and isinstance(value, list) and self._is_current:
            raise _broken(path, f"{_short(cast('object', value))} is not of type 'object', 'boolean'")
        value = cast("Any", value)
        if rule is not None and (problem := rule(value)):
            raise _broken(path, problem)
        if keyword == "$schema" and not is_root and isinstance(value, str):
            # Each would have a validator of its own kind, whose references nobody counts.
            raise SchemaError("it names a $schema inside; leave that at the top alone")
        if keyword in _REFERENCES and self._is_closed and not value.startswith("#"):
            raise SchemaError(f"it refers to {value[:80]!r}; put the definition into its $defs")
        if keyword == "pattern":
            self._check_pattern(value, path)
        elif keyword == "patternProperties":
            for pattern in value:
                self._check_pattern(pattern, path)

    def _check_pattern(self, pattern: str, path: tuple[Any, ...]) -> None:
        is_slow = is_slow_to_compile(pattern)
        if not is_slow:
            self._pattern_chars += len(pattern)
            if self._pattern_chars > _MOST_PATTERNS_CHARS:
                raise SchemaCostError(f"it has patterns of more than {_MOST_PATTERNS_CHARS} characters; send fewer")
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError):
                raise _broken(path, f"{_short(pattern)} is not a 'regex'") from None
        if self._is_closed and (is_slow or may_run_long(pattern, self._text_chars)):
            raise SchemaError(
                f"the pattern {pattern[:80]!r} may take too long; repeat less, or with an end as in {{1,40}}, "
                f"in at most {MOST_PATTERN_CHARS} characters"
            )


def _too_large() -> SchemaCostError:
    return SchemaCostError(
        f"it leads to more than {MOST_NODES} schemas with its references written out; send a smaller one"
    )


def _broken(path: tuple[Any, ...], problem: str) -> SchemaError:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(str(step))
    return SchemaError(f"it is no JSON Schema: {'.'.join(reversed(steps)) or 'it'}: {problem[:200]}")


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return "{…}"
    text = repr(cast("str", value)[:80] if isinstance(value, (str, list)) else value)
    return text if len(text) <= 80 else text[:79] + "…"


def _items(value: object) -> Iterator[tuple[Any, Any]]:
    return iter(cast("Mapping[str, Any]", value).items()) if isinstance(value, Mapping) else iter(())


def _inner(keyword: str, value: Any) -> Iterator[tuple[Any, Any]]:
    """The schemas that a keyword holds, each with its name or number."""
    if keyword in _NAMED:
        # In older drafts a name may depend on others instead of on a schema.
        yield from ((name, inner) for name, inner in _items(value) if not isinstance(inner, list))
    elif keyword in _LISTED or (keyword == "items" and isinstance(value, list)):
        yield from enumerate(cast("list[Any]", value) if isinstance(value, list) else ())
    elif keyword in _SINGLE:
        yield None, value


_DEFINITIONS = frozenset({"$defs", "definitions"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalItems", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)


def _of(name: str, *kinds: type) -> Callable[[Any], str]:
    def problem(value: Any) -> str:
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return "" if fits else f"{_short(value)} is not of type {name!r}"

    return problem


def _names(value: Any) -> str:
    if not isinstance(value, list):
        return f"{_short(cast('object', value))} is not of type 'array'"
    return "" if all(isinstance(name, str) for name in cast("list[Any]", value)) else "not every name is a string"


def _count_rule(value: Any) -> str:
    return (
        "" if isinstance(value, (int, float)) and value >= 0 and value == int(value) else f"{_short(value)} is no count"
    )


def _type_rule(value: Any) -> str:
    names = cast("list[Any]", value) if isinstance(value, list) else [value]
    unknown = [name for name in names[:_ITEMS_OF_NODE] if name not in _TYPES]
    return f"{_short(unknown[0])} is no type" if unknown else ""


def _listed_rule(value: Any) -> str:
    return "" if isinstance(value, list) and value else f"{_short(cast('object', value))} is no list of schemas"


def _multiple_rule(value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "" if is_number and value > 0 else f"{_short(value)} is no number above 0"


def _dependent_rule(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{_short(cast('object', value))} is not of type 'object'"
    problems = [_names(names) for names in cast("Mapping[str, Any]", value).values()]
    return next(filter(None, problems), "")


_OBJECT, _STRING, _NUMBER = _of("object", dict), _of("string", str), _of("number", int, float)
_RULES: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(_DEFINITIONS | _NAMED, _OBJECT),
    **dict.fromkeys(_LISTED, _listed_rule),
    **dict.fromkeys((*_REFERENCES, "$schema", "$id", "$anchor", "$comment", "pattern", "format", "title"), _STRING),
    **dict.fromkeys(("description", "$dynamicAnchor", "contentEncoding", "contentMediaType"), _STRING),
    **dict.fromkeys(("minimum", "maximum"), _NUMBER),
    # A boolean in draft 4.
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _of("number", int, float, bool)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _count_rule),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _count_rule),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _of("boolean", bool)),
    "type": _type_rule,
    "required": _names,
    "enum": _of("array", list),
    "examples": _of("array", list),
    "multipleOf": _multiple_rule,
    "dependentRequired": _dependent_rule,
}
