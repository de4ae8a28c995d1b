"""A call's JSON arguments -> values of the types a tool works with, or a sentence about what is wrong.

What a model plainly meant is taken: ``"0.7"`` for a number, ``5.0`` for a whole one, null for what was left out.
Anything else is refused in one sentence; nothing that JSON can hold is an accident here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from mcp_servers.knowledge.problems import BadArgumentError

# Nobody means a number beyond this, and Python refuses to write some that are.
_LARGEST = 10**15


class Arguments:
    """The arguments of one call.

    Args:
        given: as they came.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def has(self, name: str) -> bool:
        """Whether something was given."""
        return self._given.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A text, as Unicode can hold it.

        Args:
            name: the argument.
            default: for one that was not given; without it, it has to be.

        Raises:
            BadArgumentError: it is missing, or no text.
        """
        value = self._given.get(name)
        if value is None:
            if default is None:
                raise BadArgumentError(name, "is missing", f"Give a {name}")
            return default
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST:
            return str(value)
        if not isinstance(value, str):
            raise BadArgumentError(name, f"is {_kind(value)}", "Give a text")
        return _unicode(value)

    def number(self, name: str, default: float) -> float:
        """A number; infinite and undefined ones are passed on, for their own sentence.

        Raises:
            BadArgumentError: it is none.
        """
        value = self._given.get(name)
        if value is None:
            return default
        number = _number(value)
        if number is None:
            raise BadArgumentError(name, f"is {_kind(value)}", "Give a number")
        return number

    def whole(self, name: str, default: int) -> int:
        """A whole number, none beyond 10^15.

        Raises:
            BadArgumentError: it is none.
        """
        value = self.number(name, default)
        if math.isnan(value) or (math.isfinite(value) and value != int(value)):
            raise BadArgumentError(name, "is no whole number", "Give a whole number")
        return int(min(max(value, -_LARGEST), _LARGEST))

    def switch(self, name: str) -> bool:
        """Whether something is wanted."""
        return self._given.get(name) in (True, "true", 1)

    def table(self, name: str) -> dict[str, str]:
        """Texts by name.

        Raises:
            BadArgumentError: it is no object, or one of its values is nested.
        """
        value = self._given.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise BadArgumentError(name, f"is {_kind(value)}", "Give an object of texts")
        inner = Arguments(cast("Mapping[str, Any]", value))
        return {_unicode(str(key)): inner.text(str(key), "") for key in cast("Mapping[str, Any]", value)}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast("int", value) > 0 else -math.inf
    except ValueError:
        return None


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _kind(value: Any) -> str:
    kinds = ((bool, "true or false"), (str, "a text"), (int, "a large number"), (float, "a number"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")
