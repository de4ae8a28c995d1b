"""An answer that has to be JSON: what the model is told, and whether what it said will do.

    schema ─▶ a line for the model, behind what was said ─▶ its answer ─▶ the JSON text, mended where that is certain

Rules: what is valid as written stays as it was written. What is not is read by the same ladder of repairs as the
arguments of calls, takes the types of the schema where nothing is lost, and counts only when the schema then holds.
Nothing is fetched: a schema refers to itself or to nothing. Patterns that could take longer than an answer are refused
before anybody runs them. Nothing here knows a model or a protocol.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

from rkllm_mcp.prompt.tools import compact_schema, minified
from rkllm_mcp.toolcalls.repair import UnreadableError, read_value
from rkllm_mcp.toolcalls.schema import MismatchError, conform

# Two repetitions without a near end cost the square of an answer's length at most; groups multiply that.
_MOST_FAR_REPETITIONS = 2
_NEAR_END = 64
_MOST_GROUPS = 4
_ESCAPED_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPETITION = re.compile(r"(\)?)(?:[*+]|\{(\d*)(,?)(\d*)\})")
_LONGEST_REASON = 300
# Two references on each of thirty levels are a thousand million steps; a check that follows so many is given up.
_MOST_REFERENCES = 10_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
SCHEMAS_KEPT = 1024
# More characters of schemas than the longest context window here has room for; to check them takes a second or two.
MOST_SCHEMA_CHARS = 200_000


@dataclass
class MisfitError(Exception):
    """An answer that does not have the form; ``reason`` is a line that the model can mend it by."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass
class SchemaError(Exception):
    """A schema that no answer can be checked against; ``reason`` says why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class AnswerForm:
    """The form of an answer.

    Args:
        schema: JSON Schema of it; None for any JSON object.
        description: what the answer is for, in the words of whoever asks.
    """

    schema: Mapping[str, Any] | None = None
    description: str = ""

    def told(self) -> str:
        """What the model is told."""
        if self.schema is None:
            return "[Answer with one JSON object and nothing else: no other words, no code fence.]"
        purpose = f" It is: {self.description}." if self.description else ""
        return (
            "[Answer with JSON and nothing else: no other words, no code fence. It must be valid by this JSON Schema:\n"
            f"{minified(compact_schema(self.schema))}{purpose}]"
        )

    def told_again(self, misfit: MisfitError) -> str:
        """What the model is told when its answer did not do."""
        return f"[That answer cannot be used: {misfit.reason}. Answer again with the JSON and nothing else.]"

    def read(self, text: str) -> str:
        """The JSON text of an answer.

        Raises:
            MisfitError: it is none, or not of this form.
        """
        try:
            written: Any = json.loads(text, parse_constant=_no_constant)
            self._check(written)
        except (ValueError, RecursionError, MisfitError):
            value = self._typed(_read(text))
            self._check(value)
            return json.dumps(value, ensure_ascii=False)
        return text.strip()

    def _typed(self, value: Any) -> Any:
        if self.schema is None or not isinstance(value, dict):
            return value
        try:
            return conform(cast("dict[str, Any]", value), self.schema)
        except MismatchError:
            return cast("dict[str, Any]", value)  # What is wrong with it the check says in full.

    def _check(self, value: Any) -> None:
        if self.schema is None:
            if not isinstance(value, dict):
                raise MisfitError("it is no JSON object")
            return
        if misfit := _first_misfit(value, self.schema):
            raise MisfitError(misfit[:_LONGEST_REASON])


class SchemaCheck:
    """Sees that something can be checked against a schema.

    Programs send the same ones with every request, and a check takes milliseconds, so what was found good is known
    again. Threads may share it.

    Args:
        kept: how many are known.
    """

    def __init__(self, kept: int = SCHEMAS_KEPT) -> None:
        self._kept = kept
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._changing = Lock()

    def __call__(self, schema: Mapping[str, Any], *, of_object: bool = False) -> None:
        """See that a schema will do.

        Args:
            schema: JSON Schema.
            of_object: it has to describe an object, as the arguments of a call are one.

        Raises:
            SchemaError: it will not.
        """
        if of_object and schema.get("type") != "object":
            raise SchemaError(f"its type is {schema.get('type')!r}; arguments are an object")
        try:
            written = json.dumps(schema, sort_keys=True)
            if len(written) > MOST_SCHEMA_CHARS:
                raise SchemaError(f"no prompt has room for its {len(written)} characters; send a smaller one")
            key = hashlib.sha256(written.encode("utf-8", "replace")).digest()
            if key not in self._good:
                _check_schema(schema)
        except RecursionError:
            raise SchemaError("it is nested too deeply") from None
        with self._changing:
            self._good[key] = None
            self._good.move_to_end(key)
            if len(self._good) > self._kept:
                self._good.popitem(last=False)


def _check_schema(schema: Mapping[str, Any]) -> None:
    from jsonschema import exceptions

    try:
        _validator_class(schema).check_schema(schema)
        for key, value in _keywords(schema):
            _check_keyword(key, value)
        # Each would have a validator of its own kind, whose references nobody counts.
        if sum(key == "$schema" and isinstance(value, str) for key, value in _keywords(schema)) > ("$schema" in schema):
            raise SchemaError("it names a $schema inside; leave that at the top alone")
    except exceptions.SchemaError as error:
        where = ".".join(str(step) for step in error.path)
        raise SchemaError(f"it is no JSON Schema: {where or 'it'}: {error.message[:200]}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _read(text: str) -> Any:
    """The value in an answer: all of it, or the object between other words."""
    begin, end = text.find("{"), text.rfind("}") + 1
    object_alone = text[begin:end] if 0 <= begin < end else ""
    for candidate in filter(None, (text, object_alone)):
        try:
            value = read_value(candidate).value
        except UnreadableError:
            continue
        if isinstance(value, (dict, list)):
            return cast("Any", value)
    raise MisfitError("it is not valid JSON")


def _validator_class(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    named = {"$schema": name} if isinstance(name := schema.get("$schema"), str) else {}
    return cast("Any", validator_for)(named, default=Draft202012Validator)


def _first_misfit(value: Any, schema: Mapping[str, Any]) -> str:
    from jsonschema import exceptions
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With a registry of its own a validator fetches nothing from the network.
    registry: Any = cast("Any", Registry)()
    try:
        validator = _bounded(_validator_class(schema))(schema, registry=registry)
        error: Any = cast("Any", exceptions).best_match(validator.iter_errors(value))
    except Unresolvable:
        return "the schema refers to something that is not in it"
    except RecursionError:
        return "the schema refers to itself without end"
    if error is None:
        return ""
    where = ".".join(str(step) for step in error.absolute_path)
    return f"'{where}': {error.message}" if where else str(error.message)


def _bounded(kind: Any) -> Any:
    """The same kind of validator, which gives up where references lead on and on; good for one value."""
    from jsonschema import validators

    left = _MOST_REFERENCES

    def counted(follow: Any) -> Any:
        def check(validator: Any, reference: Any, value: Any, schema: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise MisfitError("its schema refers to itself too often to be checked")
            return follow(validator, reference, value, schema)

        return check

    followed = {name: counted(kind.VALIDATORS[name]) for name in _REFERENCES if name in kind.VALIDATORS}
    return cast("Any", validators).extend(kind, followed)


def _keywords(schema: object) -> Iterator[tuple[str, object]]:
    """Every key of a schema with its value, at any depth."""
    if isinstance(schema, Mapping):
        for key, value in cast("Mapping[str, object]", schema).items():
            yield key, value
            yield from _keywords(value)
    elif isinstance(schema, list):
        for value in cast("list[object]", schema):
            yield from _keywords(value)


def _check_keyword(key: str, value: object) -> None:
    if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
        raise SchemaError(f"it refers to {value[:80]!r}; put the definition into its $defs")
    patterns: list[object] = [value] if key == "pattern" else []
    if key == "patternProperties" and isinstance(value, Mapping):
        patterns += cast("Mapping[str, object]", value)
    for pattern in patterns:
        if isinstance(pattern, str) and _is_endless(pattern):
            raise SchemaError(
                f"the pattern {pattern[:80]!r} may take too long; repeat less, or with an end as in {{1,40}}"
            )


def _is_endless(pattern: str) -> bool:
    """Whether a pattern may take long on a text that nearly fits."""
    groups: list[int] = []
    far = 0
    for found in _REPETITION.finditer(_ESCAPED_OR_SET.sub("x", pattern)):
        end = _end_of(found)
        if found.group(1):
            groups.append(end)
        else:
            far += end > _NEAR_END
    if groups:
        return far > 0 or len(groups) > 1 or groups[0] > _MOST_GROUPS
    return far > _MOST_FAR_REPETITIONS


def _end_of(repetition: re.Match[str]) -> int:
    """How often at most something is repeated; a great number where there is no end."""
    least, comma, most = repetition.group(2, 3, 4)
    number = most if comma else least
    return int(number) if number and len(number) < 6 else sys.maxsize
