"""Values validated against a schema with jsonschema, in a bounded number of steps.

Steps are counted, never timed: one for each keyword that is applied, and more for long values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

from rkllm_mcp.toolcalls.patterns import may_run_long

Schema = Mapping[str, Any]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

# A step takes about 15 µs.
_MOST_STEPS = 500
_STEPS_FOR_VALUE = 4
_VALUES_OF_STEP = 32
_CHARS_OF_STEP = 2000


class TooManyStepsError(Exception):
    """A value that cannot be validated: its schema takes too many steps."""

    def __str__(self) -> str:
        return "its schema branches too often to be checked"


def first_violation(value: Any, schema: Schema) -> tuple[str, str] | None:
    """The most telling place where a value does not follow its schema, and the sentence; None where it does.

    Nothing is fetched. A pattern that could take long on a text is not checked there; ``unevaluatedProperties`` and
    ``unevaluatedItems`` are not checked at all.

    Raises:
        TooManyStepsError: it cannot be found out in few steps.
        UnresolvableError: the schema refers to what is not in it.
        RecursionError: the schema refers to itself without end.
    """
    from jsonschema import exceptions
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With a registry of its own a validator fetches nothing from the network.
    registry: Any = cast("Any", Registry)()
    token = _BUDGET.set(_Budget(value))
    try:
        validator = _bounded(_validator_class(schema))(schema, registry=registry)
        error: Any = cast("Any", exceptions).best_match(validator.iter_errors(value))
    except Unresolvable:
        raise UnresolvableError from None
    finally:
        _BUDGET.reset(token)
    return None if error is None else (".".join(str(step) for step in error.absolute_path), str(error.message))


class UnresolvableError(Exception):
    """A schema that refers to what is not in it."""

    def __str__(self) -> str:
        return "the schema refers to something that is not in it"


class _Budget:
    """The steps of one validation."""

    def __init__(self, value: Any) -> None:
        # References at a value, by identity: those that are being followed, and those that were found to fit.
        self.active: set[tuple[int, int]] = set()
        self.fitting: set[tuple[int, int]] = set()
        self._sizes: dict[int, int] = {}
        self._left = _MOST_STEPS + _STEPS_FOR_VALUE * self._measured(value)

    def _measured(self, value: Any) -> int:
        if isinstance(value, (dict, list)):
            inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
            self._sizes[id(cast("object", value))] = size = 1 + sum(self._measured(item) for item in inner)
            return size
        return 1

    def take(self, instance: Any, keyword_value: Any) -> None:
        """Count a keyword: messages show the value, and loops go over what it or the keyword holds."""
        steps = 1
        if isinstance(instance, str):
            steps += len(instance) // _CHARS_OF_STEP
        elif isinstance(instance, (dict, list)):
            steps += self._sizes.get(id(cast("object", instance)), 1) // _VALUES_OF_STEP
        if isinstance(keyword_value, (dict, list)):
            steps += len(cast("list[Any]", keyword_value)) // _VALUES_OF_STEP
        self._left -= steps
        if self._left < 0:
            raise TooManyStepsError


_BUDGET: ContextVar[_Budget] = ContextVar("validation budget")


def _validator_class(schema: Schema) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    named = {"$schema": name} if isinstance(name := schema.get("$schema"), str) else {}
    return cast("Any", validator_for)(named, default=Draft202012Validator)


@cache
def _bounded(kind: Any) -> Any:
    """The same kind of validator with every keyword counted."""
    from jsonschema import validators

    own = {name: check for name, check in _OWN_KEYWORDS.items() if name in kind.VALIDATORS}
    counted = {name: _counted(check) for name, check in {**kind.VALIDATORS, **own}.items()}
    followed = {name: _counted(_followed_once(counted[name])) for name in _REFERENCES if name in counted}
    counted.update(followed)
    return cast("Any", validators).extend(kind, counted)


def _counted(follow: Any) -> Any:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
        _BUDGET.get().take(instance, wanted)
        return follow(validator, wanted, instance, schema)

    return check


def _followed_once(follow: Any) -> Any:
    """A reference with what it leads to, checked once for each value that fits."""

    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
        key, budget = (id(instance), id(schema)), _BUDGET.get()
        if key in budget.fitting:
            return ()
        if key in budget.active:
            # Without this the library's own recursion ends in native code, which takes the process with it.
            raise RecursionError("the schema refers to itself without end")
        budget.active.add(key)
        errors = list(follow(validator, wanted, instance, schema))
        budget.active.discard(key)
        if not errors:
            budget.fitting.add(key)
        return errors

    return check


def _violation(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text; one that could take long counts as found."""
    return may_run_long(pattern, len(text)) or re.search(pattern, text) is not None


def _pattern(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    del validator, schema
    if isinstance(instance, str) and not _matches(wanted, instance):
        yield _violation(f"{instance!r} does not match {wanted!r}")


def _pattern_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    del schema
    for pattern, inner in wanted.items() if isinstance(instance, dict) else ():
        for key, value in cast("dict[str, Any]", instance).items():
            _BUDGET.get().take(None, None)
            if _matches(pattern, key):
                yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras: list[str] = []
    for key, value in cast("dict[str, Any]", instance).items():
        if key in named:
            continue
        for _ in patterns:
            _BUDGET.get().take(None, None)
        if any(_matches(pattern, key) for pattern in patterns):
            continue
        extras.append(key)
        if isinstance(wanted, Mapping):
            yield from validator.descend(value, wanted, path=key)
    if extras and wanted is False:
        were = "was" if len(extras) == 1 else "were"
        names = ", ".join(repr(key) for key in sorted(extras))
        yield _violation(f"Additional properties are not allowed ({names} {were} unexpected)")


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    del validator, schema
    if wanted and isinstance(instance, list):
        items = cast("list[Any]", instance)
        if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
            yield _violation(f"{items!r} has non-unique elements")


def _unchecked(validator: Any, wanted: Any, instance: Any, schema: Any) -> tuple[Any, ...]:
    del validator, wanted, instance, schema
    return ()


_OWN_KEYWORDS: Mapping[str, Any] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unchecked,
    "unevaluatedItems": _unchecked,
}
