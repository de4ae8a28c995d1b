"""``ResponseFormat``: JSON answers and others of a form, requested in the prompt, held while written, and checked.

    schema ─▶ note for the model after the question ─▶ answer ─▶ JSON text, repaired if that is unambiguous

A model on the NPU is held to the form while it answers (``toolcalls.constraint``); the rest is for all models.

A valid answer is returned unchanged. Any other is repaired and coerced like the arguments of calls, and accepted only
if it then matches the schema. Nothing is fetched: a schema can refer to itself only. Schemas that could take long are
refused before use; patterns that could, or that another language writes, are shown to the model and not checked.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, cast

from rkllm_mcp.events import to_json
from rkllm_mcp.generation import AnswerGrammar
from rkllm_mcp.prompt.tool_list import compact_schema
from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments
from rkllm_mcp.toolcalls.constraint import answer_constraint
from rkllm_mcp.toolcalls.lenient_json import UnreadableError, no_constant, read_value
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
# Schemas longer than this do not fit any context window.
MOST_SCHEMA_CHARS = 200_000


# Forms of answers that are not JSON, for the model.
_KINDS: Mapping[str, str] = {
    "choice": "one of these texts",
    "regex": "a text that this regular expression matches as a whole",
    "grammar": "a text of this grammar",
}


class FormatMismatchError(Exception):
    """The answer does not match the format; the reason, which is its text, lets the model correct it."""


@dataclass(frozen=True)
class ResponseFormat:
    """The required format of an answer."""

    schema: Mapping[str, Any] | None = None  # JSON Schema; None for any JSON object
    description: str = ""  # the client's description of the answer
    text: AnswerGrammar | None = None  # of an answer that is not JSON, in place of a schema

    @property
    def grammar(self) -> AnswerGrammar:
        """What the answer consists of."""
        return self.text or AnswerGrammar("json", to_json(dict(self.schema or {"type": "object"})))

    def instruction(self) -> str:
        """Return the note for the model."""
        if self.text is not None:
            return f"[Answer with {_KINDS[self.text.kind]}, and nothing else:\n{self.text.text}]"
        if self.schema is None:
            return "[Answer with one JSON object and nothing else: no other words, no code fence.]"
        purpose = f" It is: {self.description}." if self.description else ""
        return (
            "[Answer with JSON and nothing else: no other words, no code fence. It must be valid by this JSON Schema:\n"
            f"{to_json(compact_schema(self.schema))}{purpose}]"
        )

    def read(self, text: str) -> str:
        """Return the text of an answer; a FormatMismatchError if it is not JSON, or does not match the form."""
        form = self.text
        if form is not None:
            text = text.strip()
            if form.kind == "choice":
                choices = cast("list[str]", json.loads(form.text))
                chosen = next((choice for choice in choices if choice.casefold() == text.casefold()), None)
                if chosen is None:
                    raise FormatMismatchError(f"it is none of {form.text}"[:_LONGEST_REASON])
                return chosen
            if not answer_constraint(form).allows(text):
                raise FormatMismatchError(f"it is not {_KINDS[form.kind]}")
            return text
        try:
            written: Any = json.loads(text, parse_constant=no_constant)
            self._check(written)
        except (ValueError, RecursionError, FormatMismatchError):
            # The whole text, or an object within other text.
            begin, end = text.find("{"), text.rfind("}") + 1
            value: Any = None
            for candidate in filter(None, (text, text[begin:end] if 0 <= begin < end else "")):
                with suppress(UnreadableError):
                    value = read_value(candidate).value
                if isinstance(value, (dict, list)):
                    break
            else:
                raise FormatMismatchError("it is not valid JSON") from None
            if self.schema is not None and isinstance(value, dict):
                # Of a mismatch the check reports the problem in full.
                with suppress(MismatchError):
                    value = coerce_arguments(cast("dict[str, Any]", value), self.schema).value
            self._check(value)
            return json.dumps(value, ensure_ascii=False)
        return text.strip()

    def _check(self, value: Any) -> None:
        if self.schema is None:
            if not isinstance(value, dict):
                raise FormatMismatchError("it is no JSON object")
            return
        try:
            where, message = first_violation(value, self.schema) or ("", "")
        except (TooManyStepsError, UnresolvableError) as error:
            where, message = "", str(error)
        except RecursionError:
            where, message = "", "the schema refers to itself without end"
        if where or message:
            raise FormatMismatchError((f"'{where}': {message}" if where else message)[:_LONGEST_REASON])


@dataclass(eq=False)
class SchemaCheck:
    """Checks that a schema can be used, which takes milliseconds; caches ``most_schemas`` valid ones. Thread-safe."""

    most_schemas: int = SCHEMAS_KEPT
    _good: OrderedDict[bytes, None] = field(default_factory=OrderedDict[bytes, None], init=False)
    _changing: Lock = field(default_factory=Lock, init=False)

    def __call__(self, schema: Mapping[str, Any]) -> None:
        """Raise a SchemaError if a schema is invalid or too costly."""
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
            if len(self._good) > self.most_schemas:
                self._good.popitem(last=False)
