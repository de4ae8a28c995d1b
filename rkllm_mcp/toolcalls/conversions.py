"""Text as a value of another type of JSON Schema, where it is one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rkllm_mcp.toolcalls.repair import UnreadableError, plain

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
    """Whether a value is of a type, by its name in JSON Schema."""
    if name in {"integer", "number"}:
        allowed = isinstance(value, (int, float)) and not isinstance(value, bool)
        return allowed and (name == "number" or value == int(value))
    # A type that JSON Schema does not have forbids nothing.
    return isinstance(value, _KINDS[name]) if name in _KINDS else True


def is_null(text: str) -> bool:
    """Whether a text is the word null."""
    # A long text is not null, and need not be copied to see it.
    return len(text) <= 64 and text.strip().lower() == "null"


def inferred(text: str) -> Any:
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


def _to_string(text: str, _exact: bool) -> str:
    return text


# In the order of trial. ``exact`` is set where the schema allows text too: there only JSON's own spelling is taken for
# another type. Lists and objects are read by ``arguments``.
CONVERSIONS: dict[str, Callable[[str, bool], Any]] = {
    "null": _to_null,
    "boolean": _to_boolean,
    "integer": _to_integer,
    "number": _to_number,
    "array": _to_string,
    "object": _to_string,
    "string": _to_string,
}
