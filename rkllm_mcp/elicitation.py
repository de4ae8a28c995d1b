"""Elicitation forms: JSON Schema -> fields, typed text -> values, values -> problems.

Supports the flat subset of JSON Schema that MCP allows. A ``$ref`` is never fetched and a server's regular expression
never run, because it could take hours; a field of an unknown type accepts any JSON.

Follows MCP 2025-11-25 and 2026-07-28, client features, elicitation (SEP-1034 defaults, SEP-1330 enum titles).
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias, cast

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.messages import as_list, as_mapping

FieldKind: TypeAlias = Literal["text", "number", "integer", "boolean", "choice", "choices", "json"]

# Kind of problem -> message, with ``{value}`` for the input or the limit.
Wording: TypeAlias = Mapping[str, str]
ENGLISH: Wording = read_catalogue("en").table("form.mistakes")

_YES = frozenset({"yes", "y", "true", "1", "on", "はい"})
_NO = frozenset({"no", "n", "false", "0", "off", "いいえ"})
_KINDS: Mapping[str, FieldKind] = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean"}
_INTEGER = re.compile(r"[+-]?\d{1,300}")
_ABSENT: Any = object()
# Names that make a text a secret, whether or not the schema says so.
_SECRET = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|token|api[ _-]?key|credential|パスワード|暗証|秘密", re.IGNORECASE
)


@dataclass(frozen=True)
class FieldChoice:
    """An allowed value of a field; ``title`` is shown to the user."""

    value: Any
    title: str


@dataclass(frozen=True)
class FormField:
    """One field of a form."""

    name: str  # key of the value
    title: str
    description: str
    kind: FieldKind  # "choices" accepts several choices, "json" anything
    required: bool
    default: Any  # None: no default
    choices: tuple[FieldChoice, ...]
    schema: Mapping[str, Any]  # the field's part of the schema, for its limits

    @property
    def is_secret(self) -> bool:
        """True if the schema marks the value as a secret, or its name or title does: it is never stored."""
        marked = self.schema.get("format") == "password" or self.schema.get("writeOnly") is True
        return marked or (self.kind == "text" and _SECRET.search(f"{self.name} {self.title}") is not None)

    def read(self, text: str, words: Wording = ENGLISH) -> Any:
        """Convert typed text to a value; a ValueError, with a message of ``words``, names the allowed values."""
        try:
            value = _read_field(self, text.strip() if self.kind != "text" else text)
            _check(self, value)
        except _MistakeError as mistake:
            raise ValueError(f"{self.title}: {words[mistake.name].format(value=mistake.value)}") from None
        return value

    def problem(self, value: Any, words: Wording = ENGLISH) -> str:
        """Return a sentence about an invalid value, beginning with the field's title; empty if it is valid."""
        try:
            _check(self, value)
        except _MistakeError as mistake:
            return f"{self.title}: {words[mistake.name].format(value=mistake.value)}"
        return ""


@dataclass(eq=False)
class _MistakeError(Exception):
    """An invalid value: key and argument of the message."""

    name: str
    value: object = ""


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields of a form, in the order of its schema."""
    required = as_list(schema.get("required"))
    form: list[FormField] = []
    for name, part in as_mapping(schema.get("properties")).items():
        table, items = as_mapping(part), as_mapping(as_mapping(part).get("items"))
        if not isinstance(part, Mapping):
            continue
        choices = _choices(table)
        kind: FieldKind = "choice" if choices else _KINDS.get(str(table.get("type")), "json")
        if table.get("type") == "array" and isinstance(table.get("items"), Mapping):
            choices = _choices(items)
            kind = "choices" if choices else "json"
        title, description = str(table.get("title") or name), str(table.get("description") or "")
        default = table.get("default")
        form.append(FormField(name, title, description, kind, name in required, default, choices, table))
    return tuple(form)


def complete_content(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with choices by title replaced by their values, and defaults for missing fields."""
    answer = dict(content)
    for field in fields_of(schema):
        value = answer.get(field.name, _ABSENT)
        if value is _ABSENT or (value is None and not field.required):
            answer.pop(field.name, None)
            if field.default is not None:
                answer[field.name] = field.default
        elif field.kind == "choice":
            answer[field.name] = _choice_value(field, value)
        elif field.kind == "choices" and isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            answer[field.name] = [_choice_value(field, item) for item in items]
    return answer


def field_problems(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, str]:
    """Return the problem of each invalid field, by name; empty if the form can be sent."""
    problems: dict[str, str] = {}
    for field in fields_of(schema):
        if field.name in content:
            problems[field.name] = field.problem(content[field.name])
        elif field.required:
            problems[field.name] = f"{field.title}: {ENGLISH['required']}"
    unknown = content.keys() - {field.name for field in fields_of(schema)}
    problems |= {name: f"{name}: {ENGLISH['no field']}" for name in sorted(unknown)}
    return {name: problem for name, problem in problems.items() if problem}


def _choices(schema: Mapping[str, Any]) -> tuple[FieldChoice, ...]:
    """Return the values of an enumeration: plain, with ``enumNames``, or as titled constants."""
    titled = [as_list(schema[key]) for key in ("oneOf", "anyOf") if isinstance(schema.get(key), list)]
    if titled:
        options = [option for option in map(as_mapping, titled[0]) if "const" in option]
        return tuple(FieldChoice(option["const"], str(option.get("title") or option["const"])) for option in options)
    values, names = as_list(schema.get("enum")), as_list(schema.get("enumNames"))
    titles = [*names, *values[len(names) :]]
    return tuple(FieldChoice(value, str(title)) for value, title in zip(values, titles, strict=False))


def _choice_value(field: FormField, value: Any) -> Any:
    """Return the value with the given title or text; unknown input unchanged."""
    if any(choice.value == value for choice in field.choices):
        return value
    spelled = str(value).strip().casefold()
    values = (c.value for c in field.choices if spelled in (c.title.casefold(), str(c.value).casefold()))
    return next(values, value)


def _read_choice(field: FormField, text: str) -> Any:
    # A number is a 1-based position in the list, unless it is itself a value.
    value = _choice_value(field, text)
    if all(choice.value != value for choice in field.choices) and text.isdecimal():
        number = int(text) if len(text) < 10 else 0
        return field.choices[number - 1].value if 1 <= number <= len(field.choices) else value
    return value


def _read_field(field: FormField, text: str) -> Any:
    """Convert typed text to a value of the field's kind, which may be beyond the field's limits."""
    match field.kind:
        case "text":
            return text
        case "number":
            try:
                return int(text) if _INTEGER.fullmatch(text) else float(text)
            except ValueError:
                raise _MistakeError("not a number", repr(text)) from None
        case "integer":
            if not _INTEGER.fullmatch(text):
                raise _MistakeError("not an integer", repr(text))
            return int(text)
        case "boolean":
            if text.casefold() not in _YES | _NO:
                raise _MistakeError("yes or no")
            return text.casefold() in _YES
        case "choice":
            return _read_choice(field, text)
        case "choices":
            return [_read_choice(field, part.strip()) for part in re.split(r"[,、]", text) if part.strip()]
        case "json":
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return text


def _check_format(name: str, value: str) -> None:
    if name == "email" and not re.fullmatch(r"[^@\s]+@[^@\s]+", value):
        raise _MistakeError(name)
    if name == "uri" and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S", value):
        raise _MistakeError(name)
    if name in ("date", "date-time"):
        try:
            # Python 3.10 does not accept Z as a time zone.
            date.fromisoformat(value) if name == "date" else datetime.fromisoformat(re.sub("[zZ]$", "+00:00", value))
        except ValueError:
            raise _MistakeError(name) from None


def _check_limits(field: FormField, value: float, least: tuple[str, str], most: tuple[str, str]) -> None:
    """Compare a value with two limits of the schema, each with the name of its message."""
    for (key, name), is_beyond in ((least, operator.lt), (most, operator.gt)):
        limit = field.schema.get(key)
        if isinstance(limit, (int, float)) and not isinstance(limit, bool) and is_beyond(value, limit):
            raise _MistakeError(name, f"{limit:g}")


def _check(field: FormField, value: Any) -> None:
    """Compare a value with the kind of the field and its limits; a _MistakeError is the first that is broken."""
    match field.kind:
        case "text":
            if not isinstance(value, str):
                raise _MistakeError("text")
            _check_limits(field, len(value), ("minLength", "shorter"), ("maxLength", "longer"))
            _check_format(str(field.schema.get("format") or ""), value)
        case "number" | "integer":
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                raise _MistakeError("number")
            if field.kind == "integer" and value != int(value):
                raise _MistakeError("integer")
            _check_limits(field, value, ("minimum", "least"), ("maximum", "most"))
        case "boolean":
            if not isinstance(value, bool):
                raise _MistakeError("boolean")
        case "choice" | "choices":
            items: Sequence[Any] = [value]
            if field.kind == "choices":
                if not isinstance(value, (list, tuple)):
                    raise _MistakeError("list")
                items = cast("Sequence[Any]", value)
                _check_limits(field, len(items), ("minItems", "fewer"), ("maxItems", "more"))
            for item in items:
                if all(choice.value != item for choice in field.choices):
                    raise _MistakeError("choice", ", ".join(choice.title for choice in field.choices))
        case "json":
            pass
