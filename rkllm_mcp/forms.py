"""A form that a server wants filled: its schema as fields, what was typed as values, and what is still wrong.

A form is the flat subset of JSON Schema that MCP allows in an elicitation. Rules: nothing here fetches a ``$ref`` or
runs a server's regular expression (one of those can hold a machine for hours); a field of an unknown kind takes any
JSON. It knows neither the server nor who fills the form.

Followed: MCP 2025-11-25 and 2026-07-28, client features, elicitation (SEP-1034 defaults, SEP-1330 enum titles).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias, TypeGuard, cast

FieldKind: TypeAlias = Literal["text", "number", "integer", "boolean", "choice", "choices", "json"]

_YES = frozenset({"yes", "y", "true", "1", "on", "はい"})
_NO = frozenset({"no", "n", "false", "0", "off", "いいえ"})
_KINDS: Mapping[str, FieldKind] = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean"}
_ABSENT: Any = object()


@dataclass(frozen=True)
class Choice:
    """One of the values a field may have; ``title`` is what a person reads."""

    value: Any
    title: str


@dataclass(frozen=True)
class Field:
    """One field of a form.

    Args:
        name: the key of its value.
        title: what a person reads.
        description: what it is for; may be empty.
        kind: what may be entered; ``choices`` takes several of ``choices``, ``json`` anything.
        required: it must have a value.
        default: its value when nothing is entered; None when there is none.
        choices: the values to choose from, for the kinds ``choice`` and ``choices``.
        schema: its part of the form's schema, for the limits.
    """

    name: str
    title: str
    description: str
    kind: FieldKind
    required: bool
    default: Any
    choices: tuple[Choice, ...]
    schema: Mapping[str, Any]

    def read(self, text: str) -> Any:
        """The value that a person typed.

        Raises:
            ValueError: it is none; the sentence says what may be typed.
        """
        value = _READERS[self.kind](self, text.strip() if self.kind != "text" else text)
        if problem := self.problem(value):
            raise ValueError(problem)
        return value

    def problem(self, value: Any) -> str:
        """What is wrong with a value, as a sentence that names the field; empty when nothing is."""
        wrong = _CHECKS[self.kind](self, value)
        return f"{self.title}: {wrong}" if wrong else ""


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields of a form, in the order of its schema."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = cast("Sequence[Any]", required) if isinstance(required, list) else ()
    if not _is_object(properties):
        return ()
    return tuple(_field(name, part, name in names) for name, part in properties.items() if _is_object(part))


def filled(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """What was entered, with titles of choices as their values, and the schema's defaults where nothing was."""
    answer = dict(content)
    for field in fields_of(schema):
        value = answer.get(field.name, _ABSENT)
        if value is _ABSENT or (value is None and not field.required):
            answer.pop(field.name, None)
            if field.default is not None:
                answer[field.name] = field.default
        else:
            answer[field.name] = _by_title(field, value)
    return answer


def problems(schema: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with a filled form, a sentence per field; empty when it can be sent."""
    return tuple(field_problems(schema, content).values())


def field_problems(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with each field of a filled form, by the field's name; empty when it can be sent."""
    found: dict[str, str] = {}
    for field in fields_of(schema):
        if field.name in content:
            found[field.name] = field.problem(content[field.name])
        elif field.required:
            found[field.name] = f"{field.title}: this has to be filled in"
    unknown = content.keys() - {field.name for field in fields_of(schema)}
    found |= {name: f"{name}: the form has no such field" for name in sorted(unknown)}
    return {name: problem for name, problem in found.items() if problem}


# --- a schema's part as a field -------------------------------------------------------------------------------------


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    choices = _choices(schema)
    items = schema.get("items")
    kind: FieldKind = "choice" if choices else _KINDS.get(str(schema.get("type")), "json")
    if schema.get("type") == "array" and _is_object(items):
        choices = _choices(items)
        kind = "choices" if choices else "json"
    return Field(
        name=name,
        title=str(schema.get("title") or name),
        description=str(schema.get("description") or ""),
        kind=kind,
        required=required,
        default=schema.get("default"),
        choices=choices,
        schema=schema,
    )


def _choices(schema: Mapping[str, Any]) -> tuple[Choice, ...]:
    """The values of an enumeration: bare, with ``enumNames``, or as titled constants."""
    for key in ("oneOf", "anyOf"):
        titled = schema.get(key)
        if isinstance(titled, list):
            options = [option for option in cast("list[Any]", titled) if _is_object(option) and "const" in option]
            return tuple(Choice(option["const"], str(option.get("title") or option["const"])) for option in options)
    values = schema.get("enum")
    if not isinstance(values, list):
        return ()
    names = schema.get("enumNames")
    titles = cast("list[Any]", names) if isinstance(names, list) else []
    values = cast("list[Any]", values)
    return tuple(
        Choice(value, str(titles[index]) if index < len(titles) else str(value)) for index, value in enumerate(values)
    )


def _by_title(field: Field, value: Any) -> Any:
    if field.kind == "choice":
        return _chosen(field, value)
    if field.kind == "choices" and isinstance(value, (list, tuple)):
        return [_chosen(field, item) for item in cast("Sequence[Any]", value)]
    return value


def _chosen(field: Field, value: Any) -> Any:
    """The value whose title, or else whose text, was given; what fits none stays as it is."""
    if any(choice.value == value for choice in field.choices):
        return value
    wanted = str(value).strip().casefold()
    named = (c.value for c in field.choices if wanted in (c.title.casefold(), str(c.value).casefold()))
    return next(named, value)


# --- what was typed -------------------------------------------------------------------------------------------------


def _read_number(field: Field, text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d{1,300}", text) else float(text)
    except ValueError:
        raise ValueError(f"{field.title}: {text!r} is not a number") from None


def _read_integer(field: Field, text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,300}", text):
        raise ValueError(f"{field.title}: {text!r} is not a whole number")
    return int(text)


def _read_boolean(field: Field, text: str) -> bool:
    if text.casefold() in _YES | _NO:
        return text.casefold() in _YES
    raise ValueError(f"{field.title}: answer yes or no")


def _read_choice(field: Field, text: str) -> Any:
    # A number from 1 on is a place in the list, unless it is a value itself.
    value = _chosen(field, text)
    if all(choice.value != value for choice in field.choices) and text.isdecimal():
        place = int(text) if len(text) < 10 else 0
        return field.choices[place - 1].value if 1 <= place <= len(field.choices) else value
    return value


def _read_choices(field: Field, text: str) -> list[Any]:
    return [_read_choice(field, part.strip()) for part in re.split(r"[,、]", text) if part.strip()]


def _read_json(field: Field, text: str) -> Any:
    del field
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_READERS: Mapping[FieldKind, Callable[[Field, str], Any]] = {
    "text": lambda _, text: text,
    "number": _read_number,
    "integer": _read_integer,
    "boolean": _read_boolean,
    "choice": _read_choice,
    "choices": _read_choices,
    "json": _read_json,
}


# --- what is wrong --------------------------------------------------------------------------------------------------


def _check_text(field: Field, value: Any) -> str:
    if not isinstance(value, str):
        return "this has to be text"
    shortest, longest = _limit(field, "minLength"), _limit(field, "maxLength")
    if shortest is not None and len(value) < shortest:
        return f"at least {shortest:g} characters"
    if longest is not None and len(value) > longest:
        return f"at most {longest:g} characters"
    return _check_format(str(field.schema.get("format") or ""), value)


def _check_format(name: str, value: str) -> str:
    if name == "email" and not re.fullmatch(r"[^@\s]+@[^@\s]+", value):
        return "this has to be an e-mail address"
    if name == "uri" and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S", value):
        return "this has to be a URI, such as https://example.com"
    if name in ("date", "date-time"):
        try:
            # Python 3.10 does not know Z as a time zone.
            date.fromisoformat(value) if name == "date" else datetime.fromisoformat(re.sub("[zZ]$", "+00:00", value))
        except ValueError:
            return f"this has to be a {'date' if name == 'date' else 'date and time'}, such as " + (
                "2026-11-21" if name == "date" else "2026-11-21T09:30:00Z"
            )
    return ""


def _check_number(field: Field, value: Any) -> str:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return "this has to be a number"
    if field.kind == "integer" and value != int(value):
        return "this has to be a whole number"
    least, most = _limit(field, "minimum"), _limit(field, "maximum")
    if least is not None and value < least:
        return f"at least {least:g}"
    return f"at most {most:g}" if most is not None and value > most else ""


def _check_boolean(field: Field, value: Any) -> str:
    del field
    return "" if isinstance(value, bool) else "this has to be true or false"


def _check_choice(field: Field, value: Any) -> str:
    if any(choice.value == value for choice in field.choices):
        return ""
    return f"choose one of {', '.join(choice.title for choice in field.choices)}"


def _check_choices(field: Field, value: Any) -> str:
    if not isinstance(value, (list, tuple)):
        return "this has to be a list"
    items = cast("Sequence[Any]", value)
    least, most = _limit(field, "minItems"), _limit(field, "maxItems")
    if least is not None and len(items) < least:
        return f"choose at least {least:g}"
    if most is not None and len(items) > most:
        return f"choose at most {most:g}"
    return next((wrong for item in items if (wrong := _check_choice(field, item))), "")


def _check_nothing(field: Field, value: Any) -> str:
    del field, value
    return ""


_CHECKS: Mapping[FieldKind, Callable[[Field, Any], str]] = {
    "text": _check_text,
    "number": _check_number,
    "integer": _check_number,
    "boolean": _check_boolean,
    "choice": _check_choice,
    "choices": _check_choices,
    "json": _check_nothing,
}


def _limit(field: Field, key: str) -> float | None:
    value = field.schema.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
