"""An answer that has to be JSON: what the model is told, and whether what it said will do.

    schema ─▶ a line for the model, behind what was said ─▶ its answer ─▶ the JSON text, mended where that is certain

Rules: what is valid as written stays as it was written. What is not is read by the same ladder of repairs as the
arguments of calls, takes the types of the schema where nothing is lost, and counts only when the schema then holds.
Nothing is fetched: a schema refers to itself or to nothing. Schemas and patterns that could take long are refused
before they are used. Nothing here knows a model or a protocol.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

from rkllm_mcp.prompt.tool_list import compact_schema, minified
from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments
from rkllm_mcp.toolcalls.lenient_json import UnreadableError, read_value
from rkllm_mcp.toolcalls.schemas import (
    SchemaCostError,
    SchemaError,
    TooManyStepsError,
    UnresolvableError,
    check_schema,
    first_violation,
)

_LONGEST_REASON = 300
SCHEMAS_KEPT = 1024
# More characters of schemas than the longest context window here has room for.
MOST_SCHEMA_CHARS = 200_000


@dataclass
class FormatMismatchError(Exception):
    """An answer that does not have the form; ``reason`` is a line that the model can mend it by."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class ResponseFormat:
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

    def told_again(self, misfit: FormatMismatchError) -> str:
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
        except (ValueError, RecursionError, FormatMismatchError):
            value = self._typed(_read(text))
            self._check(value)
            return json.dumps(value, ensure_ascii=False)
        return text.strip()

    def _typed(self, value: Any) -> Any:
        if self.schema is None or not isinstance(value, dict):
            return value
        try:
            return coerce_arguments(cast("dict[str, Any]", value), self.schema).value
        except MismatchError:
            return cast("dict[str, Any]", value)  # What is wrong with it the check says in full.

    def _check(self, value: Any) -> None:
        if self.schema is None:
            if not isinstance(value, dict):
                raise FormatMismatchError("it is no JSON object")
            return
        if misfit := _first_misfit(value, self.schema):
            raise FormatMismatchError(misfit[:_LONGEST_REASON])


class SchemaCheck:
    """Sees that something can be checked against a schema.

    Programs send the same ones with every request, and a check may take milliseconds, so what was found good is known
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
            SchemaError: it will not; ``SchemaCostError`` where it takes too much work.
        """
        if of_object and schema.get("type") != "object":
            raise SchemaError(f"its type is {schema.get('type')!r}; arguments are an object")
        try:
            written = json.dumps(schema, sort_keys=True)
            if len(written) > MOST_SCHEMA_CHARS:
                raise SchemaError(f"no prompt has room for its {len(written)} characters; send a smaller one")
            key = hashlib.sha256(written.encode("utf-8", "replace")).digest()
            if key not in self._good:
                check_schema(schema)
        except RecursionError:
            raise SchemaCostError("it is nested too deeply; send a flatter one") from None
        with self._changing:
            self._good[key] = None
            self._good.move_to_end(key)
            if len(self._good) > self._kept:
                self._good.popitem(last=False)


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
    raise FormatMismatchError("it is not valid JSON")


def _first_misfit(value: Any, schema: Mapping[str, Any]) -> str:
    try:
        violation = first_violation(value, schema)
    except (TooManyStepsError, UnresolvableError) as error:
        return str(error)
    except RecursionError:
        return "the schema refers to itself without end"
    if violation is None:
        return ""
    where, message = violation
    return f"'{where}': {message}" if where else message
